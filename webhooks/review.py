"""AdmissionReview, admission.k8s.io/v1: bytes to request, verdict to bytes.

The only module that knows the wire form. The object under review stays raw until a policy asks for it as the struct of
the fields that it reads.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import field

from muster.kube.client import decoder
from muster.model.nesting import decode_shallow
from webhooks.verdict import Denied, Patched, Verdict

T = TypeVar("T")

API_VERSION: Final = "admission.k8s.io/v1"
WARNING_LIMIT: Final = 120
_SHOWN: Final = 200
_EARLY_UID: Final = re.compile(
    rb'\s*\{\s*"kind":\s*"AdmissionReview",\s*"apiVersion":\s*"admission\.k8s\.io/v1",'
    rb'\s*"request":\s*\{\s*"uid":\s*"(?P<uid>[A-Za-z0-9-]{1,64})"'
)
"""API servers write the fields in the order of their Go types."""


class ReviewError(ValueError):
    """A body that isn't an AdmissionReview of v1. Its text is one line, for the API server's log."""


class FieldError(ValueError):
    """A field of the object under review has a type that its API doesn't give it.

    Attributes:
        path: of the field, as ``spec.minMember``; empty when it is the object itself.
    """

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path


# frozen and kw_only are repeated on each class: msgspec doesn't inherit kw_only, type checkers neither.
class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class GroupKind(_Struct, frozen=True, kw_only=True):
    """The kind of the object under review."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupResource(_Struct, frozen=True, kw_only=True):
    """The resource that the request is for."""

    group: str = ""
    version: str = ""
    resource: str = ""

    def __str__(self) -> str:
        """Write it as kubectl does: ``podgroups.scheduling.volcano.sh``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class UserInfo(_Struct, frozen=True, kw_only=True):
    """Who asks, as the API server authenticated them."""

    username: str = ""
    groups: tuple[str, ...] | None = None


_NULL: Final = msgspec.Raw(b"null")


class AdmissionRequest(_Struct, frozen=True, kw_only=True):
    """One request to decide on. ``operation`` is CREATE, UPDATE, DELETE or CONNECT."""

    uid: str
    operation: str
    kind: GroupKind = field(default_factory=GroupKind)
    resource: GroupResource = field(default_factory=GroupResource)
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = field(default_factory=UserInfo)
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL
    dry_run: bool | None = None

    def new(self, struct: Callable[..., T]) -> T:
        """Read the object as it will be; not for DELETE, which has none.

        Raises:
            FieldError: a field that ``struct`` reads has another type.
            ReviewError: it is no JSON after all.
        """
        return _decode(struct, self.object)

    def old(self, struct: Callable[..., T]) -> T:
        """Read the object as it is; not for CREATE, which has none. Raises as `new` does."""
        return _decode(struct, self.old_object)


class _Review(_Struct, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


@lru_cache(maxsize=1)
def _reviews() -> msgspec.json.Decoder[_Review]:
    return msgspec.json.Decoder(_Review)


def _decode(struct: Callable[..., T], raw: msgspec.Raw) -> T:
    try:
        decoded: T = decoder(struct).decode(raw)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        raise FieldError(place.rstrip("`").lstrip("."), text.replace("`", "")) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(f"the object under review is not JSON: {_line(error)}") from error
    return decoded


def parse(body: bytes) -> AdmissionRequest:
    """Read the body of a call.

    Raises:
        ReviewError: it is no AdmissionReview of v1, or has no request in it.
    """
    try:
        review = decode_shallow(_reviews().decode, body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReviewError(f"the body is not an AdmissionReview: {_line(error)}") from error
    if review.kind != "AdmissionReview" or review.api_version != API_VERSION:
        given = _line(f"{review.kind or 'no kind'} of {review.api_version or 'no apiVersion'}")
        raise ReviewError(f"expected an AdmissionReview of {API_VERSION}, not {given}")
    if review.request is None or not review.request.uid:
        raise ReviewError("the AdmissionReview has no request with a uid")
    return review.request


def early_uid(beginning: bytes) -> str | None:
    """Return the uid of a review of which only the beginning is known; None where it isn't as API servers write it."""
    match = _EARLY_UID.match(beginning)
    return match["uid"].decode() if match else None


def render(request: AdmissionRequest, verdict: Verdict) -> bytes:
    """Write the answer to ``request``."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": not isinstance(verdict, Denied)}
    if isinstance(verdict, Denied):
        response["status"] = _status(request, verdict)
    elif isinstance(verdict, Patched):
        response |= _patch(verdict)
    if verdict.warnings:
        response["warnings"] = [_cut(warning) for warning in verdict.warnings]
    if verdict.audit:
        response["auditAnnotations"] = dict(verdict.audit)
    return msgspec.json.encode({"kind": "AdmissionReview", "apiVersion": API_VERSION, "response": response})


def subject(request: AdmissionRequest) -> str:
    """Name the object of a request for people: ``podgroups.scheduling.volcano.sh team-a/gang``."""
    resource = f"{request.resource}/{request.sub_resource}" if request.sub_resource else str(request.resource)
    name = request.name or "(generated name)"
    return f"{resource} {request.namespace}/{name}" if request.namespace else f"{resource} {name}"


def _status(request: AdmissionRequest, denied: Denied) -> dict[str, Any]:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": denied.code,
        "reason": denied.reason,
        "message": denied.message,
    }
    details: dict[str, Any] = {"name": request.name, "group": request.kind.group, "kind": request.kind.kind}
    if denied.causes:
        # Without causes, details that name the object make kubectl drop the message of an Invalid.
        causes = [{"reason": "FieldValueInvalid", "field": path, "message": text} for path, text in denied.causes]
        status["details"] = details | {"causes": causes}
    elif denied.retry_after is not None:
        status["details"] = details | {"retryAfterSeconds": denied.retry_after}
    return status


def _patch(patched: Patched) -> dict[str, str]:
    encoded = base64.b64encode(msgspec.json.encode(patched.operations))
    return {"patchType": "JSONPatch", "patch": encoded.decode()}


def _cut(warning: str) -> str:
    line = " ".join(warning.split())
    return line if len(line) <= WARNING_LIMIT else line[: WARNING_LIMIT - 3] + "..."


def _line(text: object) -> str:
    return " ".join(str(text).split())[:_SHOWN]
