"""Case 38: take one rule away, and the histories find out. What they can't notice, nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muster.ledger import observed_rows, table, tally
from muster.ledger.namespace_view import NamespaceView
from muster.ledger.reservations import POD, PODGROUP, ReservationRequest
from muster.ledger.rows import Row, RowState
from muster.ledger.table import Table
from muster.ledger.view import POD_SOURCE, QUOTA_SOURCE, source
from muster.model.amounts import NOTHING, Resources
from muster.model.names import VOLCANO_GROUP

GROUPS = source(VOLCANO_GROUP)
History = Callable[[Any], None]

# ── what is done instead ─────────────────────────────────────────────────────────────────────────────────────────


def answers_before_the_write(self: Any, replica: Any, batch: list[Any]) -> None:
    self.really_decide(replica, batch)
    if replica.prepared is not None:
        # What is prepared may be a step of its own, which answers nobody.
        _, decision, asked = replica.prepared
        for request, answer in zip(asked, decision.answers, strict=True):
            self.tell(request, answer)


def expires_unread(self: Any, replica: Any) -> None:
    if replica.fresh is None and replica.entry is not None and replica.expired:
        replica.fresh = replica.view
    self.really_fold(replica)


def delivered_at_any_revision(self: Any, uid: str) -> bool:
    return bool(self.revision_of(uid) or self._memory.last_seen(uid)[1])


really_charge = tally.charge


def charge_last(rows: list[Row]) -> Resources:
    return list(rows)[-1].amounts if rows else NOTHING


def charge_no_growth(rows: list[Row]) -> Resources:
    return really_charge(row for row in rows if row.state is not RowState.FROM)


def charge_one_growth(rows: list[Row]) -> Resources:
    most = NOTHING
    for row in rows:
        most = most.maximum(row.amounts)
    return most


def pods_cost_nothing_at_first(self: Any, row: Row) -> tuple[Resources, Resources]:
    return (self.reserved, self.used) if row.kind == POD else self.really_after(row)


def used_by_nobody(name: str, _: Resources) -> Row:
    return Row("Pods", "", name, "-", NOTHING, RowState.SEEN)


def settled_when_not_shown(self: Table, row: Row, view: NamespaceView) -> bool:
    return row.state is not RowState.FROM or self.really_shown(row, view)


def settled_when_old_value_seen(self: Table, row: Row, view: NamespaceView) -> bool:
    if row.state is RowState.FROM and row.kind in {PODGROUP, POD}:
        return view.revisions.get(GROUPS if row.kind == PODGROUP else POD_SOURCE, 0) >= row.revision
    return self.really_shown(row, view)


def settled_by_an_older_view(self: Table, row: Row, view: NamespaceView) -> bool:
    if row.state is RowState.FROM and row.kind == PODGROUP:
        return view.revision_of(row.uid) != row.revision
    return self.really_shown(row, view)


def newest_limit(view: NamespaceView, rows: list[Row], sums: Any) -> dict[str, tally.Totals]:
    limits = {quota.name: (quota.uid, quota.hard) for quota in view.quotas.values()}
    limits |= {row.name: (row.uid, row.amounts) for row in rows if row.kind == "ResourceQuota"}
    return {name: sums.of(uid, hard) for name, (uid, hard) in limits.items()}


def learns_nothing(self: Table, *_: object) -> Table:
    return self


def each_against_the_same(self: Table, requests: list[ReservationRequest]) -> tuple[Table, tuple[object, ...]]:
    answers: list[object] = []
    rows = {row.identity: row for row in self.rows}
    for request in requests:
        after, (answer,) = self.really_reserve([request])
        answers.append(answer)
        rows |= {row.identity: row for row in after.rows}
    return table.replace(self, rows=tuple(rows.values())), tuple(answers)


def lets_in_unasked(self: Any, name: str, units: int) -> None:
    before = len(self.requests)
    self.really_let_in(name, units)
    for request in self.requests[before:]:
        request.state = "granted"


def starts_again_unasked(self: Any, name: str, units: int) -> None:
    before = len(self.requests)
    self.really_start_again(name, units)
    for request in self.requests[before:]:
        request.state = "granted"


def marks_nothing(before: object, after: object, rows: tuple[Row, ...], *, waits: bool) -> tuple[Row, ...]:
    return tuple(rows)


# Where the replacement goes: `World` is the model's, the rest is the product's.
WITHOUT: dict[str, tuple[object, str, object]] = {
    "rule 1: yes only after the write": ("World", "decide", answers_before_the_write),
    "rule 1: compare-and-swap": ("World", "at", lambda *_: True),
    "rule 2: the largest row of a name": (tally, "charge", charge_last),
    "rule 3: a pod that is to come is charged": (tally._Account, "after", pods_cost_nothing_at_first),
    "rule 3: the larger of what a group reserved and its pods take": (
        tally._Account,
        "cost",
        property(lambda self: self.reserved),
    ),
    "rule 3: an update by what counts in each scope": (ReservationRequest, "changes_scopes", property(lambda _: False)),
    "rule 3: what pods take beyond it": (NamespaceView, "excess", property(lambda _: NOTHING)),
    "rule 3: a group's pods beside its rows": (observed_rows, "used", used_by_nobody),
    "rule 4: older views never fold": (table, "covers", lambda *_: True),
    "rule 4: a row ends when its object was seen": (Table, "_shown", settled_when_not_shown),
    "rule 4: seen at a revision that the view is past": (NamespaceView, "delivered", delivered_at_any_revision),
    "rule 5: the deadline": ("World", "deadline", 5.0),
    "rule 5: the quorum read": ("World", "fold", expires_unread),
    "rule 6: late arrivals": (Table, "_outside", lambda *_: []),
    "rule 7: growth is charged": (tally, "charge", charge_no_growth),
    "rule 7: growth of several states adds up": (tally, "charge", charge_one_growth),
    "rule 7: until another state is shown": (Table, "_shown", settled_when_old_value_seen),
    "rule 7: by a view that is not older": (Table, "_shown", settled_by_an_older_view),
    "rule 8: the smallest limit": (table, "_quotas", newest_limit),
    "rule 8: the quota goes through the ledger": (Table, "observe_quota", learns_nothing),
    "rule 8: what a quota comes to limit is marked": (table, "marked", marks_nothing),
    "rule 9: the post-state of the whole batch": (Table, "reserve", each_against_the_same),
    "rule 11: a phase past Pending asks like growth": ("World", "let_in", lets_in_unasked),
    "rule 11: what leaves Completed asks like growth": ("World", "start_again", starts_again_unasked),
}

# ── short histories for what chance seldom hits upon ─────────────────────────────────────────────────────────────


def asked(world: Any) -> list[Any]:
    return [request for request in world.requests if request.state == "asking"]


def granted(world: Any, *, afresh: bool = True) -> None:
    """Have all that is asked granted by the first replica, which reads afresh or trusts its caches."""
    while asked(world):
        world.read(world.replicas[0])
        if afresh:
            world.list_all(world.replicas[0])
        world.decide(world.replicas[0], asked(world))
        world.put(world.replicas[0], heard=True)
        world.check()


def stored(world: Any) -> None:
    for request in world.requests:
        if request.state == "granted":
            world.store(request)
    world.check()


def with_quota(world: Any) -> None:
    world.change_quota(10)
    granted(world)
    stored(world)
    for replica in world.replicas:
        for place in (QUOTA_SOURCE, GROUPS, POD_SOURCE):
            world.watch(replica, place, world.revision)


def a_watch_overtakes_a_list(world: Any) -> None:
    with_quota(world)
    world.create("a", 6)
    granted(world)
    second = world.replicas[1]
    world.read(second)
    world.list_all(second)
    stored(world)
    world.watch(second, GROUPS, world.revision)
    world.create("b", 6)
    world.decide(second, asked(world))
    world.put(second, heard=True)


def case_14_a_stale_watch_during_expiry(world: Any) -> None:
    with_quota(world)
    leader = world.replicas[-1]
    world.create("a", 6)
    granted(world, afresh=False)
    world.read(leader)
    stored(world)
    world.now += 2 * world.deadline
    world.read(leader)
    world.fold(leader)
    world.put(leader, heard=True)


def a_group_under_way_when_the_quota_comes(world: Any) -> None:
    world.create("a", 6)
    granted(world)
    with_quota_but_without_storing(world)
    world.create("b", 6)
    granted(world)
    stored(world)
    world.create("c", 1)
    granted(world)


def with_quota_but_without_storing(world: Any) -> None:
    world.change_quota(10)
    granted(world)
    world.store(world.requests[-1])


def a_view_from_before_two_updates(world: Any) -> None:
    with_quota(world)
    world.create("a", 2)
    granted(world)
    stored(world)
    granted_fold(world)
    world.update("a", 5)
    granted(world, afresh=False)
    stored(world)
    world.update("a", 8)
    granted(world, afresh=False)
    leader = world.replicas[-1]
    world.watch(leader, GROUPS, world.revision - 3)
    world.watch(leader, QUOTA_SOURCE, world.revision)
    world.watch(leader, POD_SOURCE, world.revision)
    world.read(leader)
    world.fold(leader)
    world.put(leader, heard=True)


def granted_fold(world: Any) -> None:
    leader = world.replicas[-1]
    world.read(leader)
    world.list_all(leader)
    world.fold(leader)
    world.put(leader, heard=True)


def a_quota_comes_to_limit_what_is_under_way(world: Any) -> None:
    world.waits = True
    world.change_quota(10, of_cpu=False)
    granted(world)
    stored(world)
    world.create("a", 6)
    # No row says anything of it: nobody limits cpu.
    granted(world)
    (under_way,) = (request for request in world.requests if request.state == "granted")
    world.change_quota(10)
    granted(world)
    world.store(world.requests[-1])
    granted_fold(world)
    world.create("b", 6)
    granted(world)
    world.store(under_way)
    world.check()
    stored(world)


def finish(history: History, world: Any) -> None:
    history(world)
    world.check()
    world.settle()


SHORT: dict[str, History] = {
    "rule 4: seen at a revision that the view is past": a_watch_overtakes_a_list,
    "rule 5: the quorum read": case_14_a_stale_watch_during_expiry,
    "rule 6: late arrivals": a_group_under_way_when_the_quota_comes,
    "rule 7: by a view that is not older": a_view_from_before_two_updates,
    "rule 8: what a quota comes to limit is marked": a_quota_comes_to_limit_what_is_under_way,
}


@pytest.mark.parametrize("history", SHORT.values(), ids=lambda history: history.__name__)
def test_short_history_keeps_the_invariant(history: History, model: Any) -> None:
    finish(history, model.World())


@pytest.mark.parametrize("missing", WITHOUT)
def test_case_38_histories_notice_when_a_rule_is_missing(
    missing: str, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_chance(_: Any) -> None:
        for seed in range(40):
            model.play(model.World(), seed, 400)

    target, attribute, instead = WITHOUT[missing]
    target = model.World if target == "World" else target
    monkeypatch.setattr(target, f"really_{attribute.strip('_')}", getattr(target, attribute), raising=False)
    monkeypatch.setattr(target, attribute, instead)
    with pytest.raises(AssertionError):
        finish(SHORT.get(missing, by_chance), model.World())
