"""The siege's own check can fail: what is held beyond a quota is seen, whoever holds it."""

from __future__ import annotations

import msgspec
import pytest
from revisions import Change, Value, violations
from siege import excess

from muster.ledger.audit import AuditedNamespace
from muster.ledger.conversion import observed_group, observed_pod
from muster.ledger.table import Table
from muster.ledger.view import ObservedGroup, ObservedPod, ObservedQuota, source
from muster.model import kinds
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
    assert excess(stored, without) == ({resource: (held * NANO, 10 * NANO)} if held else {})


def change(revision: int, uid: str, value: Value | None) -> Change:
    return Change(revision, "team", uid, value)


GROUPS = source("scheduling.volcano.sh")
BEFORE = [
    change(1, "quota", ObservedQuota("compute", "quota", 1, amounts(10))),
    change(2, "ledger", Table("2026-01-01T00:00:00Z", {GROUPS: 9})),
]


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ([change(3, "a", group("a", 6)), change(4, "b", group("b", 4))], []),
        # Between two looks: it is there, and gone again.
        ([change(3, "a", group("a", 6)), change(4, "b", group("b", 5)), change(5, "b", None)], [4]),
        ([change(4, "b", group("b", 5)), change(5, "b", None), change(3, "a", group("a", 6))], [4]),
        ([change(3, "a", group("a", 6)), change(4, "a", None), change(5, "b", group("b", 5))], []),
        ([change(3, "a", group("a", 6)), change(4, "a", group("a", 11))], [4]),
        ([change(3, "p", pod("p", "", 6)), change(4, "q", pod("q", "", 5)), change(5, "q", pod("q", "", 0))], [4]),
        # What is born after all that the ledger counts, and has no row, holds nothing if Muster made it; nobody else's may be.
        ([change(3, "a", group("a", 6)), change(10, "podgroup-b", group("podgroup-b", 5))], []),
        ([change(3, "a", group("a", 6)), change(10, "b", group("b", 1))], [10]),
        # Who holds nothing that a quota limits needs no row.
        ([change(10, "b", ObservedGroup("g", "b", "b", 1, Resources({"a/b": NANO})))], []),
        ([change(3, "ledger", None)], [3]),
    ],
)
def test_a_revision_at_which_more_is_held_is_found_among_all(changes: list[Change], at: list[int]) -> None:
    assert [revision for revision, _, _ in violations(BEFORE, changes)] == at


@pytest.mark.parametrize("more", [{}, {"priorityClassName": "system-cluster-critical"}, {"priorityClassName": "none"}])
def test_a_priority_class_changes_nothing_that_a_group_holds(more: dict[str, str]) -> None:
    meta = {"name": "a", "namespace": "team", "uid": "a", "resourceVersion": "3"}
    spec = {"minMember": 2, "minResources": {"cpu": "4"}} | more
    shown = msgspec.convert({"metadata": meta, "spec": spec}, kinds.PODGROUPS.struct)
    assert (
        observed_group("scheduling.volcano.sh", shown, 0).amounts
        == observed_group(
            "g", msgspec.structs.replace(shown, spec=msgspec.structs.replace(shown.spec, priority_class_name="")), 0
        ).amounts
        != Resources({})
    )


@pytest.mark.parametrize("deleted", [None, "2026-01-01T00:00:00Z", "9000-01-01T00:00:00Z"])
def test_a_pod_that_is_being_deleted_counts_until_it_is_gone_however_long_that_takes(deleted: str | None) -> None:
    meta = {"name": "p", "namespace": "team", "uid": "p", "resourceVersion": "3", "deletionTimestamp": deleted}
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "6"}}}]}
    shown = msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, kinds.PODS.struct)
    changes = [change(3, "p", observed_pod(shown)), change(4, "a", group("a", 5))]
    assert [revision for revision, _, _ in violations(BEFORE, changes)] == [4]
