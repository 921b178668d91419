"""The next steps of a Job, from the Job, its pods and the time. Pure.

The order is the real controller's: count, fail, complete, suspend, run. A Job first gets the condition that says how
it will end (FailureTarget, SuccessCriteriaMet), then, when none of its pods runs or waits to be counted, the one that
says it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.event_correlator import EventRecord
from muster.sandbox.controllers.plans.job_counts import (
    AT_ONCE,
    INDEX,
    TRACKING,
    Backoff,
    JobCounts,
    count,
    ignores_only,
    index_of,
    indexed,
    tracked,
)
from muster.sandbox.controllers.plans.times import read, seconds_since, stamp
from muster.sandbox.core.store import Object

CONTROLLER: Final = "kubernetes.io/job-controller"

_UNSUPPORTED: Final = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes")

_REACHED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")
_TOO_MANY: Final = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
_TOO_LONG: Final = ("DeadlineExceeded", "Job was active longer than specified deadline")


class Plan(Struct, frozen=True, kw_only=True):
    """What to do about a Job.

    Attributes:
        status: the whole status, as it is once ``delete`` is done; pods that ``create`` makes come on top of `active`.
        create: one entry per pod to make: its completion index, or None.
        delete: pods to delete.
        forget: those don't count as failed: their finalizer goes first.
        release: pods that lose their finalizer after the status is stored.
        notes: events to record after the status is stored.
        wake: seconds until the Job needs another look though nothing changed, or None.
        remove: the Job's time to live is over.
        backoff: what to remember for the next plan.
    """

    status: dict[str, Any]
    create: tuple[int | None, ...] = ()
    delete: tuple[Object, ...] = ()
    forget: bool = False
    release: tuple[Object, ...] = ()
    notes: tuple[EventRecord, ...] = ()
    wake: float | None = None
    remove: bool = False
    backoff: Backoff = field(default_factory=Backoff)


def plan(job: Object, pods: Sequence[Object], now: datetime, backoff: Backoff) -> Plan:
    """Decide about a Job that controls exactly ``pods``."""
    ending = p.condition(job, "Complete") or p.condition(job, "Failed")
    if ending is not None and ending["status"] == "True":
        return _afterwards(job, pods, ending, now)
    tally = count(job, pods)
    unsupported = _unsupported(job)
    if unsupported is not None:
        return _fail(_Draft(job, tally, now, backoff), unsupported)
    draft = _Draft(job, tally, now, backoff.after(tally.fresh_succeeded, tally.fresh_failed))
    failure = _failure(job, tally, pods, now)
    if failure is not None:
        return _fail(draft, failure)
    if _complete(job, tally):
        return _succeed(draft)
    if p.leaving(job):
        return draft.plan()
    return _suspend(draft) if job["spec"].get("suspend") else _run(draft)


def new_pod(job: Object, index: int | None) -> Object:
    """Make the pod of an index, or of none."""
    name, template = job["metadata"]["name"], job["spec"]["template"]
    pod = p.from_template(template, job, f"{name}-") if index is None else _indexed_pod(template, job, name, index)
    pod["metadata"]["finalizers"] = [*pod["metadata"].get("finalizers", ()), TRACKING]
    return pod


def _indexed_pod(template: Object, job: Object, name: str, index: int) -> Object:
    pod = p.from_template(template, job, f"{name}-{index}-")
    metadata, spec = pod["metadata"], dict(pod["spec"])
    for name_ in ("labels", "annotations"):
        metadata[name_] = {**metadata.get(name_, {}), INDEX: str(index)}
    reference = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": reference}
    for list_ in ("initContainers", "containers"):
        if spec.get(list_):
            spec[list_] = [_with_variable(container, variable) for container in spec[list_]]
    return {**pod, "spec": {**spec, "hostname": f"{name}-{index}"}}


def _with_variable(container: Object, variable: Object) -> Object:
    given = container.get("env") or []
    if any(each["name"] == variable["name"] for each in given):
        return container
    return {**container, "env": [*given, variable]}


# ── the ways a Job goes ──────────────────────────────────────────────────────────────────────────────────────────


class _Draft(Struct, frozen=True):
    """What all plans for one look at a Job have in common."""

    job: Object
    tally: JobCounts
    now: datetime
    backoff: Backoff

    @property
    def conditions(self) -> list[dict[str, Any]]:
        return list((self.job.get("status") or {}).get("conditions") or ())

    def plan(self, *, remaining: int | None = None, **status: Any) -> Plan:
        """Plan no more than to write the status; ``remaining`` pods stay active."""
        old, tally = self.job.get("status") or {}, self.tally
        active = len(tally.active) if remaining is None else remaining
        whole = {name: old[name] for name in ("conditions", "startTime", "completionTime") if name in old}
        whole |= {"ready": min(tally.ready, active), "terminating": tally.terminating} | tally.counters | status
        if active:
            whole["active"] = active
        whole = {name: value for name, value in whole.items() if value is not None}
        return Plan(status=whole, release=tuple(tally.release), backoff=self.backoff)

    def condition(self, kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
        at = stamp(self.now)
        return {
            "type": kind,
            "status": status,
            "lastProbeTime": at,
            "lastTransitionTime": at,
            "reason": reason,
            "message": message,
        }

    def with_condition(self, kind: str, status: str, reason: str, message: str) -> list[dict[str, Any]]:
        """Return the conditions with this one in its place, or added."""
        new = self.condition(kind, status, reason, message)
        changed = [new if each["type"] == kind else each for each in self.conditions]
        return changed if any(each is new for each in changed) else [*changed, new]


def _afterwards(job: Object, pods: Sequence[Object], ending: dict[str, Any], now: datetime) -> Plan:
    """Nothing but to release what is left, and to go when the time to live is over."""
    done = Plan(status=job["status"], release=tuple(pod for pod in pods if tracked(pod)))
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or p.leaving(job):
        return done
    wait = ttl - seconds_since(ending["lastTransitionTime"], now)
    return replace(done, wake=wait) if wait > 0 else replace(done, remove=True)


def _unsupported(job: Object) -> tuple[str, str] | None:
    """Fail at once what would otherwise run differently from what it asks for."""
    spec = job["spec"]
    asked = [
        field
        for field in _UNSUPPORTED
        if spec.get(field) is not None and not (field == "podFailurePolicy" and ignores_only(spec[field]))
    ]
    if not asked:
        return None
    text = f"spec.{asked[0]}: not supported by the Muster sandbox; take it out or use a real control plane"
    return "NotSupportedBySandbox", text


def _failure(job: Object, tally: JobCounts, pods: Sequence[Object], now: datetime) -> tuple[str, str] | None:
    """Why the Job fails: reason and message, or None."""
    target = p.condition(job, "FailureTarget")
    if target is not None and target["status"] == "True":
        return target["reason"], target["message"]
    if p.holds(job, "SuccessCriteriaMet"):
        return None
    limit = job["spec"].get("backoffLimit", 6)
    if tally.failed > limit or _restarted_too_often(job, pods, limit):
        return _TOO_MANY
    return _TOO_LONG if _seconds_left(job, now) == 0 else None


def _restarted_too_often(job: Object, pods: Sequence[Object], limit: int) -> bool:
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(p.restarts(pod) for pod in pods if not p.ended(pod))
    return restarts > 0 if limit == 0 else restarts >= limit


def _seconds_left(job: Object, now: datetime) -> float | None:
    """How long the Job may go on; None without a deadline."""
    deadline = job["spec"].get("activeDeadlineSeconds")
    start = (job.get("status") or {}).get("startTime")
    if deadline is None or start is None or job["spec"].get("suspend"):
        return None
    return max(0.0, (read(start) + timedelta(seconds=deadline) - now).total_seconds())


def _fail(draft: _Draft, failure: tuple[str, str]) -> Plan:
    return _end(draft, "FailureTarget", "Failed", failure, EventRecord("Warning", *failure))


def _complete(job: Object, tally: JobCounts) -> bool:
    completions = job["spec"].get("completions")
    if p.holds(job, "SuccessCriteriaMet"):
        return True
    if tally.active:
        return False
    return tally.succeeded > 0 if completions is None else tally.succeeded >= completions


def _succeed(draft: _Draft) -> Plan:
    return _end(draft, "SuccessCriteriaMet", "Complete", _REACHED, EventRecord("Normal", "Completed", "Job completed"))


def _end(draft: _Draft, first: str, last: str, why: tuple[str, str], note: EventRecord) -> Plan:
    """Announce the end; delete what runs; when all is quiet and counted, declare it."""
    tally = draft.tally
    conditions = draft.conditions
    if not p.holds(draft.job, first):
        conditions = draft.with_condition(first, "True", *why)
    if tally.active or tally.terminating or not tally.settled:
        plan_ = draft.plan(remaining=0, conditions=conditions)
        return replace(plan_, delete=tuple(tally.active))
    conditions = [*conditions, draft.condition(last, "True", *why)]
    completed: dict[str, Any] = {"completionTime": stamp(draft.now)} if last == "Complete" else {}
    return replace(draft.plan(conditions=conditions, **completed), notes=(note,))


def _suspend(draft: _Draft) -> Plan:
    tally = draft.tally
    delete = tuple(islice(p.least_valuable_first(tally.active), AT_ONCE))
    remaining = len(tally.active) - len(delete)
    if p.holds(draft.job, "Suspended"):
        return replace(draft.plan(remaining=remaining), delete=delete, forget=True)
    conditions = draft.with_condition("Suspended", "True", "JobSuspended", "Job suspended")
    suspended = draft.plan(remaining=remaining, conditions=conditions, startTime=None)
    return replace(suspended, delete=delete, forget=True, notes=(EventRecord("Normal", "Suspended", "Job suspended"),))


def _run(draft: _Draft) -> Plan:
    start = (draft.job.get("status") or {}).get("startTime") or stamp(draft.now)
    changes: dict[str, Any] = {"startTime": start}
    notes: tuple[EventRecord, ...] = ()
    if p.holds(draft.job, "Suspended"):
        conditions = draft.with_condition("Suspended", "False", "JobResumed", "Job resumed")
        changes = {"startTime": stamp(draft.now), "conditions": conditions}
        notes = (EventRecord("Normal", "Resumed", "Job resumed"),)
    delete, create, pause = _wanted(draft)
    running = draft.plan(remaining=len(draft.tally.active) - len(delete), **changes)
    left = _seconds_left({**draft.job, "status": running.status}, draft.now)
    waits = [wait for wait in (pause, left) if wait]
    return replace(running, create=create, delete=delete, forget=True, notes=notes, wake=min(waits) if waits else None)


def _wanted(draft: _Draft) -> tuple[tuple[Object, ...], tuple[int | None, ...], float]:
    """Which pods are too many, which are missing, and for how many seconds those must wait."""
    spec, tally = draft.job["spec"], draft.tally
    keep, surplus = _by_index(draft) if indexed(draft.job) else (list(tally.active), [])
    too_many = max(0, len(keep) - _most(spec, tally))
    surplus += p.least_valuable_first(keep)[:too_many]
    if surplus:
        return tuple(surplus[:AT_ONCE]), (), 0.0
    missing = _most(spec, tally) - len(keep)
    if spec.get("podReplacementPolicy") == "Failed":
        missing -= tally.terminating
    missing = min(missing, AT_ONCE)
    pause = draft.backoff.remaining(draft.now)
    if missing <= 0 or pause:
        return (), (), pause if missing > 0 else 0.0
    return (), tuple(_free_indexes(draft, keep, missing)), 0.0


def _most(spec: dict[str, Any], tally: JobCounts) -> int:
    """How many pods may be active."""
    parallelism: int = spec.get("parallelism", 1)
    if spec.get("completions") is None:
        return len(tally.active) if tally.succeeded else parallelism
    left: int = spec["completions"] - tally.succeeded
    return max(0, min(left, parallelism))


def _by_index(draft: _Draft) -> tuple[list[Object], list[Object]]:
    """Split active pods into the first of each index that is still wanted, and the others."""
    seen = set(draft.tally.completed)
    keep, others = [], []
    for pod in draft.tally.active:
        index = index_of(pod)
        if index is None or index in seen or index >= draft.job["spec"]["completions"]:
            others.append(pod)
        else:
            seen.add(index)
            keep.append(pod)
    return keep, others


def _free_indexes(draft: _Draft, keep: list[Object], missing: int) -> list[int | None]:
    if not indexed(draft.job):
        return [None] * missing
    taken = {*draft.tally.completed, *(index_of(pod) for pod in keep)}
    free = (index for index in range(draft.job["spec"]["completions"]) if index not in taken)
    return list(islice(free, missing))
