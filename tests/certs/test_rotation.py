"""The protocol on values: a cluster in which everybody learns of everything late, over ten years."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from certs import rotation
from certs.authority import CA_LIFE, LEAF_LIFE
from certs.bundle import Certificate
from certs.rotation import RotationAction, RotationCommand, RotationStep, plan
from certs.state import CertificateAuthority, CertificateState, Leaf, RotationPhase, RotationWaits

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = frozenset({"muster-webhook.muster-system.svc"})


@dataclass(frozen=True)
class Habits:
    """How late everybody is.

    Attributes:
        notice: an API server goes on with what a configuration was: less than is waited for.
        lag: a replica that restarts comes up with what the Secret was: less than the soak.
        dead: nobody rotates.
        wishes: how often somebody asks for something, of all looks.
    """

    notice: timedelta = timedelta(seconds=100)
    lag: timedelta = timedelta(minutes=9)
    dead: timedelta = timedelta(days=14)
    requests: float = 0.05


class BrokenError(Exception):
    """An API server would have refused a replica's certificate."""


class World:
    """Two API servers, three replicas, and what the rotator writes; certificates are names with dates."""

    def __init__(self, chance: random.Random, habits: Habits | None = None) -> None:
        self.now = START
        self.habits = habits or Habits()
        self.chance = chance
        self._serial = itertools.count(1)
        self._coming: list[tuple[datetime, int, Callable[[], None]]] = []
        ca = self.authority()
        self.state = CertificateState(
            RotationPhase.STEADY, START, ca, hosts=HOSTS, stored=ca.trusted, published={"w": ca.trusted}
        )
        self.state = replace(self.state, leaf=self.leaf(ca))
        self.seen = [ca.trusted, ca.trusted]
        self.serving: list[Leaf] = [self.state.leaf] * 3
        self.authorities = {ca.certificates[0].fingerprint: ca}
        self.phases: list[RotationPhase] = [RotationPhase.STEADY]

    def certificate(self, life: timedelta, names: frozenset[str] = frozenset()) -> Certificate:
        fingerprint = f"{self.chance.getrandbits(32):08x}-{next(self._serial)}"
        return Certificate(fingerprint, fingerprint, self.now - rotation.TOLERANCE, self.now + life, names)

    def authority(self) -> CertificateAuthority:
        return CertificateAuthority((self.certificate(CA_LIFE),))

    def leaf(self, issuer: CertificateAuthority) -> Leaf:
        assert issuer.can_sign(self.now)
        life = min(LEAF_LIFE, issuer.not_after - self.now)
        return Leaf(self.certificate(life, HOSTS), issuer.certificates[0].fingerprint)

    def observed(self) -> CertificateState:
        served = {f"10.0.0.{number}:9443": leaf for number, leaf in enumerate(self.serving)}
        if self.chance.random() < 0.05:
            served[self.chance.choice(list(served))] = None
        return replace(self.state, served=served)

    def later(self, within: timedelta, happens: Callable[[], None]) -> None:
        at = self.now + within * self.chance.random()
        heapq.heappush(self._coming, (at, next(self._serial), happens))

    def until(self, moment: datetime) -> None:
        """Let everything happen up to a moment, and look at each change."""
        while self._coming and self._coming[0][0] <= moment:
            self.now, _, happens = heapq.heappop(self._coming)
            happens()
            self.check()
        self.now = max(self.now, moment)
        self.check()

    def check(self) -> None:
        for (server, trusted), leaf in itertools.product(enumerate(self.seen), self.serving):
            dated = [leaf.certificate, *self.authorities[leaf.issuer].certificates]
            if not all(each.not_before <= self.now <= each.not_after for each in dated):
                raise BrokenError(f"{self.now}: expired in {self.state.phase}")
            if leaf.issuer not in trusted:
                raise BrokenError(f"{self.now}: API server {server} doesn't trust it in {self.state.phase}")

    def perform(self, step: RotationStep) -> None:
        state = self.state
        match step.action:
            case RotationAction.BUNDLE:
                self.state = replace(state, stored=state.wanted)
            case RotationAction.INJECT:
                self.inject(state.wanted)
            case RotationAction.ISSUE:
                self.serve(self.leaf(state.issuer))
                self.state = replace(self.state, stored=state.wanted)
            case RotationAction.ENTER:
                self.enter(step.phase)
        self.check()

    def inject(self, trusted: frozenset[str]) -> None:
        self.state = replace(self.state, published={"w": trusted})
        for server in range(2):
            self.later(self.habits.notice, lambda server=server: self.notice(server, trusted))

    def notice(self, server: int, trusted: frozenset[str]) -> None:
        # What was overtaken by a later write isn't seen any more.
        if trusted == self.state.published["w"]:
            self.seen[server] = trusted

    def serve(self, leaf: Leaf) -> None:
        before = self.state.leaf
        self.state = replace(self.state, leaf=leaf)
        for number in range(3):
            lag = self.habits.lag * self.chance.choice([0.05, 0.05, 1, 20])
            self.later(lag, lambda number=number: self.take_up(number))
            if self.chance.random() < 0.2:
                self.later(self.habits.lag, lambda number=number: self.restart(number, before))

    def take_up(self, number: int) -> None:
        self.serving[number] = self.state.leaf

    def restart(self, number: int, stale: Leaf) -> None:
        """A replica comes up with what its node still has of the Secret, and learns of the present one soon."""
        self.serving[number] = stale
        self.later(timedelta(minutes=1), lambda: self.take_up(number))

    def enter(self, phase: RotationPhase) -> None:
        source, state = self.state.phase, self.state
        self.phases.append(phase)
        self.state = replace(state, phase=phase, since=self.now)
        match source, phase:
            case RotationPhase.STEADY, RotationPhase.PUBLISH:
                new = self.authority()
                self.authorities[new.certificates[0].fingerprint] = new
                self.state = replace(self.state, following=new)
            case RotationPhase.RETIRE, RotationPhase.STEADY:
                self.state = replace(self.state, current=state.following, following=None)
            case RotationPhase.WITHDRAW, RotationPhase.STEADY:
                self.state = replace(self.state, following=None, hold=RotationPhase.STEADY)
            case RotationPhase.RETIRE, RotationPhase.SWITCH:
                self.state = replace(self.state, current=replace(state.current, signs=False))


