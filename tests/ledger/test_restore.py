"""etcd is restored from a backup under running processes: their caches show what never was, and miss what is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from controlplane import ControlPlane
from plane import PATIENCE

from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.timeline import Timeline, WentBackError
from muster.ledger.reservations import Exceeded, Reserved, Unavailable
from muster.ledger.store import Store as LedgerStore
from muster.model import kinds, names
from muster.model.objects import Meta, QuotaLedger
from muster.sandbox.core.store import Store


class Backup:
    """What the sandbox's store held at some time."""

    def __init__(self, store: Store) -> None:
        self.revision = store.revision
        self.tables = {key: dict(table.objects) for key, table in store._tables.items()}

    def restore(self, store: Store) -> None:
        """Put the store back to it. Revisions go on from there, as in an etcd that was restored."""
        store.revision = self.revision
        for key, table in store._tables.items():
            table.objects = dict(self.tables.get(key, {}))
            table.names, table.sorted, table.forgotten = list(table.objects), False, 0
            table.history.clear()


@contextlib.asynccontextmanager
async def down(lab: Any, seconds: float) -> AsyncIterator[None]:
    """Nobody reaches the API server, and all watches end."""

    for process in lab.processes:
        process.network.cut()
    yield
    await asyncio.sleep(seconds)
    for process in lab.processes:
        process.network.mend()


async def total(lab: Any) -> int:
    """What all groups ask for, in cpu."""
    groups = (await lab.client.list(kinds.PODGROUPS, lab.namespace)).items
    return sum(int(group.spec.min_resources["cpu"]) for group in groups)


async def fill(lab: Any, replicas: list[Any], prefix: str) -> list[Any]:
    """Have each replica judge groups of 2 cpu until all have decided."""

    async def create(n: int) -> Any:
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(errors.KubeError, TimeoutError):
                    answer = await lab.create(replicas[n % len(replicas)], f"{prefix}{n}", "2")
                    if not isinstance(answer, Unavailable):
                        return answer
                await asyncio.sleep(0.5)

    return await asyncio.gather(*(create(n) for n in range(8)))


async def _six_of_ten(lab: Any) -> tuple[Any, Any]:
    """Two replicas, one of which leads, over a quota of which three groups hold six of ten cpu."""
    first, second = await lab.process(), await lab.process()
    lab.run(first.controller.run())
    await lab.quota(first, cpu="10")
    for n in range(3):
        assert await lab.create(first, f"kept{n}", "2") == Reserved()
    await lab.ledger_says(lambda ledger: "cpu 6/10" in ledger.data.summary and not ledger.data.rows)
    return first, second


@pytest.mark.only("sandbox", reason="puts its store back")
@pytest.mark.parametrize("passed", [False, True], ids=["behind", "past the former revisions"])
async def test_a_store_that_is_put_back_to_a_backup_never_holds_more_than_the_quota(lab: Any, *, passed: bool) -> None:
    first, second = await _six_of_ten(lab)
    store = lab.plane.sandbox.server.store
    backup = Backup(store)
    for n in range(3):
        await lab.client.delete(kinds.PODGROUPS, f"kept{n}", lab.namespace)
    await lab.ledger_says(lambda ledger: "cpu 0/10" in ledger.data.summary)
    for n in range(60):
        await lab.client.patch(kinds.NAMESPACES, lab.namespace, {"metadata": {"annotations": {"n": str(n)}}})
    await asyncio.sleep(70)  # a bookmark tells the caches how far it got
    former = store.revision
    async with down(lab, 8):
        backup.restore(store)
        late = await lab.store("late", "2")
        while passed and store.revision <= former:
            await lab.client.patch(
                kinds.NAMESPACES, lab.namespace, {"metadata": {"annotations": {"m": str(store.revision)}}}
            )
    answers = await fill(lab, [first, second], "after")
    assert sum(isinstance(answer, Reserved) for answer in answers) <= 2
    assert await total(lab) <= 10
    for process in (first, second):
        await process.sees(late.name)
        await process.sees("kept0")
        assert process.view.watching.timeline.restores == 1
    await lab.ledger_says(lambda ledger: f"cpu {8}/10" in ledger.data.summary or "cpu 10/10" in ledger.data.summary)
    assert isinstance(await lab.create(second, "more", "4"), Exceeded)


