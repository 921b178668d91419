"""The effective request of a pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.amounts import QuantityError, Resources
from muster.model.objects import PodSpec
from muster.model.requests import pod_request


def spec(**fields: Any) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def container(requests: Any = None, limits: Any = None, *, sidecar: bool = False) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    return {"resources": resources, "restartPolicy": "Always"} if sidecar else {"resources": resources}


CPU = {"cpu": "1"}

CASES = [
    ("containers add up", {"containers": [container(CPU), container({"cpu": "500m", "memory": "1Gi"})]},
     {"cpu": "1500m", "memory": "1Gi"}),
    ("a pod that asks for nothing needs nothing", {"containers": [{"name": "a"}]}, {}),
    ("a limit stands for a request that isn't there", {"containers": [container(None, {"cpu": "2"})]}, {"cpu": "2"}),
    ("a limit stands in by resource", {"containers": [container(CPU, {"cpu": "4", "memory": "1Gi"})]},
     {"cpu": "1", "memory": "1Gi"}),
    ("a zero is kept", {"containers": [container({"cpu": "0"}, {"cpu": "4"})]}, {"cpu": "0"}),
    ("extended resources and ephemeral storage count",
     {"containers": [container({"nvidia.com/gpu": 2, "ephemeral-storage": "1Gi"})]},
     {"nvidia.com/gpu": "2", "ephemeral-storage": "1Gi"}),
    ("init containers run one after another", {"containers": [container(CPU)],
     "initContainers": [container({"cpu": "3"}), container({"cpu": "2"})]}, {"cpu": "3"}),
    ("init is compared resource by resource", {"containers": [container({"cpu": "4", "memory": "1Gi"})],
     "initContainers": [container({"cpu": "1", "memory": "2Gi"})]}, {"cpu": "4", "memory": "2Gi"}),
    ("a sidecar runs beside the containers", {"containers": [container(CPU)],
     "initContainers": [container({"cpu": "2"}, sidecar=True)]}, {"cpu": "3"}),
    ("a sidecar runs beside the init containers after it", {"containers": [container(CPU)],
     "initContainers": [container({"cpu": "2"}, sidecar=True), container({"cpu": "5"})]}, {"cpu": "7"}),
    ("a sidecar doesn't run beside the init containers before it", {"containers": [container(CPU)],
     "initContainers": [container({"cpu": "5"}), container({"cpu": "2"}, sidecar=True)]}, {"cpu": "5"}),
    ("overhead comes on top", {"containers": [container(CPU)], "overhead": {"cpu": "250m", "memory": "120Mi"}},
     {"cpu": "1250m", "memory": "120Mi"}),
    ("the pod's own request replaces the sum", {"containers": [container(CPU), container(CPU)],
     "resources": {"requests": {"cpu": "5"}}}, {"cpu": "5"}),
    ("the pod's own request may be less than init", {"containers": [container(CPU)],
     "initContainers": [container({"cpu": "9"})], "resources": {"requests": {"cpu": "5"}}}, {"cpu": "5"}),
    ("the pod's own request leaves other resources alone", {"containers": [container({"cpu": "1", "memory": "1Gi"})],
     "resources": {"requests": {"cpu": "5"}}}, {"cpu": "5", "memory": "1Gi"}),
    ("overhead comes on top of the pod's own request", {"containers": [container(CPU)],
     "resources": {"requests": {"cpu": "5"}}, "overhead": {"cpu": "1"}}, {"cpu": "6"}),
    ("the pod's limit stands in when no container asks", {"containers": [{"name": "a"}],
     "resources": {"limits": {"cpu": "3", "memory": "2Gi"}}}, {"cpu": "3", "memory": "2Gi"}),
    ("the containers' sum goes before the pod's limit", {"containers": [container(CPU)],
     "resources": {"limits": {"cpu": "3"}}}, {"cpu": "1"}),
    ("huge pages can't be overcommitted, so the pod's limit is the request",
     {"containers": [container({"hugepages-2Mi": "2Mi"})], "resources": {"limits": {"hugepages-2Mi": "8Mi"}}},
     {"hugepages-2Mi": "8Mi"}),
    ("a device can't be asked for at the pod's level", {"containers": [container({"nvidia.com/gpu": 1})],
     "resources": {"requests": {"nvidia.com/gpu": 4}}}, {"nvidia.com/gpu": "1"}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_pod_needs_what_kubernetes_says_it_needs(fields: Any, expected: Any) -> None:
    assert pod_request(spec(**fields)) == Resources.parse(expected)


def test_an_amount_that_is_no_quantity_is_named() -> None:
    with pytest.raises(QuantityError, match="cpu: 'lots' is not a quantity"):
        pod_request(spec(containers=[container({"cpu": "lots"})]))


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), st.integers(0, 9), max_size=3)
init = st.lists(st.tuples(amounts, st.booleans()), max_size=5)


@given(st.lists(amounts, max_size=4), init)
def test_the_request_is_the_largest_need_of_any_moment_in_the_pods_life(running: Any, before: Any) -> None:
    def need(parts: list[dict[str, int]], name: str) -> int:
        return sum(part.get(name, 0) for part in parts)

    # Each moment is the list of what runs then: init containers start in order, sidecars stay.
    moments, sidecars = [], []
    for part, sidecar in before:
        moments.append([*sidecars, part])
        if sidecar:
            sidecars.append(part)
    moments.append([*sidecars, *running])
    got = pod_request(
        spec(
            containers=[container(part) for part in running],
            initContainers=[container(part, sidecar=sidecar) for part, sidecar in before],
        )
    )
    for name in ("cpu", "memory", "x/y"):
        assert got[name] == max(need(moment, name) for moment in moments) * 10**9
