"""What a pod takes of quotas, which is remembered by what its containers ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.ledger.reservations import taken_by_spec
from muster.model.amounts import QuantityError, Resources
from muster.model.objects import Container, Json, PodSpec, ResourceRequirements

AMOUNTS = st.sampled_from(["1", "500m", "1.5Gi", "-1", "", "x", 0, 1, 1.0, 0.5, 2**63, 10**5000, True, False, None])
LISTS = st.none() | st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), AMOUNTS, max_size=3)
CONTAINERS = st.lists(st.none() | st.builds(ResourceRequirements, requests=LISTS, limits=LISTS), max_size=3).map(
    lambda asked: tuple(Container(resources=each) for each in asked)
)


def taken(spec: PodSpec) -> Resources | str:
    try:
        return taken_by_spec(spec)
    except QuantityError as error:
        return str(error)


@given(containers=CONTAINERS)
def test_what_is_remembered_is_what_is_added_up(containers: tuple[Container, ...]) -> None:
    # A container of initialisation that asks for nothing changes no sum, and such pods are added up each time.
    added = taken(PodSpec(containers=containers, init_containers=(Container(),)))
    assert taken(PodSpec(containers=containers)) == added
    assert taken(PodSpec(containers=containers)) == added


@pytest.mark.parametrize(("amount", "alike"), [(1, True), (0, False), (1.0, True)])
def test_a_truth_is_no_number_though_it_is_equal_to_one(amount: Json, alike: Json) -> None:
    def spec(value: Json) -> PodSpec:
        return PodSpec(containers=(Container(resources=ResourceRequirements(requests={"cpu": value})),))

    assert taken_by_spec(spec(amount))["cpu"] == amount * 10**9
    with pytest.raises(QuantityError, match=r"cpu: (true|false) is not a quantity"):
        taken_by_spec(spec(alike))


def test_pods_that_ask_alike_share_one_sum() -> None:
    first, second = (
        PodSpec(containers=(Container(name=name, resources=ResourceRequirements(requests={"cpu": "3"})),))
        for name in ("one", "two")
    )
    assert taken_by_spec(first) is taken_by_spec(second)
    long = {f"example.com/{number}": "1" for number in range(200)}
    many = PodSpec(containers=(Container(resources=ResourceRequirements(requests=long)),))
    assert taken_by_spec(many) == taken_by_spec(many)
    assert taken_by_spec(many) is not taken_by_spec(many)
