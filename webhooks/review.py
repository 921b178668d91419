"""AdmissionReview, admission.k8s.io/v1: bytes to request, verdict to bytes.

The only module that knows the wire form. The object under review is read together with the review, in one pass, where the
struct of the fields that its policy reads is known before; else it stays raw until a policy asks for it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

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
    """One request to decide on.

    Attributes:
        operation: CREATE, UPDATE, DELETE or CONNECT.
        object: as it will be: `msgspec.Raw`, or the struct as which it was read with the review. Policies ask `new` for it.
        old_object: as it is, for which they ask `old`.
    """

    uid: str
    operation: str
    kind: GroupKind = field(default_factory=GroupKind)
    resource: GroupResource = field(default_factory=GroupResource)
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = field(default_factory=UserInfo)
    object: Any = _NULL
    old_object: Any = _NULL
    dry_run: bool | None = None

    def new(self, struct: type[T]) -> T:
        """Read the object as it will be; not for DELETE, which has none.

        Raises:
            FieldError: a field that ``struct`` reads has another type.
            ReviewError: it is no JSON after all.
        """
        read: T = _read(struct, self.object)
        return read

    def old(self, struct: type[T]) -> T:
        """Read the object as it is; not for CREATE, which has none. Raises as `new` does."""
        read: T = _read(struct, self.old_object)
        return read


class _RawRequest(AdmissionRequest, frozen=True, kw_only=True):
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL


class _WholeRequest(AdmissionRequest, Generic[T], frozen=True, kw_only=True):
    object: T | None = None
    old_object: T | None = None


class _Review(_Struct, Generic[T], frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    request: T | None = None


_Decode = Callable[[bytes], _Review[AdmissionRequest]]


@lru_cache(maxsize=64)
def _reviews(struct: type | None) -> _Decode:
    """Return what decodes reviews: of objects that are read as ``struct``, or stay raw."""
    request: Any = _RawRequest if struct is None else _WholeRequest[struct]  # type: ignore[valid-type]
    decode: _Decode = msgspec.json.Decoder(_Review[request]).decode
    return decode


def _read(struct: Any, given: Any) -> Any:
    if isinstance(given, struct):
        return given
    try:
        return decoder(struct).decode(_NULL if given is None else given)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        raise FieldError(place.rstrip("`").lstrip("."), text.replace("`", "")) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(f"the object under review is not JSON: {_line(error)}") from error


def parse(body: bytes, reads: type | None = None) -> AdmissionRequest:
    """Read the body of a call; ``reads`` is the struct that its policy asks for, where that is one.

    Raises:
        ReviewError: it is no AdmissionReview of v1, or has no request in it.
    """
    review = _whole(body, reads) if reads is not None else None
    if review is None:
        try:
            review = decode_shallow(_reviews(None), body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ReviewError(f"the body is not an AdmissionReview: {_line(error)}") from error
    if review.kind != "AdmissionReview" or review.api_version != API_VERSION:
        given = _line(f"{review.kind or 'no kind'} of {review.api_version or 'no apiVersion'}")
        raise ReviewError(f"expected an AdmissionReview of {API_VERSION}, not {given}")
    if review.request is None or not review.request.uid:
        raise ReviewError("the AdmissionReview has no request with a uid")
    return review.request


def _whole(body: bytes, struct: type) -> _Review[AdmissionRequest] | None:
    """Read a review and its objects in one pass; None where that fails.

    Then the two are read one after the other, so that it is known which is at fault, and what is nested deeply is left out.
    """
    try:
        return _reviews(struct)(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


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
