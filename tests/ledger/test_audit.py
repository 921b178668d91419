"""The auditor adds up what exists by the definition, and says of each excess why it may be, or that nothing explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.ledger.audit import SETTLES, AuditBound, AuditedNamespace, Excess, ExcessClass, Limit, audit, describe, sums
from muster.ledger.view import ObservedGroup, ObservedPod, ObservedQuota
from muster.model.amounts import NANO, Resources
from muster.model.names import VOLCANO_GROUP

LIMIT = ("q", "cpu")
LATER = 10 * SETTLES


def cpu(units: int) -> Resources:
    return Resources({"cpu": units * NANO})


def group(name: str, units: int, revision: int = 1) -> ObservedGroup:
    return ObservedGroup(VOLCANO_GROUP, name, f"u-{name}", revision, cpu(units))


def pod(name: str, units: int, group: str = "", scope_facts: str = "plain") -> ObservedPod:
    return ObservedPod(f"p-{name}", group, 5, cpu(units), scope_facts)


def quota(units: int) -> ObservedQuota:
    return ObservedQuota("compute", "q", 1, cpu(units))


def audited(
    namespace: AuditedNamespace, *, bound: int = 10, highest: Mapping[Limit, int] | None = None
) -> list[Excess]:
    """Audit a namespace of which the last audit, long ago, allowed ``bound``."""
    bounds = {LIMIT: AuditBound(bound * NANO, 0.0)}
    return list(audit(namespace, bounds, highest or {}, LATER)[0])


def kinds(found: list[Excess]) -> list[ExcessClass]:
    return [each.kind for each in found]


def test_what_fits_is_not_told_of() -> None:
    fits = AuditedNamespace((group("a", 6),), (pod("1", 6, "a"), pod("2", 4)), (quota(10),))
    assert audited(fits) == []


def test_more_reserved_than_there_is_can_not_be_explained_and_the_newest_are_named() -> None:
    groups = (group("old", 6, 1), group("newest", 3, 9), group("newer", 3, 8))
    (found,) = audited(AuditedNamespace(groups, (), (quota(8),)), bound=8)
    assert (found.kind, found.hard, found.taken) == (ExcessClass.UNEXPLAINED, 8 * NANO, 12 * NANO)
    assert found.objects == ("PodGroup newest", "PodGroup newer")
    line = describe("team", found)
    assert "namespace team: quota compute allows 8 cpu, and what exists takes 12 (unexplained): PodGroup newest" in line


def test_the_names_in_a_line_are_few_and_short() -> None:
    groups = tuple(group(f"{n}-{'x' * 250}", 1, n + 1) for n in range(40))
    (found,) = audited(AuditedNamespace(groups, (), (quota(10),)))
    assert (len(found.objects), found.more) == (5, 25)
    assert len(describe("team", found)) < 700
    assert describe("team", found).endswith("and 25 more")


def test_a_quota_that_was_lowered_is_overcommitted_until_something_is_added() -> None:
    namespace = AuditedNamespace((group("a", 8),), (), (quota(5),))
    bounds = audit(replace(namespace, quotas=(quota(10),)), {}, {}, 0.0)[1]
    (found,), bounds = audit(namespace, bounds, {}, LATER)
    assert (found.kind, bounds[LIMIT].most) == (ExcessClass.OVERCOMMITTED, 8 * NANO)
    less = replace(namespace, groups=(group("a", 6),))
    (found,), bounds = audit(less, bounds, {}, LATER)
    assert (found.kind, bounds[LIMIT].most) == (ExcessClass.OVERCOMMITTED, 6 * NANO)
    (found,), _ = audit(replace(namespace, groups=(group("a", 6), group("b", 1, 7))), bounds, {}, LATER)
    assert (found.kind, found.objects[0]) == (ExcessClass.UNEXPLAINED, "PodGroup b")


def test_a_limit_that_was_higher_between_two_audits_explains_what_was_added_meanwhile() -> None:
    namespace = AuditedNamespace((group("a", 15),), (), (quota(10),))
    assert kinds(audited(namespace, highest={LIMIT: 20 * NANO})) == [ExcessClass.OVERCOMMITTED]
    assert kinds(audited(namespace)) == [ExcessClass.UNEXPLAINED]


def test_at_first_sight_an_excess_that_the_ledger_counts_is_older_and_one_that_it_does_not_is_none() -> None:
    namespace = AuditedNamespace((group("a", 16),), (), (quota(10),))
    for counted, kind in ((16, ExcessClass.OVERCOMMITTED), (6, ExcessClass.UNEXPLAINED)):
        seen = replace(namespace, counted={("compute", "cpu"): counted * NANO})
        assert kinds(list(audit(seen, {}, {}, 0.0)[0])) == [kind]


def test_groups_that_hold_nothing_are_a_class_of_their_own() -> None:
    groups = (group("a", 8), group("late", 6))
    namespace = AuditedNamespace(groups, (), (quota(10),), unreserved=frozenset({"u-late"}))
    (found,) = audited(namespace)
    assert (found.kind, found.taken, found.objects) == (ExcessClass.UNRESERVED, 14 * NANO, ("PodGroup late",))
    assert kinds(audited(replace(namespace, groups=(group("a", 12), groups[1])))) == [ExcessClass.UNEXPLAINED]


def test_pods_that_came_past_the_webhooks_are_allowed_where_they_can_and_named() -> None:
    namespace = AuditedNamespace(
        (group("a", 8),),
        (pod("in", 8, "a"), pod("out", 6)),
        (quota(10),),
        called={"p-in": "Pod in", "p-out": "Pod out"},
    )
    (found,) = audited(namespace)
    assert (found.kind, found.objects) == (ExcessClass.GUARDED, ("Pod out",))
    assert kinds(audited(replace(namespace, guaranteed=True))) == [ExcessClass.UNEXPLAINED]


def test_a_quota_of_a_scope_counts_what_is_in_it() -> None:
    scoped = ObservedQuota("short", "q", 1, Resources({"cpu@Terminating": 4 * NANO}))
    pods = (pod("1", 3, scope_facts="terminating"), pod("2", 30), pod("3", 3, scope_facts="terminating"))
    assert audited(AuditedNamespace((), pods[:2], (scoped,), guaranteed=True)) == []
    bounds = {("q", "cpu@Terminating"): AuditBound(4 * NANO, 0.0)}
    (found,), _ = audit(AuditedNamespace((), pods, (scoped,), guaranteed=True), bounds, {}, LATER)
    assert (found.taken, found.kind) == (6 * NANO, ExcessClass.UNEXPLAINED)
    assert "4 cpu in scope Terminating" in describe("team", found)


NAMES = st.sampled_from(["", "a", "b", "c"])
AMOUNTS = st.integers(0, 9)


@given(st.lists(st.tuples(NAMES.filter(bool), AMOUNTS), max_size=6), st.lists(st.tuples(NAMES, AMOUNTS), max_size=8))
def test_its_sums_are_those_of_the_definition(groups: list[Any], pods: list[Any]) -> None:
    namespace = AuditedNamespace(
        tuple(replace(group(name, units), uid=f"{n}") for n, (name, units) in enumerate(groups)),
        tuple(pod(str(n), units, name) for n, (name, units) in enumerate(pods)),
        (quota(10),),
    )
    brute = 0
    for name in ("", "a", "b", "c"):
        reserved = sum(units for each, units in groups if each == name)
        used = sum(units for each, units in pods if each == name)
        brute += max(reserved, used)
    assert sums(namespace).taken("cpu") == brute * NANO
    assert bool(audited(namespace)) is (brute > 10)


@given(held=AMOUNTS, late=AMOUNTS, loose=AMOUNTS, hard=AMOUNTS, lowered=st.booleans(), guaranteed=st.booleans())
def test_each_planted_excess_is_found_and_in_the_class_that_it_was_planted_in(
    *,
    held: int,
    late: int,
    loose: int,
    hard: int,
    lowered: bool,
    guaranteed: bool,
) -> None:
    namespace = AuditedNamespace(
        (group("a", held), group("late", late)),
        (pod("loose", loose),),
        (quota(hard),),
        unreserved=frozenset({"u-late"}),
        guaranteed=guaranteed,
    )
    found = audited(namespace, bound=max(hard, held + loose) if lowered else hard)
    if held + late + loose <= hard:
        assert not found
    elif held + loose <= hard:
        assert kinds(found) == [ExcessClass.UNRESERVED]
    elif lowered:
        assert kinds(found) == [ExcessClass.OVERCOMMITTED]
    elif held <= hard and not guaranteed:
        assert kinds(found) == [ExcessClass.GUARDED]
    else:
        assert kinds(found) == [ExcessClass.UNEXPLAINED]
