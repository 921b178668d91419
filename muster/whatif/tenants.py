"""Answers for a tenant, who may read one namespace: of other tenants they hold amounts and positions, never names. Pure.

Sentences are composed of whatever the scheduler saw, so none is passed on. Each field here is one that is known to be a
tenant's own, an amount, or a position; a field that is added to `Explanation` is not shown until it is named here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from muster.model import kinds
from muster.whatif.admission import AdmissionForecast, PredictedStart
from muster.whatif.cluster_view import ClusterObjects
from muster.whatif.trials import Remedy
from muster.whatif.verdicts import AdmissionVerdict
from muster.whatif.why import Explanation
from scheduler.model.obstacle import Limit, Stage
from scheduler.model.plan import Plan, QueueShare
from scheduler.model.records import NodeReport, Record
from scheduler.model.snapshot import GroupKey

Json = dict[str, Any]

_CHANGES: Final[Mapping[str, frozenset[str]]] = {
    "action": frozenset({"action"}),
    "capability": frozenset({"queue", "capability", "enough"}),
    "maxPodGroups": frozenset({"queue", "maxPodGroups"}),
    "minMember": frozenset({"minMember", "enough"}),
    "node": frozenset({"free"}),
    "nodes": frozenset({"count"}),
    "open": frozenset({"queue", "enough"}),
    "pods": frozenset({"count", "enough"}),
    "queue": frozenset({"queue", "enough"}),
    "quota": frozenset({"quotas", "enough"}),
    "time": frozenset(),
    "weight": frozenset({"queue", "weight"}),
}
"""By the kind of a change, those of its fields that name no object of others."""


def why(answer: Explanation, namespace: str, *, tried: bool = True) -> Json:
    """Return why a group of a namespace waits; with the changes that would let it start where these were ``tried``."""
    status, record = answer.group.status, answer.record
    told: Json = {"podGroup": answer.key.name, "phase": status.phase or "Pending", "running": status.running}
    if record is None:
        return told
    told |= {
        "queue": record.queue,
        "stage": record.stage.value,
        "reason": record.reason.value if record.reason is not None else "",
        "needs": answer.needs,
        "position": record.ahead + 1,
        "ahead": _own(answer, namespace),
        "quotas": [
            {
                "quota": each.quota,
                "resource": each.resource,
                "hard": each.hard,
                "reserved": each.reserved,
                "other": each.other,
            }
            for each in answer.quotas
        ],
    }
    told |= {"changes": list(_changes(answer.changes))} if tried else {}
    told |= {"changesIncomplete": True} if answer.incomplete else {}
    told |= {"podsWaiting": answer.grows} if answer.grows else {}
    told |= {"limit": _limit(record.limit)} if record.limit is not None else {}
    return told | ({"nodes": _nodes(record.nodes)} if record.nodes is not None else {})


def _own(answer: Explanation, namespace: str) -> list[str]:
    """Return the names of those groups ahead that are the namespace's own."""
    split = (name.partition("/") for name, _ in answer.ahead)
    return [name for home, _, name in split if home == namespace]


def _changes(changes: Collection[Remedy]) -> Iterator[Json]:
    for each in changes:
        shown = _CHANGES.get(str(each.data.get("kind")))
        if shown is not None:
            yield {name: value for name, value in each.data.items() if name == "kind" or name in shown}


def _limit(limit: Limit) -> Json:
    return {"kind": limit.kind, "name": limit.name, "short": limit.short.quantities()}


def _nodes(nodes: NodeReport) -> Json:
    """Return how many nodes there are for its pods. Words about nodes may name them, or whom they are kept for."""
    kept = nodes.kept.nodes if nodes.kept is not None else 0
    return {
        "total": nodes.total,
        "fitting": nodes.fitting,
        "room": nodes.room,
        "needed": nodes.needed,
        "keptForOthers": kept,
    }


def position(plan: Plan, key: GroupKey) -> Json | None:
    """Return a group's place in the line of its queue, from 1, and the length of the line; None where it doesn't wait."""
    record = plan.records.get(key)
    if record is None:
        return None
    waiting = len(line(plan, record.queue))
    return {"podGroup": key.name, "queue": record.queue, "position": record.ahead + 1, "waiting": waiting}


def line(plan: Plan, queue: str) -> list[Record]:
    """Return who waits in a queue, in the order of their turns."""
    waiting = (each for each in plan.records.values() if each.queue == queue and each.stage is not Stage.BIND)
    return sorted(waiting, key=lambda each: (each.ahead, each.key))


def queues(state: ClusterObjects, plan: Plan, namespace: str) -> list[Json]:
    """Return the queues: their use and shares, how many wait, and where the namespace's own groups stand."""
    return [
        {
            "queue": each.name,
            "state": each.status.state or "Open",
            "weight": each.spec.weight,
            **_share(plan.queues.get(each.name)),
            "waiting": len(waiting := line(plan, each.name)),
            "own": [
                {"podGroup": record.key.name, "position": record.ahead + 1}
                for record in waiting
                if record.key.namespace == namespace
            ],
        }
        for each in sorted(state.of(kinds.QUEUES), key=lambda queue: queue.name)
    ]


def admitted(forecast: AdmissionForecast, namespace: str) -> Json:
    """Return what would become of objects of a namespace. What is said of an object is said to whoever applies it."""
    return {
        "objects": [_verdict(each) for each in forecast.verdicts],
        "starts": [_start(each, namespace) for each in forecast.starts],
    }


def _verdict(verdict: AdmissionVerdict) -> Json:
    answer = verdict.answer
    return {
        "apiVersion": answer.manifest.api_version,
        "kind": answer.manifest.kind,
        "name": answer.manifest.name,
        "outcome": verdict.outcome,
        "code": answer.code,
        "status": answer.status,
        "note": answer.note,
        "created": answer.created,
        "unchecked": answer.unchecked,
        "warnings": list(answer.warnings),
        "admittedAlone": verdict.alone,
    }


def _start(start: PredictedStart, namespace: str) -> Json:
    limit = start.record.limit if start.record is not None else None
    after = [each.name for each in start.after if each.namespace == namespace]
    evicts = [each for each in start.evicts if each.startswith(f"{namespace}/")]
    return {
        "podGroup": start.key.name,
        "for": start.label,
        "when": start.kind,
        "pods": start.pods,
        "podsSupposed": start.supposed,
        "after": after,
        "afterOthers": len(start.after) - len(after),
        "evicts": evicts,
        "evictsOthers": len(start.evicts) - len(evicts),
        **({"reason": start.text} if start.kind == "unknown" else {}),
    } | ({"limit": _limit(limit)} if limit is not None else {})


def _share(share: QueueShare | None) -> Json:
    if share is None:
        return {}
    told: Json = {"allocated": share.allocated.quantities()}
    if share.deserved is not None:
        told["deserved"] = share.deserved.quantities()
    return told | ({"share": share.share} if share.share is not None else {})
