"""A Deployment's status: what ``kubectl rollout status`` reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.rollout import count, limits, total
from muster.sandbox.controllers.plans.times import read, stamp
from muster.sandbox.core.store import Object

Json = dict[str, Any]

_AVAILABLE: Final = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
_UNAVAILABLE: Final = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
_DONE: Final = "NewReplicaSetAvailable"
_LATE: Final = "ProgressDeadlineExceeded"


def status(deployment: Object, new: Object | None, old: Sequence[Object], now: datetime) -> Json:
    """Return the whole status."""
    everything = ([new] if new else []) + list(old)
    counts = {
        "replicas": count(everything, "replicas"),
        "updatedReplicas": count([new], "replicas") if new else 0,
        "readyReplicas": count(everything, "readyReplicas"),
        "availableReplicas": count(everything, "availableReplicas"),
        "unavailableReplicas": max(0, total(everything) - count(everything, "availableReplicas")),
    }
    before = deployment.get("status") or {}
    result: Json = {name: number for name, number in counts.items() if number}
    result["terminatingReplicas"] = count(everything, "terminatingReplicas")
    result["observedGeneration"] = deployment["metadata"]["generation"]
    if before.get("collisionCount"):
        result["collisionCount"] = before["collisionCount"]
    enough = deployment["spec"].get("replicas", 1) - limits(deployment)[1]
    conditions = _set(before.get("conditions") or [], "Available", _available(counts, enough), now)
    conditions = _progress(deployment, new, counts, conditions, now)
    return {
        **result,
        "conditions": [each for each in conditions if each["type"] != "ReplicaFailure"] + _failure(everything),
    }


def created(deployment: Object, name: str, now: datetime) -> list[Json]:
    """Return the conditions once a ReplicaSet for a new template was made."""
    text = f'Created new replica set "{name}"'
    return _progressing(deployment, "NewReplicaSetCreated", text, now)


def found(deployment: Object, name: str, now: datetime) -> list[Json]:
    """Return the conditions once an old ReplicaSet turned out to be the new one."""
    return _progressing(deployment, "FoundNewReplicaSet", f'Found new replica set "{name}"', now)


def paused(deployment: Object, now: datetime) -> list[Json]:
    """Return the conditions of a Deployment that was paused or resumed, so that its deadline doesn't run."""
    conditions: list[Json] = (deployment.get("status") or {}).get("conditions") or []
    progressing = p.condition(deployment, "Progressing")
    reason = progressing["reason"] if progressing else ""
    if reason == _LATE:
        return conditions
    if deployment["spec"].get("paused"):
        if reason == "DeploymentPaused":
            return conditions
        return _set(conditions, "Progressing", ("Unknown", "DeploymentPaused", "Deployment is paused"), now)
    if reason == "DeploymentPaused":
        return _set(conditions, "Progressing", ("Unknown", "DeploymentResumed", "Deployment is resumed"), now)
    return conditions


def seconds_to_deadline(deployment: Object, now: datetime) -> float | None:
    """Return how long the rollout may go on without progress; None when no deadline runs."""
    progressing = p.condition(deployment, "Progressing")
    if progressing is None or progressing["reason"] in {_DONE, _LATE, "DeploymentPaused"}:
        return None
    limit = timedelta(seconds=deployment["spec"].get("progressDeadlineSeconds", 600))
    return max(0.0, (read(progressing["lastUpdateTime"]) + limit - now).total_seconds())


def complete(deployment: Object, counts: Json) -> bool:
    """Whether all pods are new and available."""
    replicas = deployment["spec"].get("replicas", 1)
    return all(counts.get(each, 0) == replicas for each in ("updatedReplicas", "replicas", "availableReplicas"))


def _available(counts: Json, enough: int) -> tuple[str, str, str]:
    return _AVAILABLE if counts["availableReplicas"] >= enough else _UNAVAILABLE


def _progress(
    deployment: Object, new: Object | None, counts: Json, conditions: list[Json], now: datetime
) -> list[Json]:
    current = p.condition(deployment, "Progressing")
    if deployment["spec"].get("paused"):
        return conditions
    if current and current["reason"] == _DONE and counts["replicas"] == counts["updatedReplicas"]:
        return conditions
    name = f'ReplicaSet "{new["metadata"]["name"]}"' if new else f'Deployment "{deployment["metadata"]["name"]}"'
    if complete(deployment, counts):
        return _set(conditions, "Progressing", ("True", _DONE, f"{name} has successfully progressed."), now)
    if _advanced(deployment.get("status") or {}, counts):
        return _set(
            conditions, "Progressing", ("True", "ReplicaSetUpdated", f"{name} is progressing."), now, touch=True
        )
    if current and current["reason"] != _LATE and seconds_to_deadline(deployment, now) == 0:
        return _set(conditions, "Progressing", ("False", _LATE, f"{name} has timed out progressing."), now)
    return conditions


def _advanced(before: Json, counts: Json) -> bool:
    def rose(name: str) -> bool:
        return bool(counts[name] > before.get(name, 0))

    old_left = counts["replicas"] - counts["updatedReplicas"]
    old_before = before.get("replicas", 0) - before.get("updatedReplicas", 0)
    return rose("updatedReplicas") or rose("readyReplicas") or rose("availableReplicas") or old_left < old_before


def _progressing(deployment: Object, reason: str, message: str, now: datetime) -> list[Json]:
    conditions = (deployment.get("status") or {}).get("conditions") or []
    return _set(conditions, "Progressing", ("True", reason, message), now, touch=True)


def _set(
    conditions: Sequence[Json], kind: str, standing: tuple[str, str, str], now: datetime, *, touch: bool = False
) -> list[Json]:
    """Put a condition in its place; ``touch``: as new even when it says the same again."""
    value, reason, message = standing
    old = next((each for each in conditions if each["type"] == kind), None)
    if old and not touch and (old["status"], old["reason"]) == (value, reason):
        return list(conditions)
    since = old["lastTransitionTime"] if old and old["status"] == value else stamp(now)
    new = {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp(now),
        "lastTransitionTime": since,
    }
    return [new if each["type"] == kind else each for each in conditions] if old else [*conditions, new]


def _failure(replicasets: Sequence[Object]) -> list[Json]:
    failures = (p.condition(each, "ReplicaFailure") for each in replicasets)
    first = next((each for each in failures if each is not None), None)
    return [{**first, "lastUpdateTime": first["lastTransitionTime"]}] if first else []
