"""The future of a cluster, played by a process of its own: nice, bounded in memory and time, and killed when it hangs.

Playing takes seconds of processor time, which answers would wait for, and a large cluster is in memory once more. As a program this is that process: it
reads a `_PlayTask` from its parent, and writes the forecasts as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import os
import pickle
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from muster.model.kinds import Kind
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects
from muster.whatif.forecast import Forecaster, Play
from muster.whatif.run_times import RunHistory
from muster.whatif.start_forecast import StartForecast
from scheduler.engine.policy import Policy
from scheduler.simulator.state import UnreadableObjectError

SECONDS: Final = 5.0
"""Seconds of processor time for which futures are played."""
_GROUP_SECONDS: Final = 0.001
"""The same for each group more: to begin with ten thousand takes two seconds, and one decision about them a tenth of one."""
LIMIT: Final = 60.0
"""Seconds after which the process is killed."""
MEMORY: Final = 600 << 20
"""Bytes that the process may have."""
_PLAYS: Final = 30
_FEWEST: Final = 8
"""Plays of which each has the time that it takes, if need be at the cost of how far they go: the first and the last of so many are eight of ten."""
_PIECE: Final = 200  # objects that are written at once: other threads go on in between
_NICE: Final = 10
_NO_MEMORY: Final = 3  # exit status
_TOLD: Final = 300


class NoForecastError(Exception):
    """No future was played; the text says why."""


class _PlayTask(NamedTuple):
    """What goes to the process first; then the objects, by pieces."""

    state: ClusterObjects
    policy: Policy
    schedulers: tuple[str, ...]
    history: RunHistory
    seconds: float


def forecasts(
    state: ClusterObjects, policy: Policy, schedulers: Sequence[str], history: RunHistory, seconds: float = SECONDS
) -> list[StartForecast]:
    """Play here, and return when each waiting group will start.

    Plays that don't get to the end in the time that there is are cut off, all at the same moment of the future: the line's first groups have a time then.

    Raises:
        UnreadableObjectError: the cluster can't be simulated.
    """
    forecaster = Forecaster(state, policy, schedulers, history)
    if not forecaster.waiting:
        return []
    began = time.process_time()
    share = seconds if forecaster.exact else seconds / _FEWEST
    first = forecaster.play(0, lambda _: time.process_time() - began >= share)
    alone = None
    if forecaster.arriving:
        alone, begun = first, time.process_time()
        first = forecaster.play(0, lambda _: time.process_time() - begun >= share, alone)
    plays: list[Play] = [first]
    while not forecaster.exact and _goes_on(len(plays), time.process_time() - began, seconds):
        plays.append(forecaster.play(len(plays), lambda now: now >= first.until, alone))
    begun, never = time.process_time(), frozenset.intersection(*(each.never for each in plays))
    reasons = forecaster.reasons(never, lambda _: time.process_time() - begun >= seconds / _FEWEST)
    return list(forecaster.summary(plays, reasons).values())


def enough_for(state: ClusterObjects) -> float:
    """Return the seconds of processor time that a process has to play a state, where nobody waits for it."""
    return min(SECONDS + _GROUP_SECONDS * sum(len(state.of(kind)) for kind in PODGROUPS), LIMIT / 4)


def _goes_on(plays: int, took: float, seconds: float) -> bool:
    """Whether there is another play: a few, even if they take longer than said, else as many as there is time for."""
    return took < 2 * seconds if plays < _FEWEST else took < seconds and plays < _PLAYS


async def play(
    state: ClusterObjects, policy: Policy, schedulers: Sequence[str], history: RunHistory, *, seconds: float = SECONDS,
    limit: float = LIMIT, memory: int = MEMORY,
) -> list[StartForecast]:  # fmt: skip
    """Have a process play, and return when each waiting group will start.

    Raises:
        NoForecastError: it took too long or too much memory, or the cluster can't be simulated.
    """
    head = _PlayTask(msgspec.structs.replace(state, objects={}), policy, tuple(schedulers), history, seconds)
    task = await asyncio.to_thread(_written, head, state.objects)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(memory), str(math.ceil(limit)), stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(limit):
            said, complaints = await child.communicate(task)
    except TimeoutError:
        raise NoForecastError(f"this cluster's future isn't played within {limit:.0f} seconds") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    if child.returncode:
        last = complaints.decode(errors="replace").strip().rpartition("\n")[2]
        if child.returncode == _NO_MEMORY or last.startswith("MemoryError"):
            last = f"to play this cluster's future takes more than {memory >> 20} MiB"
        raise NoForecastError(last[:_TOLD] or f"the process that plays ended with status {child.returncode}")
    return msgspec.json.decode(said, type=list[StartForecast])


# ── the task, as bytes ───────────────────────────────────────────────────────────────────────────────────────────


def _written(head: _PlayTask, objects: Mapping[Kind[Any], tuple[Any, ...]]) -> bytes:
    """Write a task by pieces: a thread that pickles keeps all others from running until it is done with one."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dump(head)
    for kind, items in objects.items():
        for start in range(0, len(items), _PIECE):
            pickler.dump((kind, items[start : start + _PIECE]))
    return file.getvalue()


def _read(file: Any) -> tuple[_PlayTask, ClusterObjects]:
    unpickler = pickle.Unpickler(file)  # noqa: S301 - of the parent
    head: _PlayTask = unpickler.load()
    objects: dict[Kind[Any], list[Any]] = {}
    for kind, items in _pieces(unpickler):
        objects.setdefault(kind, []).extend(items)
    whole = {kind: tuple(items) for kind, items in objects.items()}
    return head, msgspec.structs.replace(head.state, objects=whole)


def _pieces(unpickler: pickle.Unpickler) -> Iterator[tuple[Kind[Any], tuple[Any, ...]]]:
    with contextlib.suppress(EOFError):
        while True:
            yield unpickler.load()


def _bounded(memory: int, seconds: int) -> None:
    """Be nice, and end by itself: the parent may not be there any more."""
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _main(memory: int, seconds: int) -> None:
    _bounded(memory, seconds)
    try:
        head, state = _read(sys.stdin.buffer)
        found = forecasts(state, head.policy, head.schedulers, head.history, head.seconds)
    except UnreadableObjectError as error:
        sys.exit(f"when something starts can't be told: {error}")
    except MemoryError:
        os._exit(_NO_MEMORY)  # There may be too little left to write a sentence.
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
