"""A state that is supposed in a cluster is the same as a cluster that is made of it, and is gone without a trace afterwards."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from asked import POLICY, Json, gang, held_job, key, made, node, of_actions, queue, quota, seeded, state
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model import kinds
from muster.whatif import endings
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import ClusterObjects, with_objects

SCHEDULERS = ("muster",)
POLICIES = (POLICY, of_actions("enqueue, allocate, preempt, reclaim, backfill"))
NAMES = ("a", "b", "c", "d")


def told(cluster: WhatIfCluster) -> Any:
    """Return all that somebody may ask; names instead of what has no order."""
    plan = cluster.decide()
    with cluster.assuming():
        outcome = cluster.run_until_idle([key(name) for name in NAMES])
    waiting = cluster.waiting()
    return {
        "binds": sorted((bind.task.uid, bind.node) for bind in plan.binds),
        "evictions": sorted(each.task.uid for each in plan.evictions),
        "statuses": sorted((str(each.key), each.phase, repr(each.holding)) for each in plan.statuses),
        "records": {str(each): record.data() for each, record in plan.records.items()},
        "queues": {name: (share.allocated, share.deserved, share.share) for name, share in plan.queues.items()},
        "released": plan.released,
        "started": outcome.started,
        "later": outcome.later,
        "evicted": sorted(each.task.uid for each in outcome.evictions),
        "running": cluster.running(),
        "waiting": waiting,
        "shortages": {str(each): repr(lacks) for each, lacks in cluster.shortages.items()},
        "ends": [endings.wait_chain(cluster, each) for each in waiting[:1]],
        "members": {name: sorted(pod.name for pod in cluster.members(key(name))) for name in NAMES},
    }


sizes = st.lists(st.integers(1, 3), min_size=1, max_size=3)


@st.composite
def group(draw: st.DrawFn, name: str) -> list[Json]:
    """Return a group and its pods: some on a node, some waiting; its Job; or a group alone, with minResources."""
    kind = draw(st.sampled_from(["runs", "waits", "grows", "job", "alone"]))
    lab = draw(st.sampled_from(["lab", "default"]))
    if kind == "runs":
        return gang(name, draw(sizes), lab, draw(st.sampled_from(["node-0", "node-1"])))
    if kind == "grows":
        more = gang(name, [1, *draw(sizes)], lab, "node-0", minimum=1)
        del more[-1]["spec"]["nodeName"]
        more[-1]["status"]["phase"] = "Pending"
        return more
    if kind == "job":
        count = draw(st.integers(1, 3))
        return [*gang(name, [], lab, minimum=count, minResources={"cpu": str(count)})[:1], held_job(name, 1, count)]
    found = gang(name, draw(sizes), lab, phase=draw(st.sampled_from(["Pending", "Inqueue"])))
    found[0]["spec"]["minResources"] = {"cpu": str(draw(st.integers(1, 6)))}
    return found if kind == "waits" else found[:1]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ClusterObjects, ClusterObjects]:
    """Return a state, and it with more objects, and others of the same names."""
    fixed = [node(f"node-{number}", {"cpu": "6"}) for number in range(2)] + [queue("lab"), queue("default")]
    there = [each for name in draw(st.sets(st.sampled_from(NAMES))) for each in draw(group(name))]
    limits = [quota("compute", **{"requests.cpu": str(draw(st.integers(2, 8)))})] if draw(st.booleans()) else []
    before = [*fixed, *limits, *there]
    added = [each for name in draw(st.sets(st.sampled_from(NAMES), min_size=1)) for each in draw(group(name))]
    known = {(each["kind"], each["metadata"]["name"]): each for each in before}
    whole = list((known | {(each["kind"], each["metadata"]["name"]): each for each in added}).values())
    late = draw(st.sets(st.sampled_from(NAMES)))
    return _stored(before, limits, late), _stored(whole, limits, late)


def _stored(objects: Sequence[Json], limits: Sequence[Json], late: Collection[str]) -> ClusterObjects:
    """Return a state as an API server has it, with the ledger where there is a quota; ``late``: groups that it was not asked about."""
    found = copy.deepcopy(list(objects))
    for number, each in enumerate(found, 1):
        each["metadata"]["resourceVersion"] = str(number)
    groups = [each for each in found if each["kind"] == "PodGroup" and each["metadata"]["name"] in late]
    refused = [each["metadata"]["name"] for each in groups if "minResources" in each["spec"]]
    return state(seeded(found, refused) if limits else found)


def supposed(before: ClusterObjects, after: ClusterObjects) -> ClusterObjects:
    """Return the latter, made of the former as answers make it."""
    return with_objects(before, {kind: items for kind, items in after.objects.items() if items != before.of(kind)})


@settings(deadline=None, max_examples=150)
@given(states=clusters(), evicts=st.booleans())
def test_what_is_supposed_is_as_if_it_were_there_and_then_as_if_it_had_never_been(states, evicts) -> None:
    (before, after), policy = states, POLICIES[evicts]
    cluster, first = WhatIfCluster(before, policy, SCHEDULERS), told(WhatIfCluster(before, policy, SCHEDULERS))
    there = supposed(before, after)
    for _ in range(2):
        with cluster.supposing(there) as made_so:
            assert made_so is cluster
            assert told(cluster) == told(WhatIfCluster(there, policy, SCHEDULERS))
            cluster.cluster.validate()
        assert cluster.state is before
        assert told(cluster) == first
        cluster.cluster.validate()


@pytest.mark.parametrize(
    "other",
    [
        [made("v1", "PersistentVolumeClaim", {"name": "data", "namespace": "team", "uid": "data"}, spec={})],
        [node("node-2", {"cpu": "8"})],
        [queue("night")],
    ],
    ids=["claim", "node", "queue"],
)
def test_of_a_state_that_differs_in_more_a_cluster_is_made(other: list[Json]) -> None:
    objects = [node("node-0", {"cpu": "4"}), queue("lab"), *gang("a", [2], "lab")]
    before, more = state(objects), state(other)
    cluster = WhatIfCluster(before, POLICY, SCHEDULERS)
    after = with_objects(before, {kind: items for kind, items in more.objects.items() if items})
    with cluster.supposing(after) as made_so:
        assert made_so is not cluster
        assert made_so.state is after
    gone = with_objects(before, {}, {kinds.PODS: before.of(kinds.PODS)})
    with cluster.supposing(gone) as made_so:
        assert made_so is not cluster


def test_an_error_in_the_block_leaves_no_trace() -> None:
    before = state([node("node-0", {"cpu": "4"}), queue("lab"), *gang("a", [2], "lab")])
    after = with_objects(
        before, {kind: items for kind, items in state(gang("b", [2, 2], "lab")).objects.items() if items}
    )
    cluster = WhatIfCluster(before, POLICY, SCHEDULERS)
    first = told(cluster)

    def fail() -> None:
        with cluster.supposing(after):
            cluster.run_until_idle([key("b")])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert told(cluster) == first
