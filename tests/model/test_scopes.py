"""Scopes of quotas: which pods they are about, as Kubernetes says it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model import scopes
from muster.model.amounts import Resources
from muster.model.objects import PodSpec, ResourceQuotaSpec

ELSEWHERE = {"labelSelector": {}, "topologyKey": "zone", "namespaceSelector": {}}


def spec(**fields: Any) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "main", "resources": resources}


def quota(*names: str, **class_: Any) -> ResourceQuotaSpec:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", **class_}]} if class_ else None
    return msgspec.convert({"scopes": names or None, "scopeSelector": selector}, ResourceQuotaSpec)


@pytest.mark.parametrize(
    ("pod", "scope_facts"),
    [
        ({"containers": [container(requests={"cpu": "1"})]}, "plain"),
        ({"containers": [container(limits={"memory": "1"})]}, "plain"),
        ({"containers": [container()]}, "best-effort"),
        # Only cpu and memory make a quality of service.
        ({"containers": [container(requests={"cpu": "0", "nvidia.com/gpu": "1"})]}, "best-effort"),
        ({"containers": [container()], "initContainers": [container(requests={"cpu": "1"})]}, "plain"),
        ({"containers": [container()], "resources": {"requests": {"cpu": "1"}}}, "plain"),
        ({"activeDeadlineSeconds": 0, "priorityClassName": "high"}, "best-effort,class=high,terminating"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ELSEWHERE]}}},
            "best-effort,cross-namespace-affinity",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": ELSEWHERE}]
                    }
                }
            },
            "best-effort,cross-namespace-affinity",
        ),
    ],
)
def test_scope_facts_of_pods(pod: Any, scope_facts: str) -> None:
    assert scopes.scope_facts(spec(**pod)) == scope_facts
    assert scopes.parse_facts(scope_facts) == scope_facts


@pytest.mark.parametrize(
    ("scope", "scope_facts", "inside"),
    [
        (quota("Terminating"), "terminating", True),
        (quota("Terminating"), "plain", False),
        (quota("NotTerminating"), "plain", True),
        (quota("NotTerminating"), "terminating", False),
        (quota("BestEffort"), "best-effort", True),
        (quota("BestEffort"), "plain", False),
        (quota("NotBestEffort"), "plain", True),
        (quota("CrossNamespacePodAffinity"), "cross-namespace-affinity", True),
        (quota("CrossNamespacePodAffinity"), "plain", False),
        (quota("PriorityClass"), "class=high", True),
        (quota("PriorityClass"), "plain", False),
        (quota(operator="In", values=["high", "low"]), "class=low", True),
        (quota(operator="In", values=["high", "low"]), "class=mid", False),
        (quota(operator="In", values=["high"]), "plain", False),
        (quota(operator="NotIn", values=["high"]), "class=low", True),
        (quota(operator="NotIn", values=["high"]), "class=high", False),
        # As with label selectors: what is absent isn't in.
        (quota(operator="NotIn", values=["high"]), "plain", True),
        (quota(operator="DoesNotExist"), "plain", True),
        (quota(operator="DoesNotExist"), "class=high", False),
        (quota(operator="Exists"), "class=high", True),
        # All must be met.
        (quota("NotTerminating", operator="In", values=["high"]), "class=high", True),
        (quota("NotTerminating", operator="In", values=["high"]), "class=high,terminating", False),
        # A scope of claims, or of a later Kubernetes, has no pods in it that we know of.
        (quota("VolumeAttributesClass"), "plain", False),
    ],
)
def test_who_is_in_a_scope(scope: ResourceQuotaSpec, scope_facts: str, *, inside: bool) -> None:
    assert scopes.matches(scopes.scope_set(scope), scope_facts) is inside
    assert not scopes.matches(scopes.scope_set(scope), "")


def test_a_quota_without_scopes_has_no_lane() -> None:
    assert scopes.scope_set(quota()) == ""
    assert scopes.scoped(Resources.parse({"cpu": 1}), "") == Resources.parse({"cpu": 1})


@pytest.mark.parametrize(
    "text", ["", "nonsense", "plain nonsense", "class=", "class=A", "plain,,", "class=a/b", "cpu@x"]
)
def test_what_nobody_means_says_nothing(text: str) -> None:
    assert scopes.parse_facts(text) == ""


_LANES = st.sampled_from(["Terminating", "NotTerminating", "PriorityClass:In:a|b", "NotBestEffort+NotTerminating"])
_TRAITS = st.sampled_from(["", "plain", "terminating", "class=a", "best-effort,class=b,terminating"])


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 9)), _TRAITS, st.sets(_LANES))
def test_what_is_spread_can_be_taken_back(amounts: dict[str, int], scope_facts: str, scope_sets: set[str]) -> None:
    whole = scopes.in_scopes(Resources(amounts), scope_facts, scope_sets)
    assert scopes.unscoped(whole) == Resources(amounts)
    mine = {scope_set for scope_set in scope_sets if scopes.matches(scope_set, scope_facts)} if amounts else set()
    assert scopes.scope_sets(whole) == mine
    assert all(whole[f"cpu@{scope_set}"] == amounts.get("cpu", 0) for scope_set in mine)
