"""AdmissionReview on the wire: requests written, answers read and checked, in the real server's words. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.sandbox.admission.attributes import Attributes
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import StatusError, quote
from muster.sandbox.core.versions import in_version

Json = dict[str, Any]

_GROUP: Final = "admission.k8s.io"
_KIND: Final = "AdmissionReview"
_SUBRESOURCE_KINDS: Final = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
}
_NOT_JSON: Final = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct "
    '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


class CallError(Exception):
    """A webhook could not be called or its answer not be read: what follows ``failed calling webhook "x": ``."""


class Answer(Struct, frozen=True):
    """What a webhook said. ``patch`` is what a mutating one wants changed; ``status`` why it refuses."""

    allowed: bool
    status: Json | None = None
    patch: bytes = b""
    warnings: tuple[str, ...] = ()


def request_of(attributes: Attributes, resource: Resource) -> Json:
    """Return the AdmissionRequest without uid and objects, as webhooks and expressions see it.

    ``resource`` is the one that the webhook registered for: the request's own, or the same kind in another version.
    """
    own = attributes.resource
    request: Json = {
        "kind": _kind(resource, attributes.subresource),
        "resource": _resource(resource),
        "subResource": attributes.subresource,
        "requestKind": _kind(own, attributes.subresource),
        "requestResource": _resource(own),
        "requestSubResource": attributes.subresource,
        "name": attributes.name,
        "namespace": attributes.scope,
        "operation": attributes.operation,
        "userInfo": attributes.user.info(),
        "dryRun": attributes.dry_run,
    }
    if attributes.options:
        request["options"] = attributes.options
    return {name: value for name, value in request.items() if value != ""}


def _kind(resource: Resource, subresource: str) -> Json:
    group, version, kind = _SUBRESOURCE_KINDS.get(subresource, (resource.group, resource.version, resource.kind))
    return {"group": group, "version": version, "kind": kind}


def converted(resource: Resource, obj: Json | None) -> Json | None:
    """Return an object in the version of ``resource``; what has a kind of its own, such as a Scale, as it is."""
    return obj if obj is None or obj.get("kind") != resource.kind else in_version(resource, obj)


def _resource(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def write(attributes: Attributes, resource: Resource, uid: str, version: str) -> bytes:
    """Write the AdmissionReview for a webhook."""
    objects = {
        "object": converted(resource, attributes.object),
        "oldObject": converted(resource, attributes.old_object),
    }
    request = {"uid": uid, **request_of(attributes, resource), **objects}
    return msgspec.json.encode({"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "request": request})


def read(body: bytes, uid: str, version: str, *, mutating: bool) -> Answer:
    """Read a webhook's answer.

    Raises:
        CallError: it isn't the answer to this request, or not one of its kind.
    """
    review = _decoded(body, version)
    response = review.get("response")
    if response is None:
        raise _unfit("webhook response was absent")
    _check_types(response)
    if response.get("uid", "") != uid and version == "v1":
        raise _unfit(f"expected response.uid={quote(uid)}, got {quote(response.get('uid', ''))}")
    if not review.get("kind") and version == "v1":
        raise _unfit(f"expected webhook response of {_GROUP}/v1, Kind={_KIND}, got /, Kind=")
    patch = _patch(response)
    _check_patch(response, patch, mutating=mutating, version=version)
    warnings = tuple(response.get("warnings") or ())
    return Answer(bool(response.get("allowed")), response.get("status"), patch if mutating else b"", warnings)


def _decoded(body: bytes, version: str) -> Json:
    try:
        review = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise CallError(f"failed to call webhook: {_NOT_JSON}") from error
    if not isinstance(review, dict):
        raise CallError(f"failed to call webhook: {_NOT_JSON}")
    api_version, kind = review.get("apiVersion", ""), review.get("kind", "")
    if not kind and not api_version:
        return review
    if api_version == f"{_GROUP}/{version}" and kind == _KIND:
        return review
    if (api_version, kind) == (f"{_GROUP}/v1beta1", _KIND) or (api_version, kind) == ("v1", "Status"):
        shown = f"{api_version.rpartition('/')[2]}.{kind}"
        raise CallError(f"failed to call webhook: converting ({shown}) to ({version}.{_KIND}): unknown conversion")
    raise CallError(
        f'failed to call webhook: no kind {quote(str(kind))} is registered for version {quote(str(api_version))} in scheme "pkg/runtime/scheme.go:111"'
    )


class _Status(Struct):
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: Json | None = None


class _Response(Struct, rename="camel"):
    """The types that an AdmissionResponse has to have; what isn't named here is ignored, as elsewhere."""

    uid: str | None = None
    allowed: bool | None = None
    patch_type: str | None = None
    patch: str | None = None
    status: _Status | None = None
    warnings: list[str] | None = None
    audit_annotations: Json | None = None


def _check_types(response: Any) -> None:
    try:
        msgspec.convert(response, _Response)
    except msgspec.ValidationError as error:
        raise CallError(f"failed to call webhook: the response is mistyped: {error}") from error


def _patch(response: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(response.get("patch") or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CallError(f"failed to call webhook: response.patch is not base64: {error}") from error


def _check_patch(response: Mapping[str, Any], patch: bytes, *, mutating: bool, version: str) -> None:
    kind = response.get("patchType")
    if version != "v1":
        return
    if not mutating:
        if patch:
            raise _unfit("validating webhook may not return response.patch")
        if kind is not None:
            raise _unfit("validating webhook may not return response.patchType")
        return
    if patch and kind is None:
        raise _unfit("webhook returned response.patch but not response.patchType")
    if not patch and kind is not None:
        raise _unfit("webhook returned response.patchType but not response.patch")
    if kind == "":
        raise _unfit('webhook returned invalid response.patchType of ""')
    if patch and kind != "JSONPatch" and operations(patch):
        raise CallError(f"unsupported patch type {quote(str(kind))}")


def _unfit(text: str) -> CallError:
    return CallError(f"received invalid webhook response: {text}")


def operations(patch: bytes) -> list[Json]:
    """Read a patch.

    Raises:
        CallError: it isn't a list of objects.
    """
    try:
        decoded = msgspec.json.decode(patch)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise CallError(f"received undecodable patch in webhook response: {error}") from error
    if not isinstance(decoded, list) or any(not isinstance(each, dict) for each in decoded):
        raise CallError("received undecodable patch in webhook response: a JSON patch is a list of objects")
    return decoded


def denial(name: str, status: Mapping[str, Any] | None) -> StatusError:
    """Return the refusal of webhook ``name``: its Status, of which code, reason and details are copied, never derived."""
    status = status or {}
    code, message, reason = status.get("code") or 0, status.get("message") or "", status.get("reason") or ""
    why = f": {message or reason}" if message or reason else " without explanation"
    text = f"admission webhook {quote(name)} denied the request{why}"
    details = status.get("details") or None
    retry = (details or {}).get("retryAfterSeconds")
    headers = {"Retry-After": str(retry)} if isinstance(retry, int) and retry > 0 else {}
    return StatusError(max(code, 400), reason, text, details, headers)
