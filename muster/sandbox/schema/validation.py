"""Validation of a whole object, in the server's order: values, embedded resources, lists with identity, rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.sandbox.core.status import Cause, duplicate, required, wrong
from muster.sandbox.schema.checks import ABSENT, NO_FIELD, identity, joined, violations
from muster.sandbox.schema.rules import RuleTree, compile_rules
from muster.sandbox.schema.shape import EMBEDDED, child

Schema = Mapping[str, Any]

_BLOCKING: Final = frozenset(
    {"FieldValueRequired", "FieldValueTypeInvalid", "FieldValueTooLong", "FieldValueTooMany", "FieldValueNotSupported"}
)
_SKIPPED: Final = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"


def validate(schema: Schema, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[Cause]:
    """Return everything that is wrong with an object, empty when nothing is.

    With ``old``, the state before an update, rules that compare with it are checked, and what was wrong already and
    didn't change is let pass.
    """
    before: Any = ABSENT if old is None else old
    causes = violations(schema, obj, before, "")
    plan = _plan(_ById(schema))
    if plan.embedded:
        causes += _embedded(schema, obj, "", root=True)
    if plan.lists:
        causes += _lists(schema, obj, before, "")
    if plan.rules is not None:
        if any(cause.type in _BLOCKING for cause in causes):
            causes.append(wrong(NO_FIELD, None, _SKIPPED))
        else:
            causes += plan.rules.check(obj, before, "")
    return causes


class _ById:
    """A schema as the key of a cache. Holds it, so that its id stays its own."""

    __slots__ = ("schema",)

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.schema is self.schema


class _Plan(Struct, frozen=True):
    """What there is to check beyond values: most schemas have little of it."""

    rules: RuleTree | None
    embedded: bool
    lists: bool


@lru_cache(maxsize=256)
def _plan(key: _ById) -> _Plan:
    rules = compile_rules(key.schema, root=True)
    return _Plan(rules, _mentions(key.schema, EMBEDDED), _mentions(key.schema, "x-kubernetes-list-type"))


def _mentions(schema: Any, keyword: str) -> bool:
    if isinstance(schema, dict):
        return keyword in schema or any(_mentions(each, keyword) for each in schema.values())
    return isinstance(schema, list) and any(_mentions(each, keyword) for each in schema)


def _embedded(schema: Schema, value: Any, path: str, *, root: bool = False) -> Iterator[Cause]:
    if isinstance(value, dict):
        if schema.get(EMBEDDED) and not root:
            yield from _resource(value, path)
        for name, each in value.items():
            known = child(schema, name)
            if known is not None and isinstance(each, dict | list):
                yield from _embedded(known, each, joined(path, name))
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for number, each in enumerate(value):
            yield from _embedded(schema["items"], each, f"{path}[{number}]")


def _resource(value: dict[str, Any], path: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind"):
        field = joined(path, name)
        if name not in value:
            yield required(field)
        elif not isinstance(value[name], str):
            yield wrong(field, value[name], "must be a string")
        elif not value[name]:
            yield wrong(field, "", "must not be empty")


def _lists(schema: Schema, value: Any, old: Any, path: str) -> Iterator[Cause]:
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, each in value.items():
            known = child(schema, name)
            if known is not None and isinstance(each, dict | list):
                yield from _lists(known, each, before.get(name, ABSENT), joined(path, name))
    elif isinstance(value, list):
        if old is ABSENT or value != old:
            yield from _duplicates(schema, value, path)
        items = schema.get("items")
        if isinstance(items, dict):
            for number, each in enumerate(value):
                yield from _lists(items, each, ABSENT, f"{path}[{number}]")


def _duplicates(schema: Schema, value: list[Any], path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in {"set", "map"}:
        return
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen: dict[str, int] = {}
    for number, each in enumerate(value):
        if kind == "map" and not isinstance(each, dict):
            if each is not None:
                yield wrong(f"{path}[{number}]", each, "must be an object for an array of list-type map")
            continue
        key = identity(each, keys) if kind == "map" else msgspec.json.encode(each, order="sorted").decode()
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            shown = {name: each[name] for name in keys if name in each} if kind == "map" else each
            yield duplicate(f"{path}[{number}]", shown)
