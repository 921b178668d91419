"""The PodGroup that a cycle can't be decided with: found by halving, where deciding fails in a way that nobody foresaw."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from scheduler.model.snapshot import JobInfo, Snapshot
from scheduler.state.blame import Culprit


def find_culprit(snapshot: Snapshot, attempt: Callable[[Snapshot], object], over: Callable[[], bool]) -> Culprit | None:
    """Return a group with which deciding fails and without which, and those after it, it doesn't.

    Args:
        snapshot: what deciding fails on.
        attempt: decides.
        over: whether the time for that is over.

    Returns:
        None where deciding fails without any group, or the time is over first.
    """

    def fails(jobs: tuple[JobInfo, ...]) -> bool:
        try:
            attempt(replace(snapshot, jobs=jobs))
        except Exception:  # noqa: BLE001 - that is the question
            return True
        return False

    if not snapshot.jobs or fails(()):
        return None
    good: tuple[JobInfo, ...] = ()
    suspects = snapshot.jobs
    while len(suspects) > 1:
        if over():
            return None
        half = suspects[: len(suspects) // 2]
        if fails(good + half):
            suspects = half
        else:
            good, suspects = good + half, suspects[len(half) :]
    key = suspects[0].key
    return Culprit(key.group, "podgroups", key.namespace, key.name)
