"""The replacement of paths on values: everybody learns of everything late, replicas restart, configurations are applied again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certs import paths
from certs.paths import LIFE, PathAction, PathPhase, PathState, Segments, plan
from muster.model.names import NO_SEGMENT

START = datetime(2026, 1, 1, tzinfo=UTC)
NOTICE = timedelta(minutes=8)
"""An API server goes on with what a configuration was, for less than the soak."""
LAG = timedelta(seconds=110)
"""A replica takes up what the Secret holds, in less than the spread if it comes up meanwhile."""
MINUTE = timedelta(minutes=1)


class Late:
    """A value as somebody sees it: each change within a time."""

    def __init__(self, value: Any, within: timedelta) -> None:
        self.seen = value
        self._within = within
        self._coming: list[tuple[datetime, Any]] = []

    def change(self, value: Any, now: datetime, part: float) -> None:
        self._coming.append((now + self._within * part, value))

    def pass_to(self, now: datetime) -> None:
        # Whoever looks sees the latest: what was overtaken is never seen after it.
        due = [number for number, (at, _) in enumerate(self._coming) if at <= now]
        if due:
            self.seen = self._coming[due[-1]][1]
            del self._coming[: due[-1] + 1]


class World(RuleBasedStateMachine):
    """Two API servers, three replicas, one rotator that may stop for hours."""

    @initialize()
    def begin(self) -> None:
        self.now = START
        self.stored = paths.first(START)
        self.configured: str | None = NO_SEGMENT
        self.servers = [Late(NO_SEGMENT, NOTICE) for _ in range(2)]
        self.replicas = [Late(frozenset({NO_SEGMENT}), LAG) for _ in range(3)]
        self.made = 0
        self.failed_at: datetime | None = None

    def state(self) -> PathState:
        taken = {str(n): self.stored.proved in each.seen for n, each in enumerate(self.replicas)}
        return PathState(self.stored, {"w": self.configured}, taken, self.failed_at)

    def store(self, segments: Segments, part: float) -> None:
        self.stored = segments
        for replica in self.replicas:
            replica.change(frozenset(segments.accepted), self.now, part)

    def configure(self, segment: str, part: float) -> None:
        self.configured = segment
        for server in self.servers:
            server.change(segment, self.now, part)

    @rule(part=st.floats(0, 1), crash=st.sampled_from(["before writing", ""]))
    def step(self, part: float, crash: str) -> None:
        match plan(self.state(), self.now).action:
            case PathAction.ANNOUNCE:
                self.made += 1
                self.store(self.stored.announced(paths.segment(self.made.to_bytes(paths.BYTES, "big")), self.now), part)
            case PathAction.SWITCH:
                self.store(self.stored.switched(self.now), part)
            case PathAction.WRITE:
                self.store(self.stored.written(self.now), part)
                if not crash:
                    self.configure(self.stored.current, part)
            case PathAction.RETIRE:
                self.store(self.stored.retired(self.now), part)

    @rule(seconds=st.integers(1, 180))
    def wait(self, seconds: int) -> None:
        self.pass_to(self.now + timedelta(seconds=seconds))

    @rule(hours=st.integers(1, 30))
    def wait_long(self, hours: int) -> None:
        self.pass_to(self.now + timedelta(hours=hours))

    @rule()
    def fail(self) -> None:
        self.failed_at = self.now

    @precondition(lambda self: self.stored.phase is not PathPhase.SOAK)
    @rule(part=st.floats(0, 1))
    def lose(self, part: float) -> None:
        """The Secret is emptied; what replicas have mounted stays until it is filled."""
        self.store(paths.first(self.now, [self.configured]), part)

    @rule(number=st.integers(0, 2))
    def restart(self, number: int) -> None:
        """A pod that comes up has the Secret as it is mounted then."""
        self.replicas[number] = Late(frozenset(self.stored.accepted), LAG)

    def pass_to(self, now: datetime) -> None:
        while self.now < now:
            self.now = min(self.now + timedelta(seconds=20), now) if now - self.now < timedelta(hours=1) else now
            for each in (*self.servers, *self.replicas):
                each.pass_to(self.now)

    @invariant()
    def every_call_is_taken_by_every_replica(self) -> None:
        for server in getattr(self, "servers", ()):
            for replica in self.replicas:
                assert server.seen in replica.seen

    @invariant()
    def what_is_configured_is_stored(self) -> None:
        if hasattr(self, "stored"):
            assert self.configured in self.stored.accepted
            assert bool(self.stored.other) is (self.stored.phase is not PathPhase.STEADY)


World.TestCase.settings = settings(stateful_step_count=60, deadline=None)
TestWorld = World.TestCase


def steady(segment: str = "now", **fields: Any) -> PathState:
    taken = fields.pop("taken", {"a:1": True})
    return PathState(Segments(PathPhase.STEADY, segment, START, START), {"w": segment}, taken, **fields)


def test_a_segment_is_in_use_for_a_day() -> None:
    assert plan(steady(), START + LIFE - MINUTE).action is PathAction.WAIT
    assert plan(steady(), START + LIFE).action is PathAction.ANNOUNCE


@pytest.mark.parametrize(
    "state",
    [
        steady(NO_SEGMENT),
        steady(failed_at=START + MINUTE),
        steady(taken={"a:1": True, "b:1": None}),
    ],
)
def test_it_is_replaced_at_once_where_there_is_none_a_call_failed_or_a_replica_is_silent(state: PathState) -> None:
    assert plan(state, START + 2 * MINUTE).action is PathAction.ANNOUNCE


def test_a_segment_is_replaced_when_somebody_asks_and_one_under_way_is_not_begun_again() -> None:
    assert plan(steady(), START + MINUTE, requested=True).action is PathAction.ANNOUNCE
    under_way = PathState(steady().segments.announced("new", START), {"w": "now"}, {"a:1": False})
    assert plan(under_way, START + MINUTE, requested=True).action is PathAction.WAIT


def test_where_nothing_is_stored_what_webhooks_are_called_with_goes_on_being_taken() -> None:
    one, two = (paths.segment(bytes([number] * paths.BYTES)) for number in range(2))
    assert paths.first(START).accepted == (NO_SEGMENT,)
    assert paths.first(START, [None, "guess", "a/b"]).accepted == (NO_SEGMENT,)
    found = paths.first(START, [one, None, one])
    assert found.accepted == (one,)
    assert plan(PathState(found, {"w": one}), START).action is PathAction.ANNOUNCE
    mixed = paths.first(START, [NO_SEGMENT, one])
    assert (mixed.phase, mixed.accepted) == (PathPhase.SOAK, (one, NO_SEGMENT))
    assert set(paths.first(START, [one, two]).accepted) == {one, two}


def test_a_failure_before_the_segment_was_in_use_says_nothing_of_it() -> None:
    assert plan(steady(failed_at=START - MINUTE), START + MINUTE).action is PathAction.WAIT


@pytest.mark.parametrize("taken", [None, {}, {"a:1": True, "b:1": False}, {"a:1": None}])
def test_without_a_proof_of_every_replica_nothing_is_switched(taken: Any) -> None:
    state = PathState(steady().segments.announced("new", START), {"w": "now"}, taken)
    step = plan(state, START + LIFE)
    assert (step.action, step.until) == (PathAction.WAIT, None)


def test_the_old_segment_ends_ten_minutes_after_the_configurations_were_written_last() -> None:
    segments = steady().segments.announced("new", START).switched(START)
    assert plan(PathState(segments, {"w": "now"}), START).action is PathAction.WRITE
    again = segments.written(START + 9 * MINUTE)
    assert plan(PathState(again, {"w": "new"}), START + 18 * MINUTE).action is PathAction.WAIT
    assert plan(PathState(again, {"w": "new"}), START + 19 * MINUTE).action is PathAction.RETIRE
    assert again.accepted == ("new", "now")
    assert again.retired(START).accepted == ("new",)


def test_a_segment_has_52_characters_of_a_name_of_dns() -> None:
    made = {paths.segment(bytes([first, *range(1, paths.BYTES)])) for first in range(256)}
    assert len(made) == 256
    assert all(len(each) == 52 and each.isalnum() and each == each.lower() for each in made)
