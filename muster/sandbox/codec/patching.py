"""Patches of an object: JSON patch (RFC 6902) and JSON merge patch (RFC 7396). Objects are not changed in place.

JSON patches of clients and of webhooks are applied here, with the ``jsonpatch`` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import jsonpatch
import jsonpointer
import msgspec

from muster.sandbox.core.status import StatusError, bad_request
from muster.sandbox.core.store import deep_copy

MAX_OPERATIONS: Final = 10_000
_SHOWN: Final = 200
_MISFITS: Final = (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, ValueError)


class PatchError(Exception):
    """A JSON patch is malformed, or doesn't fit the object."""


def decode(body: bytes) -> Any:
    """Decode the body of a patch.

    Raises:
        StatusError: 400 when it isn't JSON.
    """
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request("invalid JSON patch") from error


class _Replace(jsonpatch.ReplaceOperation):
    """A replacement which, as the real server's library has it, may also add a field."""

    def apply(self, obj: Any) -> Any:
        holder, part = self.pointer.to_last(obj)
        if isinstance(holder, dict) and part is not None:
            holder[part] = self.operation["value"]
            return obj
        return super().apply(obj)


class _Patch(jsonpatch.JsonPatch):
    """RFC 6902 as the real server reads it."""

    operations: ClassVar[MappingProxyType[str, type[jsonpatch.PatchOperation]]] = MappingProxyType(
        {**jsonpatch.JsonPatch.operations, "replace": _Replace}
    )


def apply_operations(obj: dict[str, Any], operations: Sequence[Any]) -> Any:
    """Return an object with the operations of a JSON patch applied; what they make of it need not be an object.

    Raises:
        PatchError: one of them is malformed or doesn't fit.
    """
    try:
        return _Patch(list(operations)).apply(deep_copy(obj), in_place=True)
    except _MISFITS as error:
        raise PatchError(f"the JSON patch does not apply: {error}"[:_SHOWN]) from error


def json_patch(obj: dict[str, Any], operations: Any) -> dict[str, Any]:
    """Apply the JSON patch of a client.

    Raises:
        StatusError: 400 when the patch is malformed, 413 when it is too long, 422 when it doesn't fit the object.
    """
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    if len(operations) > MAX_OPERATIONS:
        message = f"Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", message)
    try:
        patched = apply_operations(obj, operations)
    except PatchError as error:
        # The real server says no more than this.
        message = "the server rejected our request due to an error in our request"
        raise StatusError(422, "Invalid", message, {}) from error
    if not isinstance(patched, dict):
        raise bad_request("the patch replaces the whole object by something that isn't one")
    return patched


def merge_patch(obj: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: objects merge, null deletes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
