"""Muster's own kinds through kubectl, from the files that users install."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

Kubectl = Any

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = (
    "hypernodes.topology.volcano.sh",
    "podgroups.scheduling.volcano.sh",
    "queues.scheduling.volcano.sh",
    "quotaledgers.muster.sh",
)
QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "spec": {"weight": 3, "capability": {"cpu": "4"}},
}
GROUP = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "g"},
    "spec": {"minMember": 3, "queue": "t", "minResources": {"cpu": "3", "memory": "1Gi"}},
}


def apply(kubectl: Kubectl) -> list[str]:
    """Apply Muster's kinds, which gives no warning; give what is said."""
    lines: list[str] = kubectl("apply", "--server-side", "-f", str(CRDS)).lines
    for kind in KINDS:
        kubectl("wait", "--for=condition=Established", f"crd/{kind}", "--timeout=100s")
    return lines


@pytest.fixture
def group(kubectl: Kubectl) -> Kubectl:
    """A PodGroup g in a queue named as the namespace, on a server that has Muster's kinds."""
    if not all(kubectl.server.send("GET", f"{DEFINITIONS}/{kind}") for kind in KINDS):
        apply(kubectl)
    queue = {**QUEUE, "metadata": {"name": kubectl.namespace}}
    spec = {**GROUP["spec"], "queue": kubectl.namespace}  # type: ignore[dict-item]
    kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([queue, {**GROUP, "spec": spec}]))
    return kubectl


def test_the_definitions_can_be_applied_from_either_side(kubectl: Kubectl) -> None:
    expected = [f"customresourcedefinition.apiextensions.k8s.io/{kind} serverside-applied" for kind in KINDS]
    assert apply(kubectl) == expected
    assert apply(kubectl) == expected
    assert kubectl("diff", "-f", str(CRDS)).out == ""


def test_groups_and_queues_print_their_columns(group: Kubectl) -> None:
    status = {"phase": "Running", "running": 3, "conditions": [{"type": "Scheduled", "status": "True", "reason": "Ok"}]}
    group("patch", "pg", "g", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    header, row = group("get", "pg").words
    assert header == ["NAME", "STATUS", "MINMEMBER", "RUNNING", "QUEUE", "OWNER", "REASON", "AGE"]
    assert row[:-1] == ["g", "Running", "3", "3", group.namespace, "Ok"]
    header, row = group("get", "q", group.namespace).words
    assert header == ["NAME", "WEIGHT", "STATE", "TOTAL", "PENDING", "INQUEUE", "RUNNING", "AGE"]
    assert row[:2] == [group.namespace, "3"]


def test_groups_are_described_and_explained(group: Kubectl) -> None:
    described = group("describe", "pg", "g").out
    assert "Min Member:  3" in described
    assert "Memory:" in described
    assert "How many pods have to run together" in group("explain", "pg.spec.minMember").out
    assert "weight\t<integer>" in group("explain", "queue.spec").out


def test_a_wrong_value_of_a_queue_is_named(group: Kubectl) -> None:
    said = group.fails("patch", "queue", group.namespace, "--type=merge", "-p", '{"spec":{"weight":70000}}')
    assert said.startswith(
        f'The Queue "{group.namespace}" is invalid: spec.weight: Invalid value: 70000: spec.weight in body'
    )


def test_defaults_are_filled_in_and_null_brings_them_back(group: Kubectl) -> None:
    group("patch", "pg", "g", "--type=merge", "-p", '{"spec":{"queue":null}}')
    assert group("get", "pg", "g", "-o", "jsonpath={.spec.queue}").out == "default"
