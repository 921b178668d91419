"""From the body of a call to its answer: parse, evaluate, render. Knows no HTTP server.

The deciding is `webhooks.evaluation`'s; here is what it asks for: one live read before a refusal that rests on a cache, one
write to the ledger before a yes that reserves something, and an answer before the caller gives up.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Generator, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from muster.kube.client import Client
from muster.kube.errors import KubeError
from muster.ledger.reservations import Exceeded, Observed, ReservationRequest, Reserved, Unavailable
from muster.model import kinds
from muster.model.amounts import Resources
from webhooks import review
from webhooks.begun import begin
from webhooks.evaluation import HOOKS, Hook, Question, ReadObjects, Reply, Trial, evaluate
from webhooks.metrics import WebhookMetrics
from webhooks.review import AdmissionRequest, ReviewError
from webhooks.settings import WebhookSettings
from webhooks.verdict import BUSY, Allowed, Denied, Verdict, busy, failed
from webhooks.view import AdmissionView

Answer = tuple[int, Mapping[str, str], bytes]
"""HTTP status, headers, body."""

MARGIN: Final = 0.5
"""Seconds before the caller's time-out at which it gets an answer, whatever it is."""

_GRACE: Final = 0.1
"""Seconds of the margin in which the ledger, which is given the same deadline, says what it was waiting for."""

_NAMED: Final = 100
"""Characters of a caller's name and of a review's uid in log lines."""

_DEFAULT_TIMEOUT: Final = 10.0
_LONGEST: Final = 30.0
"""Seconds: the longest time-out that a webhook can have; what a URL says beyond it no API server wrote."""
_GO_DURATION: Final = re.compile(r"(?P<amount>[0-9]{1,6}(?:\.[0-9]{1,9})?)(?P<unit>ms|s)")
_JSON: Final = {"Content-Type": "application/json"}
_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8"}

log = logging.getLogger("muster.webhooks")


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
            request = review.parse(body, hook.reads)
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
        if isinstance(verdict, Denied) or log.isEnabledFor(logging.DEBUG):
            _log_answer(request, verdict, seconds)
        return 200, _JSON, answer

    def overloaded(self, path: str, beginning: bytes) -> Answer:
        """Answer a call whose body there is no room for, of which only the ``beginning`` was kept.

        The answer is a review that says busy: an HTTP error would count as a failed call, which a webhook that may be ignored
        lets pass.
        """
        self.metrics.answered(path, "other", "busy", 0.0)
        uid = review.early_uid(beginning)
        if uid is None:
            return BUSY, _TEXT, b"too many bytes of other reviews are held: try again\n"
        request = AdmissionRequest(uid=uid, operation="")
        return 200, _JSON, review.render(request, busy("Muster holds too many other reviews: try again"))

    async def _decide(self, hook: Hook, request: AdmissionRequest, deadline: float) -> Verdict:
        steps = evaluate(hook, request, self.view, self.settings)
        try:
            asking = begin(self._ask_on(steps, next(steps), request, deadline))
            if asking.done:
                return asking.result
            async with asyncio.timeout_at(deadline + _GRACE):
                return await asking
        except StopIteration as decided:  # without a question
            verdict: Verdict = decided.value
            return verdict
        except ReviewError:
            raise
        except TimeoutError:
            return busy("Muster could not decide in time: try again")
        except KubeError as error:
            log.warning("a refusal could not be confirmed: %s", error, extra=_about(request))
            return busy("Muster could not confirm a refusal with the API server: try again")
        except Exception:
            # Whatever it is, the API server is owed an answer with the request's uid, and never a traceback.
            log.exception("failed on %s %s", request.operation, review.subject(request), extra=_about(request))
            return failed(f"Muster failed on {review.subject(request)}: its log names the reason by uid {request.uid}")

    async def _ask_on(
        self, steps: Generator[Question, Reply, Verdict], question: Question, request: AdmissionRequest, deadline: float
    ) -> Verdict:
        """Answer one question after the other, until the verdict is there."""
        while True:
            answer = await self._ask(question, request, deadline)
            confirming = isinstance(question, ReadObjects)
            try:
                question = steps.send(answer)
            except StopIteration as decided:
                verdict: Verdict = decided.value
                if confirming:
                    self.metrics.confirmed(refused=isinstance(verdict, Denied))
                return verdict
            if confirming and not isinstance(question, ReadObjects):
                self.metrics.confirmed(refused=False)

    async def _ask(self, question: Question, request: AdmissionRequest, deadline: float) -> Reply:
        """Answer what the evaluation asks: the API server what is there, the ledger what fits."""
        if isinstance(question, ReadObjects):
            refs = question.refs
            found = await asyncio.gather(*(self._client.find(ref.kind, ref.name, ref.namespace) for ref in refs))
            return dict(zip(refs, found, strict=True))
        dry_run = bool(request.dry_run)
        if isinstance(question, Trial):
            question, dry_run = question.reservation, True
        namespace = question.namespace
        if namespace in self.settings.exempt:
            return Reserved(recorded=False) if isinstance(question, ReservationRequest) else Observed()
        # No API server reviews what isn't in a namespace, and a forged review gets no ledger made.
        known = self.view.get(kinds.NAMESPACES, namespace)
        if known is None and await self._client.find(kinds.NAMESPACES, namespace) is None:
            return Unavailable(f"namespace {namespace!r} does not exist: create it first")
        if isinstance(question, ReservationRequest):
            return await self._ledger.reserve(question, deadline=deadline, dry_run=dry_run)
        name, uid, hard = question.name, question.uid, question.hard
        return await self._ledger.observe_quota(namespace, name, uid, hard, deadline=deadline, dry_run=dry_run)


@lru_cache(maxsize=64)
def answer_budget(timeout: str) -> float:
    """Return the seconds to answer in, of the ``timeout`` that the API server adds to the URL (``5s``)."""
    match = _GO_DURATION.fullmatch(timeout)
    seconds = float(match["amount"]) / (1000 if match["unit"] == "ms" else 1) if match else _DEFAULT_TIMEOUT
    seconds = min(seconds, _LONGEST)
    return max(seconds - MARGIN, seconds / 2)


def _kind(verdict: Verdict) -> str:
    if not isinstance(verdict, Denied):
        return "allowed" if isinstance(verdict, Allowed) else "patched"
    if verdict.code == BUSY:
        return "busy"
    return "failed" if verdict.code >= 500 else "denied"


def _log_answer(request: AdmissionRequest, verdict: Verdict, seconds: float) -> None:
    """Log the decision: a refusal always, anything else only when asked for."""
    refused = isinstance(verdict, Denied)
    level = logging.INFO if refused else logging.DEBUG
    outcome: dict[str, Any] = {"verdict": _kind(verdict), "ms": round(seconds * 1000, 2)}
    if isinstance(verdict, Denied):
        outcome = {"reason": verdict.denial_reason.value, **outcome}
    text = verdict.message if isinstance(verdict, Denied) else "ok"
    log.log(level, "%s: %s", request.operation, text, extra=_about(request) | outcome)


def _about(request: AdmissionRequest) -> dict[str, Any]:
    """Return the fields of a log line; what callers choose as they like is cut, so that the rest of the line is seen."""
    uid, user = (text[:_NAMED] for text in (request.uid, request.user_info.username))
    return {"uid": uid, "user": user, "object": review.subject(request)}
