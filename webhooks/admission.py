"""From the body of a call to its answer: parse, decide, confirm, reserve, render. Knows no HTTP server.

The deciding is the policies'; here is what it takes to act on it: one live read before a refusal that rests on a
cache, one write to the ledger before a yes that reserves something, and an answer before the caller gives up.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from muster.kube.client import Client
from muster.kube.errors import KubeError
from muster.ledger import wording
from muster.ledger.reservations import Exceeded, Observed, ReservationRequest, Reserved, Unavailable
from muster.model.amounts import Resources
from muster.model.objects import Object
from webhooks import review
from webhooks.metrics import WebhookMetrics
from webhooks.policies import jobs, podgroups, pods, queues, quotas
from webhooks.review import AdmissionRequest, FieldError, ReviewError
from webhooks.settings import WebhookSettings
from webhooks.verdict import (
    ALLOWED,
    BUSY,
    Allowed,
    DenialReason,
    Denied,
    Patched,
    Problem,
    QuotaChange,
    Ref,
    Verdict,
    busy,
    failed,
    forbidden,
    judge,
)
from webhooks.view import AdmissionView, FreshView

Policy = Callable[[AdmissionRequest, AdmissionView, WebhookSettings], Verdict]
Answer = tuple[int, Mapping[str, str], bytes]
"""HTTP status, headers, body."""

MARGIN: Final = 0.5
"""Seconds before the caller's time-out at which it gets an answer, whatever it is."""

_GRACE: Final = 0.1
"""Seconds of the margin in which the ledger, which is given the same deadline, says what it was waiting for."""

_DEFAULT_TIMEOUT: Final = 10.0
_GO_DURATION: Final = re.compile(r"(?P<amount>[0-9]{1,6}(?:\.[0-9]{1,9})?)(?P<unit>ms|s)")
_ROUNDS: Final = 3
_JSON: Final = {"Content-Type": "application/json"}
_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8"}

log = logging.getLogger("muster.webhooks")


class Hook(Struct, frozen=True):
    """What answers at a path. A mutating one lets a malformed object pass: the API server says best what is wrong."""

    policy: Policy
    mutating: bool = False


HOOKS: Final[Mapping[str, Hook]] = {
    "/mutate/jobs": Hook(jobs.mutate, mutating=True),
    "/mutate/pods": Hook(pods.mutate, mutating=True),
    "/mutate/podgroups": Hook(podgroups.mutate, mutating=True),
    "/validate/podgroups": Hook(podgroups.validate),
    "/validate/jobs": Hook(jobs.validate),
    "/validate/queues": Hook(queues.validate),
    "/validate/pods": Hook(pods.validate),
    "/validate/resourcequotas": Hook(quotas.validate),
}


class Ledger(Protocol):
    """What admission asks of the quota ledger; ``deadline`` is loop time. See `muster.ledger.committer`."""

    async def reserve(
        self, request: ReservationRequest, *, deadline: float, dry_run: bool
    ) -> Reserved | Exceeded | Unavailable:
        """Reserve amounts, or say why not."""
        ...

    async def observe_quota(
        self, namespace: str, name: str, uid: str, hard: Resources | None, *, deadline: float, dry_run: bool
    ) -> Observed | Unavailable:
        """Take note of a quota before it holds; None of one that goes."""
        ...


