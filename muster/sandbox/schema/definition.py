"""Checks of the schemas themselves, when a CustomResourceDefinition is written.

Beyond what the real server refuses, a schema is refused that uses what the sandbox can't do. Not done: the estimate of
what rules cost at worst, for which the real server wants ``maxItems`` and the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from muster import cel
from muster.cel.regular import PatternError, compile_pattern
from muster.sandbox.core.status import Cause, not_allowed, not_one_of, required, wrong
from muster.sandbox.schema.checks import ABSENT, INT_OR_STRING, joined, violations
from muster.sandbox.schema.formats import UNSUPPORTED
from muster.sandbox.schema.rules import RULES, compile_rule, field_path
from muster.sandbox.schema.shape import EMBEDDED, PRESERVE, default, unknown_fields

Schema = Mapping[str, Any]

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_NESTED: Final = {"type": "empty", "description": "empty", "title": "empty", "default": "undefined"} | {
    "additionalProperties": "undefined",
    "nullable": "false",
    EMBEDDED: "false",
    PRESERVE: "undefined",
    "x-kubernetes-int-or-string": "false",
    "x-kubernetes-list-type": "undefined",
    "x-kubernetes-list-map-keys": "empty",
    "x-kubernetes-map-type": "undefined",
    RULES: "empty",
}
_FORBIDDEN: Final = {
    "$ref": "$ref is not supported",
    "dependencies": "dependencies are not supported",
    "patternProperties": "patternProperties is not supported",
    "additionalItems": "additionalItems is not supported",
    "definitions": "definitions is not supported",
    "id": "id is not supported",
    "$schema": "$schema is not supported",
}
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_BEYOND: Final = "not supported by the Muster sandbox; use a real control plane (kube-apiserver), see docs/sandbox.md"


def check_schema(schema: Schema, path: str) -> list[Cause]:
    """Return what is wrong with the schema of a whole resource, which stands at ``path`` in its definition."""
    causes = list(_structure(schema, path, "at the root"))
    if causes:
        return causes
    return list(_rules(schema, path, ""))


def _structure(schema: Schema, path: str, level: str) -> Iterator[Cause]:
    yield from _plain(schema, path)
    yield from _typed(schema, path, level)
    yield from _combined(schema, path)
    yield from _listed(schema, path)
    if level == "at the root":
        yield from _root(schema, path)
    for name, each in sorted(schema.get("properties", {}).items()):
        where = f"{path}.properties[{name}]"
        if level == "at the root" and name == "metadata":
            yield from _metadata(each, where)
        else:
            yield from _structure(each, where, "for specified object fields")
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        yield from _structure(additional, f"{path}.additionalProperties", "for specified object fields")
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _structure(items, f"{path}.items", "for specified array items")
    if schema.get("default") is not None:
        yield from _default(schema, path)


def _plain(schema: Schema, path: str) -> Iterator[Cause]:
    for name, text in _FORBIDDEN.items():
        if name in schema:
            yield not_allowed(f"{path}.{name}", text)
    if schema.get("uniqueItems"):
        yield not_allowed(
            f"{path}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        )
    if schema.get("properties") and schema.get("additionalProperties"):
        yield not_allowed(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if isinstance(schema.get("items"), list):
        yield not_allowed(f"{path}.items", "items must be a schema object and not an array")
    if schema.get("pattern"):
        try:
            compile_pattern(schema["pattern"])
        except PatternError as error:
            yield wrong(f"{path}.pattern", schema["pattern"], f"must be a valid regular expression, but isn't: {error}")
    if schema.get("format") in UNSUPPORTED:
        yield wrong(f"{path}.format", schema["format"], _BEYOND)


def _typed(schema: Schema, path: str, level: str) -> Iterator[Cause]:
    kind = schema.get("type", "")
    flexible = schema.get("x-kubernetes-int-or-string")
    if kind and kind not in _TYPES:
        yield not_one_of(f"{path}.type", kind, _TYPES)
    elif schema.get(EMBEDDED) and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        yield wrong(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)
    elif not kind and not flexible and not schema.get(PRESERVE):
        yield required(f"{path}.type", f"must not be empty {level}")
    if flexible and schema.get(PRESERVE):
        yield wrong(f"{path}.{PRESERVE}", True, "must be false if x-kubernetes-int-or-string is true")
    if flexible and schema.get(EMBEDDED):
        yield wrong(f"{path}.{EMBEDDED}", True, "must be false if x-kubernetes-int-or-string is true")
    if kind == "array" and "items" not in schema:
        yield required(f"{path}.items", "must be specified")
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not schema.get("properties"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", text)


def _root(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get("type", "object") != "object":
        yield wrong(f"{path}.type", schema["type"], "must be object at the root")
    if schema.get("additionalProperties") is not None:
        yield not_allowed(f"{path}.additionalProperties", "must not be used at the root")


def _metadata(schema: Schema, path: str) -> Iterator[Cause]:
    allowed = {"type", "description", "properties"}
    if set(schema) - allowed or set(schema.get("properties", {})) - {"name", "generateName"}:
        yield not_allowed(
            path, "must not specify anything other than name and generateName, but metadata is implicitly specified"
        )


def _combined(schema: Schema, path: str) -> Iterator[Cause]:
    for name in ("anyOf", "allOf", "oneOf"):
        if name == "anyOf" and schema.get("x-kubernetes-int-or-string") and schema.get(name) == INT_OR_STRING:
            continue
        for number, each in enumerate(schema.get(name, ())):
            if name == "allOf" and schema.get("x-kubernetes-int-or-string") and each == {"anyOf": INT_OR_STRING}:
                continue
            yield from _nested(each, f"{path}.{name}[{number}]")
    if "not" in schema:
        yield from _nested(schema["not"], f"{path}.not")


def _nested(schema: Schema, path: str) -> Iterator[Cause]:
    for name, wanted in _NESTED.items():
        if schema.get(name):
            yield not_allowed(f"{path}.{name}", f"must be {wanted} to be structural")
    yield from _plain(schema, path)
    yield from _combined(schema, path)
    for name, each in sorted(schema.get("properties", {}).items()):
        yield from _nested(each, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _nested(schema["items"], f"{path}.items")


def _listed(schema: Schema, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind is None:
        return
    if kind not in {"atomic", "set", "map"}:
        yield not_one_of(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map"))
        return
    if schema.get("type") != "array":
        yield wrong(f"{path}.type", schema.get("type", ""), "must be array if x-kubernetes-list-type is specified")
    if kind != "map":
        return
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
        return
    items = schema.get("items")
    items = items if isinstance(items, dict) else {}
    for number, key in enumerate(keys):
        known = items.get("properties", {}).get(key)
        if known is None:
            text = "entries must all be names of item properties"
            yield wrong(f"{path}.x-kubernetes-list-map-keys[{number}]", key, text)
        elif key not in items.get("required", ()) and known.get("default") is None:
            text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", text)


def _default(schema: Schema, path: str) -> Iterator[Cause]:
    value = schema["default"]
    if unknown_fields({"type": "object", "properties": {"v": schema}}, {"v": value}):
        yield wrong(f"{path}.default", value, "must not have unknown fields")
        return
    for cause in violations(schema, default(schema, value), ABSENT, ""):
        field = joined(f"{path}.default", cause.field) if cause.field not in {"", "<nil>"} else f"{path}.default"
        yield Cause(cause.type, field, cause.message)


# ── rules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rules(schema: Schema, path: str, uncorrelatable: str) -> Iterator[Cause]:
    for number, rule in enumerate(schema.get(RULES, ())):
        where = f"{path}.{RULES}[{number}]"
        yield from _rule(schema, rule, where, uncorrelatable, root="properties" not in path)
    for name, each in sorted(schema.get("properties", {}).items()):
        yield from _rules(each, f"{path}.properties[{name}]", uncorrelatable)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        yield from _rules(additional, f"{path}.additionalProperties", uncorrelatable)
    items = schema.get("items")
    if isinstance(items, dict):
        inner = uncorrelatable if schema.get("x-kubernetes-list-type") == "map" else (uncorrelatable or path)
        yield from _rules(items, f"{path}.items", inner)


def _rule(schema: Schema, rule: Mapping[str, Any], where: str, uncorrelatable: str, *, root: bool) -> Iterator[Cause]:
    text = rule.get("rule", "")
    if not text.strip():
        yield required(f"{where}.rule", "rule is not specified")
        return
    if re.search(r"[\n\r]", rule.get("message", "")):
        yield wrong(f"{where}.message", rule["message"], "must not contain line breaks")
    if rule.get("reason") is not None and rule["reason"] not in _REASONS:
        yield not_one_of(f"{where}.reason", rule["reason"], _REASONS)
    if rule.get("fieldPath") and field_path(schema, rule["fieldPath"]) is None:
        yield wrong(f"{where}.fieldPath", rule["fieldPath"], "must be a valid path")
    try:
        compiled = compile_rule(schema, {**rule, "messageExpression": ""}, root=root or bool(schema.get(EMBEDDED)))
    except cel.CompileError as error:
        yield wrong(f"{where}.rule", _shown(rule), f"compilation failed: {error}")
        return
    if compiled.program.type.kind != "bool":
        yield wrong(f"{where}.rule", _shown(rule), "cel expression must evaluate to a bool")
    if compiled.transition and uncorrelatable and not rule.get("optionalOldSelf"):
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
        yield wrong(f"{where}.rule", text, detail)
    if rule.get("optionalOldSelf") is not None and not compiled.transition:
        yield wrong(
            f"{where}.optionalOldSelf", rule["optionalOldSelf"], "may not be set if oldSelf is not used in rule"
        )
    yield from _message_expression(schema, rule, where, root=root)


def _message_expression(schema: Schema, rule: Mapping[str, Any], where: str, *, root: bool) -> Iterator[Cause]:
    if not rule.get("messageExpression"):
        return
    field = f"{where}.messageExpression"
    try:
        compiled = compile_rule(schema, rule, root=root or bool(schema.get(EMBEDDED)))
    except cel.CompileError as error:
        yield wrong(field, _shown(rule), f"messageExpression compilation failed: {error}")
        return
    if compiled.message is not None and compiled.message.type.kind != "string":
        yield wrong(field, _shown(rule), "messageExpression must evaluate to a string")


def _shown(rule: Mapping[str, Any]) -> dict[str, Any]:
    # As the real server prints its internal struct.
    return {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
