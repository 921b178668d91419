"""The call of a webhook: one POST, repeated when it asks for that, within its timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from muster.sandbox.admission.reviews import CallError
from muster.sandbox.core.status import quote

_TRIES: Final = 11


class UnreachableWebhookError(Exception):
    """No HTTP answer came.

    Its text is the end of what Go's HTTP client says: ``dial tcp 127.0.0.1:9443: connect: connection refused``,
    ``context deadline exceeded``, ``tls: failed to verify certificate: x509: certificate signed by unknown authority``.
    """


class WebhookCaller(Protocol):
    """Posts an AdmissionReview. Over HTTPS in a running sandbox, in process in tests and dry runs."""

    async def call(
        self, url: str, ca_bundle: bytes, body: bytes, *, within: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Post ``body`` as JSON and give status, headers (names in lower case) and body of the answer.

        ``ca_bundle`` is PEM; empty means the system's roots. ``within`` is in seconds. Redirects are not followed.

        Raises:
            UnreachableWebhookError: no answer came.
        """
        ...


def unreachable(url: str, seconds: int, why: object) -> CallError:
    """Return the error of a call that got no answer."""
    return CallError(_failed(f"Post {quote(f'{url}?timeout={seconds}s')}: {why}"))


async def post(caller: WebhookCaller, url: str, ca_bundle: bytes, body: bytes, seconds: int) -> bytes:
    """Call a webhook; return the body of its answer.

    An answer of 429 or 5xx with a Retry-After header is asked again after that time, as the real server does.

    Raises:
        CallError: no answer within that many ``seconds``, or none of use.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout_at(deadline):
            return await _asked(caller, f"{url}?timeout={seconds}s", ca_bundle, body, deadline)
    except TimeoutError as error:
        raise unreachable(url, seconds, "context deadline exceeded") from error
    except UnreachableWebhookError as error:
        raise unreachable(url, seconds, error) from error


async def _asked(caller: WebhookCaller, url: str, ca_bundle: bytes, body: bytes, deadline: float) -> bytes:
    for tried in range(1, _TRIES + 1):
        within = deadline - asyncio.get_running_loop().time()
        status, headers, answer = await caller.call(url, ca_bundle, body, within=within)
        wait = _wait(status, headers)
        if wait is None or tried == _TRIES:
            return _accepted(status, headers, answer)
        await asyncio.sleep(wait)
    raise AssertionError("the last try returns")


def _wait(status: int, headers: Mapping[str, str]) -> int | None:
    asked = headers.get("retry-after", "")
    return int(asked) if (status == 429 or status >= 500) and asked.isdigit() else None


def _accepted(status: int, headers: Mapping[str, str], answer: bytes) -> bytes:
    if 200 <= status <= 206:
        if not answer:
            kind = headers.get("content-type", "")
            raise CallError(_failed(f"0-length response with status code: {status} and content type: {kind}"))
        return answer
    raise CallError(_failed(_status_message(answer) or _meaning(status, answer)))


def _status_message(answer: bytes) -> str:
    """Return the message when the body is a Status, which then speaks for itself."""
    try:
        status = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return ""
    message = status.get("message")
    return message if isinstance(message, str) else ""


def _meaning(status: int, answer: bytes) -> str:
    text = answer[:2048].decode(errors="replace").strip()
    return f"the webhook answered with status {status}" + (f": {text}" if text else "")


def _failed(text: str) -> str:
    return f"failed to call webhook: {text}"
