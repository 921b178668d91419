"""Validation of values against a schema: types, bounds, enumerations, combinations.

The texts are those of ``k8s.io/kube-openapi/pkg/validation`` as the API server shows them. Where the real one reports
in random order, this one is in the order of the fields' names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from muster.cel.regular import compile_pattern
from muster.cel.values import CelError, equal
from muster.sandbox.core.status import Cause, not_one_of, required, too_long, wrong, wrong_type
from muster.sandbox.schema.formats import CHECKS, INTEGER_RANGES
from muster.sandbox.schema.shape import child

Schema = Mapping[str, Any]

NO_FIELD: Final = "<nil>"
"""What stands in place of a path where the real server forgets it."""

ABSENT: Final = object()
"""There is no old value to compare with: a create, or an element that has no counterpart."""


INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
"""How a schema with x-kubernetes-int-or-string says it once more, for readers that don't know that; nothing to check."""

_COMBINED: Final = frozenset({"anyOf", "oneOf", "allOf", "not"})


def violations(schema: Schema, value: Any, old: Any, path: str) -> list[Cause]:
    """Return what is wrong. A value that is wrong but equal to its old one is let pass, as CRD ratcheting does."""
    if old is not ABSENT and equal(value, old):
        return []
    return list(_violations(schema, value, old, path))


def _violations(schema: Schema, value: Any, old: Any, path: str) -> Iterator[Cause]:
    kind = _KINDS.get(type(value), "object")
    wanted = _types(schema)
    if wanted and not _typed(kind, value, wanted, schema):
        shown = _type_name(wanted)
        yield wrong_type(path, kind, f'{path} in body must be of type {shown}: "{kind}"')
        if value is None:
            return
    if not _COMBINED.isdisjoint(schema):
        yield from _combinations(schema, value, path, typed=kind in wanted)
    check = _CHECKS.get(kind)
    if check is not None:
        yield from check(schema, value, path)
    if "enum" in schema and not any(equal(value, each) for each in schema["enum"]):
        yield not_one_of(path, value, [each if isinstance(each, str) else json.dumps(each) for each in schema["enum"]])
    if kind == "object":
        yield from _object(schema, value, old, path)
    elif kind == "array":
        yield from _array(schema, value, old, path)


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer", "string"
    return (schema["type"],) if schema.get("type") else ()


def _type_name(wanted: tuple[str, ...]) -> str:
    return ",".join(wanted)


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def _typed(kind: str, value: Any, wanted: tuple[str, ...], schema: Schema) -> bool:
    if kind in wanted:
        return True
    if kind == "null":
        return bool(schema.get("nullable"))
    if kind == "integer":
        return "number" in wanted
    return kind == "number" and "integer" in wanted and value.is_integer()


# ── scalars ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _number(schema: Schema, value: float, path: str) -> Iterator[Cause]:
    yield from _integer_format(schema, value, path)
    factor = schema.get("multipleOf")
    if factor is not None:
        yield from _multiple(factor, value, path)
    maximum = schema.get("maximum")
    if maximum is not None:
        if schema.get("exclusiveMaximum") and value >= maximum:
            yield wrong(path, value, f"{path} in body should be less than {_plain(maximum)}")
        elif value > maximum:
            yield wrong(path, value, f"{path} in body should be less than or equal to {_plain(maximum)}")
    minimum = schema.get("minimum")
    if minimum is not None:
        if schema.get("exclusiveMinimum") and value <= minimum:
            yield wrong(path, value, f"{path} in body should be greater than {_plain(minimum)}")
        elif value < minimum:
            yield wrong(path, value, f"{path} in body should be greater than or equal to {_plain(minimum)}")


def _integer_format(schema: Schema, value: float, path: str) -> Iterator[Cause]:
    if schema.get("type") != "integer":
        return
    name = schema.get("format", "")
    limit = INTEGER_RANGES.get(name, 2**63)
    if value != int(value) or not -limit <= value < limit:
        shown = f"with format {name}" if name in INTEGER_RANGES else "(default format)"
        yield wrong(NO_FIELD, "", f"Checked value must be of type integer {shown} in {path}")


def _multiple(factor: float, value: float, path: str) -> Iterator[Cause]:
    if isinstance(value, int):
        # The real server reads the factor as an integer where the value is one.
        factor = int(factor)
    if factor <= 0:
        yield wrong(path, factor, f"factor MultipleOf declared for {path} must be positive: {factor}")
    elif (value / factor) % 1:
        yield wrong(path, value, f"{path} in body should be a multiple of {_plain(factor)}")


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 1e21 else repr(number)


