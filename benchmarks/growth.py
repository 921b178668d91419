"""How each path's cost grows with what it works on: processor time and memory, each point in a process of its own.

    python benchmarks/growth.py [--only PATH ...] [--write]

Printed: for each size milliseconds and MiB, and the power with which the time grew over the largest two steps: 1 is in proportion to the
work. ``--write`` stores them as benchmarks/growth.csv and draws benchmarks/growth.svg. About five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import importlib
import json
import math
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import calibration

HERE: Final = Path(__file__).parent
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
STEEP: Final = 1.2
"""A power above this is marked: cost grows faster than the work."""
_RUNS: Final = 3

Work = Callable[[], float]
"""Does its work once and returns the seconds of processor time that it took."""


@dataclass(frozen=True)
class GrowthPath:
    """What is measured: the sizes, and how the work of a size is made.

    Attributes:
        per: what one unit of size is.
    """

    name: str
    per: str
    sizes: Sequence[int]
    make: Callable[[int], Work]


@dataclass(frozen=True)
class Point:
    """One size of one path."""

    path: str
    size: int
    milliseconds: float
    mebibytes: float


# ── reviews and reservations ─────────────────────────────────────────────────────────────────────────────────────────


def review(kind: str) -> Callable[[int], Work]:
    """Reviews of one object of so many bytes, without TLS; the time of one."""

    def make(size: int) -> Work:
        turns, admission = importlib.import_module("admission_turns"), importlib.import_module("admission")
        body = admission.review(getattr(admission, kind.lower())(), f"{kind.lower()}s", size)
        whole = json.loads(body)
        whole["request"]["object"]["metadata"] |= {"name": "gang", "uid": "6a0e"}
        body, count = json.dumps(whole).encode(), 200

        async def answered() -> float:
            made = await turns._made(admission)  # noqa: SLF001 - the server that both benchmarks serve
            await made.handle(f"/validate/{kind.lower()}s", {"timeout": "5s"}, body)
            began = time.process_time()
            for _ in range(count):
                status, _, _ = await made.handle(f"/validate/{kind.lower()}s", {"timeout": "5s"}, body)
                assert status == 200
            return (time.process_time() - began) / count

        return lambda: asyncio.run(answered())

    return make


def _groups(count: int) -> tuple[Any, Any]:
    """A namespace with a quota and so many groups: the view of it, and its ledger."""
    view_of, ledger = (
        importlib.import_module("muster.ledger.namespace_view"),
        importlib.import_module("muster.ledger.view"),
    )
    table, amounts = importlib.import_module("muster.ledger.table"), importlib.import_module("muster.model.amounts")
    sources = [ledger.source(group) for group in ("scheduling.volcano.sh", "scheduling.sigs.k8s.io")]
    revisions = dict.fromkeys([*sources, ledger.QUOTA_SOURCE, ledger.POD_SOURCE], 10**6)
    view, cpu = view_of.NamespaceView(revisions, view_of.Tombstones()), amounts.Resources.parse({"cpu": "1"})
    hard = amounts.Resources.parse({"cpu": "10M"})
    view.put_quota(ledger.ObservedQuota("team", "u-team", 1, hard))
    for number in range(count):
        view.put(ledger.ObservedGroup("scheduling.volcano.sh", f"g{number}", f"u{number}", number + 2, cpu))
    return view, table.Table().seed(view, NOW)


def reservation(count: int) -> Work:
    """One reservation in a namespace that has so many groups, with what a write of the ledger stores."""
    view, table = _groups(count)
    return _reserving(view, table)


def namespaces(count: int) -> Work:
    """One reservation where there are so many namespaces of ten groups."""
    all_ = [_groups(10) for _ in range(count)]
    reserve = _reserving(*all_[count // 2])

    def work(kept: object = all_) -> float:
        del kept
        return reserve()

    return work


def waiting_rows(count: int) -> Work:
    """One reservation beside so many that are under way: rows of the ledger."""
    view, table = _groups(10)
    requests = importlib.import_module("muster.ledger.reservations")
    cpu = importlib.import_module("muster.model.amounts").Resources.parse({"cpu": "1"})
    rows = [
        requests.ReservationRequest("ns", requests.PODGROUP, "scheduling.volcano.sh", f"r{number}", f"r{number}", cpu)
        for number in range(count)
    ]
    decide = importlib.import_module("muster.ledger.decision").decide
    return _reserving(view, decide(table, view, rows, NOW).table)


def _reserving(view: Any, table: Any) -> Work:
    decide = importlib.import_module("muster.ledger.decision").decide
    requests = importlib.import_module("muster.ledger.reservations")
    cpu = importlib.import_module("muster.model.amounts").Resources.parse({"cpu": "1"})

    known = dict(zip(map(id, table.rows), table.render().rows, strict=True))

    def work() -> float:
        one = requests.ReservationRequest("ns", requests.PODGROUP, "scheduling.volcano.sh", "new", "new", cpu)
        began = time.process_time()
        decision = decide(table, view, [one], NOW)
        decision.table.render(known, decision.summary)
        took = time.process_time() - began
        assert isinstance(decision.answers[0], requests.Reserved), decision.answers
        return took

    return work


# ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def decided(shape: Callable[[Any, int], Any]) -> Callable[[int], Work]:
    """One decision on a made-up cluster of `scheduler_decide`."""

    def make(size: int) -> Work:
        measure = shape(importlib.import_module("scheduler_decide"), size)
        return lambda: float(measure()[0])

    return make


PATHS: Final = (
    GrowthPath("review of a pod", "bytes", (2_000, 8_000, 32_000, 128_000), review("Pod")),
    GrowthPath("review of a PodGroup", "bytes", (1_000, 4_000, 16_000, 64_000), review("PodGroup")),
    GrowthPath("reservation, groups there", "groups", (100, 1_000, 10_000, 40_000), reservation),
    GrowthPath("reservation, namespaces", "namespaces", (10, 100, 1_000, 4_000), namespaces),
    GrowthPath("reservation, rows under way", "rows", (10, 100, 1_000, 4_000), waiting_rows),
    GrowthPath(
        "decide, nodes", "nodes", (500, 1_000, 2_000, 4_000), decided(lambda on, size: on.gangs(100, 100, 20, size))
    ),
    GrowthPath(
        "decide, pods",
        "pods",
        (5_000, 10_000, 20_000, 40_000),
        decided(lambda on, size: on.gangs(size // 100, 100, 20, 2000)),
    ),
    GrowthPath(
        "decide, gangs", "gangs", (125, 250, 500, 1_000), decided(lambda on, size: on.gangs(size, 10, 50, 1000))
    ),
    GrowthPath(
        "decide, singletons",
        "groups",
        (1_250, 2_500, 5_000, 10_000),
        decided(lambda on, size: on.gangs(size, 1, 50, 1000)),
    ),
    GrowthPath("decide, queues", "queues", (10, 100, 500, 1_000), decided(lambda on, size: on.queued(size))),
    GrowthPath(
        "decide, classes", "classes", (10, 20, 50, 100), decided(lambda on, size: on.gangs(1000, 10, size, 1000))
    ),
    GrowthPath(
        "decide, gangs that wait", "gangs", (250, 500, 1_000, 2_000), decided(lambda on, size: on.full(size, 1000))
    ),
    GrowthPath(
        "one pod arrives, groups there",
        "groups",
        (250, 500, 1_000, 2_000),
        decided(lambda on, size: on.arrival(2000, size, 10)),
    ),
    GrowthPath(
        "idle cycle, groups there",
        "groups",
        (250, 500, 1_000, 2_000),
        decided(lambda on, size: on.idle(2000, size, 10)),
    ),
    GrowthPath(
        "preempt", "nodes", (250, 500, 1_000, 2_000), decided(lambda on, size: on.preemption(size, size // 5, 50, size))
    ),
    GrowthPath("reclaim", "jobs", (50, 100, 200, 400), decided(lambda on, size: on.reclaiming(size, size))),
)


# ── points ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _memory() -> float:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


def _measure(place: int, size: int, sender: Any) -> None:
    path = PATHS[place]
    path.make(min(path.sizes))()  # imports, and what is kept once
    before = _memory()
    work = path.make(size)
    taken = [work() for _ in range(_RUNS)]
    sender.send((statistics.median(taken) * 1000, _memory() - before))


def measured(place: int, size: int) -> Point:
    """Measure one size in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_measure, args=(place, size, sender))
    process.start()
    if not receiver.poll(300):
        process.terminate()
        raise SystemExit(f"{PATHS[place].name}, {size}: no answer within five minutes")
    milliseconds, mebibytes = receiver.recv()
    process.join(10)
    return Point(PATHS[place].name, size, milliseconds, mebibytes)