def live(world: World, end: datetime) -> None:
    """Run a rotator that looks when it pleases, is dead now and then, and is asked for this and that."""
    chance = world.chance
    while world.now < end:
        requested = chance.choice(list(RotationCommand)) if chance.random() < world.habits.requests else None
        step = plan(world.observed(), world.now, requested)
        if step.action is RotationAction.WAIT:
            if step.phase is RotationPhase.STEADY:
                world.until(max(step.until, world.now) + world.habits.dead * chance.random())
            else:
                world.until(world.now + timedelta(minutes=1) * chance.random())
        else:
            world.perform(step)
            if chance.random() < 0.1:
                world.until(world.now + world.habits.dead * chance.random())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    notice=st.floats(0, 119),
    lag=st.floats(0, 590),
    dead=st.floats(0, 20),
    requests=st.floats(0, 0.3),
)
def test_over_ten_years_no_api_server_ever_refuses_a_replica(seed, notice, lag, dead, requests):
    habits = Habits(timedelta(seconds=notice), timedelta(seconds=lag), timedelta(days=dead), requests)
    world = World(random.Random(seed), habits)
    live(world, START + timedelta(days=3653))
    assert world.phases.count(RotationPhase.STEADY) > 4


def test_every_row_of_the_table_is_gone_through_in_such_lives():
    gone: set[tuple[RotationPhase, RotationPhase]] = set()
    for seed in range(40):
        world = World(random.Random(seed))
        live(world, START + timedelta(days=3653))
        gone |= set(itertools.pairwise(world.phases))
    # What needs a bundle to be lost, or a CA that expires while it is gone back to, has tests of its own.
    told = {
        (RotationPhase.SPREAD, RotationPhase.PUBLISH),
        (RotationPhase.ROLLBACK, RotationPhase.SWITCH),
        (RotationPhase.WITHDRAW, RotationPhase.SWITCH),
    }
    rare = {(RotationPhase.RETIRE, RotationPhase.SWITCH)}
    assert {(row.source, row.target) for row in rotation.TABLE} - told - rare <= gone


def ca_first(world: World, new: CertificateAuthority) -> None:
    world.inject(new.trusted)
    world.until(world.now + timedelta(minutes=20))
    world.serve(world.leaf(new))


def leaf_first(world: World, new: CertificateAuthority) -> None:
    world.serve(world.leaf(new))
    world.until(world.now + timedelta(minutes=20))
    world.inject(new.trusted)