def _string(schema: Schema, value: str, path: str) -> Iterator[Cause]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield too_long(path, schema["maxLength"])
    elif "minLength" in schema and len(value) < schema["minLength"]:
        yield wrong(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    elif schema.get("pattern"):
        yield from _pattern(schema["pattern"], value, path)
    check = CHECKS.get(schema.get("format", ""))
    if check is not None and not check(value):
        name = schema["format"]
        yield wrong_type(path, value, f'{path} in body must be of type {name}: "{value}"')


def _pattern(pattern: str, value: str, path: str) -> Iterator[Cause]:
    try:
        found = compile_pattern(pattern).search(value)
    except CelError:
        yield wrong(path, value, f"{path} in body is too long for the Muster sandbox to match '{pattern}'")
        return
    if not found:
        yield wrong(path, value, f"{path} in body should match '{pattern}'")


_CHECKS: Final[dict[str, Callable[[Schema, Any, str], Iterator[Cause]]]] = {
    "integer": _number,
    "number": _number,
    "string": _string,
}

# ── objects and lists ────────────────────────────────────────────────────────────────────────────────────────────


def _object(schema: Schema, value: dict[str, Any], old: Any, path: str) -> Iterator[Cause]:
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield too_many(path, len(value), schema["maxProperties"])
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        least = schema["minProperties"]
        yield wrong(path, len(value), f"{path} in body should have at least {least} properties")
    before = old if isinstance(old, dict) else {}
    for name in sorted(value):
        known = child(schema, name)
        if known is not None:
            yield from violations(known, value[name], before.get(name, ABSENT), joined(path, name))
    for name in schema.get("required", ()):
        if name not in value:
            yield required(joined(path, name))


def _array(schema: Schema, value: list[Any], old: Any, path: str) -> Iterator[Cause]:
    items = schema.get("items")
    if isinstance(items, dict):
        before = counterparts(schema, value, old)
        for number, each in enumerate(value):
            yield from violations(items, each, before[number], f"{path}[{number}]")
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield wrong(path, len(value), f"{path} in body should have at least {schema['minItems']} items")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield too_many(path, len(value), schema["maxItems"])


def joined(path: str, name: str) -> str:
    """Return the path of a field."""
    return f"{path}.{name}" if path else name


def too_many(path: str, given: int, most: int) -> Cause:
    """Say that a list or map has more elements than it may."""
    items = "item" if most == 1 else "items"
    return Cause("FieldValueTooMany", path, f"Too many: {given}: must have at most {most} {items}")


def counterparts(schema: Schema, value: list[Any], old: Any) -> list[Any]:
    """Return for each element its old state, or `ABSENT`. Only elements of a list of type map have an identity."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return [ABSENT] * len(value)
    keys = schema.get("x-kubernetes-list-map-keys", ())
    before = {identity(each, keys): each for each in old if isinstance(each, dict)}
    return [before.get(identity(each, keys), ABSENT) if isinstance(each, dict) else ABSENT for each in value]


def identity(element: Mapping[str, Any], keys: Any) -> str:
    """Return what tells an element of a list of type map from the others."""
    return json.dumps({key: element[key] for key in keys if key in element}, sort_keys=True)


# ── combinations ─────────────────────────────────────────────────────────────────────────────────────────────────


def _combinations(schema: Schema, value: Any, path: str, *, typed: bool) -> Iterator[Cause]:
    if "anyOf" in schema and not (typed and schema["anyOf"] == INT_OR_STRING):
        yield from _any_of(schema["anyOf"], value, path)
    if "oneOf" in schema:
        yield from _one_of(schema["oneOf"], value, path)
    if "allOf" in schema:
        failures = [failure for each in schema["allOf"] if (failure := violations(each, value, ABSENT, path))]
        if failures:
            detail = ". None validated" if len(failures) == len(schema["allOf"]) else ""
            yield from (cause for failure in failures for cause in failure)
            yield wrong(NO_FIELD, "", f'"{path}" must validate all the schemas (allOf){detail}')
    if "not" in schema and not violations(schema["not"], value, ABSENT, path):
        yield wrong(NO_FIELD, "", f'"{path}" must not validate the schema (not)')


def _any_of(schemas: list[Schema], value: Any, path: str) -> Iterator[Cause]:
    first: list[Cause] = []
    for each in schemas:
        failure = violations(each, value, ABSENT, path)
        if not failure:
            return
        first = first or failure
    yield wrong(NO_FIELD, "", f'"{path}" must validate at least one schema (anyOf)')
    yield from first


def _one_of(schemas: list[Schema], value: Any, path: str) -> Iterator[Cause]:
    failures = [violations(each, value, ABSENT, path) for each in schemas]
    valid = sum(not failure for failure in failures)
    if valid == 1:
        return
    detail = f"Found {valid} valid alternatives" if valid else "Found none valid"
    yield wrong(NO_FIELD, "", f'"{path}" must validate one and only one schema (oneOf). {detail}')
    if not valid:
        yield from failures[0]
