"""Rules in schemas (``x-kubernetes-validations``): compiled once per schema, checked on values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from muster import cel
from muster.cel.values import equal
from muster.sandbox.core.status import Cause, duplicate, not_allowed, required, wrong
from muster.sandbox.schema.checks import ABSENT, counterparts, joined
from muster.sandbox.schema.shape import EMBEDDED

Schema = Mapping[str, Any]

RULES: Final = "x-kubernetes-validations"
_MOST_MESSAGE: Final = 5 * 1024
_FIELD_PATH: Final = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")


class Rule(Struct, frozen=True):
    """One compiled rule."""

    source: Mapping[str, Any]
    program: cel.Program
    message: cel.Program | None
    field_path: str

    @property
    def transition(self) -> bool:
        """Whether it compares with the old value."""
        return "oldSelf" in self.program.names


class RuleTree(Struct, frozen=True):
    """The rules of a schema and of what is inside of it; only branches that have rules."""

    schema: Schema
    kind: str
    rules: tuple[Rule, ...]
    properties: Mapping[str, RuleTree]
    additional: RuleTree | None
    items: RuleTree | None

    def check(self, value: Any, old: Any, path: str) -> Iterator[Cause]:
        """Return what the rules say of a value; ``old`` is `ABSENT` where there is nothing to compare with."""
        if value is None:
            return
        unchanged = old is not ABSENT and equal(value, old)
        for rule in self.rules:
            if unchanged and not rule.transition:
                continue
            if rule.transition and old is ABSENT and not rule.source.get("optionalOldSelf"):
                continue
            cause = self._checked(rule, value, old, path)
            if cause is not None:
                yield cause
        if isinstance(value, dict):
            yield from self._fields(value, old if isinstance(old, dict) else {}, path)
        elif isinstance(value, list) and self.items is not None:
            before = counterparts(self.schema, value, old)
            for number, each in enumerate(value):
                yield from self.items.check(each, before[number], f"{path}[{number}]")

    def _fields(self, value: dict[str, Any], old: dict[str, Any], path: str) -> Iterator[Cause]:
        for name, each in value.items():
            branch = self.properties.get(name)
            if branch is not None:
                yield from branch.check(each, old.get(name, ABSENT), joined(path, name))
            elif self.additional is not None and name not in self.schema.get("properties", {}):
                yield from self.additional.check(each, old.get(name, ABSENT), f"{path}[{name}]")

    def _checked(self, rule: Rule, value: Any, old: Any, path: str) -> Cause | None:
        variables = {"self": value, "oldSelf": old}
        if rule.source.get("optionalOldSelf"):
            variables["oldSelf"] = cel.Optional() if old is ABSENT else cel.Optional(True, old)
        field = path or "<nil>"
        text = rule.source["rule"]
        try:
            verdict = rule.program.evaluate(variables)
        except cel.CelError as error:
            return wrong(field, self.kind, _failure(str(error), text, rule.source.get("message") or _line(text)))
        if verdict is True:
            return None
        return _cause(rule, field, path, value, _message(rule, variables))


def _failure(error: str, rule: str, shown: str) -> str:
    if error.startswith("no such overload"):
        return f"'{error}': call arguments did not match a supported operator, function or macro signature for rule: {_line(rule)}"
    if error.startswith("operation cancelled"):
        return (
            f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {_line(rule)}"
        )
    return f"{error} evaluating rule: {shown}"


def _message(rule: Rule, variables: Mapping[str, Any]) -> str:
    if rule.message is not None:
        try:
            text = str(rule.message.evaluate(variables)).strip()
        except cel.CelError:
            text = ""
        if text and "\n" not in text and len(text.encode()) <= _MOST_MESSAGE:
            return text
    message = str(rule.source.get("message", "")).strip()
    return message or f"failed rule: {_line(rule.source['rule'])}"


def _line(text: str) -> str:
    return text.strip()


def _cause(rule: Rule, field: str, path: str, value: Any, detail: str) -> Cause:
    if rule.field_path:
        field = (path + rule.field_path).removeprefix(".")
    match rule.source.get("reason"):
        case "FieldValueForbidden":
            return not_allowed(field, detail)
        case "FieldValueRequired":
            return required(field, detail)
        case "FieldValueDuplicate":
            return duplicate(field, value)
    if isinstance(value, dict | list):
        return Cause("FieldValueInvalid", field, f"Invalid value: {detail}")
    return wrong(field, value, detail)


# ── compilation ──────────────────────────────────────────────────────────────────────────────────────────────────


def compile_rules(schema: Schema, *, root: bool = False) -> RuleTree | None:
    """Compile the rules of a schema that `definition.check_schema` has approved; None when it has none.

    Raises:
        CompileError: a rule can't be compiled.
    """
    properties = {
        name: tree
        for name, each in schema.get("properties", {}).items()
        if (tree := compile_rules(each, root=bool(each.get(EMBEDDED)))) is not None
    }
    additional = schema.get("additionalProperties")
    items = schema.get("items")
    inner = compile_rules(additional, root=bool(additional.get(EMBEDDED))) if isinstance(additional, dict) else None
    elements = compile_rules(items, root=bool(items.get(EMBEDDED))) if isinstance(items, dict) else None
    rules = tuple(compile_rule(schema, rule, root=root) for rule in schema.get(RULES, ()) if rule["rule"].strip())
    if not (properties or inner or elements or rules):
        return None
    return RuleTree(schema, schema.get("type", ""), rules, properties, inner, elements)


def compile_rule(schema: Schema, rule: Mapping[str, Any], *, root: bool) -> Rule:
    """Compile one rule of a schema.

    Raises:
        CompileError: the rule, or its messageExpression, can't be compiled.
    """
    known = cel.from_schema(schema, root=root)
    if known is None:
        raise cel.CompileError("rules need a schema with a type", rule["rule"], 0)
    old = cel.optional_of(known) if rule.get("optionalOldSelf") else known
    variables = {"self": known, "oldSelf": old}
    program = cel.compile_expression(rule["rule"], variables)
    expression = rule.get("messageExpression")
    message = cel.compile_expression(expression, variables) if expression else None
    return Rule(rule, program, message, field_path(schema, rule.get("fieldPath", "")) or "")


def field_path(schema: Schema, path: str) -> str | None:
    """Return a rule's fieldPath as it stands in messages (``.a.b``, ``.m[key]``), None when the schema has no such field."""
    written, position = "", 0
    here: Any = schema
    while position < len(path):
        match = _FIELD_PATH.match(path, position)
        if match is None or not isinstance(here, dict):
            return None
        name = match[1] or re.sub(r"\\(.)", r"\1", match[2])
        position = match.end()
        if "properties" in here:
            here = here["properties"].get(name)
            written += f".{name}"
        else:
            here = here.get("additionalProperties")
            written += f"[{name}]"
        if not isinstance(here, dict):
            return None
    return written
