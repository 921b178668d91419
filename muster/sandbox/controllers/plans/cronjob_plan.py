"""The next steps of a CronJob, from it, its Jobs and the time. Pure.

The order is the real controller's: forget Jobs beyond the history, note those that ended, then start the one that is
due: only the last one, whatever was missed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.event_correlator import EventRecord
from muster.sandbox.controllers.plans.times import read, stamp
from muster.sandbox.core.store import Object, identity
from muster.sandbox.strategies import cron

SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"

_MANY: Final = 100
_MANY_MISSED: Final = EventRecord(
    "Warning",
    "TooManyMissedTimes",
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
)
_STILL_ACTIVE: Final = EventRecord(
    "Normal",
    "JobAlreadyActive",
    "Not starting job because prior execution is running and concurrency policy is Forbid",
)


class Due(Struct, frozen=True):
    """What the schedule asks for now: the time of the start that is due, or None; and seconds to the next look."""

    start: datetime | None = None
    wake: float | None = None
    notes: tuple[EventRecord, ...] = ()


def surplus(owner: Object, jobs: Sequence[Object]) -> list[Object]:
    """Return the ended Jobs beyond the history that is asked for, the oldest of each outcome."""
    gone: list[Object] = []
    for outcome, limit in (("Failed", "failedJobsHistoryLimit"), ("Complete", "successfulJobsHistoryLimit")):
        ended = sorted((job for job in jobs if p.holds(job, outcome)), key=_started)
        gone += ended[: max(0, len(ended) - owner["spec"][limit])]
    return gone


def noted(owner: Object, jobs: Sequence[Object]) -> tuple[dict[str, Any], list[EventRecord]]:
    """Return the status once Jobs that ended, are gone or are new to it are noted, and the events of that."""
    status = dict(owner.get("status") or {})
    active = list(status.get("active") or ())
    known, by_uid = {each["uid"] for each in active}, {job["metadata"]["uid"]: job for job in jobs}
    notes: list[EventRecord] = []
    for job in jobs:
        name, ending = job["metadata"]["name"], outcome(job)
        if not ending and job["metadata"]["uid"] not in known:
            text = f"Saw a job that the controller did not create or forgot: {name}"
            notes.append(EventRecord("Warning", "UnexpectedJob", text))
        elif ending and job["metadata"]["uid"] in known:
            notes.append(EventRecord("Normal", "SawCompletedJob", f"Saw completed job: {name}, condition: {ending}"))
        completed = (job.get("status") or {}).get("completionTime")
        if ending == "Complete" and completed:
            last = status.get("lastSuccessfulTime")
            status["lastSuccessfulTime"] = max(filter(None, (last, completed)), key=read)
    missing = (each["name"] for each in active if each["uid"] not in by_uid)
    notes += [EventRecord("Warning", "MissingJob", f"Active job went missing: {name}") for name in missing]
    running = [each for each in active if each["uid"] in by_uid and not outcome(by_uid[each["uid"]])]
    return _with_active(status, running), notes


def due(owner: Object, now: datetime) -> Due:
    """Say which start is due, and when to look again."""
    spec = owner["spec"]
    if p.leaving(owner) or spec.get("suspend"):
        return Due()
    try:
        zone = cron.zone(spec.get("timeZone") or "UTC")
        schedule = cron.parse(spec["schedule"])
    except cron.ScheduleError as error:
        # Admission refuses both; a time zone may go with an update of their database.
        return Due(
            notes=(
                EventRecord("Warning", "UnparseableSchedule", f"unparseable schedule: {spec['schedule']} : {error}"),
            )
        )
    deadline = spec.get("startingDeadlineSeconds")
    last = (owner.get("status") or {}).get("lastScheduleTime")
    since = read(last or owner["metadata"]["creationTimestamp"])
    if deadline is not None:
        since = max(since, now - timedelta(seconds=deadline))
    first = schedule.after(since, zone)
    following = schedule.after(now, zone)
    if first is None or following is None:
        text = f"invalid schedule: {spec['schedule']} : time difference between two schedules is less than 1 second"
        return Due(notes=(EventRecord("Warning", "InvalidSchedule", text),))
    wake = (following - now).total_seconds()
    if first > now:
        return Due(wake=wake)
    start, missed = _last_due(schedule, zone, first, now)
    return Due(start, wake, (_MANY_MISSED,) if missed > _MANY else ())


def _last_due(schedule: cron.Schedule, zone: Any, first: datetime, now: datetime) -> tuple[datetime, int]:
    """Return the last time up to ``now``, and about how many there were from ``first`` on."""
    second = schedule.after(first, zone)
    if second is None or second > now:
        return first, 1
    step = second - first
    missed = (now - first) // step + 1
    # From near the end: a minutely schedule that was suspended for a year missed half a million.
    last = at = schedule.after(first + (missed - 2) * step, zone) or first
    while at <= now:
        last = at
        at = schedule.after(at, zone) or now + step
    return last if last <= now else first, missed


def held(owner: Object, start: datetime, active: Sequence[Any], now: datetime) -> EventRecord | None:
    """Say why a due start doesn't happen; None when it does."""
    deadline = owner["spec"].get("startingDeadlineSeconds")
    if deadline is not None and start + timedelta(seconds=deadline) < now:
        text = f"Missed scheduled time to start a job: {start:%a, %d %b %Y %H:%M:%S %z}"
        return EventRecord("Warning", "MissSchedule", text)
    if owner["spec"]["concurrencyPolicy"] == "Forbid" and active:
        return _STILL_ACTIVE
    return None


def outcome(job: Object) -> str:
    """Return the condition by which a Job ended; empty while it hasn't."""
    return next((kind for kind in ("Complete", "Failed") if p.holds(job, kind)), "")


def started(status: dict[str, Any], job: Object, start: datetime) -> dict[str, Any]:
    """Return the status once a Job was made."""
    metadata = job["metadata"]
    reference = {"apiVersion": job["apiVersion"], "kind": job["kind"]}
    reference |= {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
    active = [*(status.get("active") or ()), reference]
    return _with_active({**status, "lastScheduleTime": stamp(start)}, active)


def stopped(status: dict[str, Any], job: str) -> dict[str, Any]:
    """Return the status once a running Job was deleted for the next one."""
    return _with_active(status, [each for each in status.get("active") or () if each["name"] != job])


def _with_active(status: dict[str, Any], active: list[Any]) -> dict[str, Any]:
    rest = {name: value for name, value in status.items() if name != "active"}
    return {**rest, "active": active} if active else rest


def new_job(owner: Object, start: datetime) -> Object:
    """Make the Job of a start: named after its minute, so that it can't be made twice."""
    template, spec = owner["spec"]["jobTemplate"], owner["spec"]
    given = template.get("metadata") or {}
    local = start.astimezone(cron.zone(spec.get("timeZone") or "UTC"))
    at = local.isoformat() if spec.get("timeZone") and local.utcoffset() else stamp(start)
    metadata: dict[str, Any] = {
        "name": job_name(owner, start),
        "namespace": identity(owner)[0],
        "annotations": {**(given.get("annotations") or {}), SCHEDULED: at},
        "ownerReferences": [p.owner_reference(owner)],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}


def job_name(owner: Object, start: datetime) -> str:
    """Return the name of the Job of a start."""
    return f"{owner['metadata']['name']}-{int(start.timestamp()) // 60}"


def _started(job: Object) -> tuple[str, str]:
    return (job.get("status") or {}).get("startTime", ""), job["metadata"]["name"]
