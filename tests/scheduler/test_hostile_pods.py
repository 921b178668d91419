"""What one tenant's pods ask for makes nobody else's cycle slower."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.model import affinity
from scheduler.model.vectors import MOST_UNOFFERED, OTHERS
from scheduler.state.cluster import Cluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def made(kind: Any, body: dict[str, Any]) -> Any:
    return msgspec.convert(body, kind.struct)


def node(name: str, **more: str) -> Any:
    amounts = {"cpu": "4", "memory": "4Gi", "pods": "9"} | more
    return made(kinds.NODES, {"metadata": {"name": name}, "status": {"allocatable": amounts}})


def pod(name: str, requests: dict[str, str], scheduler: str = names.SCHEDULER_NAME, **spec: Any) -> Any:
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "labels": {"app": name},
        "annotations": {names.GROUP_NAME: "g"},
    }
    body = {"schedulerName": scheduler, "containers": [{"resources": {"requests": requests}}], **spec}
    return made(kinds.PODS, {"metadata": meta, "spec": body, "status": {"phase": "Pending"}})


def terms(count: int, values: int = 1) -> dict[str, Any]:
    each = [
        {
            "topologyKey": "zone",
            "labelSelector": {
                "matchExpressions": [
                    {"key": "app", "operator": "NotIn", "values": [f"{number}-{value}" for value in range(values)]}
                ]
            },
        }
        for number in range(count)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": each}}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster({names.SCHEDULER_NAME})
    cluster.node(node("n0"))
    queue = {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    cluster.queue(made(kinds.QUEUES, queue))
    group = {"metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"minMember": 1}}
    cluster.group(kinds.PODGROUPS.group, made(kinds.PODGROUPS, group | {"status": {"phase": "Inqueue"}}))
    return cluster


def told(cluster: Cluster) -> str:
    plan = decide(cluster.snapshot(), config.parse(config.DEFAULT), NOW, DecisionCache())
    assert not plan.binds
    return " ".join(each.message for status in plan.statuses for each in status.struct().conditions or ())


def test_thousands_of_invented_names_do_not_widen_the_matrices(cluster):
    cluster.pod(pod("hostile", {"cpu": "1"} | {f"example.com/r{number}": "1" for number in range(3000)}))
    snapshot = cluster.snapshot()
    assert snapshot.idle.shape == (1, 3 + MOST_UNOFFERED + 1)
    assert OTHERS in told(cluster)


def test_a_pod_that_only_asks_for_what_has_no_place_of_its_own_is_not_placed(cluster):
    for number in range(MOST_UNOFFERED):
        cluster.pod(pod(f"a{number}", {f"example.com/a{number}": "1"}))
    cluster.snapshot()
    cluster.pod(pod("z", {"example.com/z": "1"}))
    assert OTHERS in cluster.snapshot().axes.place
    for number in range(MOST_UNOFFERED):
        cluster.pod(pod(f"a{number}", {}), gone=True)
    told(cluster)


def test_a_name_that_no_node_has_is_still_named_in_the_sentence(cluster):
    cluster.pod(pod("typo", {"cpu": "1", "example.com/gpuu": "2"}))
    assert "example.com/gpuu" in told(cluster)


def test_what_a_node_offers_has_a_place_whatever_else_is_asked_for(cluster):
    cluster.pod(pod("hostile", {f"example.com/r{number}": "1" for number in range(3000)}))
    cluster.snapshot()
    cluster.node(node("n1", **{"example.com/gpu": "2"}))
    assert "example.com/gpu" not in cluster.snapshot().axes.place
    cluster.pod(pod("honest", {"cpu": "1", "example.com/gpu": "2"}))
    snapshot = cluster.snapshot()
    assert snapshot.table.allocatable[:, snapshot.axes.place["example.com/gpu"]].tolist() == [0, 2]
    plan = decide(snapshot, config.parse(config.DEFAULT), NOW, DecisionCache())
    assert [(bind.task.name, bind.node) for bind in plan.binds] == [("honest", "n1")]


def test_the_matrices_are_as_narrow_as_before_when_the_names_are_asked_for_no_more(cluster):
    cluster.pod(pod("honest", {"cpu": "1"}))
    for number in range(2):
        cluster.pod(pod("hostile", {f"example.com/{number}-{each}": "1" for each in range(3000)}))
        cluster.snapshot()
        cluster.pod(pod("hostile", {}), gone=True)
    # They are looked for when as many new names have come.
    cluster.pod(pod("other", {f"example.com/other-{each}": "1" for each in range(6100)}))
    cluster.pod(pod("other", {}), gone=True)
    assert cluster.snapshot().axes.names == ("cpu", "memory", "pods")
    cluster.validate()


def test_axes_stay_the_same_while_a_node_comes_and_goes(cluster):
    cluster.pod(pod("honest", {"example.com/gpu": "1"}))
    before = cluster.snapshot().axes
    cluster.node(node("n1", **{"example.com/gpu": "2"}))
    assert cluster.snapshot().axes is before
    cluster.node(node("n1", **{"example.com/gpu": "2"}), gone=True)
    assert cluster.snapshot().axes is before


def test_terms_of_a_pending_pod_of_another_scheduler_are_asked_of_nobody(cluster):
    cluster.pod(pod("theirs", {"cpu": "1"}, "another", affinity=terms(50)))
    cluster.pod(pod("ours", {"cpu": "1"}))
    assert cluster.snapshot().peer_counts.inverse_terms == {}


def test_they_count_from_when_it_is_on_a_node_until_it_is_gone(cluster):
    cluster.pod(pod("theirs", {"cpu": "1"}, "another", affinity=terms(50)))
    bound = pod("theirs", {"cpu": "1"}, "another", affinity=terms(50), nodeName="n0")
    cluster.pod(bound)
    snapshot = cluster.snapshot()
    assert len(snapshot.peer_counts.inverse_terms) == 50
    assert snapshot.idle[0, snapshot.axes.place["cpu"]] == 3000
    cluster.validate()
    cluster.pod(bound, gone=True)
    assert cluster.snapshot().peer_counts.inverse_terms == {}
    cluster.validate()


@pytest.mark.parametrize(
    "hostile", [terms(affinity.MAX_TERMS + 1), terms(2, affinity.MAX_PARTS)], ids=["terms", "values"]
)
def test_a_pod_with_more_terms_than_are_read_waits_and_says_why(cluster, hostile):
    cluster.pod(pod("ours", {"cpu": "1"}, affinity=hostile))
    snapshot = cluster.snapshot()
    assert snapshot.peer_counts.inverse_terms == {}
    assert f"more than {affinity.MAX_TERMS} terms about other pods" in told(cluster)


def test_as_many_terms_as_are_read_are_evaluated(cluster):
    cluster.pod(pod("ours", {"cpu": "1"}, affinity=terms(affinity.MAX_TERMS)))
    assert len(cluster.snapshot().peer_counts.inverse_terms) == affinity.MAX_TERMS
