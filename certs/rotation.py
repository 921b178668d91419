"""The next step about the certificates: one table of phases, and the upkeep that each phase wants. Pure.

Whoever asks may be killed after any step, and others may be asking too: a step follows from what is there, not from
what was done before. docs/certificates.md holds the diagram that `diagram` draws of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from msgspec import Struct

from certs.bundle import Certificate
from certs.state import CertificateAuthority, CertificateState, RotationPhase

RENEW_AT: Final = 2 / 3
"""Part of its life after which a certificate is to be replaced; a tenth of it earlier for some, so that not all do at once."""
TOLERANCE: Final = timedelta(minutes=5)
"""How far clocks may be apart: certificates are valid from that long before they are issued."""
_JITTER: Final = 0.1
_LAST_CALL: Final = 5 / 6
"""Part of a CA's life after which neither a hold nor a roll-back keeps it from being replaced."""


_FORWARD: Final = tuple(RotationPhase)[:6]


class RotationCommand(Enum):
    """What somebody asks for, beyond what is due."""

    RENEW = "renew"
    ROTATE = "rotate"
    ROLL_BACK = "roll back"


class RotationAction(Enum):
    """What a step does."""

    BUNDLE = "write the bundle to the Secret"
    INJECT = "write the bundle to the webhook configurations"
    ISSUE = "issue a certificate"
    ENTER = "enter a phase"
    WAIT = "wait"


class RotationStep(Struct, frozen=True):
    """What to do next, and why.

    Attributes:
        until: when waiting is over by itself; None where something has to happen.
        blocked: whether it waits for what a person has to fix.
    """

    action: RotationAction
    why: str
    phase: RotationPhase
    until: datetime | None = None
    blocked: bool = False


class _Case(Struct, frozen=True):
    """A state at a moment, and what is asked for."""

    state: CertificateState
    now: datetime
    requested: RotationCommand | None

    def passed(self, wait: timedelta) -> bool:
        return self.now >= self.state.since + wait

    @property
    def useless(self) -> bool:
        """Whether what is served can't be accepted anyway, so that no wait protects anybody."""
        leaf = self.state.leaf
        return self.now >= self.state.current.not_after or (leaf is not None and self.now >= leaf.certificate.not_after)


class RotationTransition(Struct, frozen=True):
    """One row of the table."""

    source: RotationPhase
    target: RotationPhase
    when: str
    holds: Callable[[_Case], bool]


def _asked_back(case: _Case) -> bool:
    return case.requested is RotationCommand.ROLL_BACK


_BACK: Final = "asked to roll back"
_BEHIND: Final = "a replica serves the old certificate again"
_EXPIRED: Final = "the old CA has expired"

TABLE: Final = (
    RotationTransition(
        RotationPhase.STEADY,
        RotationPhase.PUBLISH,
        "the CA is past 2/3 of its life, or a rotation is requested",
        lambda case: case.requested is RotationCommand.ROTATE or due_authority(case.state.current, case.now),
    ),
    RotationTransition(RotationPhase.PUBLISH, RotationPhase.ROLLBACK, _BACK, _asked_back),
    RotationTransition(
        RotationPhase.PUBLISH,
        RotationPhase.SPREAD,
        "every webhook reads back both CAs",
        lambda case: not case.state.out_of_date,
    ),
    RotationTransition(RotationPhase.SPREAD, RotationPhase.ROLLBACK, _BACK, _asked_back),
    RotationTransition(
        RotationPhase.SPREAD,
        RotationPhase.PUBLISH,
        "a webhook lost the bundle",
        lambda case: bool(case.state.out_of_date),
    ),
    RotationTransition(
        RotationPhase.SPREAD,
        RotationPhase.SWITCH,
        "the publish wait is over, or the old certificate has expired",
        lambda case: case.useless or case.passed(case.state.waits.spread),
    ),
    RotationTransition(RotationPhase.SWITCH, RotationPhase.ROLLBACK, _BACK, _asked_back),
    RotationTransition(
        RotationPhase.SWITCH,
        RotationPhase.SOAK,
        "every ready replica is seen to serve a certificate of the new CA",
        lambda case: case.state.proven,
    ),
    RotationTransition(RotationPhase.SOAK, RotationPhase.ROLLBACK, _BACK, _asked_back),
    RotationTransition(RotationPhase.SOAK, RotationPhase.SWITCH, _BEHIND, lambda case: bool(case.state.lagging)),
    RotationTransition(
        RotationPhase.SOAK,
        RotationPhase.RETIRE,
        "the soak is over, and every ready replica still does",
        lambda case: case.passed(case.state.waits.soak) and case.state.proven,
    ),
    RotationTransition(RotationPhase.RETIRE, RotationPhase.SWITCH, _BEHIND, lambda case: bool(case.state.lagging)),
    RotationTransition(
        RotationPhase.RETIRE,
        RotationPhase.STEADY,
        "every webhook reads back the new CA alone; the old key is deleted",
        lambda case: not case.state.out_of_date,
    ),
    RotationTransition(
        RotationPhase.ROLLBACK, RotationPhase.SWITCH, _EXPIRED, lambda case: not case.state.current.can_sign(case.now)
    ),
    RotationTransition(
        RotationPhase.ROLLBACK,
        RotationPhase.WITHDRAW,
        "every ready replica is seen to serve a certificate of the old CA",
        lambda case: case.state.proven,
    ),
    RotationTransition(
        RotationPhase.WITHDRAW, RotationPhase.SWITCH, _EXPIRED, lambda case: not case.state.current.can_sign(case.now)
    ),
    RotationTransition(
        RotationPhase.WITHDRAW,
        RotationPhase.ROLLBACK,
        "a replica serves the new certificate again",
        lambda case: bool(case.state.lagging),
    ),
    RotationTransition(
        RotationPhase.WITHDRAW,
        RotationPhase.STEADY,
        "the soak is over, and every ready replica still does; the new key is deleted",
        lambda case: case.passed(case.state.waits.soak) and case.state.proven,
    ),
)
"""Of the rows of a phase the first that holds is taken, those that go back before the phase's upkeep, the others after it."""