@pytest.mark.parametrize("naive", [ca_first, leaf_first])
@given(seed=st.integers(0, 2**32))
def test_the_naive_orders_break_reviews_in_the_same_world(naive, seed):
    world = World(random.Random(seed))
    new = world.authority()
    world.authorities[new.certificates[0].fingerprint] = new
    with pytest.raises(BrokenError, match="doesn't trust it"):
        naive(world, new)


def test_the_diagram_in_the_docs_is_the_table():
    page = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text()
    assert f"```mermaid\n{rotation.diagram()}\n```" in page, "docs/certificates.md isn't what diagram() draws"


# ── single decisions ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def world() -> World:
    return World(random.Random(1))


def rotating(world: World, phase: RotationPhase, **changes: object) -> CertificateState:
    """Return a state in which all is as ``phase`` wants it."""
    new = world.authority()
    state = replace(world.state, phase=phase, since=world.now, following=new)
    leaf = world.leaf(state.issuer)
    state = replace(state, leaf=leaf, stored=state.wanted, published={"w": state.wanted}, served={"r": leaf})
    return replace(state, **changes)


def test_with_nothing_due_it_waits_for_the_first_renewal(world):
    step = plan(world.state, START)
    assert (step.action, step.until) == (RotationAction.WAIT, rotation.renewal(world.state.leaf.certificate))
    assert START + LEAF_LIFE * 0.5 < step.until < START + LEAF_LIFE * 0.67


def test_a_bundle_that_somebody_reset_is_written_again_before_anything_else_is_decided(world):
    for phase in (
        RotationPhase.SWITCH,
        RotationPhase.SOAK,
        RotationPhase.RETIRE,
        RotationPhase.ROLLBACK,
        RotationPhase.PUBLISH,
    ):
        state = rotating(world, phase, published={"w": frozenset(), "v": frozenset()})
        assert plan(state, START).action is RotationAction.INJECT


def test_a_bundle_that_is_reset_while_it_spreads_is_waited_for_anew(world):
    state = rotating(world, RotationPhase.SPREAD, published={"w": frozenset()})
    assert plan(state, START + timedelta(hours=1)).phase is RotationPhase.PUBLISH


def test_old_and_new_are_both_trusted_before_the_new_one_signs(world):
    state = rotating(world, RotationPhase.SWITCH, published={"w": world.state.current.trusted})
    assert plan(replace(state, leaf=world.state.leaf), START).action is RotationAction.INJECT


@pytest.mark.parametrize(
    "phase", [RotationPhase.PUBLISH, RotationPhase.SPREAD, RotationPhase.SWITCH, RotationPhase.SOAK]
)
def test_it_can_be_rolled_back_until_the_old_ca_is_retired(world, phase):
    assert plan(rotating(world, phase), START, RotationCommand.ROLL_BACK).phase is RotationPhase.ROLLBACK
    state = rotating(world, phase)
    keyless = replace(state, current=replace(state.current, signs=False))
    for impossible, now in ((keyless, START), (state, START + CA_LIFE * 0.9)):
        step = plan(impossible, now, RotationCommand.ROLL_BACK)
        assert (step.action, step.phase) == (RotationAction.WAIT, phase)


def test_from_retire_there_is_no_way_back(world):
    assert plan(rotating(world, RotationPhase.RETIRE), START, RotationCommand.ROLL_BACK).phase is RotationPhase.STEADY


@pytest.mark.parametrize("phase", [RotationPhase.ROLLBACK, RotationPhase.WITHDRAW])
def test_a_roll_back_that_outlives_the_old_ca_becomes_a_rotation(world, phase):
    assert plan(rotating(world, phase), START + CA_LIFE).phase is RotationPhase.SWITCH


@pytest.mark.parametrize("phase", [RotationPhase.SOAK, RotationPhase.RETIRE])
def test_a_replica_that_comes_up_with_the_old_certificate_gets_time(world, phase):
    state = rotating(world, phase)
    state = replace(state, served={"r": world.leaf(state.current), "s": state.leaf})
    assert plan(state, START + timedelta(hours=1)).phase is RotationPhase.SWITCH


@pytest.mark.parametrize(
    ("served", "said"),
    [
        (None, "name each with --probe HOST:PORT"),
        ({}, "no replica is ready"),
        ({"r": None}, "1 of 1 replica: r doesn't answer"),
        ({"r": Leaf(Certificate("x", "x", START, START), "")}, "1 of 1 replica: r serves the other certificate"),
    ],
)
def test_nothing_goes_on_until_every_replica_is_seen_to_serve_the_new_certificate(world, served, said):
    step = plan(rotating(world, RotationPhase.SWITCH, served=served), START + timedelta(days=1))
    assert (step.action, step.phase) == (RotationAction.WAIT, RotationPhase.SWITCH)
    assert said in step.why


