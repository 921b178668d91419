"""The auditor over random histories: it finds nothing to complain of, and what a broken ledger grants it does find."""

from __future__ import annotations

import random
from typing import Any

import pytest

from muster.ledger.audit import SETTLES, AuditBound, AuditedNamespace, ExcessClass, audit
from muster.ledger.table import Table
from muster.ledger.tally import Tally
from muster.model.amounts import NANO

CONFIRM = 45.0


class Watchful:
    """Audits a world now and then, as the leader does, and confirms what nothing explains by a second list."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.bounds: Any = {}
        self.guaranteed = False
        self.highest: dict[Any, int] = {}
        self.suspected: dict[Any, float] = {}
        self.confirmed: list[Any] = []
        self.kinds: set[ExcessClass] = set()

    def follow_limits(self) -> None:
        for quota in [self.world.quota] if self.world.quota else []:
            for resource, hard in quota.hard.nano.items():
                limit = quota.uid, resource
                self.highest[limit] = max(hard, self.highest.get(limit, 0))

    def look(self) -> None:
        world = self.world
        if world.ledger is None or world.quota is None or not (table := Table.parse(world.ledger[1])).seeded_at:
            return
        tally = Tally(table.quotas, table.rows)
        namespace = AuditedNamespace(
            tuple(world.objects.values()),
            tuple(world.pods.values()),
            (world.quota,),
            unreserved=frozenset(world._outside(table)),
            counted={(name, "cpu"): tally.taken(name, "cpu") for name in table.quotas},
            guaranteed=self.guaranteed,
        )
        found, self.bounds = audit(namespace, self.bounds, self.highest, world.now)
        self.highest.clear()
        self.kinds |= {each.kind for each in found}
        unexplained = {each.limit: each for each in found if each.kind is ExcessClass.UNEXPLAINED}
        self.suspected = {limit: self.suspected.get(limit, world.now) for limit in unexplained}
        self.confirmed += [each for limit, each in unexplained.items() if world.now - self.suspected[limit] >= CONFIRM]


def played(model: Any, world: Any, seed: int, steps: int, *, one_quota: bool = False) -> Watchful:
    chance, auditor = random.Random(seed), Watchful(world)
    world.change_quota(10)
    if one_quota:
        (request,) = world.requests
        while world.quota is None:
            model.commit(world, world.replicas[0], [request], chance.randrange)
            if request.state == "granted":
                world.store(request)
        # Known for long, and so strict that nothing needs to be allowed for.
        auditor.bounds = {(world.quota.uid, "cpu"): AuditBound(10 * NANO, -SETTLES)}
        auditor.guaranteed = True
        world.change_quota = world.delete_quota = lambda *_: None
    for _ in range(steps):
        model.act(world, chance.randrange)
        auditor.follow_limits()
        if chance.randrange(12) == 0:
            auditor.look()
    return auditor


@pytest.mark.parametrize("seed", range(6))
def test_no_history_has_an_excess_that_nothing_explains(seed: int, model: Any) -> None:
    auditor = played(model, model.World(), seed, 500, one_quota=seed % 2 == 0)
    assert not auditor.confirmed
    assert ExcessClass.UNEXPLAINED not in auditor.kinds


def test_what_a_ledger_that_refuses_nothing_grants_is_found(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tally, "_shortages", lambda *_: ())
    monkeypatch.setattr(model.World, "check", lambda _: None)
    auditors = [played(model, model.World(), seed, 500, one_quota=True) for seed in range(4)]
    assert sum(bool(auditor.confirmed) for auditor in auditors) >= 2
