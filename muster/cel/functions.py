"""The functions that expressions may call: which types each takes, and how a call finds its implementation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from muster.cel import collections, numbers, texts, versions
from muster.cel.folds import LIMIT, Frame, Run, charge
from muster.cel.times import parse_duration, parse_timestamp
from muster.cel.types import Type, compatible, matches
from muster.cel.values import CelError, CostError, equal, kind_of, unsupported


class Overload(Struct, frozen=True):
    """One way to call a function. A method's first parameter is what it is called on."""

    method: bool
    parameters: tuple[Type, ...]
    result: Type
    function: Callable[..., Any]


_SIZED: Final = frozenset({str, bytes, list})
_PER_STEP: Final = 64
"""Characters or elements that an addition may make for one step."""
_MATCHED_PER_STEP: Final = 10
"""Steps of a match that are one step here."""
_PATTERN_PER_STEP: Final = 20
"""Characters of a pattern that are one: it may have to be compiled."""
_TYPE: Final = re.compile(r"([a-zA-Z]+)(?:\((.*)\))?")


def _type(text: str) -> Type:
    match = _TYPE.fullmatch(text)
    assert match is not None, text
    return Type(match[1], tuple(map(_type, match[2].split(", "))) if match[2] else ())


def _table() -> dict[str, list[Overload]]:
    table: dict[str, list[Overload]] = {}
    for rows in (numbers.FUNCTIONS, texts.FUNCTIONS, collections.FUNCTIONS, versions.FUNCTIONS):
        for name, parameters, result, function in rows:
            method = name.startswith(".")
            kinds = tuple(_type(each) for each in parameters.split("; ") if each)
            table.setdefault(name.removeprefix("."), []).append(Overload(method, kinds, _type(result), function))
    return table


_FUNCTIONS: Final = _table()

UNSUPPORTED: Final = frozenset(
    {"find", "findAll", "charAt", "indexOf", "lastIndexOf", "substring", "replace", "join", "trim", "format"}
    | {"lowerAscii", "upperAscii", "isSorted", "sum", "min", "max", "slice", "distinct", "flatten", "reverse", "sort"}
    | {"sets.contains", "sets.intersects", "sets.equivalent", "optMap", "optFlatMap", "getFullYear", "getMonth"}
    | {"getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes", "getSeconds"}
    | {"getMilliseconds"}
    | {"uint", "double", "bytes", "bool", "type", "asApproximateFloat", "asInteger", "isInteger", "sign", "add", "sub"}
    | {"ip", "isIP", "ip.isCanonical", "cidr", "isCIDR", "url", "isURL", "validate"}
    | {"transformList", "transformMap", "transformMapEntry", "lists.range", "sortBy", "first", "last", "strings.quote"}
)
"""Functions of the real server that no rule in use asks for."""

_PARTLY: Final = {
    "+": frozenset({"timestamp", "duration"}),
    "-": frozenset({"timestamp", "duration"}),
    "string": frozenset({"timestamp", "duration", "bytes"}),
    "int": frozenset({"timestamp"}),
    "timestamp": frozenset({"int"}),
    "semver": frozenset({"bool"}),
    "isSemver": frozenset({"bool"}),
}
"""Functions that the sandbox has, and the types for which only the real server has them."""

CONSTANTS: Final[dict[str, Callable[[str], object]]] = {
    "matches": texts.pattern,
    "duration": parse_duration,
    "timestamp": parse_timestamp,
}
"""Functions whose constant argument is checked when they are compiled, and how."""


def known_function(name: str, *, method: bool) -> bool:
    """Whether there is such a function or method."""
    return any(overload.method == method for overload in _FUNCTIONS.get(name, ()))


def undeclared(name: str) -> str:
    """Say that there is no such function; tell those apart that a real server has."""
    if name in UNSUPPORTED:
        return unsupported(f"function '{name}'")
    return f"undeclared reference to '{name}' (in container '')"


