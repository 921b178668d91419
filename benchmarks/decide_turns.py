"""Processor time of `decide` in two checkouts, in turns: one decision here, one there, on the same made-up cluster.

    git worktree add /tmp/old 4a3d82a
    python benchmarks/decide_turns.py /tmp/old [SHAPE ...] [--pairs 15]

Each checkout has one process for a shape, in which its own `scheduler_decide.py` made the cluster; what the machine is busy
with is the same for both. Printed for each shape: the median of the ratios, this checkout's time to the other's, then the
quartiles, and both medians. More than 1.05 is slower than was promised.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parents[1]
_GOAL: Final = 1.05
_SHAPES: Final = ("gangs-20", "gangs-1000", "singletons", "large", "idle", "arrival", "preempt", "full", "affinity")


def _serve(shape: str) -> None:
    """Make the shape of the checkout in which this runs, and measure it once for each line that is read."""
    sys.path.insert(0, str(Path.cwd() / "benchmarks"))
    decided = importlib.import_module("scheduler_decide")  # of the checkout that is measured
    measure = decided.SHAPES[shape]()
    print("made", flush=True)
    for _ in sys.stdin:
        print(measure()[0], flush=True)


@contextmanager
def _made(checkout: Path, shape: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).resolve()), str(checkout), "--serve", shape]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    with subprocess.Popen(
        command, cwd=checkout, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "made\n":
            raise SystemExit(f"{checkout} made no cluster of the shape {shape}")
        yield process


def _decide(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compare(other: Path, shape: str, pairs: int) -> tuple[list[float], list[float]]:
    """Return processor seconds of the other checkout's decisions and of this one's; the first two of each are left out."""
    before: list[float] = []
    now: list[float] = []
    with ExitStack() as stack:
        old, new = (stack.enter_context(_made(checkout, shape)) for checkout in (other, _HERE))
        for number in range(pairs + 2):
            for process, taken in ((old, before), (new, now))[:: 1 if number % 2 else -1]:
                taken.append(_decide(process))
    return before[2:], now[2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("shapes", nargs="*")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.serve:
        _serve(options.serve)
        return
    for shape in options.shapes or _SHAPES:
        before, now = compare(options.other.resolve(), shape, options.pairs)
        ratios = sorted(new / old for old, new in zip(before, now, strict=True))
        low, middle, high = statistics.quantiles(ratios, n=4)
        slower = "   SLOWER" if middle > _GOAL else ""
        medians = f"{statistics.median(before) * 1e3:8.1f} and {statistics.median(now) * 1e3:8.1f} ms"
        print(f"{shape:20} {middle:.3f} ({low:.2f} to {high:.2f}) {medians}{slower}", flush=True)


if __name__ == "__main__":
    main()
