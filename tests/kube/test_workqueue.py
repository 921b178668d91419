"""The line of keys that every controller has: who is handled when, and again when."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from muster.kube import errors
from muster.kube.workqueue import RetryPolicy, WorkQueue
from muster.sandbox import virtual_time


@contextlib.asynccontextmanager
async def running(*works):
    tasks = [asyncio.create_task(work.run()) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Handler:
    """Handles each key for a second, and notes when it began (loop time)."""

    def __init__(self) -> None:
        self.began: list[tuple[float, str]] = []
        self.under_way = 0
        self.most = 0

    async def __call__(self, key: str) -> None:
        self.began.append((asyncio.get_running_loop().time(), key))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(1)
        self.under_way -= 1

    @property
    def keys(self) -> list[str]:
        return [key for _, key in self.began]


def test_keys_are_handled_in_turn_and_no_more_at_once_than_allowed():
    async def main() -> None:
        handler = Handler()
        work = WorkQueue("a thing", handler, at_once=3)
        async with running(work):
            for number in range(10):
                work.add(f"{number}")
                work.add(f"{number}")
            await asyncio.sleep(10)
        assert handler.keys == [f"{number}" for number in range(10)]
        assert handler.most == 3

    virtual_time.run(main())


@pytest.mark.parametrize("urgent", [False, True])
def test_a_key_that_is_added_while_it_is_handled_is_handled_again_but_not_twice_at_a_time(urgent):
    async def main() -> None:
        handler = Handler()
        work = WorkQueue("a thing", handler)
        async with running(work):
            work.add("a")
            await asyncio.sleep(0.5)
            work.add("a", urgent=urgent)
            work.add("a")
            await asyncio.sleep(10)
        assert [moment for moment, _ in handler.began] == [0, 1]
        assert handler.most == 1

    virtual_time.run(main())


def test_what_is_urgent_goes_first_also_where_it_waits_already():
    async def main() -> None:
        handler = Handler()
        work = WorkQueue("a thing", handler, at_once=1)
        async with running(work):
            for key in "abc":
                work.add(key)
            await asyncio.sleep(0.5)
            work.add("c", urgent=True)
            work.add("d", urgent=True)
            await asyncio.sleep(10)
        assert handler.keys == ["a", "c", "d", "b"]

    virtual_time.run(main())


def test_work_behind_other_work_does_one_at_a_time_and_what_is_urgent_at_once():
    async def main() -> None:
        first, second = Handler(), Handler()
        before = WorkQueue("a count", first, at_once=2)
        behind = WorkQueue("a text", second, at_once=4, yields_to=before)
        async with running(before, behind):
            for number in range(12):
                before.add(f"{number}")
                behind.add(f"{number}")
            await asyncio.sleep(3.5)
            assert len(first.began) == 8
            assert [moment for moment, _ in second.began] == [0, 1, 2, 3]
            behind.add("now", urgent=True)
            await asyncio.sleep(0.1)
            assert second.keys[-1] == "now"
            await asyncio.sleep(20)
        # The last of the first is taken at 5: from then on there are four at once.
        assert [moment for moment, _ in second.began if moment >= 4] == [4, 5, 5, 5, 5, 6, 6, 6]
        assert sorted(second.keys) == sorted([*map(str, range(12)), "now"])

    virtual_time.run(main())


def test_what_is_refused_is_tried_again_and_holds_up_nobody():
    async def main() -> None:
        tried: list[str] = []

        async def handle(key: str) -> None:
            tried.append(key)
            if key == "a" and tried.count("a") < 3:
                raise errors.ServerError(500, "", "no")

        work = WorkQueue("a thing", handle, at_once=1)
        async with running(work):
            work.add("a")
            work.add("b")
            await asyncio.sleep(60)
        assert tried == ["a", "b", "a", "a"]

    virtual_time.run(main())


def test_once_leadership_is_lost_all_that_is_left_is_one_line_and_is_tried_no_more(caplog):
    caplog.set_level(logging.INFO)
    tried: list[str] = []

    async def main() -> None:
        async def handle(key: str) -> None:
            tried.append(key)
            raise errors.FenceLostError("test is not the leader any more")

        work = WorkQueue("a thing", handle, at_once=1)
        async with running(work):
            for number in range(10):
                work.add(f"{number}")
            await asyncio.sleep(60)
            work.add("later")
            await asyncio.sleep(60)

    virtual_time.run(main())
    assert tried == ["0"]
    assert [record.getMessage() for record in caplog.records] == ["a thing: 10 in line are left to the next leader"]


def test_a_key_for_later_comes_at_the_earliest_moment_agreed_and_once():
    async def main() -> None:
        handler = Handler()
        work = WorkQueue("a thing", handler)
        async with running(work):
            work.add_after("a", 9)
            work.add_after("a", 5)
            work.add_after("a", 7)
            work.add_after("b", 3)
            work.add("b")
            work.add_after("c", 0)
            await asyncio.sleep(60)
        assert handler.began == [(0, "b"), (0, "c"), (5, "a")]

    virtual_time.run(main())


def test_pauses_without_jitter_double_exactly_and_another_error_ends_the_queue():
    began: list[float] = []

    async def main() -> None:
        async def handle(key: str) -> None:
            began.append(asyncio.get_running_loop().time())
            raise LookupError(key) if len(began) < 4 else ZeroDivisionError

        retries = RetryPolicy(LookupError, first=1, most=2, jitter=False, level=logging.DEBUG)
        work = WorkQueue("a thing", handle, at_once=2, retries=retries)
        work.add("a")
        with pytest.raises(ExceptionGroup) as caught:
            await work.run()
        assert caught.group_contains(ZeroDivisionError)

    virtual_time.run(main())
    assert began == [0, 1, 3, 5]


def test_a_key_that_fails_in_a_way_that_nobody_foresaw_holds_up_nobody_and_is_logged_once(caplog):
    began: list[tuple[float, str]] = []

    async def main() -> None:
        async def handle(key: str) -> None:
            began.append((asyncio.get_running_loop().time(), key))
            if key == "bad" and len(began) < 6:
                raise ZeroDivisionError(key)

        work = WorkQueue("a thing", handle, at_once=1)
        async with running(work):
            for key in ("bad", "good", "fine"):
                work.add(key)
            await asyncio.sleep(100)

    virtual_time.run(main())
    assert [key for _, key in began] == ["bad", "good", "fine", "bad", "bad", "bad"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_that_another_writer_came_first_is_a_warning_only_when_it_happens_again(caplog):
    caplog.set_level(logging.INFO)
    left = [errors.ConflictError(409, "Conflict", "modified"), errors.ConflictError(409, "Conflict", "modified")]
    left.append(errors.AlreadyExistsError(409, "AlreadyExists", "taken"))

    async def main() -> None:
        async def handle(_: str) -> None:
            if left:
                raise left.pop(0)

        work = WorkQueue("a thing", handle, at_once=1)
        async with running(work):
            work.add("a")
            await asyncio.sleep(60)
            left.append(errors.AlreadyExistsError(409, "AlreadyExists", "taken"))
            work.add("a")
            await asyncio.sleep(60)

    virtual_time.run(main())
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING", "WARNING"]