_BACKWARD: Final = frozenset({
    (RotationPhase.SPREAD, RotationPhase.PUBLISH),
    (RotationPhase.SOAK, RotationPhase.SWITCH),
    (RotationPhase.RETIRE, RotationPhase.SWITCH),
    (RotationPhase.ROLLBACK, RotationPhase.SWITCH),
    (RotationPhase.WITHDRAW, RotationPhase.SWITCH),
    (RotationPhase.WITHDRAW, RotationPhase.ROLLBACK),
    *((phase, RotationPhase.ROLLBACK) for phase in (RotationPhase.PUBLISH, RotationPhase.SPREAD, RotationPhase.SWITCH, RotationPhase.SOAK)),
})  # fmt: skip


def plan(state: CertificateState, now: datetime, requested: RotationCommand | None = None) -> RotationStep:
    """Say what to do next about the certificates.

    Trust is widened before anything is signed with the new key and narrowed after nobody shows the old one; within a
    phase the bundle is everywhere before a certificate that needs it is issued.
    """
    case = _Case(state, now, requested)
    if state.foreign:
        return RotationStep(RotationAction.WAIT, state.foreign, state.phase, blocked=True)
    if (row := _row(case, backward=True)) is not None:
        return _entered(case, row)
    if (upkeep := _upkeep(case)) is not None:
        return upkeep
    if (row := _row(case, backward=False)) is None:
        return _wait(case)
    return _held(case, row) or _entered(case, row)


def pending(
    requested: RotationCommand | None, first: CertificateState, state: CertificateState
) -> RotationCommand | None:
    """Return a command as long as nobody has begun what it requests since ``first`` was seen."""
    match requested:
        case RotationCommand.ROTATE:
            begun = state.phase is not RotationPhase.STEADY
        case RotationCommand.ROLL_BACK:
            begun = state.phase not in {
                RotationPhase.PUBLISH,
                RotationPhase.SPREAD,
                RotationPhase.SWITCH,
                RotationPhase.SOAK,
            }
        case _:
            begun = state.leaf != first.leaf
    return None if begun else requested


def due(certificate: Certificate, now: datetime) -> bool:
    """Whether a certificate is to be replaced: past 2/3 of its life, some a tenth of it earlier."""
    return now >= renewal(certificate)


def renewal(certificate: Certificate) -> datetime:
    """Say when a certificate is to be replaced; always the same for the same one."""
    life = certificate.not_after - certificate.not_before
    early = _JITTER * int(certificate.fingerprint[:8], 16) / 0xFFFFFFFF
    return certificate.not_before + life * (RENEW_AT - early)


def due_authority(authority: CertificateAuthority, now: datetime) -> bool:
    """Whether a CA is to be replaced; one whose key isn't at hand is, at once."""
    return not authority.signs or any(due(each, now) for each in authority.certificates)


def diagram() -> str:
    """Draw the table as a Mermaid state diagram."""
    rows = [f"    {row.source.value} --> {row.target.value}: {row.when}" for row in TABLE]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {RotationPhase.STEADY.value}", *rows])


def _row(case: _Case, *, backward: bool) -> RotationTransition | None:
    rows = (row for row in TABLE if row.source is case.state.phase)
    return next((row for row in rows if ((row.source, row.target) in _BACKWARD) is backward and row.holds(case)), None)