def test_it_waits_as_long_as_it_is_told(world):
    waits = RotationWaits(timedelta(seconds=3), timedelta(seconds=7))
    for phase, seconds, then in (
        (RotationPhase.SPREAD, 3, RotationPhase.SWITCH),
        (RotationPhase.SOAK, 7, RotationPhase.RETIRE),
    ):
        state = rotating(world, phase, waits=waits)
        step = plan(state, START + timedelta(seconds=seconds - 1))
        assert (step.action, step.until) == (RotationAction.WAIT, START + timedelta(seconds=seconds))
        assert plan(state, START + timedelta(seconds=seconds)).phase is then


def test_an_expired_ca_is_replaced_without_waiting_for_what_nobody_accepts(world):
    later = START + CA_LIFE + timedelta(days=1)
    assert plan(world.state, later).phase is RotationPhase.PUBLISH
    state = rotating(world, RotationPhase.SPREAD, since=later)
    assert plan(replace(state, leaf=world.state.leaf), later).phase is RotationPhase.SWITCH


def test_near_the_end_of_a_ca_certificates_are_not_renewed_over_and_over(world):
    world.now = START + CA_LIFE - timedelta(hours=1)
    state = replace(rotating(world, RotationPhase.PUBLISH), leaf=world.leaf(world.state.current))
    assert plan(state, world.now + timedelta(minutes=50)).phase is RotationPhase.SPREAD


def test_a_ca_whose_key_is_not_at_hand_is_replaced_at_once(world):
    state = replace(world.state, current=replace(world.state.current, signs=False))
    assert plan(state, START).phase is RotationPhase.PUBLISH


def test_a_hold_keeps_a_phase_but_not_until_the_ca_expires(world):
    state = rotating(world, RotationPhase.SOAK, hold=RotationPhase.SOAK)
    assert "held in phase soak" in plan(state, START + timedelta(hours=1)).why
    old = world.state.current
    world.now = START + CA_LIFE * 0.85
    late = rotating(world, RotationPhase.SOAK, hold=RotationPhase.SOAK, since=START)
    assert late.current == old
    assert plan(late, world.now).phase is RotationPhase.RETIRE


@pytest.mark.parametrize(("part", "held"), [(0.7, True), (0.82, True), (0.84, False)])
def test_a_rotation_that_was_rolled_back_is_not_begun_again_before_the_ca_is_near_its_end(world, part, held):
    world.now = START + CA_LIFE * part
    steady = replace(world.state, hold=RotationPhase.STEADY, leaf=world.leaf(world.state.current))
    assert (plan(steady, world.now).phase is RotationPhase.STEADY) is held
    assert plan(steady, world.now, RotationCommand.ROTATE).phase is RotationPhase.PUBLISH


@pytest.mark.parametrize("minutes", [-10, 10])
def test_nothing_is_issued_while_the_clocks_are_apart(world, minutes):
    skewed = replace(world.state, skew=timedelta(minutes=minutes))
    for asked in (RotationCommand.RENEW, RotationCommand.ROTATE):
        step = plan(skewed, START, asked)
        assert step.action is RotationAction.WAIT
        assert "10 minutes" in step.why
    assert plan(replace(skewed, skew=timedelta(minutes=4)), START, RotationCommand.RENEW).action is RotationAction.ISSUE


def test_where_another_writes_the_bundle_nothing_is_done(world):
    state = replace(world.state, foreign="cert-manager writes the bundle", published={"w": frozenset()}, leaf=None)
    for requested in (None, *RotationCommand):
        assert plan(state, START + CA_LIFE, requested) == RotationStep(
            RotationAction.WAIT, state.foreign, RotationPhase.STEADY, blocked=True
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"leaf": None}, "the Secret holds none"),
        ({"hosts": HOSTS | {"10.0.0.5"}}, "isn't good for 10.0.0.5"),
        ({"leaf": Leaf(Certificate("x", "x", START, START + LEAF_LIFE, HOSTS), "")}, "another CA signed"),
    ],
)
def test_a_certificate_that_does_not_fit_is_replaced(world, change, said):
    step = plan(replace(world.state, **change), START)
    assert step.action is RotationAction.ISSUE
    assert said in step.why
