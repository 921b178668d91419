"""What is wrong with the types of an applied configuration, in the words of structured-merge-diff.

Source: ``sigs.k8s.io/structured-merge-diff`` (typed, validate.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from muster.sandbox.codec.fields import Shape

_NAMES: Final = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}


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
            yield from _of_map(value, shape, path) if kind is dict else [f"{path}: expected map, got &{{{_go(value)}}}"]
        case "list":
            yield from (
                _of_list(value, shape, path) if kind is list else [f"{path}: expected list, got &{{{_go(value)}}}"]
            )
        case "string" if kind is not str:
            yield f"{path}: expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
        case "integer" | "number" if kind not in {int, float}:
            yield f"{path}: expected numeric (int or float), got {_NAMES.get(kind, 'map[string]interface {}')}"
        case "boolean" if kind is not bool:
            yield f"{path}: expected boolean, got &{{{_go(value)}}}"


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


def _go(value: Any) -> str:
    """Write a value as Go's %v does."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go(each)}' for key, each in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(_go(each) for each in value)}]"
    return "<nil>" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _go_syntax(value: Any) -> str:
    """Write a value as Go's %#v does."""
    if isinstance(value, dict):
        inner = ", ".join(f'"{key}":{_go_syntax(each)}' for key, each in sorted(value.items()))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(_go_syntax(each) for each in value)}}}"
    return f'"{value}"' if isinstance(value, str) else _go(value)
