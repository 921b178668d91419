"""Pods that have a node and can't start, and pods that failed for good: what of that is said of their group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from muster.model.objects import Job, PodStatus
from muster.model.text import counted, listed
from scheduler.model.failing import PODS_FAILED, PODS_NOT_STARTING, Failing
from scheduler.model.snapshot import OCCUPYING, TaskStatus
from scheduler.state.members import IndexedPod

_IMAGE: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_SAME: Final = {"ImagePullBackOff": "ErrImagePull"}
"""A kubelet says these in turn."""
_KINDS: Final = 3
"""Different troubles that are told of one group."""
_LONGEST: Final = 120


def failing(members: Collection[IndexedPod], jobs: Collection[Job], *, over: bool) -> Failing | None:
    """Say what is wrong with a group's pods that have a node, or had one; None where nothing is.

    Pods that failed are worth a word once nothing of the group will run again: until then others take their place.
    """
    alive = [each for each in members if each.task.status in OCCUPYING]
    stuck = Counter(trouble for each in alive if (trouble := _stuck(each.pod.status)))
    if stuck:
        return Failing(PODS_NOT_STARTING, _told(stuck, len(alive)))
    failed = [job for job in jobs if _has_failed(job)]
    ended = [each for each in members if each.task.status is TaskStatus.FAILED]
    if not over or not (failed or (ended and not jobs)):
        return None
    how = _told(Counter(_ended(each.pod.status) for each in ended), 0) if ended else ""
    if not failed:
        return Failing(PODS_FAILED, how)
    names = f"{'Job' if len(failed) == 1 else 'Jobs'} {listed(sorted(job.name for job in failed)[:_KINDS])} failed"
    return Failing(PODS_FAILED, f"{names}: {how}" if how else f"{names}: {_reason(failed[0])}")


def _told(troubles: Counter[str], total: int) -> str:
    """Write how many pods each trouble has, the most frequent first; ``total``: how many pods there are, 0 where that says nothing."""
    several = f" of {counted(total, 'pod')}" if total else ""
    found = sorted(troubles.items(), key=lambda each: (-each[1], each[0]))[:_KINDS]
    return "; ".join(
        f"{number}{several or (' pods' if number != 1 else ' pod')} {trouble}" for trouble, number in found
    )


def _stuck(status: PodStatus) -> str:
    """Say why a pod on a node doesn't start; empty where it does, or is on its way."""
    for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = each.state.waiting if each.state is not None else None
        if waiting is None or not waiting.reason:
            continue
        reason = _short(_SAME.get(waiting.reason, waiting.reason))
        if waiting.reason in _IMAGE:
            return f"can't pull image {_short(each.image)}: {reason}"
        return f"can't start container {_short(each.name)}: {reason}"
    return ""


def _ended(status: PodStatus) -> str:
    """Say how a pod failed: the exit code of the first container that did, or the kubelet's reason."""
    for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        ended = each.state.terminated if each.state is not None else None
        if ended is not None and ended.exit_code:
            why = f" ({_short(ended.reason)})" if ended.reason not in {"", "Error"} else ""
            return f"ended with exit code {ended.exit_code}{why}"
    return f"failed ({_short(status.reason)})" if status.reason else "failed"


def _has_failed(job: Job) -> bool:
    return any(each.type == "Failed" and each.status == "True" for each in job.status.conditions or ())


def _reason(job: Job) -> str:
    found = (each for each in job.status.conditions or () if each.type == "Failed" and each.status == "True")
    return _short(next((each.reason for each in found), "") or "nothing says why")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
