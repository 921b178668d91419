"""The siege's own check can fail: what is held beyond a quota is seen, whoever holds it."""

from __future__ import annotations

import pytest
from siege import _excess

from muster.ledger.audit import AuditedNamespace
from muster.ledger.view import ObservedGroup, ObservedPod, ObservedQuota
from muster.model.amounts import NANO, Resources


def amounts(cpu: int) -> Resources:
    return Resources({"cpu": cpu * NANO})


def group(name: str, cpu: int) -> ObservedGroup:
    return ObservedGroup("scheduling.volcano.sh", name, name, 1, amounts(cpu))


def pod(name: str, of: str, cpu: int) -> ObservedPod:
    return ObservedPod(name, of, 1, amounts(cpu), "plain")


@pytest.mark.parametrize("resource", ["cpu", "requests.cpu"])
@pytest.mark.parametrize(
    ("groups", "pods", "without", "held"),
    [
        ([group("a", 6), group("b", 4)], [], [], 0),
        ([group("a", 6), group("b", 5)], [], [], 11),
        ([group("a", 6), group("b", 5)], [], ["b"], 0),
        ([group("a", 6)], [pod("p", "a", 6), pod("q", "", 4)], [], 0),
        ([group("a", 6)], [pod("p", "a", 7), pod("q", "", 4)], [], 11),
        # Who holds nothing may not run either.
        ([group("a", 6), group("b", 5)], [pod("p", "b", 5)], ["b"], 11),
    ],
)
def test_what_is_held_beyond_a_quota_is_an_excess(resource: str, groups, pods, without, held: int) -> None:
    quota = ObservedQuota("compute", "u", 1, Resources({resource: 10 * NANO}))
    stored = AuditedNamespace(tuple(groups), tuple(pods), (quota,))
    assert _excess(stored, without) == ({resource: (held * NANO, 10 * NANO)} if held else {})