def _entered(case: _Case, row: RotationTransition) -> RotationStep:
    if row.when is _BACK and (why := _no_way_back(case)):
        return RotationStep(RotationAction.WAIT, why, case.state.phase, blocked=True)
    if (
        row.target is RotationPhase.PUBLISH
        and row.source is RotationPhase.STEADY
        and (apart := _clocks(case)) is not None
    ):
        return apart
    return RotationStep(RotationAction.ENTER, row.when, row.target)


def _no_way_back(case: _Case) -> str:
    old = case.state.current
    if not old.signs:
        return "the old CA's key isn't at hand, so there is nothing to go back to"
    if case.now >= _last_call(old):
        return f"the old CA ends on {old.not_after:%Y-%m-%d}, too soon to go back to"
    return ""


def _last_call(authority: CertificateAuthority) -> datetime:
    """Say from when on nothing keeps a CA from being replaced."""
    first = authority.certificates[0]
    return first.not_before + (first.not_after - first.not_before) * _LAST_CALL


def _held(case: _Case, row: RotationTransition) -> RotationStep | None:
    state = case.state
    if state.hold is not state.phase or state.phase not in _FORWARD:
        return None
    if state.phase is RotationPhase.STEADY and case.requested is RotationCommand.ROTATE:
        return None
    until = _last_call(state.current)
    if case.now >= until:
        return None
    if state.leaf is not None and renewal(state.leaf.certificate) > case.now:
        until = min(until, renewal(state.leaf.certificate))
    why = f"held in phase {state.phase.value}; `muster certs rotate-ca` goes on"
    return RotationStep(RotationAction.WAIT, why, row.source, until)


def _upkeep(case: _Case) -> RotationStep | None:
    """Bring about what a phase wants, in the order that breaks nothing; None when all of it is so."""
    state = case.state
    if state.stored != state.wanted and state.leaf is not None:
        return RotationStep(RotationAction.BUNDLE, "the Secret holds another bundle", state.phase)
    if state.out_of_date:
        why = f"{len(state.out_of_date)} of {len(state.published)} webhooks trust something else"
        return RotationStep(RotationAction.INJECT, why, state.phase)
    if why := _unfit(case):
        return _clocks(case) or RotationStep(RotationAction.ISSUE, why, state.phase)
    return None


def _unfit(case: _Case) -> str:
    """Say why the certificate in the Secret has to be replaced, nothing where it is good or can't be."""
    state, leaf = case.state, case.state.leaf
    if not state.issuer.can_sign(case.now):
        return ""
    if case.requested is RotationCommand.RENEW:
        return "requested"
    if leaf is None:
        return "the Secret holds none that can be served"
    if leaf.issuer not in state.issuer.trusted:
        return "another CA signed the present one"
    if not state.hosts <= leaf.certificate.names:
        return f"the present one isn't good for {', '.join(sorted(state.hosts - leaf.certificate.names))}"
    # Near the end of a CA a new certificate wouldn't last any longer.
    if due(leaf.certificate, case.now) and leaf.certificate.not_after < state.issuer.not_after:
        return "the present one is past 2/3 of its life"
    return ""


def _clocks(case: _Case) -> RotationStep | None:
    skew = case.state.skew
    if abs(skew) <= TOLERANCE:
        return None
    minutes = f"{abs(skew).total_seconds() / 60:.0f} minutes {'ahead of' if skew > timedelta() else 'behind'}"
    why = f"the API server's clock is {minutes} this machine's, so nothing is issued: set the clocks by NTP"
    return RotationStep(RotationAction.WAIT, why, case.state.phase, blocked=True)


def _wait(case: _Case) -> RotationStep:
    state = case.state
    until: datetime | None = None
    match state.phase:
        case RotationPhase.STEADY:
            ends = [*state.current.certificates, *([state.leaf.certificate] if state.leaf is not None else [])]
            coming = [moment for moment in map(renewal, ends) if moment > case.now]
            until = min(coming, default=None)
            why = "nothing to do"
        case RotationPhase.SPREAD:
            until = state.since + state.waits.spread
            why = "every API server has to notice the new bundle"
        case RotationPhase.SOAK | RotationPhase.WITHDRAW if state.proven:
            until = state.since + state.waits.soak
            why = "no replica may come up with the other certificate"
        case _:
            why = _unproven(state)
    return RotationStep(RotationAction.WAIT, why, state.phase, until)


def _unproven(state: CertificateState) -> str:
    if state.served is None:
        return "nobody knows the replicas of a webhook called by URL: name each with --probe HOST:PORT"
    if not state.served:
        return "no replica is ready; start the webhook server"
    named = [f"{address} doesn't answer" for address in state.silent]
    named += [f"{address} serves the other certificate" for address in state.lagging]
    all_ = "1 replica" if len(state.served) == 1 else f"{len(state.served)} replicas"
    return f"{len(named)} of {all_}: {', '.join(named[:3])}{', …' if len(named) > 3 else ''}"
