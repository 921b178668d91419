"""Expected starts for the page: futures are played by a process of their own, which is nice, and killed when it takes too long.

Playing the future of a large cluster takes minutes of processor time, and the page has to answer meanwhile. As a program this is that process: it reads a
`_Task` from its parent, and writes `Starts` as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from muster.cli.overviews import Seen
from muster.whatif.cluster_view import ClusterObjects
from scheduler.engine.policy import Policy

INTERVAL: Final = 30.0
"""Seconds from the end of one forecast to the beginning of the next, at least."""
LIMIT: Final = 120.0
"""Seconds that a forecast may take."""
_PAUSE: Final = 600.0  # seconds after one that took too long
_NICE: Final = 10


class ExpectedStart(Struct, frozen=True, rename={"from_": "from"}):
    """When a group will start: half of the plays before ``at``, eight of ten between ``from_`` and ``to``; None where it can't be told."""

    text: str
    at: datetime | None = None
    from_: datetime | None = None
    to: datetime | None = None


class Starts(Struct, frozen=True):
    """Expected starts by namespace/name, as of the reading ``taken``; ``missing``: why there are none, a sentence."""

    taken: datetime | None = None
    groups: dict[str, ExpectedStart] = {}
    missing: str = ""


class _Task(NamedTuple):
    state: ClusterObjects
    policy: Policy
    schedulers: tuple[str, ...]


async def play(seen: Seen, schedulers: Sequence[str], limit: float = LIMIT) -> Starts:
    """Return when the groups of a reading start that wait."""
    if seen.policy is None:
        return Starts(missing="no expected starts: they need the whole cluster, and nodes may not be listed")
    task = await asyncio.to_thread(pickle.dumps, _Task(seen.state, seen.policy, tuple(schedulers)))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(limit):
            said, complaints = await child.communicate(task)
    except TimeoutError:
        return Starts(missing=f"no expected starts: this cluster's future isn't played within {limit:.0f} seconds")
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    if child.returncode:
        last = complaints.decode(errors="replace").strip().rpartition("\n")[2]
        return Starts(missing=f"no expected starts: {last[:300] or f'status {child.returncode}'}")
    return msgspec.json.decode(said, type=Starts)


def pause(found: Starts) -> float:
    """Return the seconds to wait until the next forecast."""
    return _PAUSE if found.missing else INTERVAL


def _main() -> None:
    from muster.cli import starts

    os.nice(_NICE)
    task: _Task = pickle.load(sys.stdin.buffer)  # noqa: S301 - the same
    found = starts.told(task.state, task.policy, task.schedulers)
    taken = task.state.taken
    told: dict[str, Any] = {
        f"{key.namespace}/{key.name}": ExpectedStart(each.text(taken), each.middle, each.early, each.late)
        for key, each in found.items()
    }
    sys.stdout.buffer.write(msgspec.json.encode(Starts(taken, told)))


if __name__ == "__main__":
    _main()