@pytest.mark.only("kubernetes", reason="the sandbox is in this process and has no etcd")
async def test_an_etcd_that_is_restored_under_running_processes_never_holds_more_than_the_quota(
    lab: Any, real_control_plane: ControlPlane
) -> None:
    first, second = await _six_of_ten(lab)
    # Not in another thread: the servers would end with it.
    backup = real_control_plane.back_up()
    for n in range(3):
        await _until_done(lambda n=n: lab.client.delete(kinds.PODGROUPS, f"kept{n}", lab.namespace))
    await _until_done(lambda: lab.ledger_says(lambda ledger: "cpu 0/10" in ledger.data.summary))
    for process in lab.processes:
        await process.forgets("kept2")
    real_control_plane.restore(backup)
    answers = await fill(lab, [first, second], "after")
    assert sum(isinstance(answer, Reserved) for answer in answers) <= 2
    assert await total(lab) <= 10
    for process in (first, second):
        await process.sees("kept0")
        await process.sees("kept2")
        assert process.view.watching.timeline.restores >= 1


async def _until_done(act: Any) -> None:
    """Do something that a server which was just started may refuse at first."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await act()
            except errors.NotFoundError:
                return  # it was done, and the answer was lost
            except (errors.KubeError, TimeoutError):
                await asyncio.sleep(0.5)
            else:
                return


@pytest.mark.only("sandbox", reason="waits for the 45 seconds of a reservation: in virtual time")
@pytest.mark.parametrize("mode", ["guarded", "guaranteed"])
async def test_a_ledger_that_can_not_be_read_is_seeded_again_after_its_deadline(lab: Any, mode: str) -> None:
    labels = {"metadata": {"labels": {names.QUOTA_MODE: mode}}}
    await lab.client.patch(kinds.NAMESPACES, lab.namespace, labels)
    replica, leader = await lab.process(), await lab.process()
    lab.run(leader.controller.run())
    await lab.quota(replica, cpu="10")
    await asyncio.sleep(50)
    assert await lab.create(replica, "gang", "6") == Reserved()
    await replica.sees("gang")
    broken = {"data": {"rows": ["PodGroup with/a/slash too many parts"]}}
    await lab.client.patch(kinds.QUOTALEDGERS, names.LEDGER_NAME, broken, lab.namespace)
    await asyncio.sleep(40)
    # What was granted before may still be stored: nobody knows how much.
    assert isinstance(await lab.create(replica, "early", "2"), Unavailable)
    await asyncio.sleep(10)
    assert (await lab.ledger()).data.summary == "quota cpu 6/10"
    assert isinstance(await lab.create(replica, "large", "5"), Exceeded)
    assert await lab.create(replica, "small", "4") == Reserved()


@pytest.mark.only("sandbox", reason="puts its store back, and waits for 45 seconds in virtual time")
async def test_after_a_restore_a_guaranteed_namespace_waits_for_what_was_under_way(lab: Any) -> None:
    labels = {"metadata": {"labels": {names.QUOTA_MODE: "guaranteed"}}}
    await lab.client.patch(kinds.NAMESPACES, lab.namespace, labels)
    replica, leader = await lab.process(), await lab.process()
    lab.run(leader.controller.run())
    await lab.quota(replica, cpu="10")
    await asyncio.sleep(50)
    assert await lab.create(replica, "gang", "6") == Reserved()
    store = lab.plane.sandbox.server.store
    backup = Backup(store)
    await lab.client.delete(kinds.PODGROUPS, "gang", lab.namespace)
    await lab.ledger_says(lambda ledger: "cpu 0/10" in ledger.data.summary)
    async with down(lab, 8):
        backup.restore(store)
    await asyncio.sleep(30)
    assert isinstance(await lab.create(replica, "early", "2"), Unavailable)
    await asyncio.sleep(60)
    assert isinstance(await lab.create(replica, "large", "5"), Exceeded)
    assert await lab.create(replica, "small", "4") == Reserved()


class Answering:
    """A client whose read of a ledger is answered with this version, while a watch brings another."""

    def __init__(self, cache: ObjectCache[Any], answer: str, watched: str) -> None:
        self.cache = cache
        self.answer = answer
        self.watched = watched

    async def find(self, *_: Any) -> QuotaLedger:
        show(self.cache, self.watched)
        return ledger(self.answer)


def ledger(version: str) -> QuotaLedger:
    return QuotaLedger(metadata=Meta(name=names.LEDGER_NAME, namespace="team", uid="u", resource_version=version))


def show(cache: ObjectCache[Any], version: str) -> None:
    cache.replace([ledger(version)], version, ())


async def test_what_a_watch_brings_while_a_read_is_on_its_way_is_no_restore() -> None:
    cache: ObjectCache[QuotaLedger] = ObjectCache()
    timeline = Timeline()
    show(cache, "4")
    client: Any = Answering(cache, "5", "7")
    shared = LedgerStore(client, cache, timeline)
    assert await shared.read("team") is not None
    assert timeline.restores == 0
    known = shared.known("team")
    assert known is not None
    assert known.revision == 7
    # What was seen before it was asked for can't be newer than the answer.
    client.answer = "6"
    with pytest.raises(WentBackError):
        await shared.read("team")
    assert timeline.restores == 1