def power(points: Sequence[Point]) -> float:
    """Return the power with which the time grew between the last two steps, 0 where the cost doesn't grow."""
    first, last = points[-3], points[-1]
    return max(math.log(last.milliseconds / first.milliseconds) / math.log(last.size / first.size), 0.0)


# ── the picture ──────────────────────────────────────────────────────────────────────────────────────────────────────

_WIDTH, _HEIGHT, _EDGE, _COLUMNS = 230, 150, 34, 4


def draw(series: dict[str, list[Point]]) -> Iterator[str]:
    """Draw a panel for each path, both axes logarithmic; the dashed line is growth in proportion."""
    rows = math.ceil(len(series) / _COLUMNS)
    size = f"0 0 {_WIDTH * _COLUMNS} {_HEIGHT * rows}"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="10">'
    yield f'<rect width="{_WIDTH * _COLUMNS}" height="{_HEIGHT * rows}" fill="white"/>'
    for number, points in enumerate(series.values()):
        yield f'<g transform="translate({number % _COLUMNS * _WIDTH},{number // _COLUMNS * _HEIGHT})">'
        yield from _panel(points)
        yield "</g>"
    yield "</svg>"


def _panel(points: Sequence[Point]) -> Iterator[str]:
    first = points[0]
    wide = math.log(points[-1].size / first.size)
    costs = [math.log(each.milliseconds / first.milliseconds) for each in points]
    low, high = min(0.0, *costs), max(wide, *costs)

    def place(point: Point, cost: float) -> str:
        across = _EDGE + math.log(point.size / first.size) / wide * (_WIDTH - 2 * _EDGE)
        up = _HEIGHT - _EDGE - (cost - low) / (high - low) * (_HEIGHT - 2 * _EDGE)
        return f"{across:.1f},{up:.1f}"

    path = next(each for each in PATHS if each.name == first.path)
    proportional = " ".join(place(each, math.log(each.size / first.size)) for each in (first, points[-1]))
    yield f'<text x="{_EDGE}" y="16" font-weight="bold">{first.path}</text>'
    yield f'<text x="{_EDGE}" y="28">{first.milliseconds:.3g} to {points[-1].milliseconds:.3g} ms, n to the {power(points):.1f}</text>'
    yield f'<polyline points="{proportional}" fill="none" stroke="#999" stroke-dasharray="4 3"/>'
    line = " ".join(place(each, cost) for each, cost in zip(points, costs, strict=True))
    yield f'<polyline points="{line}" fill="none" stroke="#0b6e4f" stroke-width="2"/>'
    yield f'<text x="{_EDGE}" y="{_HEIGHT - 18}">{first.size:,} to {points[-1].size:,} {path.per}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[each.name for each in PATHS])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    calibration.tell()
    series: dict[str, list[Point]] = {}
    for place, path in enumerate(PATHS):
        if options.only and path.name not in options.only:
            continue
        points = series[path.name] = [measured(place, size) for size in path.sizes]
        grown = power(points)
        shown = ", ".join(f"{each.size:,}: {each.milliseconds:.3g} ms {each.mebibytes:.0f} MiB" for each in points)
        print(f"{path.name}: {shown}; n to the {grown:.2f}{' (steep)' if grown > STEEP else ''}", flush=True)
    if options.write:
        with (HERE / "growth.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*asdict(next(iter(series.values()))[0])])
            writer.writeheader()
            writer.writerows(asdict(each) for points in series.values() for each in points)
        (HERE / "growth.svg").write_text("\n".join(draw(series)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
