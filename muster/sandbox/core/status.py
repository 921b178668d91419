"""Errors as the API server words them: `StatusError`, and constructors with the real server's texts.

Source: ``k8s.io/apimachinery/pkg/api/errors`` and ``pkg/util/validation/field``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct


class Named(Protocol):
    """What a message needs to know of a resource; `muster.sandbox.core.registry.Resource` is one."""

    @property
    def group(self) -> str:
        """API group."""
        ...

    @property
    def plural(self) -> str:
        """Name in paths."""
        ...

    @property
    def kind(self) -> str:
        """Kind of its objects."""
        ...

    @property
    def qualified(self) -> str:
        """``plural.group``."""
        ...

    @property
    def qualified_kind(self) -> str:
        """``Kind.group``."""
        ...


class Cause(Struct, frozen=True):
    """One field that is wrong. ``message`` is without the field's name: ``Invalid value: "x": must be …``."""

    type: str
    field: str
    message: str

    def __str__(self) -> str:
        """Write it as it stands in the message of a Status."""
        return f"{self.field}: {self.message}"

    def json(self) -> dict[str, str]:
        """Return it as it stands in ``details.causes``."""
        return {"reason": self.type, "message": self.message, "field": self.field}


class StatusError(Exception):
    """A request is answered with a Status that says no.

    Attributes:
        code: HTTP status.
        reason: machine-readable reason, for example ``NotFound``; may be empty.
        message: text for people.
        details: the Status' details as JSON.
        headers: further HTTP headers of the answer.
        continue_token: of an expired page: with it the client may go on, inconsistently.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = dict(headers or {})
        self.continue_token = continue_token

    def json(self) -> dict[str, Any]:
        """Return the Status object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(resource: Named, name: str = "", **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return {**details, "kind": resource.plural, **more}


# ── whole requests ───────────────────────────────────────────────────────────────────────────────────────────────


def not_found(resource: Named, name: str) -> StatusError:
    """404: there is no such object."""
    message = f"{resource.qualified} {quote(name)} not found"
    return StatusError(404, "NotFound", message, _details(resource, name))


def no_such_path() -> StatusError:
    """404: the server serves nothing at this path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


class NoSuchPageError(StatusError):
    """404 of what no part of the server knows; the answer is a line of text."""


def no_such_page() -> NoSuchPageError:
    """404: no API group and version of the server has this path."""
    return NoSuchPageError(404, "NotFound", "404 page not found")


def already_exists(resource: Named, name: str) -> StatusError:
    """409 on a create."""
    message = f"{resource.qualified} {quote(name)} already exists"
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def generate_name_conflict(resource: Named, name: str) -> StatusError:
    """409: every generated name was taken."""
    message = (
        f"{already_exists(resource, name).message}, the server was not able to generate a unique name for the object"
    )
    return StatusError(
        409, "AlreadyExists", message, _details(resource, name, retryAfterSeconds=1), {"Retry-After": "1"}
    )


MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: Named, name: str, why: str = MODIFIED) -> StatusError:
    """409: the object isn't in the state that the request presumes."""
    message = f"Operation cannot be fulfilled on {resource.qualified} {quote(name)}: {why}"
    return StatusError(409, "Conflict", message, _details(resource, name))


def forbidden(resource: Named, name: str, why: str) -> StatusError:
    """403: a policy of the server says no."""
    what = f"{resource.qualified} {quote(name)}" if name else resource.qualified
    return StatusError(403, "Forbidden", f"{what} is forbidden: {why}", _details(resource, name))


def unauthorized() -> StatusError:
    """401: the token is unknown."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def invalid(resource: Named, name: str, causes: Sequence[Cause]) -> StatusError:
    """422: the object's fields are wrong, each as a cause."""
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.kind, "causes": [cause.json() for cause in causes]}
    message = f"{resource.qualified_kind} {quote(name)} is invalid"
    if causes:
        message += f": {aggregate(causes)}"
    return StatusError(422, "Invalid", message, details)


def bad_request(message: str) -> StatusError:
    """400: the request can't be read."""
    return StatusError(400, "BadRequest", message)


