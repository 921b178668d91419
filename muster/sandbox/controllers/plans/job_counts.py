"""Counts a Job's pods, each exactly once, and how long to wait after failures. Pure.

A pod that ended is counted in three steps, so that none is lost or counted twice whatever fails in between: its uid
stands in ``status.uncountedTerminatedPods``; its finalizer goes; the counter goes up and the uid out. A succeeded pod
of an Indexed Job needs no uid: its index says as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.core.store import Object

TRACKING: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
AT_ONCE: Final = 500
"""The most pods that one look at a Job creates, deletes or counts."""

_FIRST_PAUSE: Final = 10.0
_LONGEST_PAUSE: Final = 600.0


class JobCounts(Struct, frozen=True):
    """A Job's pods, counted.

    Attributes:
        succeeded, failed: all, also those whose counting isn't finished.
        completed: indexes that succeeded, of an Indexed Job.
        active: pods that are neither ended nor leaving.
        terminating: how many are leaving and haven't ended.
        fresh_succeeded, fresh_failed: pods whose counting begins now.
        release: pods that may lose the finalizer once the counters are stored.
        counters: the fields of the status that hold the counts.
        settled: nothing is half counted.
    """

    succeeded: int
    failed: int
    completed: frozenset[int]
    active: Sequence[Object]
    terminating: int
    fresh_succeeded: Sequence[Object]
    fresh_failed: Sequence[Object]
    release: Sequence[Object]
    counters: dict[str, Any]
    settled: bool

    @property
    def ready(self) -> int:
        """How many active pods are ready."""
        return sum(p.ready(pod) for pod in self.active)


def indexed(job: Object) -> bool:
    """Whether each pod has an index of its own."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: Object) -> int | None:
    """Return a pod's completion index, or None."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def tracked(pod: Object) -> bool:
    """Whether the pod waits to be counted."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def count(job: Object, pods: Sequence[Object]) -> JobCounts:
    """Count ``pods``, which are all those that the Job controls."""
    status = job.get("status") or {}
    waiting = {pod["metadata"]["uid"]: pod for pod in pods if tracked(pod)}
    noted = status.get("uncountedTerminatedPods") or {}
    succeeded, old_succeeded = _flush(status.get("succeeded", 0), noted.get("succeeded", ()), waiting)
    failed, old_failed = _flush(status.get("failed", 0), noted.get("failed", ()), waiting)
    known = {*old_succeeded, *old_failed}
    over = [pod for uid, pod in waiting.items() if uid not in known and _over(job, pod)]
    ignored = [pod for pod in over if _ignored(job, pod)]
    fresh = [pod for pod in over if pod not in ignored]
    fresh_succeeded = [pod for pod in fresh if p.phase(pod) == "Succeeded"]
    fresh_failed = [pod for pod in fresh if p.phase(pod) != "Succeeded"]
    now_succeeded, now_failed = fresh_succeeded[:AT_ONCE], fresh_failed[:AT_ONCE]
    completed = frozenset(parse_indexes(status.get("completedIndexes", "")))
    all_succeeded = succeeded + len(old_succeeded) + len(fresh_succeeded)
    new_uids = _uids(now_succeeded)
    if indexed(job):
        completed |= _indexes_of(fresh_succeeded, job["spec"]["completions"])
        all_succeeded = succeeded = len(completed)
        new_uids = []
    uncounted = {"succeeded": [*old_succeeded, *new_uids], "failed": [*old_failed, *_uids(now_failed)]}
    return JobCounts(
        succeeded=all_succeeded,
        failed=failed + len(old_failed) + len(fresh_failed),
        completed=completed,
        active=[pod for pod in pods if p.active(pod)],
        terminating=sum(p.leaving(pod) and not p.ended(pod) for pod in pods),
        fresh_succeeded=now_succeeded,
        fresh_failed=now_failed,
        release=[*(waiting[uid] for uid in known), *now_succeeded, *now_failed, *ignored],
        counters=_counters(job, succeeded, failed, uncounted, completed),
        settled=not known and not over,
    )


def _flush(counted: int, uids: Iterable[str], waiting: dict[str, Object]) -> tuple[int, list[str]]:
    remaining = [uid for uid in uids if uid in waiting]
    return counted + sum(uid not in waiting for uid in uids), remaining


def _over(job: Object, pod: Object) -> bool:
    """Whether the pod counts as succeeded or failed; a deleted one has failed, unless only failed ones are replaced."""
    return p.ended(pod) or (p.leaving(pod) and job["spec"].get("podReplacementPolicy") != "Failed")


def ignores_only(policy: dict[str, Any]) -> bool:
    """Whether a podFailurePolicy has no rules but those that leave failures by a condition of their pods uncounted."""
    rules = policy.get("rules") or ()
    return bool(rules) and all(rule.get("action") == "Ignore" and rule.get("onPodConditions") for rule in rules)


def _ignored(job: Object, pod: Object) -> bool:
    """Whether the policy of the Job says that this failure doesn't count: an eviction, by DisruptionTarget."""
    if p.phase(pod) == "Succeeded":
        return False
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules", ())
    found = {(each["type"], each["status"]) for each in (pod.get("status") or {}).get("conditions") or ()}
    wanted = (
        (each["type"], each.get("status", "True")) for rule in rules for each in rule.get("onPodConditions") or ()
    )
    return not found.isdisjoint(wanted)


def _uids(pods: Iterable[Object]) -> list[str]:
    return [pod["metadata"]["uid"] for pod in pods]


def _indexes_of(pods: Iterable[Object], completions: int) -> frozenset[int]:
    found = (index_of(pod) for pod in pods)
    return frozenset(index for index in found if index is not None and index < completions)


def _counters(
    job: Object, succeeded: int, failed: int, uncounted: dict[str, list[str]], completed: frozenset[int]
) -> dict[str, Any]:
    counters: dict[str, Any] = {"uncountedTerminatedPods": {name: uids for name, uids in uncounted.items() if uids}}
    counters |= {name: number for name, number in (("succeeded", succeeded), ("failed", failed)) if number}
    if indexed(job) and completed:
        counters["completedIndexes"] = format_indexes(completed)
    return counters


# ── indexes as the API writes them: 0-2,5 ────────────────────────────────────────────────────────────────────────


def parse_indexes(text: str) -> list[int]:
    """Read a list of indexes."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Write a list of indexes, three and more in a row as a range, two with a comma."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(_run(run) for run in runs)


def _run(run: list[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    return f"{run[0]}{',' if len(run) == 2 else '-'}{run[-1]}"


# ── patience after failures ──────────────────────────────────────────────────────────────────────────────────────


class Backoff(Struct, frozen=True):
    """How often a Job's pods failed since one last succeeded, and when last."""

    failures: int = 0
    last: datetime | None = None

    def after(self, succeeded: Sequence[Object], failed: Sequence[Object]) -> Backoff:
        """Take newly ended pods into account."""
        ends = [p.finished_at(pod) for pod in failed]
        if not succeeded:
            return Backoff(self.failures + len(ends), max(ends)) if ends else self
        success = max(p.finished_at(pod) for pod in succeeded)
        later = [end for end in ends if end > success]
        return Backoff(len(later), max(later, default=None))

    def remaining(self, now: datetime) -> float:
        """Return the seconds to wait before a pod is made again: 10 after one failure, doubling up to 600."""
        if not self.failures or self.last is None:
            return 0.0
        pause = min(_FIRST_PAUSE * 2.0 ** min(self.failures - 1, 16), _LONGEST_PAUSE)
        return max(0.0, (self.last + timedelta(seconds=pause) - now).total_seconds())
