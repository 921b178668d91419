"""`muster top`: what it shows, what its keys do, and that a terminal is as it was afterwards."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asked import asked, gang, node, queue
from msgspec.structs import replace
from restricted import Restricted

from muster.cli import overviews
from muster.cli.expected_starts import ExpectedStart, Forecasts, Starts, ToldStarts, with_starts
from muster.cli.overviews import Seen
from muster.cli.questions import Question
from muster.cli.top import screen
from muster.cli.top.screen import PLAIN, Style
from muster.cli.top.view import View, keys, press
from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds
from muster.model.objects import Event
from muster.sandbox.inprocess import InProcessTransport
from muster.sandbox.server.requests import ApiServer
from muster.whatif.overview import Overview, overview

STYLE = Style(80)
QUESTION = Question("team-a", None, None, ("muster",), "text", None, None)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def evicted(name: str, minute: int, kind: str = "PodGroup", reason: str = "Reclaimed") -> Event:
    about = {"kind": kind, "name": name, "namespace": "team"}
    when = f"2026-01-01T11:{minute:02}:00Z"
    body = {"metadata": {"name": f"{name}.{minute}", "namespace": "team"}, "reason": reason, "involvedObject": about}
    return msgspec.convert(body | {"message": "2 pods are evicted", "lastTimestamp": when}, Event)


def seen() -> Overview:
    """Return a queue that borrows, one below another, and one that waits."""
    cluster = asked(
        [
            node("n", {"cpu": "8"}),
            queue("lab", weight=1, guarantee={"resource": {"cpu": "1"}}),
            queue("vision", parent="lab"),
            queue("night", weight=3),
            *gang("runs", [2, 2, 2], "night", "n"),
            *gang("waits", [4, 4], "vision"),
        ]
    )
    return overview(cluster.state, [evicted("old", 5), evicted("new", 50), evicted("pod", 55, "Pod")], cluster.decide())


def row(found: list[str], name: str) -> str:
    return next(each for each in found if each.strip().startswith(name))


def test_the_columns_hold_used_deserved_guarantee_and_borrowed() -> None:
    (night,) = [each for each in seen().queues if each.name == "night"]
    assert night.used["cpu"] == (6, "6")
    assert night.borrowed.get("cpu", (0, "-"))[0] == max(6 - night.deserved["cpu"].value, 0)
    (lab,) = [each for each in seen().queues if each.name == "lab"]
    assert lab.guarantee["cpu"] == (1, "1")


def test_a_queue_is_shown_with_those_below_it_whatever_divides_the_cluster() -> None:
    lab, vision, night = (
        next(each for each in seen().queues if each.name == name) for name in ("lab", "vision", "night")
    )
    assert (lab.waiting, vision.waiting, night.running) == (1, 1, 1)
    circle = [node("n", {"cpu": "8"}), queue("a", parent="b"), queue("b", parent="a"), *gang("g", [2], "a", "n")]
    cluster = asked(circle)
    assert {each.name: each.used["cpu"].text for each in overview(cluster.state, [], cluster.decide()).queues} == {
        "a": "2",
        "b": "2",
    }


def test_a_bar_says_without_colour_what_is_used_borrowed_deserved_and_guaranteed() -> None:
    bar = screen._bar(6, 4, 2, 8, 8, Style(80, marks=PLAIN))
    assert bar == "#|##++  "
    assert screen._bar(1, 4, 0, 8, 8, Style(80, marks=PLAIN)) == "#...    "


def test_colours_add_nothing() -> None:
    plain, coloured = (screen.lines(seen(), View(), Style(80, colour), 30) for colour in (False, True))
    assert [re.sub(r"\x1b\[[0-9;]*m", "", each) for each in coloured] == plain
    assert coloured != plain


def test_queues_stand_below_their_parents_in_each_order() -> None:
    assert row(screen.lines(seen(), View(), STYLE), "vision").startswith("  vision")
    order = [each.name for each, _ in screen._tree(seen().queues, "used", "cpu")]
    assert order.index("night") < order.index("lab") < order.index("vision")


def test_evictions_are_those_of_groups_the_latest_first() -> None:
    assert [each.name for each in seen().evictions] == ["new", "old"]


def test_who_waits_is_shown_with_the_reason_that_the_scheduler_has() -> None:
    (waiting,) = seen().waiting()
    assert (waiting.name, waiting.stage, waiting.place) == ("waits", "enqueue", 1)
    assert "team/waits" in "\n".join(screen.lines(seen(), View(), STYLE))


def test_until_when_who_waits_is_shown_once_it_is_known() -> None:
    assert "START" not in "\n".join(screen.lines(seen(), View(), STYLE))
    expected = Starts(groups={"team/waits": ExpectedStart("about 14:20 UTC", "~14:20 (14:05-15:10)")}, missing="")
    found = screen.lines(with_starts(seen(), expected), View(), STYLE)
    head = next(each for each in found if "START" in each)
    waiting = row(found, "team/waits")
    assert waiting[head.index("START") :].startswith("~14:20 (14:05…")
    assert waiting[head.index("WHY") :].startswith("enqueue: ")
    assert len(waiting) <= 80
    wide = screen.lines(with_starts(seen(), expected), View(), Style(120))
    assert "~14:20 (14:05-15:10) enqueue: " in row(wide, "team/waits")
    nothing = with_starts(seen(), Starts(missing="no expected starts: it takes too long"))
    assert "note: no expected starts: it takes too long" in screen.lines(nothing, View(), STYLE)


async def test_what_was_told_last_is_played_and_told_with_what_is_read_next() -> None:
    played: list[Overview] = []

    async def play(one: Seen) -> Starts:
        played.append(one.overview)
        return Starts(groups={"team/waits": ExpectedStart("", f">12:0{len(played)}")})

    async def told(what: str) -> None:
        async with asyncio.timeout(60):
            while starts.tell(now).waiting()[0].expected != what:  # noqa: ASYNC110 - it is told when it is asked
                await asyncio.sleep(0)

    now = Seen(seen(), asked([]).state, (), None)
    starts = ToldStarts(play, lambda _: 0.001)
    playing = asyncio.create_task(starts.run())
    await told(">12:01")
    await told(">12:03")
    playing.cancel()
    await asyncio.wait([playing])
    assert not any(each.expected for one in played for each in one.groups)


@pytest.mark.parametrize("height", [10, 24, 50])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_screen_is_as_large_as_the_terminal(width: int, height: int) -> None:
    found = screen.lines(replace(seen(), missing=("x" * 300,) * 5), View(), Style(width), height)
    assert len(found) == height
    assert max(map(len, found)) <= width


def test_the_section_that_is_looked_at_scrolls() -> None:
    groups = tuple(replace(seen().waiting()[0], name=f"g{n:03}", title=f"PodGroup g{n:03}") for n in range(100))
    view = View(section="waiting", offset=50)
    found = screen.lines(replace(seen(), groups=groups), view, STYLE, 30)
    assert row(found, "team/g050")
    assert not [each for each in found if "g049" in each]
    assert row(found, "…")


KEYS: list[tuple[str, str, Callable[[View], Any], Any]] = [
    ("s sorts", "s", lambda view: view.order, "used"),
    ("r shows another resource", "r", lambda view: view.resource, 1),
    ("tab goes on", "\t\t", lambda view: view.section, "quotas"),
    ("and back", "\x1b[Z", lambda view: view.section, "evictions"),
    ("arrows scroll", "\x1b[B\x1b[Bk", lambda view: view.offset, 1),
    ("not above the top", "\x1b[A", lambda view: view.offset, 0),
    ("a page", "\x1b[6~", lambda view: view.offset, 10),
    ("a filter", "/teq\x7fa\rs", lambda view: (view.filter, view.typing, view.order), ("tea", False, "used")),
    ("no filter", "/tea\x1b", lambda view: (view.filter, view.ended), ("", False)),
    ("space reads", " ", lambda view: view.again, 1),
    ("q ends", "q", lambda view: view.ended, True),
    ("others do nothing", "x\x1b[1;5C", lambda view: view, View()),
]


@pytest.mark.parametrize(("typed", "what", "value"), [each[1:] for each in KEYS], ids=[each[0] for each in KEYS])
def test_a_key(typed: str, what: Callable[[View], Any], value: Any) -> None:
    view = View()
    for key in keys(typed):
        view = press(view, key)
    assert what(view) == value


# ── a tenant ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_tenant_sees_the_namespace_and_is_told_what_is_missing(furnished: Any) -> None:
    server: ApiServer = furnished("busy.yaml")
    found = await overviews.read(Client(Restricted(InProcessTransport(server), "team-a")), QUESTION)
    told = found.overview
    assert {each.namespace for each in told.groups} == {"team-a"}
    assert {"train", "later"} <= {each.name for each in told.waiting()}
    assert "of namespace team-a alone: nodes may not be listed, so it is what a tenant may read" in told.missing
    assert [each for each in told.missing if each.startswith("no queues")]
    assert "note: of namespace team-a alone" in "\n".join(screen.lines(told, View(), STYLE, 24))


async def test_a_tenant_is_told_expected_starts_by_the_visibility_api() -> None:
    part, answers = Seen(seen(), asked([]).state, (), None), list[Any]()

    async def ask() -> Any:
        if not answers:
            raise errors.ForbiddenError(403, "Forbidden", "starts are forbidden")
        return answers.pop(0)

    assert (await Forecasts(["muster"], ask).play(part)).missing == (
        "no expected starts: nodes may not be listed, and the visibility API doesn't tell them: starts are forbidden"
    )
    times = {"early": "2026-01-01T14:05:00Z", "middle": "2026-01-01T14:20:00Z", "late": None, "share": 0.8}
    items = [
        {"metadata": {"namespace": "team", "name": "waits"}, "status": times},
        {"metadata": {"namespace": "team", "name": "lost"}, "status": {"reason": "QueueNotFound"}},
        {"metadata": {"namespace": "team", "name": "next"}, "status": {"unknown": [], "unknownOthers": True}},
    ]
    ready = {"items": items, "forecast": {"state": "ready", "taken": "2026-01-01T12:00:00Z", "ageSeconds": 12}}
    answers += [{"items": [], "forecast": {"state": "pending", "message": "no forecast yet"}}, ready]
    found = await Forecasts(["muster"], ask).play(part)
    assert {name: one.brief for name, one in found.groups.items()} == {
        "team/waits": "~14:20 (14:05-)", "team/lost": "queue missing", "team/next": "no run times",
    }  # fmt: skip
    assert found.groups["team/lost"].text == "no time can be told: its queue doesn't exist"
    assert "nobody says how long workloads of other namespaces will run" in found.groups["team/next"].text
    answers.append({"items": [], "forecast": {"state": "failed", "message": "no forecast: it takes too long"}})
    assert (await Forecasts(["muster"], ask).play(part)).missing == "no forecast: it takes too long"


async def test_an_administrator_sees_evictions_as_they_were_recorded(furnished: Any) -> None:
    server: ApiServer = furnished("busy.yaml")
    body = {"apiVersion": "v1", "kind": "Event", **msgspec.to_builtins(evicted("train", 50)), "type": "Normal"}
    body["metadata"] |= {"namespace": "team", "uid": "e"}
    server.store.put((kinds.EVENTS.group, kinds.EVENTS.plural), body)
    found = await overviews.read(Client(InProcessTransport(server)), QUESTION)
    assert [(each.name, each.reason) for each in found.overview.evictions] == [("train", "Reclaimed")]
    assert found.policy is not None


# ── a terminal ───────────────────────────────────────────────────────────────────────────────────────────────────


class Terminal:
    """A pseudo-terminal of 80 x 24 with a command in it; `frame` is what it painted last."""

    def __init__(self) -> None:
        self._master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.text = ""

    @property
    def frame(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text.rpartition("\x1b[H")[2])

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def until(self, what: Callable[[str], bool]) -> str:
        """Read until the last frame is so; a machine that is busy takes its time."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timedelta(minutes=2).total_seconds()):
            while not what(self.frame):
                self.text += (await loop.run_in_executor(None, os.read, self._master, 65536)).decode()
        return self.frame

    async def drained(self) -> str:
        """Read what is left once the command is over."""
        os.set_blocking(self._master, False)
        while True:
            try:
                self.text += os.read(self._master, 65536).decode()
            except OSError:
                return self.text

    def close(self) -> None:
        os.close(self._master)
        os.close(self.slave)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    one = Terminal()
    yield one
    one.close()


@pytest.mark.processes
async def test_in_a_terminal_keys_sort_and_filter_and_it_is_left_as_it_was(furnished: Any, terminal: Terminal) -> None:
    furnished("busy.yaml")
    environment = os.environ | {"TERM": "xterm", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("muster")),
        "top",
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        env=environment,
    )
    frame = await terminal.until(lambda text: "q quit" in text)
    assert "3 queues" in frame
    assert "team-a/train" in frame
    assert max(map(len, frame.splitlines())) <= 80
    assert "\x1b[3" not in terminal.text, "NO_COLOR"
    terminal.type(" ")
    frame = await terminal.until(lambda text: "START" in text and "q quit" in text)
    terminal.type("s")
    await terminal.until(lambda text: "by used" in text and "q quit" in text)
    terminal.type("/later\r")
    frame = await terminal.until(lambda text: "filter: later" in text and "q quit" in text)
    assert "team-a/train" not in frame
    terminal.type("q")
    assert await process.wait() == 0
    assert (await terminal.drained()).endswith("\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(terminal.slave) == terminal.before