def candidates(name: str, method: bool, given: Sequence[Type]) -> list[tuple[Overload, dict[str, Type]]]:  # noqa: FBT001 - part of the name: x.f() and f(x) differ
    """Return the overloads that the arguments may fit, each with what its type parameters are bound to."""
    found = []
    for overload in _FUNCTIONS[name]:
        bound: dict[str, Type] = {}
        fits = overload.method == method and len(overload.parameters) == len(given)
        if fits and all(matches(want, have, bound) for want, have in zip(overload.parameters, given, strict=True)):
            found.append((overload, bound))
    if name in {"==", "!="} and not compatible(given[0], given[1]):
        return []
    return found


def describe(name: str, method: bool, given: Sequence[Type]) -> str:  # noqa: FBT001 - see candidates
    """Say that no overload fits, as the real compiler does, or that the sandbox lacks the one that would."""
    if any(kind.kind in _PARTLY.get(name, ()) for kind in given):
        return unsupported(f"'{name}' of {', '.join(map(str, given))}")
    function = {"[]": "_[_]", "?:": "_?_:_", "neg": "-_", "!": "!_", "in": "@in"}.get(name)
    if function is None:
        function = name if name[0].isalpha() else f"_{name}_"
    shown = ", ".join(map(str, given[1:])) if method else ", ".join(map(str, given))
    applied = f"{given[0]}.({shown})" if method else f"({shown})"
    return f"found no matching overload for '{function}' applied to '{applied}'"


def dispatch(name: str, chosen: Sequence[Overload], kinds: Sequence[Type], runs: Sequence[Run]) -> Run:
    """Return the function that evaluates the arguments and calls the overload that their values ask for."""
    if name == "==":
        return lambda frame: equal(runs[0](frame), runs[1](frame))
    if name == "!=":
        return lambda frame: not equal(runs[0](frame), runs[1](frame))
    if name == "matches":
        return _matching(chosen[0].function, runs)
    run = _call(chosen, kinds, runs)
    return _charged(run) if name == "+" else run


def _matching(function: Callable[..., Any], runs: Sequence[Run]) -> Run:
    """Count what a match takes as steps: who writes text and pattern chooses how long it takes."""
    text_run, pattern_run = runs

    def match(frame: Frame) -> bool:
        text, wanted = text_run(frame), pattern_run(frame)
        if type(text) is not str or type(wanted) is not str:
            raise CelError("no such overload")
        charge(frame, len(wanted) // _PATTERN_PER_STEP)
        try:
            found, took = function(text, wanted)
        except CostError:
            charge(frame, LIMIT)
            raise
        charge(frame, took // _MATCHED_PER_STEP)
        return bool(found)

    return match


def _charged(run: Run) -> Run:
    """Count what an addition makes as steps: a few words could ask for all the memory there is."""

    def add(frame: Frame) -> Any:
        result = run(frame)
        if type(result) in _SIZED:
            charge(frame, len(result) // _PER_STEP)
        return result

    return add


def _call(chosen: Sequence[Overload], kinds: Sequence[Type], runs: Sequence[Run]) -> Run:
    if len(chosen) == 1 and not any(kind.kind == "dyn" for kind in kinds):
        return _direct(chosen[0].function, runs)
    by_kinds = [(tuple(each.kind for each in overload.parameters), overload.function) for overload in chosen]

    def call(frame: Frame) -> Any:
        arguments = [run(frame) for run in runs]
        given = [kind_of(argument) for argument in arguments]
        for wanted, function in by_kinds:
            if all(want in {have, "dyn"} or want.isupper() for want, have in zip(wanted, given, strict=True)):
                return function(*arguments)
        raise CelError("no such overload")

    return call


def _direct(function: Callable[..., Any], runs: Sequence[Run]) -> Run:
    if len(runs) == 1:
        only = runs[0]
        return lambda frame: function(only(frame))
    if len(runs) == 2:
        first, second = runs
        return lambda frame: function(first(frame), second(frame))
    return lambda frame: function(*[run(frame) for run in runs])
