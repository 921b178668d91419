"""The errors of calls to an API server, as one tree.

Translated once, in the transport and the client; nobody above sees an `OSError` of a socket. A text that comes from outside
is cut to `TEXT_LIMIT`, so that no log line or event can be flooded by a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from muster.model.nesting import decode_shallow

TEXT_LIMIT: Final = 512


def bounded(text: str) -> str:
    """Put a text that comes from outside on one line, and cut it to `TEXT_LIMIT`."""
    line = " ".join(text[: 4 * TEXT_LIMIT].split())
    return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 1] + "…"


class KubeError(Exception):
    """The root of the tree: everything that a call to an API server may raise."""


class ConfigError(KubeError):
    """No usable kubeconfig or credentials. The text says which file and what to do."""


class FenceLostError(KubeError):
    """This process is no longer the leader: the write was not sent."""


class WorkerStuckError(KubeError):
    """A worker was told to stop leading and went on. It can't write any more; its process must end."""


class UnreachableError(KubeError):
    """No answer came: no connection, a broken one, or a time-out.

    Attributes:
        maybe_applied: the request may have reached the server, so a write has to be read back before it is repeated.
    """

    def __init__(self, text: str, *, maybe_applied: bool) -> None:
        super().__init__(bounded(text))
        self.maybe_applied = maybe_applied


class SilentError(UnreachableError):
    """A watch brought nothing for long: nothing happened, or the connection is dead."""


class ApiError(KubeError):
    """The server answered with a Status that says no.

    Attributes:
        code: HTTP status.
        reason: the Status' machine-readable reason, for example ``AlreadyExists``; empty when there was none.
        message: the Status' text, cut to `TEXT_LIMIT`.
        details: the Status' details, as JSON.
        retry_after: seconds that the server asks to wait, or None.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(bounded(message) or f"HTTP {code}")
        self.code = code
        self.reason = reason
        self.message = bounded(message)
        self.details = details or {}
        self.retry_after = retry_after


class BadRequestError(ApiError):
    """400: the server could not read what we sent."""


class UnauthorizedError(ApiError):
    """401: it doesn't know who we are."""


class ForbiddenError(ApiError):
    """403: RBAC, a quota or an admission webhook says no."""


class NotFoundError(ApiError):
    """404: no such object, or no such kind."""


class ConflictError(ApiError):
    """409: the object changed since it was read."""


class AlreadyExistsError(ConflictError):
    """409 on a create: the name is taken."""


class GoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class InvalidError(ApiError):
    """422: the object breaks its schema or a validation rule."""


class TooManyRequestsError(ApiError):
    """429: later; see `retry_after`. Also an eviction that a PodDisruptionBudget doesn't allow now."""


class ServerError(ApiError):
    """5xx: the server's own trouble, a webhook that could not be called, a time-out. A write may have happened."""


_BY_CODE: Final[dict[int, type[ApiError]]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def from_status(code: int, status: dict[str, Any], *, retry_after: float | None = None) -> ApiError:
    """Return the error for an answer of ``code`` whose body is a Status (or an empty dict, when it wasn't one)."""
    reason = str(status.get("reason") or "")
    kind = AlreadyExistsError if reason == "AlreadyExists" else _BY_CODE.get(code)
    if kind is None:
        kind = ServerError if code >= 500 else ApiError
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    if retry_after is None and isinstance(details.get("retryAfterSeconds"), int):
        retry_after = float(details["retryAfterSeconds"])
    return kind(code, reason, str(status.get("message") or ""), details=details, retry_after=retry_after)


def from_answer(code: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """Return the error for an answer as it came over the wire; header names are in lower case."""
    value = headers.get("retry-after", "")
    return from_status(code, _status(body), retry_after=float(value) if value.isdecimal() else None)


def _status(body: bytes) -> dict[str, Any]:
    try:
        status = decode_shallow(msgspec.json.decode, body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {"message": body[: 2 * TEXT_LIMIT].decode(errors="replace")}
    # Anything but a Status may be data, which has no place in an error's text.
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


def namespace_ends(error: Exception) -> bool:
    """Whether a create was refused because its namespace is being deleted, or is gone."""
    if isinstance(error, NotFoundError):
        return error.details.get("kind") == "namespaces"
    causes = error.details.get("causes") if isinstance(error, ForbiddenError) else None
    return any(isinstance(each, dict) and each.get("reason") == "NamespaceTerminating" for each in causes or ())
