"""From a request to the final verdict: policy, fresh reads of its evidence, reservation. Pure.

The order is written here once. What it takes from outside, objects that are read afresh and the ledger's word, it asks of
its caller: `evaluate` is a generator that yields each question and is sent the answer. The webhook server answers from the
API server and its committer (`webhooks.admission`), a simulation from memory (`muster.whatif.simulated_admission`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.ledger import wording
from muster.ledger.reservations import JOB, PODGROUP, Exceeded, Observed, ReservationRequest, Reserved, Unavailable
from muster.model import grouping, kinds
from muster.model.objects import Object, Pod, PodGroup
from muster.model.tenant_texts import InvalidTextError
from webhooks.policies import claims, hints, jobs, namespaces, podgroups, pods, queues, quotas, workloads
from webhooks.review import AdmissionRequest, FieldError
from webhooks.settings import WebhookSettings
from webhooks.verdict import (
    ALLOWED,
    Allowed,
    DenialReason,
    ObjectRef,
    Patched,
    Problem,
    QuotaChange,
    Verdict,
    busy,
    forbidden,
    judge,
)
from webhooks.view import AdmissionView, FreshView, owner_named

Policy = Callable[[AdmissionRequest, AdmissionView, WebhookSettings], Verdict]

_ROUNDS: Final = 3


class Hook(Struct, frozen=True):
    """What answers at a path. A mutating one lets a malformed object pass: the API server says best what is wrong.

    Attributes:
        reads: the struct that the policy asks for of every object, old and new; None where it asks for several, or for raw ones.
    """

    policy: Policy
    mutating: bool = False
    reads: type | None = None


HOOKS: Final[Mapping[str, Hook]] = {
    "/mutate/scheduler": Hook(hints.mutate, mutating=True),
    "/mutate/namespaces": Hook(namespaces.mutate, mutating=True),
    "/mutate/jobs": Hook(jobs.mutate, mutating=True),
    "/mutate/pods": Hook(pods.mutate, mutating=True, reads=pods.PodBrief),
    "/mutate/podgroups": Hook(podgroups.mutate, mutating=True),
    "/validate/podgroups": Hook(podgroups.validate),
    "/validate/jobs": Hook(jobs.validate),
    "/validate/queues": Hook(queues.validate),
    "/validate/pods": Hook(pods.validate, reads=Pod),
    "/validate/resourceclaims": Hook(claims.validate),
    "/validate/resourcequotas": Hook(quotas.validate),
    "/validate/hints": Hook(hints.validate),
    "/validate/workloads": Hook(workloads.validate),
}


class ReadObjects(Struct, frozen=True):
    """The question of what these objects are now; the answer says it of each, None where it doesn't exist."""

    refs: tuple[ObjectRef, ...]


class Trial(Struct, frozen=True):
    """The question of whether a reservation could be made now; nothing is."""

    reservation: ReservationRequest


Question = ReadObjects | ReservationRequest | Trial | QuotaChange
Reply = Mapping[ObjectRef, Object | None] | Reserved | Exceeded | Unavailable | Observed
"""Of a `ReadObjects` the objects, of a reservation and of a quota's change what the ledger says."""


def hooks_in_order(resource: str) -> tuple[Hook, ...]:
    """Return the hooks of a resource in the order in which an API server calls them: those that mutate first."""
    paths = (f"/{phase}/{resource}" for phase in ("mutate", "validate"))
    return tuple(HOOKS[path] for path in paths if path in HOOKS)


def evaluate(
    hook: Hook, request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings
) -> Generator[Question, Reply, Verdict]:
    """Decide about a request; the generator's value is the verdict.

    Raises:
        ReviewError: the object under review isn't JSON.
    """
    # 1. What the policy says of what the view shows.
    verdict = _judged(hook, request, view, settings)
    # 2. A refusal is confirmed: the view may be behind. So is that there is nothing to note on an object. What the
    #    confirmed verdict rests on in turn is read once more.
    fresh: dict[ObjectRef, Object | None] = {}
    for _ in range(_ROUNDS):
        if isinstance(verdict, Patched):
            return verdict
        unread = tuple(ref for ref in verdict.evidence if ref not in fresh) if verdict.evidence else ()
        if not unread:
            break
        found = yield ReadObjects(unread)
        assert isinstance(found, Mapping)
        fresh.update(found)
        verdict = _judged(hook, request, FreshView(view, fresh), settings)
    # 3. A yes that takes something of a quota holds once the ledger has it.
    if not isinstance(verdict, Allowed):
        return verdict
    if verdict.reservation is not None:
        answer = yield Trial(verdict.reservation) if verdict.trial else verdict.reservation
        owners = _owners(request, verdict.reservation, answer, view) if isinstance(answer, Exceeded) else {}
        return _reserved(verdict, verdict.reservation, answer, owners)
    if verdict.quota_change is not None:
        return _observed(verdict, verdict.quota_change, (yield verdict.quota_change))
    return verdict


def _judged(hook: Hook, request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    try:
        return hook.policy(request, view, settings)
    except FieldError as error:
        return ALLOWED if hook.mutating else judge([Problem(str(error), error.path or "metadata")])
    except InvalidTextError as error:
        return judge([Problem(str(error))])


def _owners(
    request: AdmissionRequest, reservation: ReservationRequest, refused: Exceeded, view: AdmissionView
) -> dict[str, str]:
    """Return what the groups that a refusal names were generated for, by their names."""
    wanted = {reservation.name, reservation.group, *(name for name, _ in refused.holders)}
    found = {name: owner_named(view, request.namespace, name) for name in wanted if grouping.is_generated(name)}
    if reservation.kind == PODGROUP:
        found[reservation.name] = grouping.owner_of(request.new(PodGroup).metadata)
    elif reservation.kind == JOB and request.name and _is_own(request, reservation):
        found[reservation.name] = f"{request.kind.kind} {request.name}"
    return {name: owner for name, owner in found.items() if owner}


def _is_own(request: AdmissionRequest, reservation: ReservationRequest) -> bool:
    """Whether the group that something is reserved for will be generated for the object under review."""
    # A Job may reserve for a group that its pods name; other workloads never do.
    return request.kind.kind != kinds.JOBS.name or reservation.name == grouping.generated_name(reservation.uid)


def _reserved(allowed: Allowed, request: ReservationRequest, answer: Reply, owners: Mapping[str, str]) -> Verdict:
    match answer:
        case Exceeded():
            text = wording.refusal(request, answer, owners)
            return replace(forbidden(text, DenialReason.QUOTA), warnings=allowed.warnings)
        case Unavailable(reason):
            return busy(reason)
        case Reserved(recorded=True) if not allowed.trial:
            return replace(allowed, audit={**allowed.audit, "reserved": str(request.amounts)})
    return allowed


def _observed(allowed: Allowed, change: QuotaChange, answer: Reply) -> Verdict:
    if isinstance(answer, Unavailable):
        return busy(answer.reason)
    assert isinstance(answer, Observed)
    over = tuple(wording.overcommitted(change.name, shortage) for shortage in answer.overcommitted)
    return replace(allowed, warnings=allowed.warnings + over)
