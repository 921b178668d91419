"""What is kept up to date object by object is what would be made of the objects anew; and nothing stays of what is gone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from clusters import APART, made, pod, shown, tasks_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from muster.model import kinds, names
from scheduler.model import vectors
from scheduler.model.snapshot import GroupKey
from scheduler.state.cluster import Cluster

PODS = st.sampled_from([f"p{number}" for number in range(5)])
NODES = st.sampled_from(["n0", "n1", "n2"])
GROUPS = st.sampled_from(["g0", "g1"])
ODDITIES = st.sampled_from([{}, {}, {}, {}, {}, {}, {"port": True}, {"leaving": True}])


class KeptUpToDate(RuleBasedStateMachine):
    """Pods, nodes and groups come, change and go, and the worker assumes, evicts and takes back."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster({names.SCHEDULER_NAME})
        self.pods: dict[str, Any] = {}
        self.nodes: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}
        self.assumed: dict[str, str] = {}

    @rule(name=NODES, cpu=st.sampled_from(["2", "4"]))
    def a_node(self, name: str, cpu: str) -> None:
        labels = {"kubernetes.io/hostname": name}
        status = {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "9"}}
        self.nodes[name] = made(kinds.NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
        self.cluster.node(self.nodes[name])

    @rule(name=NODES)
    def a_node_goes(self, name: str) -> None:
        if name in self.nodes:
            self.cluster.node(self.nodes.pop(name), gone=True)

    @rule(name=GROUPS, least=st.integers(0, 3))
    def a_group(self, name: str, least: int) -> None:
        meta = {"name": name, "namespace": "ns", "uid": name}
        self.groups[name] = made(kinds.PODGROUPS, {"metadata": meta, "spec": {"minMember": least}})
        self.cluster.group(kinds.PODGROUPS.group, self.groups[name])

    @rule(name=GROUPS, phase=st.sampled_from(["", "Inqueue", "Running"]), running=st.integers(0, 2))
    def a_group_gets_on(self, name: str, phase: str, running: int) -> None:
        """Only its status changes."""
        if name in self.groups:
            status = msgspec.structs.replace(self.groups[name].status, phase=phase, running=running)
            self.groups[name] = msgspec.structs.replace(self.groups[name], status=status)
            self.cluster.group(kinds.PODGROUPS.group, self.groups[name])

    @rule(name=GROUPS)
    def a_group_goes(self, name: str) -> None:
        if name in self.groups:
            self.cluster.group(kinds.PODGROUPS.group, self.groups.pop(name), gone=True)

    @rule(
        name=PODS,
        group=GROUPS,
        node=st.one_of(st.just(""), NODES),
        phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        app=st.sampled_from(["a", "b"]),
        cpu=st.sampled_from(["1", "500m"]),
        port=st.booleans(),
        leaving=st.booleans(),
        affinity=st.sampled_from([None, APART]),
    )
    def a_pod(self, name: str, group: str, node: str, phase: str, **more: Any) -> None:
        self.pods[name] = pod(name, group, node, phase, **more)
        if node:
            self.assumed.pop(name, None)
        self.cluster.pod(self.pods[name])

    @rule(
        group=GROUPS,
        crowd=st.dictionaries(PODS, st.tuples(NODES, ODDITIES), min_size=1),
        phase=st.sampled_from(["Pending", "Running"]),
    )
    def a_group_and_its_crowd(self, group: str, crowd: dict[str, tuple[str, dict[str, bool]]], phase: str) -> None:
        self.a_group(group, 1)
        for name, (node, oddity) in crowd.items():
            self.pods[name] = pod(name, group, node, phase, **oddity)
            self.assumed.pop(name, None)
        self.cluster.aggregate(self.cluster.by_group([self.pods[name] for name in crowd]))

    @rule(name=GROUPS)
    def somebody_asks_about_a_group(self, name: str) -> None:
        self.cluster.expand_group(GroupKey(kinds.PODGROUPS.group, "ns", name))

    @rule(name=PODS, node=NODES, phase=st.sampled_from(["Pending", "Running", "Succeeded"]))
    def a_pod_gets_on(self, name: str, node: str, phase: str) -> None:
        """Only what a kubelet or a binding changes."""
        if name not in self.pods:
            return
        old = self.pods[name]
        spec = msgspec.structs.replace(old.spec, node_name=old.spec.node_name or node)
        status = msgspec.structs.replace(old.status, phase=phase)
        self.pods[name] = msgspec.structs.replace(old, spec=spec, status=status)
        self.assumed.pop(name, None)
        self.cluster.pod(self.pods[name])

    @rule(name=PODS)
    def a_pod_goes(self, name: str) -> None:
        if name in self.pods:
            self.assumed.pop(name, None)
            self.cluster.pod(self.pods.pop(name), gone=True)

    @rule(name=PODS, node=NODES)
    def a_binding_is_on_its_way(self, name: str, node: str) -> None:
        if name in self.pods and not self.pods[name].spec.node_name and name not in self.assumed:
            self.assumed[name] = node
        self.cluster.assume(name, node)

    @rule(name=PODS)
    def a_binding_failed(self, name: str) -> None:
        self.assumed.pop(name, None)
        self.cluster.forget(name)

    @invariant()
    def is_what_would_be_made_anew(self) -> None:
        fresh = Cluster({names.SCHEDULER_NAME})
        for node in self.nodes.values():
            fresh.node(node)
        for each in self.pods.values():
            fresh.pod(each)
        for name, group in self.groups.items():
            fresh.group(kinds.PODGROUPS.group, group)
            assert GroupKey(kinds.PODGROUPS.group, "ns", name) in {job.key for job in fresh.snapshot().jobs}
        for name, node in self.assumed.items():
            fresh.assume(name, node)
        assert shown(self.cluster) == shown(fresh)
        tasks, all_tasks = tasks_of(self.cluster), tasks_of(fresh)
        assert all(tasks[key] == all_tasks[key] for key in all_tasks if tasks[key])

    def teardown(self) -> None:
        self.cluster.validate()


@pytest.mark.parametrize("most", [1, 2**62, 2**62 + 1, 2**63 - 1, 2**70])
def test_amounts_of_all_nodes_are_written_as_those_of_each(most: int) -> None:
    rows = [(most, 0, 5), (-most, most - 1, 1 - most)]
    assert vectors.matrix(rows, 3).tolist() == [vectors.clipped(row) for row in rows]


KeptUpToDate.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestAClusterKeptUpToDate = KeptUpToDate.TestCase