def no_such_method() -> StatusError:
    """405 for a method that the path doesn't know."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_acceptable(types: Iterable[str]) -> StatusError:
    """406: the client reads none of the forms that the server can write."""
    message = f"only the following media types are accepted: {', '.join(types)}"
    return StatusError(406, "NotAcceptable", message)


def nothing_readable(types: Iterable[str]) -> StatusError:
    """406: the client reads no format that the server can write."""
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(types)}"
    return StatusError(406, "NotAcceptable", message, {})


def unsupported_media_type(given: str, accepted: Iterable[str]) -> StatusError:
    """415: the server can't read a body of this form here."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    if not given:
        message = f"the body of the request has no content type - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> StatusError:
    """413: the body is over the server's limit in bytes."""
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)


def expired(message: str, continue_token: str = "") -> StatusError:
    """410: the asked-for version is forgotten."""
    return StatusError(410, "Expired", message, continue_token=continue_token)


def too_many_requests(message: str, retry_after: int, causes: Sequence[Cause] = ()) -> StatusError:
    """429: later; ``retry_after`` in seconds, 0 when nobody can say."""
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [{k: v for k, v in cause.json().items() if v} for cause in causes]
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return StatusError(429, "TooManyRequests", message, details, headers)


def internal(message: str) -> StatusError:
    """500: something that the server relies on failed."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def unsupported(what: str) -> StatusError:
    """501: the sandbox doesn't do this, and says so instead of pretending."""
    message = (
        f"{what}: not supported by the Muster sandbox; use a real control plane (kube-apiserver), see docs/sandbox.md"
    )
    return StatusError(501, "NotImplemented", message)


# ── fields ───────────────────────────────────────────────────────────────────────────────────────────────────────


def required(field: str, detail: str = "") -> Cause:
    """The field has to be set."""
    return Cause("FieldValueRequired", field, _with("Required value", detail))


def wrong(field: str, value: Any, detail: str = "") -> Cause:
    """The field's value is malformed or out of bounds."""
    return Cause("FieldValueInvalid", field, _with(f"Invalid value: {shown(value)}", detail))


def wrong_type(field: str, value: Any, detail: str = "") -> Cause:
    """The field's value has another type than its schema says."""
    return Cause("FieldValueTypeInvalid", field, _with(f"Invalid value: {shown(value)}", detail))


def not_one_of(field: str, value: Any, values: Iterable[str]) -> Cause:
    """The field's value is none of an enumeration."""
    known = ", ".join(quote(each) for each in values)
    detail = f"supported values: {known}" if known else ""
    return Cause("FieldValueNotSupported", field, _with(f"Unsupported value: {shown(value)}", detail))


def duplicate(field: str, value: Any) -> Cause:
    """The value must be unique and isn't."""
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def unknown_value(field: str, value: Any) -> Cause:
    """The field refers to something that isn't there."""
    return Cause("FieldValueNotFound", field, f"Not found: {shown(value)}")


def not_allowed(field: str, detail: str) -> Cause:
    """The field may not be set or changed here."""
    return Cause("FieldValueForbidden", field, _with("Forbidden", detail))


def too_long(field: str, limit: int) -> Cause:
    """The text is longer than ``limit`` bytes."""
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def aggregate(causes: Sequence[Cause]) -> str:
    """Join causes as the server does: one as it is, several, without repetitions, in brackets."""
    texts = list(dict.fromkeys(str(cause) for cause in causes))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def quote(text: str) -> str:
    """Quote a text as Go's %q does."""
    return msgspec.json.encode(text).decode()


def shown(value: Any) -> str:
    """Write a value as it stands in a message."""
    return msgspec.json.encode(value).decode()


def _with(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text


def bad_options(kind: str, causes: list[Cause]) -> StatusError:
    """422 for query parameters, as an invalid object of meta.k8s.io."""
    details = {"group": "meta.k8s.io", "kind": kind, "causes": [cause.json() for cause in causes]}
    return StatusError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {aggregate(causes)}', details)
