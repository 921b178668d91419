"""Random histories with ResourceClaims: what a group reserved ahead covers the claims that are made for its pods later, and nothing else."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from msgspec.structs import replace

from muster.ledger.reservations import CLAIM, ReservationRequest
from muster.ledger.table import Table
from muster.ledger.view import CLAIM_SOURCE, POD_SOURCE, ObservedPod
from muster.model.amounts import NANO, Resources

Choose = Callable[[int], int]
SOAK = int(os.environ.get("MUSTER_SOAK", "1"))
"""How many times as much is tried: `make soak`."""


def world_with_claims(model: ModuleType) -> Any:
    """Make a world in which claims are made for pods, by whoever does that, with their CREATE judged by a replica."""

    @dataclass
    class ClaimRequest(model.Request):  # type: ignore[misc, name-defined]
        """The CREATE of a claim for a pod, in the group that the replica which judges it knows of that."""

        owner: str = ""

        @property
        def ask(self) -> ReservationRequest:
            amounts = Resources({"cpu": self.units * NANO})
            return ReservationRequest("ns", CLAIM, self.pod_of, self.name, self.uid, amounts)

    class ClaimWorld(model.World):  # type: ignore[misc, name-defined]
        """Claims stay in the group of a pod that is gone before them, and are gone soon after."""

        def __init__(self) -> None:
            super().__init__()
            self.claims: dict[str, ObservedPod] = {}
            self.owners: dict[str, str] = {}
            self.groups: dict[str, str] = {}
            self.unasked_claims: set[str] = set()

        # ── clients ──

        def create_claim(self, which: int, units: int, replica: Any) -> None:
            """Have a claim made for a pod, or for nobody: by a controller, long after its pod or at once."""
            self.serial += 1
            uid, pods = f"c{self.serial}", sorted(self.pods)
            owner = pods[which % len(pods)] if pods and which else ""
            shown = replica.view.pod(owner)
            group = shown.group if shown is not None else ""
            self.owners[uid] = owner
            self.requests.append(ClaimRequest(uid, uid, units, self.now, facts="", pod_of=group, owner=owner))

        def end_claim(self, which: int) -> None:
            if self.claims:
                name = sorted(self.claims)[which % len(self.claims)]
                del self.claims[name]
                self._log(CLAIM_SOURCE, name)

        # ── the API server ──

        def store(self, request: Any) -> None:
            if not isinstance(request, ClaimRequest):
                super().store(request)
                return
            possible, request.state = self._possible(request), "dead"
            # An API server stores no claim for a pod that isn't there: its owner would be collected.
            if not possible or (request.owner and request.owner not in self.pods):
                return
            self.revision += 1
            made = ObservedPod(request.uid, "", self.revision, request.ask.amounts, place=CLAIM_SOURCE)
            self.claims[request.name] = made
            self.log.append((CLAIM_SOURCE, self.revision, made))
            if request.blind:
                self.unasked_claims.add(request.name)
                self._rebound()

        def _possible(self, request: Any) -> bool:
            return super()._possible(request) and request.name not in self.claims

        def _store_pod(self, name: str, pod: ObservedPod) -> None:
            super()._store_pod(name, pod)
            self.groups[name] = self.pods[name].group

        # ── processes ──

        def _show(self, replica: Any, revision: int, what: Any) -> None:
            view = replica.view
            if isinstance(what, ObservedPod) and what.place == CLAIM_SOURCE:
                view.put_pod(self._seen(view, what))
            elif isinstance(what, str) and what in self.owners:
                if (gone := view.pod(what)) is not None:
                    view.drop_pod(what)
                    replica.tombstones.add(what, CLAIM_SOURCE, gone.revision)
            else:
                super()._show(replica, revision, what)
                if isinstance(what, ObservedPod):
                    for claim in [each for each in view.pods() if self.owners.get(each.uid) == what.uid]:
                        view.put_pod(self._seen(view, claim))

        def _seen(self, view: Any, claim: ObservedPod) -> ObservedPod:
            """Return a claim as `FollowedViews.observed_claim` does."""
            known = view.pod(self.owners[claim.uid]) or view.pod(claim.uid)
            return replace(claim, group=known.group if known is not None else "")

        def restart(self, replica: Any) -> None:
            at = self.replicas.index(replica)
            super().restart(replica)
            fresh = self.replicas[at]
            if fresh is not replica:
                fresh.revisions[CLAIM_SOURCE] = self.revision
                for claim in self.claims.values():
                    fresh.view.put_pod(self._seen(fresh.view, claim))

        def list_all(self, replica: Any) -> None:
            super().list_all(replica)
            view = replica.fresh
            view.revisions[CLAIM_SOURCE] = self.revision
            for claim in self.claims.values():
                view.put_pod(self._seen(view, claim))

        # ── the truth ──

        def _late_claims(self, current: Table) -> set[str]:
            seen = current.observed.get(CLAIM_SOURCE, 0)
            return {name for name in self.unasked_claims & self.claims.keys() if self._created(name) > seen}

        def _used(self, current: Table, scope_set: str) -> dict[str, int]:
            used: dict[str, int] = super()._used(current, scope_set)
            late = self._late_claims(current)
            for name, claim in self.claims.items():
                if name not in late and not scope_set:
                    group = self.groups.get(self.owners[name], "")
                    used[group] = used.get(group, 0) + claim.amounts["cpu"]
            return used

        def _unasked_amount(self, current: Table, scope_set: str) -> int:
            more = sum(self.claims[each].amounts["cpu"] for each in self._late_claims(current)) if not scope_set else 0
            return int(super()._unasked_amount(current, scope_set)) + more

        def _apart(self, scope_set: str) -> int:
            """A replica that doesn't know the pod of a claim, or its group, counts the claim beside that group."""
            return sum(each.amounts["cpu"] for each in self.claims.values()) if not scope_set else 0

        def settle(self) -> None:
            for name in [name for name in self.claims if self.owners[name] not in self.pods]:
                if self.owners[name]:
                    del self.claims[name]
                    self._log(CLAIM_SOURCE, name)
            super().settle()

    return ClaimWorld()


