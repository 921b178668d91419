"""Faults in the types of an applied configuration.

Source: ``sigs.k8s.io/structured-merge-diff`` (typed, validate.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from muster.sandbox.codec.decoding import json_name
from muster.sandbox.codec.fields import Shape


def misfits(value: Any, shape: Shape) -> list[str]:
    """Return each field that isn't declared or not of its type, in the order of their paths."""
    found = sorted(set(_misfits(value, shape, "")))
    # Declared types are all there is to say of an object that has undeclared fields.
    undeclared = [each for each in found if each.endswith(_UNDECLARED)]
    return undeclared or found


_UNDECLARED: Final = ": field not declared in schema"


def _misfits(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if value is None:
        return
    kind = type(value)
    match shape.type:
        case "object" | "dict":
            yield from _of_map(value, shape, path) if kind is dict else [_mistyped(path, "map", value)]
        case "list":
            yield from _of_list(value, shape, path) if kind is list else [_mistyped(path, "list", value)]
        case "string" if kind is not str:
            yield _mistyped(path, "string", value)
        case "integer" | "number" if kind not in {int, float}:
            yield _mistyped(path, "numeric (int or float)", value)
        case "boolean" if kind is not bool:
            yield _mistyped(path, "boolean", value)


def _mistyped(path: str, wanted: str, value: Any) -> str:
    return f"{path}: expected {wanted}, got {json_name(value)}"


def _of_map(value: dict[str, Any], shape: Shape, path: str) -> Iterator[str]:
    for key, each in value.items():
        below = f"{path}.{key}"
        if shape.type == "object" and key not in shape.fields:
            if not shape.open:
                yield below + _UNDECLARED
            continue
        yield from _misfits(each, shape.child(key), below)


def _of_list(value: list[Any], shape: Shape, path: str) -> Iterator[str]:
    element = shape.element or shape
    for index, each in enumerate(value):
        key = ""
        if isinstance(each, dict) and shape.keys:
            key = ",".join(f'{name}="{each[name]}"' for name in sorted(shape.keys) if name in each)
        yield from _misfits(each, element, f"{path}[{key or index}]")