class Admission:
    """Answers reviews. Holds no state of its own: any number of replicas answer alike."""

    def __init__(
        self, view: AdmissionView, ledger: Ledger, client: Client, settings: WebhookSettings, metrics: WebhookMetrics
    ) -> None:
        self.view = view
        self.settings = settings
        self.metrics = metrics
        self._ledger = ledger
        self._client = client

    async def handle(self, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        """Answer a call: 200 with a review, 404 for a path that isn't ours, 400 for what isn't a review."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        hook = HOOKS.get(path)
        if hook is None:
            return 404, _TEXT, b"no webhook is served here\n"
        self.metrics.in_flight += 1
        try:
            request = review.parse(body)
            verdict = await self._decide(hook, request, began + answer_budget(query.get("timeout", "")))
            answer = review.render(request, verdict)
        except ReviewError as error:
            self.metrics.answered(path, "other", "malformed", loop.time() - began)
            return 400, _TEXT, f"{error}\n".encode()
        finally:
            self.metrics.in_flight -= 1
        seconds = loop.time() - began
        self.metrics.answered(path, request.operation, _kind(verdict), seconds)
        if isinstance(verdict, Denied):
            self.metrics.refused(path, verdict.denial_reason.value)
        _log_answer(request, verdict, seconds)
        return 200, _JSON, answer

    async def _decide(self, hook: Hook, request: AdmissionRequest, deadline: float) -> Verdict:
        try:
            verdict = _evaluate(hook, request, self.view, self.settings)
            if isinstance(verdict, Patched) or not _unfinished(verdict):
                return verdict
            async with asyncio.timeout_at(deadline + _GRACE):
                if isinstance(verdict, Denied):
                    verdict = await self._confirm(hook, request, verdict)
                return await self._reserve(verdict, request, deadline) if isinstance(verdict, Allowed) else verdict
        except ReviewError:
            raise
        except TimeoutError:
            return busy("Muster could not decide in time: try again")
        except Exception:
            # Whatever it is, the API server is owed an answer with the request's uid, and never a traceback.
            log.exception("failed on %s %s", request.operation, review.subject(request), extra=_about(request))
            return failed(f"Muster failed on {review.subject(request)}: its log names the reason by uid {request.uid}")

    async def _confirm(self, hook: Hook, request: AdmissionRequest, denied: Denied) -> Verdict:
        """Read afresh what a refusal rests on, and decide again; what that rests on in turn is read once more."""
        fresh: dict[Ref, Object | None] = {}
        verdict: Verdict = denied
        for _ in range(_ROUNDS):
            unread = [ref for ref in verdict.evidence if ref not in fresh] if isinstance(verdict, Denied) else []
            if not unread:
                break
            try:
                found = await asyncio.gather(*(self._client.find(ref.kind, ref.name, ref.namespace) for ref in unread))
            except KubeError as error:
                log.warning("a refusal could not be confirmed: %s", error, extra=_about(request))
                return busy("Muster could not confirm a refusal with the API server: try again")
            fresh |= dict(zip(unread, found, strict=True))
            verdict = _evaluate(hook, request, FreshView(self.view, fresh), self.settings)
        self.metrics.confirmed(refused=isinstance(verdict, Denied))
        return verdict

    async def _reserve(self, allowed: Allowed, request: AdmissionRequest, deadline: float) -> Verdict:
        dry_run = bool(request.dry_run)
        if allowed.reservation is not None:
            answer = await self._ledger.reserve(allowed.reservation, deadline=deadline, dry_run=dry_run)
            return _after_reservation(allowed, allowed.reservation, answer)
        if allowed.quota_change is not None:
            change = allowed.quota_change
            learned = await self._ledger.observe_quota(
                change.namespace, change.name, change.uid, change.hard, deadline=deadline, dry_run=dry_run
            )
            return _after_quota_change(allowed, change, learned)
        return allowed


@lru_cache(maxsize=64)
def answer_budget(timeout: str) -> float:
    """Return the seconds to answer in, of the ``timeout`` that the API server adds to the URL (``5s``)."""
    match = _GO_DURATION.fullmatch(timeout)
    seconds = float(match["amount"]) / (1000 if match["unit"] == "ms" else 1) if match else _DEFAULT_TIMEOUT
    return max(seconds - MARGIN, seconds / 2)


def _evaluate(hook: Hook, request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    try:
        return hook.policy(request, view, settings)
    except FieldError as error:
        return ALLOWED if hook.mutating else judge([Problem(str(error), error.path or "metadata")])


def _unfinished(verdict: Allowed | Denied) -> bool:
    """Whether something is left to do before the verdict holds."""
    if isinstance(verdict, Denied):
        return bool(verdict.evidence)
    return verdict.reservation is not None or verdict.quota_change is not None


def _after_reservation(
    allowed: Allowed, request: ReservationRequest, answer: Reserved | Exceeded | Unavailable
) -> Verdict:
    match answer:
        case Reserved(recorded):
            audit = {"reserved": str(request.amounts)} if recorded else {}
            return replace(allowed, audit={**allowed.audit, **audit})
        case Exceeded():
            return replace(forbidden(wording.refusal(request, answer), DenialReason.QUOTA), warnings=allowed.warnings)
        case Unavailable(reason):
            return busy(reason)


def _after_quota_change(allowed: Allowed, change: QuotaChange, answer: Observed | Unavailable) -> Verdict:
    if isinstance(answer, Unavailable):
        return busy(answer.reason)
    over = tuple(wording.overcommitted(change.name, shortage) for shortage in answer.overcommitted)
    return replace(allowed, warnings=allowed.warnings + over)


def _kind(verdict: Verdict) -> str:
    match verdict:
        case Allowed():
            return "allowed"
        case Patched():
            return "patched"
        case Denied(code) if code == BUSY:
            return "busy"
        case Denied(code) if code >= 500:
            return "failed"
        case _:
            return "denied"


def _log_answer(request: AdmissionRequest, verdict: Verdict, seconds: float) -> None:
    """Log the decision: a refusal always, anything else only when asked for."""
    refused = isinstance(verdict, Denied)
    level = logging.INFO if refused else logging.DEBUG
    if not log.isEnabledFor(level):
        return
    outcome: dict[str, Any] = {"verdict": _kind(verdict), "ms": round(seconds * 1000, 2)}
    if isinstance(verdict, Denied):
        outcome = {"reason": verdict.denial_reason.value, **outcome}
    text = verdict.message if isinstance(verdict, Denied) else "ok"
    log.log(level, "%s: %s", request.operation, text, extra=_about(request) | outcome)


def _about(request: AdmissionRequest) -> dict[str, Any]:
    return {"uid": request.uid, "user": request.user_info.username, "object": review.subject(request)}
