"""Clusters to ask `muster.whatif` about, made of plain objects; and what a suggestion says, done to them."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.ledger.reservations import PODGROUP, held
from muster.ledger.rows import Row, RowState
from muster.ledger.table import Table
from muster.ledger.view import source
from muster.model import kinds, names
from muster.model.amounts import Resources
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import KINDS, ClusterObjects, ledger_view
from scheduler.configuration import config
from scheduler.engine.policy import Policy
from scheduler.model.snapshot import GroupKey

TAKEN = datetime(2026, 1, 1, 12, tzinfo=UTC)
A_DAY = timedelta(days=1)
POLICY = config.read(None)
GROUP = kinds.PODGROUPS.api_version
DEDICATED = {"key": "dedicated", "value": "web", "effect": "NoSchedule"}

Json = dict[str, Any]


def made(api_version: str, kind: str, meta: Json, **fields: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}


def node(name: str, free: Json, labels: Json | None = None, **spec: Any) -> Json:
    allocatable = {"memory": "16Gi", "pods": "20", **free}
    meta = {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    return made("v1", "Node", meta, spec=spec, status=status)


def queue(name: str, state: str = "Open", **spec: Any) -> Json:
    return made(GROUP, "Queue", {"name": name}, spec={"weight": 1, **spec}, status={"state": state})


def gang(
    name: str,
    cpus: Sequence[int],
    queue: str,
    place: str = "",
    *,
    minimum: int | None = None,
    phase: str = "",
    **spec: Any,
) -> list[Json]:
    """Return a group and its pods, all of the minimum where nothing else is said; on a node, or waiting."""
    phase = phase or ("Running" if place else "Pending")
    least = len(cpus) if minimum is None else minimum
    meta = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T11:00:00Z"}
    status = {"phase": phase, "running": len(cpus) if place else 0}
    group = made(GROUP, "PodGroup", meta, spec={"minMember": least, "queue": queue}, status=status)
    return [group, *(pod(meta, number, cpu, place, spec) for number, cpu in enumerate(cpus))]


def pod(group: Json, number: int, cpu: int, place: str, spec: Json) -> Json:
    name = f"{group['name']}-{number}"
    meta = group | {"name": name, "uid": f"team/{name}", "annotations": {names.GROUP_NAME: group["name"]}}
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}
    whole = {"schedulerName": "muster", "containers": [container], **spec, **({"nodeName": place} if place else {})}
    return made("v1", "Pod", meta, spec=whole, status={"phase": "Running" if place else "Pending"})


def held_job(name: str, cpu: int, count: int) -> Json:
    """Return the Job of a group of its name, which Muster holds."""
    template = pod({"name": name}, 0, cpu, "", {"restartPolicy": "Never"})
    inner = {"metadata": {"annotations": {names.GROUP_NAME: name}}, "spec": template["spec"]}
    meta = {"name": name, "namespace": "team", "uid": f"job-{name}", "creationTimestamp": "2026-01-01T11:00:00Z"}
    meta["annotations"] = {names.SUSPENDED: "true"}
    spec = {"parallelism": count, "completions": count, "suspend": True, "template": inner}
    return made("batch/v1", "Job", meta, spec=spec, status={})


def replaced(objects: Sequence[Json], started: str = "2026-01-01T11:00:00Z") -> list[Json]:
    """Return a group and its pods as those of a Deployment: they run since then, and others are made when they go."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    for each in objects[1:]:
        each["metadata"]["ownerReferences"] = [owner]
        each["status"]["startTime"] = started
    return list(objects)


def state(objects: Iterable[Json], taken: datetime = TAKEN) -> ClusterObjects:
    """Return a cluster as `muster dump` would."""
    found = defaultdict(list)
    for each in objects:
        kind = next(one for one in KINDS if (one.api_version, one.name) == (each["apiVersion"], each["kind"]))
        found[kind].append(msgspec.convert(each, kind.struct))
    return ClusterObjects(taken, {kind: tuple(found[kind]) for kind in KINDS})


def asked(objects: Iterable[Json], taken: datetime = TAKEN, policy: Policy = POLICY) -> WhatIfCluster:
    return WhatIfCluster(state(objects, taken), policy, ["muster"])


def key(name: str) -> GroupKey:
    return GroupKey(kinds.PODGROUPS.group, "team", name)


