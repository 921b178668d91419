"""Pods as controllers read and make them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from muster.sandbox.controllers.plans.times import read
from muster.sandbox.core.store import Object

TERMINAL: Final = frozenset({"Succeeded", "Failed"})
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def phase(pod: Object) -> str:
    """Return the pod's phase."""
    text: str = (pod.get("status") or {}).get("phase") or "Pending"
    return text


def ended(pod: Object) -> bool:
    """Whether its containers have run for the last time."""
    return phase(pod) in TERMINAL


def leaving(obj: Object) -> bool:
    """Whether somebody deleted it."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def active(pod: Object) -> bool:
    """Whether it counts as one of the pods that its controller wants."""
    return not ended(pod) and not leaving(pod)


def condition(obj: Object, kind: str) -> dict[str, Any] | None:
    """Return the condition of that type, or None."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), None)


def holds(obj: Object, kind: str) -> bool:
    """Whether the condition of that type is True."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


def ready(pod: Object) -> bool:
    """Whether the pod is ready and not on its way out."""
    return holds(pod, "Ready")


def available_at(pod: Object, min_ready_seconds: int) -> datetime | None:
    """Return when a ready pod counts (or counted first) as available; None when it isn't ready."""
    found = condition(pod, "Ready")
    if found is None or found["status"] != "True":
        return None
    since = found.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"]
    return read(since) + timedelta(seconds=min_ready_seconds)


def finished_at(pod: Object) -> datetime:
    """Return when a pod ended: its last container, else its readiness, its deletion or its making."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [status.get("state", {}).get("terminated", {}).get("finishedAt") for status in statuses]
    if ends and all(ends):
        return max(read(end) for end in ends)
    found = condition(pod, "Ready")
    if ended(pod) and found is not None and found.get("lastTransitionTime"):
        return read(found["lastTransitionTime"])
    metadata = pod["metadata"]
    if leaving(pod):
        return read(metadata["deletionTimestamp"]) - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return read(metadata["creationTimestamp"])


def from_template(template: Object, owner: Object, prefix: str) -> Object:
    """Make the pod that ``owner`` wants: from the template, under a generated name, owned."""
    given = template.get("metadata") or {}
    metadata: dict[str, Any] = {"generateName": prefix, "ownerReferences": [owner_reference(owner)]}
    for field in ("labels", "annotations", "finalizers"):
        if given.get(field):
            metadata[field] = given[field]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def owner_reference(owner: Object) -> dict[str, Any]:
    """Return the reference by which a controller owns something."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def restarts(pod: Object) -> int:
    """Return how often its containers were restarted."""
    status = pod.get("status") or {}
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return sum(each.get("restartCount", 0) for each in statuses)


def least_valuable_first(pods: Iterable[Object]) -> list[Object]:
    """Order active pods as controllers remove them: those that got least far, cost least, are newest."""
    newest = sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]), reverse=True)
    return sorted(newest, key=_value)


def _value(pod: Object) -> tuple[Any, ...]:
    found = condition(pod, "Ready")
    is_ready = found is not None and found["status"] == "True"
    ready_since = found.get("lastTransitionTime", "") if is_ready and found is not None else ""
    placed = bool(pod["spec"].get("nodeName"))
    # Longer ready is worth more, so the later time comes first: negate what compares as text by its timestamp.
    age = -read(ready_since).timestamp() if ready_since else 0.0
    return placed, _PHASES.get(phase(pod), 0), is_ready, _cost(pod), age, -restarts(pod)


def _cost(pod: Object) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    return int(text) if text.lstrip("-").isdigit() else 0


def controller_of(obj: Object) -> Object | None:
    """Return the ownerReference of the object's controller, or None."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_uid(obj: Object) -> str:
    """Return the uid of the object's controller, empty when it has none."""
    owner = controller_of(obj)
    return owner["uid"] if owner else ""


def node_name(pod: Object) -> str:
    """Return the node that a pod is bound to, empty when it isn't."""
    name: str = pod["spec"].get("nodeName") or ""
    return name
