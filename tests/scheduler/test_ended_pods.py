"""What pods gave back when they ended is free for others at once, whatever phase their group is written with."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from muster.cli.options import policy_of
from scheduler.simulator import state

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)
VOLCANO = "scheduling.volcano.sh/v1beta1"


def group(name, phase, members):
    spec = {"minMember": members, "minResources": {"cpu": str(2 * members)}}
    status = {"phase": phase, "running": 0}
    return {"apiVersion": VOLCANO, "kind": "PodGroup", "metadata": meta(name), "spec": spec, "status": status}


def meta(name, **more):
    return {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z", **more}


def pod(group, number, phase="Pending", node=""):
    containers = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(f"{group}-{number}", annotations={"scheduling.k8s.io/group-name": group}),
        "spec": {"schedulerName": "muster", "containers": containers, "nodeName": node},
        "status": {"phase": phase},
    }


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "pods": "9"}},
}


@pytest.mark.parametrize("still_running", [0, 1])
def test_a_group_isnt_taken_to_wait_for_what_its_ended_pods_had(still_running):
    old = [pod("old", number, "Running" if number < still_running else "Succeeded", "n") for number in range(4)]
    waiting = 4 - still_running
    new = [group("new", "Pending", waiting), *(pod("new", number) for number in range(waiting))]
    cluster = state.load([NODE, group("old", "Running", 4), *old, *new], ["muster"])
    plan = state.decide_once(cluster, policy_of(None), NOW)
    assert len(plan.binds) == waiting