def act(model: ModuleType, world: Any, choose: Choose) -> None:
    """Take one step, of those that there are without claims or with them."""
    replica = world.replicas[choose(3)]
    which, units = choose(8), 1 + choose(2)
    steps: tuple[Callable[[], None], ...] = (
        *[lambda: model.act(world, choose)] * 6,
        *[lambda: world.create_claim(which, units, replica)] * 2,
        lambda: world.end_claim(which),
        lambda: world.delete(model.NAMES[which % 4]),
        lambda: world.watch(replica, CLAIM_SOURCE, world.revision),
        lambda: world.watch(replica, CLAIM_SOURCE, world.revision - choose(3)),
        lambda: world.watch(replica, POD_SOURCE, world.revision - choose(3)),
    )
    steps[choose(len(steps))]()
    world.check()


def play(model: ModuleType, seed: int, steps: int) -> Any:
    chance, world = random.Random(seed), world_with_claims(model)
    world.change_quota(10)
    for _ in range(steps):
        act(model, world, chance.randrange)
    world.settle()
    return world


def test_no_history_with_claims_breaks_the_invariant(model: ModuleType) -> None:
    stored, of_groups = 0, 0
    for seed in range(8 * SOAK):
        world = play(model, seed, 600)
        stored += sum(each[0] == CLAIM_SOURCE and isinstance(each[2], ObservedPod) for each in world.log)
        of_groups += sum(each.name in world.owners and bool(each.pod_of) for each in world.requests)
    assert (stored > 40, of_groups > 40) == (True, True), (stored, of_groups)


def test_no_history_with_claims_that_hypothesis_finds_breaks_the_invariant(model: ModuleType) -> None:
    class Histories(RuleBasedStateMachine):
        """The same steps, chosen so that a history that fails is made short."""

        def __init__(self) -> None:
            super().__init__()
            self.world = world_with_claims(model)
            self.world.change_quota(10)

        @rule(data=st.data())
        def step(self, data: st.DataObject) -> None:
            act(model, self.world, lambda below: data.draw(st.integers(0, below - 1)))

        def teardown(self) -> None:
            self.world.settle()

    run_state_machine_as_test(
        Histories, settings=settings(max_examples=20 * SOAK, stateful_step_count=50, deadline=None)
    )


def test_histories_notice_when_nobody_judges_the_creation_of_claims(
    model: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = model.World.decide

    def past_the_ledger(self: Any, replica: Any, batch: list[Any]) -> None:
        for each in batch:
            if each.name in self.owners:
                each.state = "granted"
        really(self, replica, [each for each in batch if each.name not in self.owners])

    def by_chance() -> None:
        for seed in range(20):
            play(model, seed, 400)

    monkeypatch.setattr(model.World, "decide", past_the_ledger)
    with pytest.raises(AssertionError, match=r"is reserved of|the truth is"):
        by_chance()


def test_what_a_group_reserved_ahead_is_for_the_claims_of_its_pods_alone(model: ModuleType) -> None:
    world = world_with_claims(model)
    replica = world.replicas[0]

    def granted() -> bool:
        request = world.requests[-1]
        while request.state == "asking":
            world.read(replica)
            world.list_all(replica)
            world.decide(replica, [request])
            world.put(replica, heard=True)
        if request.state != "granted":
            return False
        world.store(request)
        for place in replica.fresh.revisions:
            world.watch(replica, place, world.revision)
        world.check()
        return True

    world.change_quota(4)
    assert granted()
    world.create("a", 4)
    assert granted()
    world.create_pod("a", 1)
    assert granted()
    world.create_claim(0, 1, replica)
    assert not granted()  # Of nobody's pod: what the group reserved isn't for it.
    world.create_claim(1, 3, replica)
    assert granted()
    world.create_claim(1, 1, replica)
    assert not granted()  # The group has what it reserved.
