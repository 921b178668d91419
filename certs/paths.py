"""The segment at the end of the webhooks' paths, and its times. Pure: times and new segments are given.

The API server prints a webhook's URL when a call fails, so a segment is a secret of hours. What is in use is replaced daily,
and after any failed call, in an order in which no replica is called by a path that it doesn't take:

    steady -> announce: replicas are told the new segment, beside the present one
    announce -> soak: every ready replica is seen to take it; the webhook configurations are switched
    soak -> steady: ten minutes after the configurations read back the new one, the old one ends
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from muster.model.names import NO_SEGMENT

LIFE: Final = timedelta(hours=24)
"""How long a segment is in use if no call fails."""
BYTES: Final = 32
"""Random bytes of a segment: 52 characters."""


class PathPhase(Enum):
    """Where the replacement of a segment stands."""

    STEADY = "steady"
    ANNOUNCE = "announce"
    SOAK = "soak"


class PathAction(Enum):
    """What a step does."""

    FILL = "fill the Secret"
    ANNOUNCE = "announce a new segment"
    SWITCH = "use the new segment"
    WRITE = "write the paths to the webhook configurations"
    RETIRE = "end the old segment"
    WAIT = "wait"


class PathWaits(Struct, frozen=True):
    """How long to wait for what nobody tells.

    Attributes:
        spread: after a segment is announced: a replica that comes up has it by then.
        soak: after the configurations were switched: every API server uses the new segment by then.
    """

    spread: timedelta = timedelta(minutes=2)
    soak: timedelta = timedelta(minutes=10)


class Segments(Struct, frozen=True):
    """What is stored.

    Attributes:
        current: what the configurations are to have; ``-`` for none, as before the first replacement.
        since: from when on.
        entered: when the phase began; in soak, when the configurations were written last.
        other: in announce the new segment, in soak the old one.
    """

    phase: PathPhase
    current: str
    since: datetime
    entered: datetime
    other: str = ""

    @property
    def accepted(self) -> tuple[str, ...]:
        """What replicas are to take."""
        return (self.current, self.other) if self.other else (self.current,)

    @property
    def proved(self) -> str:
        """What replicas are asked for: the new one as soon as there is one."""
        return self.other if self.phase is PathPhase.ANNOUNCE else self.current

    def announced(self, segment: str, now: datetime) -> Segments:
        """Return what is stored with a new segment."""
        return replace(self, phase=PathPhase.ANNOUNCE, entered=now, other=segment)

    def switched(self, now: datetime) -> Segments:
        """Return what is stored when the new one is to be used."""
        return Segments(PathPhase.SOAK, self.other, now, now, self.current)

    def written(self, now: datetime) -> Segments:
        """Return what is stored when the configurations are about to be written."""
        return replace(self, entered=now) if self.phase is PathPhase.SOAK else self

    def retired(self, now: datetime) -> Segments:
        """Return what is stored when the old one has ended."""
        return Segments(PathPhase.STEADY, self.current, self.since, now)


class PathState(Struct, frozen=True):
    """What there is.

    Attributes:
        entries: by webhook the segment that it is called with; None where it has no path at all.
        taken: by address whether each ready replica takes `Segments.proved`, None for one that can't be reached; None as a
            whole where nobody knows the replicas, or they weren't asked.
        failed_at: when a call failed last, as far as replicas know.
        certified: whether all replicas seem to answer only callers with a certificate, whatever the path ends in. It may be
            wrong, so it proves nothing: paths stay as they are.
    """

    segments: Segments
    entries: Mapping[str, str | None] = field(default_factory=dict)
    taken: Mapping[str, bool | None] | None = None
    failed_at: datetime | None = None
    waits: PathWaits = field(default_factory=PathWaits)
    certified: bool = False

    @property
    def out_of_date(self) -> list[str]:
        """Which webhooks are called with something else."""
        return [name for name, segment in self.entries.items() if segment != self.segments.current]

    @property
    def proven(self) -> bool:
        """Whether every ready replica was seen to take the segment."""
        return bool(self.taken) and all((self.taken or {}).values())


class PathStep(Struct, frozen=True):
    """What to do next, in which phase, and why. ``until`` is when waiting is over by itself; None where something has to happen."""

    action: PathAction
    why: str
    until: datetime | None = None
    phase: PathPhase = PathPhase.STEADY


def first(now: datetime, entries: Iterable[str | None] = ()) -> Segments:
    """Return what is stored where nothing is stored yet: what the webhooks are called with goes on being taken.

    So a Secret that was lost or emptied is filled again without a failed call. A segment that is found is of unknown age,
    and due.
    """
    found = sorted({each for each in entries if each is not None and _is_known(each)}, reverse=True)
    current, *others = found or [NO_SEGMENT]
    since = now if current == NO_SEGMENT else now - LIFE
    if others:
        # The loss came in the middle of a switch.
        return Segments(PathPhase.SOAK, current, since, now, others[0])
    return Segments(PathPhase.STEADY, current, since, now)


def _is_known(text: str) -> bool:
    """Whether a text is a segment of ours, or says that there is none."""
    return text == NO_SEGMENT or re.fullmatch("[a-z2-7]{52}", text) is not None


def segment(random: bytes) -> str:
    """Write random bytes as a segment of a path: the API server wants a lower-case name of DNS there."""
    assert len(random) == BYTES
    return base64.b32encode(random).decode().rstrip("=").lower()


def plan(state: PathState, now: datetime, *, requested: bool = False) -> PathStep:
    """Say what to do next about the paths; ``requested`` is whether somebody asks for another segment."""
    if state.out_of_date:
        why = f"{len(state.out_of_date)} of {len(state.entries)} webhooks are called by another path"
        step = PathStep(PathAction.WRITE, why)
    else:
        step = _in_phase(state, now, requested=requested)
    return replace(step, phase=state.segments.phase)


def _in_phase(state: PathState, now: datetime, *, requested: bool) -> PathStep:
    stored = state.segments
    if state.certified and stored.phase is not PathPhase.SOAK:
        return PathStep(PathAction.WAIT, "replicas answer only callers with a certificate: any path is taken")
    match stored.phase:
        case PathPhase.STEADY:
            due, why = (now, "another path is requested") if requested else _due(state, now)
            return PathStep(PathAction.ANNOUNCE, why) if due <= now else PathStep(PathAction.WAIT, why, due)
        case PathPhase.ANNOUNCE:
            until = stored.entered + state.waits.spread
            if now < until:
                return PathStep(PathAction.WAIT, "replicas are told the new path", until)
            if not state.proven:
                return PathStep(PathAction.WAIT, _unproven(state))
            return PathStep(PathAction.SWITCH, "every ready replica is seen to take the new path")
        case PathPhase.SOAK:
            until = stored.entered + state.waits.soak
            if now < until:
                return PathStep(PathAction.WAIT, "every API server has to notice the new path", until)
            return PathStep(PathAction.RETIRE, "every webhook is called by the new path")


def _due(state: PathState, now: datetime) -> tuple[datetime, str]:
    """Say from when on the present segment is to be replaced, and why."""
    stored = state.segments
    if not state.entries:
        return now + LIFE, "no webhook is registered"
    if stored.current == NO_SEGMENT:
        return stored.since, "the paths end in no segment yet"
    if state.failed_at is not None and state.failed_at >= stored.since:
        return stored.since, "a call failed, so the API server printed the path"
    if any(taken is None for taken in (state.taken or {}).values()):
        return now, "a replica doesn't answer, so the API server may have printed the path"
    return stored.since + LIFE, "the path is a day old"


def _unproven(state: PathState) -> str:
    if state.taken is None:
        return "nobody knows the replicas of a webhook called by URL: name each with --probe HOST:PORT"
    if not state.taken:
        return "no replica is ready; start the webhook server"
    behind = sorted(address for address, taken in state.taken.items() if not taken)
    return f"{len(behind)} of {len(state.taken)} replicas don't take the new path yet: {', '.join(behind[:3])}"