def at_rest(objects: Sequence[Json], key: GroupKey, policy: Policy = POLICY) -> tuple[list[Json], datetime]:
    """Return the cluster as it is once the scheduler has done for a group what it can: a change comes after that."""
    cluster = asked(objects, policy=policy)
    cluster.run_until_idle([key])
    rest, after = cluster.state_now(), copy.deepcopy(list(objects))
    # Whoever was evicted meanwhile is gone.
    after = [each for each in after if each["kind"] != "Pod" or rest.find(kinds.PODS, each["metadata"]["name"], "team")]
    for each in after:
        name = each["metadata"]["name"]
        if each["kind"] == "Pod" and (pod := rest.find(kinds.PODS, name, "team")) and pod.spec.node_name:
            each["spec"]["nodeName"] = pod.spec.node_name
            each["status"]["phase"] = "Running"
        if each["kind"] == "PodGroup" and (found := rest.find(kinds.PODGROUPS, name, "team")):
            each["status"] = msgspec.to_builtins(found.status)
        if each["kind"] == "Job" and (job := rest.find(kinds.JOBS, name, "team")):
            each["spec"]["suspend"] = job.spec.suspend
    known = {each["metadata"]["name"] for each in after if each["kind"] == "Pod"}
    made_since = [pod for pod in rest.of(kinds.PODS, "team") if pod.name not in known]
    after += [{"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(pod)} for pod in made_since]
    return after, cluster.now


# ── doing what is suggested ──────────────────────────────────────────────────────────────────────────────────────


def done(objects: Sequence[Json], change: Json, group: str) -> list[Json]:
    """Do what a suggestion for a group says; an action is added to the policy instead (`with_action`)."""
    after = copy.deepcopy(list(objects))
    gone = [name.partition("/")[2] for name in change["podGroups"]] if change["kind"] == "end" else []
    after = [each for each in after if not any(belongs(each, name) for name in gone)]
    named = {each["metadata"]["name"]: each for each in after if each["kind"] in {"Node", "Queue"}}
    match change["kind"]:
        case "time" | "end" | "action":
            pass
        case "minMember":
            of(after, "PodGroup", group)["spec"]["minMember"] = change["minMember"]
        case "pods":
            like = next(each for each in after if each["kind"] == "Pod" and belongs(each, group))
            after += [more(like, number) for number in range(change["count"])]
        case "quota":
            for each in change["quotas"]:
                of(after, "ResourceQuota", each["name"])["spec"]["hard"][each["resource"]] = each["hard"]
        case "capability" | "weight" | "maxPodGroups":
            named[change["queue"]]["spec"] |= {change["kind"]: change[change["kind"]]}
        case "open":
            named[change["queue"]]["status"] = {"state": "Open"}
        case "queue":
            after.append(queue(change["queue"]))
        case _:
            after += other_nodes(named, change)
    return seeded(after) if any(each["kind"] == "QuotaLedger" for each in after) else after


def other_nodes(named: dict[str, Json], change: Json) -> list[Json]:
    """Return the nodes that a suggestion adds; one that it uncordons is changed as it is."""
    match change["kind"]:
        case "uncordon":
            for each in change["nodes"]:
                del named[each]["spec"]["unschedulable"]
            return []
        case "nodes":
            return [another(named[change["like"]], number) for number in range(change["count"])]
        case "node":
            new = another(named[change["like"]], 0)
            new["metadata"]["labels"] |= change.get("labels", {})
            if "withoutTaints" in change:
                new["spec"].pop("taints", None)
            if "free" in change:
                new["status"]["allocatable"] = change["free"]
            return [new]
        case kind:
            raise AssertionError(f"nobody knows how to do {kind}")


def of(objects: Iterable[Json], kind: str, name: str) -> Json:
    return next(each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))


def more(like: Json, number: int) -> Json:
    """Return one more pod of a group."""
    new = copy.deepcopy(like)
    name = f"{like['metadata']['annotations'][names.GROUP_NAME]}-more-{number}"
    new["metadata"] |= {"name": name, "uid": f"team/{name}"}
    new["spec"].pop("nodeName", None)
    return new | {"status": {"phase": "Pending"}}


def with_action(policy: Policy, change: Json) -> Policy:
    """Return a policy with the action that a suggestion names, as somebody would write it into the configuration."""
    if change["kind"] != "action":
        return policy
    listed = [each.name for each in policy.actions]
    listed.insert(listed.index("allocate") + 1, change["action"])
    return of_actions(", ".join(listed))


def of_actions(actions: str) -> Policy:
    return config.parse(config.DEFAULT.replace('"enqueue, allocate, reclaim, backfill"', f'"{actions}"'))


# ── a quota and its ledger ───────────────────────────────────────────────────────────────────────────────────────


def quota(name: str, **hard: str) -> Json:
    return made("v1", "ResourceQuota", {"name": name, "namespace": "team", "uid": name}, spec={"hard": hard})


def seeded(objects: list[Json], refused: Sequence[str] = ()) -> list[Json]:
    """Add the ledger of a namespace as it is once Muster has seen these objects; in place of one that is there.

    ``refused``: groups with minResources that came without a reservation, and are taken in only where they fit.
    """
    now = state(objects)
    table = now.ledger("team") or Table()
    rows = [*table.rows, *(_unreserved(now, name) for name in refused)]
    seen = replace(table, rows=tuple(rows)).seed(ledger_view(now, "team", ["muster"]), TAKEN)
    objects[:] = [each for each in objects if each["kind"] != "QuotaLedger"]
    meta = {"name": names.LEDGER_NAME, "namespace": "team", "uid": "ledger"}
    data = replace(seen, observed={source(kinds.PODGROUPS.group): 1}).render()
    objects.append(made(kinds.QUOTALEDGERS.api_version, "QuotaLedger", meta, data=msgspec.to_builtins(data)))
    assert state(objects).ledger("team") is not None
    return objects


def _unreserved(now: ClusterObjects, name: str) -> Row:
    group = now.find(kinds.PODGROUPS, name, "team")
    assert group is not None
    amounts = held(Resources.parse(group.spec.min_resources))
    return Row(PODGROUP, kinds.PODGROUPS.group, name, name, amounts, RowState.UNRESERVED, 1)


def belongs(each: Json, group: str) -> bool:
    meta = each["metadata"]
    return (
        each["kind"] in {"PodGroup", "Pod", "Job"}
        and (meta.get("annotations") or {}).get(names.GROUP_NAME, meta["name"]) == group
    )


def another(like: Json, number: int) -> Json:
    new = copy.deepcopy(like)
    new["spec"].pop("unschedulable", None)
    name = f"new-{number}"
    new["metadata"] |= {
        "name": name,
        "uid": name,
        "labels": like["metadata"]["labels"] | {"kubernetes.io/hostname": name},
    }
    return new
