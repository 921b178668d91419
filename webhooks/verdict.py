"""The decision of a policy, as values; `webhooks.review` writes them as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from muster.ledger.reservations import ReservationRequest
from muster.model.amounts import Resources
from muster.model.kinds import Kind
from muster.model.objects import Json

FORBIDDEN: Final = 403
INVALID: Final = 422
BUSY: Final = 429
FAILED: Final = 500


class DenialReason(Enum):
    """What a refusal rests on, for who counts refusals: the sentence is for who was refused."""

    FIELD = "field"
    """A field of the object itself."""
    QUEUE_MISSING = "queue-missing"
    QUEUE_CLOSED = "queue-closed"
    """Closing, Closed, or being deleted."""
    QUEUE_OTHER = "queue-other"
    """It exists and is open, and takes no such thing: it has children, or serves other namespaces."""
    QUOTA = "quota"
    RULE = "rule"
    """Any other rule."""
    BUSY = "busy"
    """None: the answer would have come too late."""
    FAILED = "failed"
    """None: Muster is at fault."""


class ObjectRef(Struct, frozen=True):
    """Names an object, or its absence. A cluster-scoped one has no namespace."""

    kind: Kind[Any]
    name: str
    namespace: str = ""


class Problem(Struct, frozen=True):
    """One thing wrong with a request.

    ``text`` names the field or object, the value and the remedy. ``path`` is set where the object itself is malformed,
    and is then the field's: only that makes a 422. ``evidence`` are the cached objects that it rests on.
    """

    text: str
    path: str = ""
    evidence: tuple[ObjectRef, ...] = ()
    denial_reason: DenialReason = DenialReason.RULE


class QuotaChange(Struct, frozen=True):
    """A ResourceQuota as it will be; ``hard`` is None when it goes, or limits no PodGroup."""

    namespace: str
    name: str
    uid: str
    hard: Resources | None


class Allowed(Struct, frozen=True):
    """Yes, once what it asks of the ledger is granted. ``evidence`` is to be read before it stands.

    ``trial``: nothing is reserved, it need only fit now.
    """

    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    reservation: ReservationRequest | None = None
    trial: bool = False
    quota_change: QuotaChange | None = None
    evidence: tuple[ObjectRef, ...] = ()


class Patched(Struct, frozen=True):
    """Yes, with changes: the operations of a JSON Patch, in order."""

    operations: tuple[Mapping[str, Json], ...]
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)


class Denied(Struct, frozen=True):
    """No. ``causes`` are (field, text) of a malformed object; ``retry_after`` is in seconds."""

    code: int
    reason: str
    message: str
    causes: tuple[tuple[str, str], ...] = ()
    evidence: tuple[ObjectRef, ...] = ()
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    retry_after: int | None = None
    denial_reason: DenialReason = DenialReason.RULE


Verdict = Allowed | Patched | Denied

ALLOWED: Final = Allowed()


def judge(problems: Sequence[Problem], warnings: Iterable[str] = (), otherwise: Allowed = ALLOWED) -> Verdict:
    """Deny for all ``problems`` at once, or allow as ``otherwise`` says; the warnings go along either way.

    Invalid is the answer only when nothing but fields of the object is wrong: kubectl then prints the causes and
    drops the message, which would lose every other reason.
    """
    notes = tuple(dict.fromkeys(warnings))
    if not problems:
        return replace(otherwise, warnings=otherwise.warnings + notes) if notes else otherwise
    evidence = tuple(dict.fromkeys(ref for problem in problems for ref in problem.evidence))
    causes = tuple((problem.path, problem.text) for problem in problems if problem.path)
    message = "; ".join(f"{problem.path}: {problem.text}" if problem.path else problem.text for problem in problems)
    if len(causes) == len(problems):
        return Denied(INVALID, "Invalid", message, causes, evidence, notes, denial_reason=DenialReason.FIELD)
    denial_reason = next(problem.denial_reason for problem in problems if not problem.path)
    return Denied(FORBIDDEN, "Forbidden", message, (), evidence, notes, denial_reason=denial_reason)


def forbidden(message: str, denial_reason: DenialReason = DenialReason.RULE) -> Denied:
    """Deny by a rule that needs no confirmation."""
    return Denied(FORBIDDEN, "Forbidden", message, denial_reason=denial_reason)


def busy(message: str) -> Denied:
    """Deny for now: the API server passes the wait on, and kubectl repeats the request by itself."""
    return Denied(BUSY, "TooManyRequests", message, retry_after=1, denial_reason=DenialReason.BUSY)


def failed(message: str) -> Denied:
    """Deny because Muster itself is at fault."""
    return Denied(FAILED, "InternalError", message, denial_reason=DenialReason.FAILED)
