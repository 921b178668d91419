"""Sizes of a Deployment's ReplicaSets on the way from one template to the next, on values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox.controllers.plans import rollout
from muster.sandbox.controllers.plans.templates import template_hash

Amount = int | str


def deployment(replicas: int, surge: Amount = "25%", unavailable: Amount = "25%", kind: str = "RollingUpdate") -> Any:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": kind} | ({"rollingUpdate": rolling} if kind == "RollingUpdate" else {})
    return {"metadata": {"name": "d"}, "spec": {"replicas": replicas, "strategy": strategy}}


def replicaset(name: str, size: int, available: int | None = None, **annotations: str) -> Any:
    ready = size if available is None else available
    return {
        "metadata": {"name": name, "creationTimestamp": name, "annotations": annotations},
        "spec": {"replicas": size},
        "status": {"replicas": size, "availableReplicas": ready},
    }


def sizes(resizes: list[rollout.Resize]) -> dict[str, int]:
    return {each.replicaset["metadata"]["name"]: each.replicas for each in resizes}


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (4, "25%", "25%", (1, 1)),
        (3, "25%", "25%", (1, 0)),
        (10, "0%", "0%", (0, 1)),
        (2, 3, 5, (3, 2)),
        (0, "25%", "25%", (0, 0)),
        (4, "many", -3, (0, 1)),
    ],
)
def test_shares_round_up_for_surge_and_down_for_unavailability(
    replicas: int, surge: Amount, unavailable: Amount, expected: tuple[int, int]
) -> None:
    assert rollout.limits(deployment(replicas, surge, unavailable)) == expected


def test_a_new_template_starts_with_the_surge() -> None:
    assert rollout.first_size(deployment(3), replicaset("2", 0), [replicaset("1", 3)]) == 1


def test_an_old_pod_goes_only_when_a_new_one_is_available() -> None:
    old = replicaset("1", 3)

    assert sizes(rollout.roll(deployment(3), replicaset("2", 1, 0), [old])) == {}
    assert sizes(rollout.roll(deployment(3), replicaset("2", 1, 1), [old])) == {"1": 2}


def test_old_pods_that_are_not_available_go_first_and_cost_nothing() -> None:
    resizes = rollout.roll(deployment(4, 1, 1), replicaset("3", 2, 0), [replicaset("1", 2, 2), replicaset("2", 1, 0)])
    assert sizes(resizes) == {}, "the new ones that aren't available yet use up what may be missing"

    resizes = rollout.roll(deployment(4, 1, 1), replicaset("3", 1, 1), [replicaset("1", 3, 3), replicaset("2", 1, 0)])
    assert sizes(resizes) == {"2": 0, "1": 2}


def test_recreate_stops_every_old_pod_before_it_starts_a_new_one() -> None:
    new, old = replicaset("2", 0), replicaset("1", 3)

    assert sizes(rollout.recreate(new, [old], 3, old_pods=True)) == {"1": 0}
    assert sizes(rollout.recreate(new, [replicaset("1", 0)], 3, old_pods=True)) == {}
    assert sizes(rollout.recreate(new, [replicaset("1", 0)], 3, old_pods=False)) == {"2": 3}


def test_a_deployment_with_one_replicaset_gives_it_every_change_of_size() -> None:
    assert sizes(rollout.scale(deployment(5), replicaset("1", 3), [])) == {"1": 5}
    assert sizes(rollout.scale(deployment(0), replicaset("1", 3), [])) == {"1": 0}


def test_a_note_of_sizes_that_somebody_spoiled_is_not_relied_on() -> None:
    new, old = replicaset("2", 4, **{rollout.MAX_REPLICAS: "x"}), replicaset("1", 4, **{rollout.MAX_REPLICAS: "0"})

    resized = sizes(rollout.scale(deployment(12, 0, 2), new, [old]))

    assert sum({"1": 4, "2": 4, **resized}.values()) == 12


def test_in_the_middle_of_an_update_a_change_of_size_is_shared_in_proportion() -> None:
    noted = {rollout.MAX_REPLICAS: "13"}
    new, old = replicaset("2", 5, **noted), replicaset("1", 8, **noted)

    assert sizes(rollout.scale(deployment(15, 3, 2), new, [old])) == {"1": 11, "2": 7}


@given(
    replicas=st.integers(1, 12),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 3),
    olds=st.lists(st.integers(0, 5), max_size=3),
    data=st.data(),
)
def test_a_rolling_update_keeps_its_limits_and_comes_to_an_end(
    replicas: int, surge: int, unavailable: int, olds: list[int], data: st.DataObject
) -> None:
    spec = deployment(replicas, surge, unavailable)
    most_extra, most_missing = rollout.limits(spec)
    everything = {"9": replicaset("9", 0)} | {
        str(number): replicaset(str(number), size) for number, size in enumerate(olds)
    }
    start = sum(olds)
    for _ in range(200):
        new, old = everything["9"], [each for name, each in everything.items() if name != "9"]
        resizes = rollout.roll(spec, new, old)
        before = rollout.count(list(everything.values()), "availableReplicas")
        for each in resizes:
            name, size = each.replicaset["metadata"]["name"], each.replicas
            ready = min(size, each.replicaset["status"]["availableReplicas"])
            everything[name] = replicaset(name, size, ready)
        total = rollout.total(list(everything.values()))
        after = rollout.count(list(everything.values()), "availableReplicas")
        assert total <= max(replicas + most_extra, start), "never more than the surge allows"
        assert after >= min(before, replicas - most_missing), "never fewer available than allowed"
        if not resizes:
            waiting = [
                each for each in everything.values() if each["status"]["availableReplicas"] < each["spec"]["replicas"]
            ]
            if not waiting:
                break
            chosen = data.draw(st.sampled_from(waiting))
            size, name = chosen["spec"]["replicas"], chosen["metadata"]["name"]
            everything[name] = replicaset(name, size, chosen["status"]["availableReplicas"] + 1)
    assert sizes_of(everything) == {name: replicas if name == "9" else 0 for name in everything}


def sizes_of(everything: dict[str, Any]) -> dict[str, int]:
    return {name: rollout.size(each) for name, each in everything.items()}


def test_a_template_has_the_same_hash_whatever_the_order_of_its_fields() -> None:
    first = {"spec": {"containers": [{"name": "c", "image": "x"}]}, "metadata": {"labels": {"a": "1", "b": "2"}}}
    second = {"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": {"containers": [{"image": "x", "name": "c"}]}}

    assert template_hash(first, 0) == template_hash(second, 0)
    assert template_hash(first, 0) != template_hash(first, 1)
    assert template_hash(first, 0) != template_hash({**first, "spec": {}}, 0)
