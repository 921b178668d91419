"""A workload whose pods name a user's PodGroup that states no minResources: its pods are the first that are known of it."""

from __future__ import annotations

from typing import Any

import pytest

from muster.model import kinds
from muster.model.amounts import Resources
from webhooks.policies import workloads
from webhooks.verdict import ALLOWED

RESOURCE = {"group": "apps", "version": "v1", "resource": "deployments"}


def deployment(replicas: int = 6) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    named = {"annotations": {"scheduling.k8s.io/group-name": "qj"}}
    template = {"metadata": named, "spec": {"schedulerName": "muster", "containers": [container]}}
    metadata = {"name": "web", "namespace": "dev", "uid": "uid-web", "resourceVersion": "7"}
    spec = {"replicas": replicas, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("phase", ["", "Pending", "Inqueue"])
def test_whether_its_minimum_fits_is_asked_when_the_workload_comes_and_nothing_is_reserved(
    ask: Any, cluster: Any, phase: str
) -> None:
    cluster.put(kinds.PODGROUPS, "qj", "dev", spec={"minMember": 3}, status={"phase": phase})
    verdict = ask(workloads.validate, deployment(), resource=RESOURCE)
    assert (verdict.trial, verdict.reservation.name) == (True, "qj")
    assert verdict.reservation.amounts == Resources.parse({"cpu": "3", "pods": "3"})
    # Who scales it changes nothing of the group's minimum; and without pods it needs nothing yet.
    assert ask(workloads.validate, deployment(7), "UPDATE", old=deployment(), resource=RESOURCE) == ALLOWED
    assert ask(workloads.validate, deployment(0), resource=RESOURCE) == ALLOWED


@pytest.mark.parametrize(
    ("spec", "phase"),
    [
        ({"minMember": 3, "minResources": {"cpu": "3"}}, "Pending"),
        ({"minMember": 0}, "Pending"),
        ({"minMember": 3}, "Running"),
    ],
)
def test_of_a_group_that_states_its_need_has_no_minimum_or_runs_nothing_is_asked(
    ask: Any, cluster: Any, spec: dict[str, Any], phase: str
) -> None:
    cluster.put(kinds.PODGROUPS, "qj", "dev", spec=spec, status={"phase": phase})
    assert ask(workloads.validate, deployment(), resource=RESOURCE) == ALLOWED
