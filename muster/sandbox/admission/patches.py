"""JSON patches of webhooks, with the API server's own reading of RFC 6902.

Not the ``jsonpatch`` package: the real server's library lets ``replace`` and ``test`` name a key that isn't there,
takes indexes from the end, and has its own texts. Source: ``gopkg.in/evanphx/json-patch.v4``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from muster.sandbox.cel.values import equal

Operation = Mapping[str, Any]

_MISSING: Final = "missing value"
_INDEX: Final = "invalid index referenced"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_ABSENT: Final = object()


class PatchError(Exception):
    """A patch doesn't apply. The text is the real server's."""


def apply_patch(document: dict[str, Any], operations: Sequence[Operation]) -> Any:
    """Return the patched document; the given one isn't changed, and unchanged parts are shared.

    Raises:
        PatchError: an operation is malformed or doesn't apply.
    """
    root: Any = document
    for operation in operations:
        apply = _OPERATIONS.get(operation.get("op", "unknown"))
        if apply is None:
            raise PatchError(f"Unexpected kind: {operation.get('op', 'unknown')}")
        root = apply(root, operation)
    return root


def _pointer(operation: Operation, name: str = "path") -> str:
    pointer = operation.get(name)
    if not isinstance(pointer, str):
        kind = operation["op"]
        field = "missing path field" if name == "path" else "missing from field"
        raise PatchError(f"{kind} operation failed to decode {name}: operation, {field}: {_MISSING}")
    return pointer


def _keys(pointer: str) -> list[str] | None:
    """Split a pointer; None where the real server finds no place."""
    parts = pointer.split("/")
    if len(parts) < 2:
        return None
    return [part.replace("~1", "/").replace("~0", "~") for part in parts[1:]]


def _container(root: Any, keys: list[str]) -> Any:
    """Return what holds the last key, or `_ABSENT`."""
    here = root
    for key in keys[:-1]:
        if isinstance(here, dict):
            here = here.get(key, _ABSENT)
        elif isinstance(here, list) and _NUMBER.fullmatch(key) and -len(here) <= int(key) < len(here):
            here = here[int(key)]
        else:
            return _ABSENT
    return here if isinstance(here, dict | list) else _ABSENT


def _found(root: Any, pointer: str, complaint: str) -> tuple[list[str], Any]:
    keys = _keys(pointer)
    holder = _ABSENT if keys is None else _container(root, keys)
    if keys is None or holder is _ABSENT:
        raise PatchError(f"{complaint}: {_MISSING}")
    return keys, holder


def _rebuilt(root: Any, keys: list[str], change: Callable[[Any], Any]) -> Any:
    """Return the root with the container at ``keys`` changed, copying only what lies on the way."""
    if len(keys) == 1:
        return change(root)
    if isinstance(root, list):
        copied = list(root)
        copied[int(keys[0])] = _rebuilt(root[int(keys[0])], keys[1:], change)
        return copied
    return {**root, keys[0]: _rebuilt(root[keys[0]], keys[1:], change)}


def _position(key: str, length: int) -> int:
    if not _NUMBER.fullmatch(key):
        raise PatchError(f'strconv.Atoi: parsing "{key}": invalid syntax')
    index = int(key)
    if not -length <= index < length:
        raise PatchError(f"Unable to access invalid index: {index}: {_INDEX}")
    return index % length


def _value_at(holder: Any, key: str) -> Any:
    return holder.get(key, _ABSENT) if isinstance(holder, dict) else holder[_position(key, len(holder))]


def _inserted(holder: Any, key: str, value: Any) -> Any:
    if isinstance(holder, dict):
        return {**holder, key: value}
    if key == "-":
        return [*holder, value]
    if not _NUMBER.fullmatch(key):
        problem = f'strconv.Atoi: parsing "{key}": invalid syntax'
        raise PatchError(f"value was not a proper array index: '{key}': {problem}")
    index = _position(key, len(holder) + 1)
    return [*holder[:index], value, *holder[index:]]


def _without(holder: Any, key: str) -> Any:
    if isinstance(holder, dict):
        if key not in holder:
            raise PatchError(f"Unable to remove nonexistent key: {key}: {_MISSING}")
        return {name: value for name, value in holder.items() if name != key}
    index = _position(key, len(holder))
    return [*holder[:index], *holder[index + 1 :]]


def _add(root: Any, operation: Operation) -> Any:
    pointer = _pointer(operation)
    keys, _ = _found(root, pointer, f'add operation does not apply: doc is missing path: "{pointer}"')
    return _changed(
        root,
        keys,
        lambda held: _inserted(held, keys[-1], operation.get("value")),
        f"error in add for path: '{pointer}'",
    )


def _remove(root: Any, operation: Operation) -> Any:
    pointer = _pointer(operation)
    keys, _ = _found(root, pointer, f'remove operation does not apply: doc is missing path: "{pointer}"')
    return _changed(root, keys, lambda held: _without(held, keys[-1]), f"error in remove for path: '{pointer}'")


def _replace(root: Any, operation: Operation) -> Any:
    pointer, value = _pointer(operation), operation.get("value")
    if not pointer:
        if not isinstance(value, dict | list):
            raise PatchError("replace operation value must be object or array: %!w(<nil>)")
        return value
    keys, holder = _found(root, pointer, f"replace operation does not apply: doc is missing path: {pointer}")
    if isinstance(holder, dict):
        return _rebuilt(root, keys, lambda held: {**held, keys[-1]: value})
    try:
        index = _position(keys[-1], len(holder))
    except PatchError as error:
        raise PatchError(f"replace operation does not apply: doc is missing key: {pointer}: {_MISSING}") from error
    return _rebuilt(root, keys, lambda held: [*held[:index], value, *held[index + 1 :]])


def _move(root: Any, operation: Operation) -> Any:
    source = _pointer(operation, "from")
    keys, holder = _found(root, source, f"move operation does not apply: doc is missing from path: {source}")
    complaint = f"error in move for path: '{keys[-1]}'"
    value = _read(holder, keys[-1], complaint)
    without = _changed(root, keys, lambda held: _without(held, keys[-1]), complaint)
    pointer = _pointer(operation)
    ends, _ = _found(without, pointer, f"move operation does not apply: doc is missing destination path: {pointer}")
    return _changed(
        without, ends, lambda held: _inserted(held, ends[-1], value), f"error in move for path: '{pointer}'"
    )


def _copy(root: Any, operation: Operation) -> Any:
    source = _pointer(operation, "from")
    keys, holder = _found(root, source, f"copy operation does not apply: doc is missing from path: {source}")
    value = _read(holder, keys[-1], f"error in copy for from: '{source}'")
    pointer = _pointer(operation)
    ends, _ = _found(root, pointer, f"copy operation does not apply: doc is missing destination path: {pointer}")
    value = None if value is _ABSENT else value
    return _changed(root, ends, lambda held: _inserted(held, ends[-1], value), "error while adding value during copy")


def _test(root: Any, operation: Operation) -> Any:
    pointer, wanted = _pointer(operation), operation.get("value")
    if not pointer:
        value = root
    else:
        keys, holder = _found(root, pointer, f"test operation does not apply: is missing path: {pointer}")
        value = _read(holder, keys[-1], f"error in test for path: '{pointer}'")
    if not equal(None if value is _ABSENT else value, wanted):
        raise PatchError(f"testing value {pointer} failed: test failed")
    return root


def _read(holder: Any, key: str, complaint: str) -> Any:
    try:
        return _value_at(holder, key)
    except PatchError as error:
        raise PatchError(f"{complaint}: {error}") from error


def _changed(root: Any, keys: list[str], change: Callable[[Any], Any], complaint: str) -> Any:
    try:
        return _rebuilt(root, keys, change)
    except PatchError as error:
        raise PatchError(f"{complaint}: {error}") from error


_OPERATIONS: Final[dict[str, Callable[[Any, Operation], Any]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
