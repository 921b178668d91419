"""Objects for a `Cluster`, and pictures of one that can be compared."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.model import kinds, names
from scheduler.model.snapshot import GroupKey
from scheduler.state.cluster import Cluster

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def made(kind: Any, body: dict[str, Any]) -> Any:
    return msgspec.convert(body, kind.struct)


def pod(name: str, group: str, node: str, phase: str, **more: Any) -> Any:
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": name, "annotations": {names.GROUP_NAME: group}}
    meta["labels"] = {"app": more.pop("app", "a")}
    if more.pop("leaving", False):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    port = [{"hostPort": 80}] if more.pop("port", False) else None
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "nodeName": node,
        "containers": [{"resources": {"requests": {"cpu": more.pop("cpu", "1")}}, "ports": port}],
        **more,
    }
    return made(kinds.PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase}})


def shown(cluster: Cluster) -> Any:
    snapshot = cluster.snapshot()
    jobs = [
        (
            (job.key, job.min_member, job.phase, job.counters, job.written),
            (job.counts, job.task_counts.ready, job.finished, job.expected_pods, job.amounts(snapshot.axes)),
        )
        for job in snapshot.jobs
    ]
    columns = [snapshot.axes.place[name] for name in ("cpu", "memory", "pods")]
    return (
        snapshot.table.names,
        snapshot.idle[:, columns].tolist(),
        snapshot.releasing[:, columns].tolist(),
        jobs,
        snapshot.ports,
    )


def tasks_of(cluster: Cluster) -> dict[GroupKey, Any]:
    """Return the tasks of each group; those that were told of in a crowd have none."""
    return {
        job.key: [(*_plain(task), task.task_class.request, *_asked(task.task_class)) for task in job.tasks]
        for job in cluster.snapshot().jobs
    }


def _plain(task: Any) -> tuple[Any, ...]:
    return (task.uid, task.status, task.node, task.priority, task.role, task.preemptable, task.never_preempts)


def _asked(kind: Any) -> tuple[Any, ...]:
    # Which questions of other pods it is counted for may lag: answers that nobody asks for any more do no harm.
    return (kind.constraints.pod_terms, kind.constraints.ports, kind.constraints.of_nodes)
