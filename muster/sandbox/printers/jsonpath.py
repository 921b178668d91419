r"""The JSONPath that CustomResourceDefinitions use in printer columns and scale subresources.

Fields (`.a.b`, `.a\.b`, `['a.b']`), elements (`[0]`, `[-1]`, `[*]`, `[0:2]`) and filters (`[?(@.type=="Ready")]`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

Step = Callable[[Any], Iterable[Any]]

_STEP: Final = re.compile(
    r"""
      (?P<star>\.\*(?=[.\[]|$)|\[\*\])
    | \.(?P<field>(?:\\.|[^.\[\]\\])+)
    | \[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]
    | \[(?P<index>-?\d+)\]
    | \[(?P<start>-?\d*):(?P<stop>-?\d*)\]
    | \[\?\((?P<filter>.*?)\)\]
    """,
    re.VERBOSE,
)
_FILTER: Final = re.compile(r"""@(?P<path>[^=!<>\s]*)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*""")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JsonPathError(ValueError):
    """The expression is none that this module reads."""


def find(path: str, document: Any) -> list[Any]:
    """Return all values at ``path``, empty where nothing is.

    Raises:
        JsonPathError: the expression can't be read; its text says where.
    """
    values = [document]
    for step in _compiled(path):
        values = [found for value in values for found in step(value)]
    return values


@lru_cache(maxsize=1024)
def _compiled(path: str) -> tuple[Step, ...]:
    return tuple(_steps(path))


def _steps(path: str) -> Iterator[Step]:
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise JsonPathError(f"JSONPath {path!r} can't be read from {path[position:]!r} on")
        yield _step(match)
        position = match.end()


def _step(match: re.Match[str]) -> Step:
    found = match.groupdict()
    if found["field"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", found["field"]))
    if found["key"] is not None:
        return _field(found["key"])
    if found["star"]:
        return _children
    if found["index"] is not None:
        return _element(int(found["index"]))
    if found["filter"] is not None:
        return _filter(found["filter"])
    return _slice(found["start"], found["stop"])


def _field(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else []


def _element(index: int) -> Step:
    return lambda value: [value[index]] if isinstance(value, list) and -len(value) <= index < len(value) else []


def _slice(start: str, stop: str) -> Step:
    part = slice(int(start) if start else None, int(stop) if stop else None)
    return lambda value: value[part] if isinstance(value, list) else []


def _filter(text: str) -> Step:
    match = _FILTER.fullmatch(text)
    if match is None:
        raise JsonPathError(f"JSONPath filter {text!r} can't be read")
    path = _compiled(match["path"])
    if match["op"] is None:
        return lambda value: [item for item in _children(value) if _walk(path, item)]
    compare, wanted = _OPERATORS[match["op"]], _literal(match["value"])
    return lambda value: [item for item in _children(value) if _holds(compare, _walk(path, item), wanted)]


def _walk(steps: tuple[Step, ...], value: Any) -> list[Any]:
    values = [value]
    for step in steps:
        values = [found for item in values for found in step(item)]
    return values


def _holds(compare: Callable[[Any, Any], bool], found: list[Any], wanted: Any) -> bool:
    # Values of different types are never ordered and never equal.
    return any(type(value) is type(wanted) and compare(value, wanted) for value in found)


def _literal(text: str) -> Any:
    quoted = len(text) >= 2 and text[0] == text[-1] == "'"
    try:
        return text[1:-1] if quoted else msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise JsonPathError(
            f"JSONPath filter value {text!r} is neither a number, true, false nor a quoted string"
        ) from error
