"""Label and field selectors as lists and watches have them, and the ``selector`` of workloads.

Source: the grammar of ``k8s.io/apimachinery/pkg/labels`` and ``pkg/fields``, with their error texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.core import syntax
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import Cause, bad_request, not_allowed, quote, required, wrong

Labels = Mapping[str, str]
Matcher = Callable[[dict[str, Any]], bool]
"""Says whether a selector takes an object."""

_TOKEN: Final = re.compile(r"\s*(?:(?P<op>==|!=|=|!|\(|\)|,|<|>)|(?P<word>[^\s=!(),<>]+))")
_OPERATORS: Final = "in, notin, =, ==, !=, gt, lt"


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Requirement(Struct, frozen=True):
    """One condition on a label. ``operator``: in, notin, exists, !, gt, lt; ``=`` is an ``in`` of one value."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Labels) -> bool:
        """Say whether the labels meet it."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        number = _integer(value)
        (text,) = self.values
        limit = _integer(text)
        if number is None or limit is None:
            return False
        return number > limit if self.operator == "gt" else number < limit


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[+-]?\d{1,19}", text) else None


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector: ``a=b,c in (d,e),!f``.

    Raises:
        StatusError: 400 with the real server's text.
    """
    parser = _Parser(text)
    requirements = parser.requirements()
    cause = next((cause for each in requirements for cause in _causes(each)), None)
    if cause is not None:
        raise bad_request(f"unable to parse requirement: {cause}")
    return tuple(requirements)


def matches_labels(requirements: tuple[Requirement, ...], labels: Labels | None) -> bool:
    """Say whether labels meet all requirements."""
    present = labels or {}
    return all(each.matches(present) for each in requirements)


def _causes(requirement: Requirement) -> list[Cause]:
    causes = [wrong("<nil>", requirement.key, text) for text in syntax.qualified_name(requirement.key)]
    for value in requirement.values:
        causes += [wrong(f"values[0][{requirement.key}]", value, text) for text in syntax.label_value(value)]
        if requirement.operator in {"gt", "lt"} and _integer(value) is None:
            causes.append(wrong("values[0]", value, "for 'Gt', 'Lt' operators, the value must be an integer"))
    return causes


class _Parser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            # The two alternatives take every character between them.
            assert match is not None
            self._tokens.append(("op", match["op"]) if match["op"] else ("word", match["word"]))
            position = match.end()
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if not self._tokens:
            return found
        kind, text = self._peek()
        if kind != "word" and text != "!":
            raise bad_request(f"found '{text}', expected: !, identifier, or 'end of string'")
        while True:
            found.append(self._requirement())
            kind, text = self._next()
            if kind == "end":
                return found
            if text != ",":
                raise bad_request(f"found '{text}', expected: ',' or 'end of string'")
            kind, text = self._peek()
            if kind != "word" and text != "!":
                raise bad_request(f"found '{text}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        absent = self._peek() == ("op", "!")
        if absent:
            self._next()
        kind, key = self._next()
        if kind != "word":
            raise bad_request(f"unable to parse requirement: found '{key}', expected: identifier")
        if absent:
            return Requirement(key, "!")
        kind, text = self._peek()
        if kind == "end" or text == ",":
            return Requirement(key, "exists")
        self._next()
        if text in {"in", "notin"}:
            return Requirement(key, text, self._set())
        named = {"=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt", "gt": "gt", "lt": "lt"}.get(text)
        if named is None:
            raise bad_request(f"unable to parse requirement: found '{text}', expected: {_OPERATORS}")
        return Requirement(key, named, frozenset({self._value()}))

    def _value(self) -> str:
        kind, text = self._peek()
        if kind == "end" or text == ",":
            return ""
        if kind != "word":
            raise bad_request(f"unable to parse requirement: found '{text}', expected: identifier")
        return self._next()[1]

    def _set(self) -> frozenset[str]:
        _, text = self._next()
        if text != "(":
            raise bad_request(f"unable to parse requirement: found '{text}' expected: '('")
        values: set[str] = set()
        while True:
            kind, text = self._peek()
            if kind == "word":
                values.add(self._next()[1])
            elif text in {",", ")"}:
                values.add("")
            kind, text = self._next()
            if text == ")":
                return frozenset(values)
            if text != ",":
                raise bad_request(f"unable to parse requirement: found '{text}', expected: ',' or ')'")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        text = self._peek()
        self._at += 1
        return text


def from_object(selector: Mapping[str, Any] | None) -> tuple[Requirement, ...] | None:
    """Read a LabelSelector object; None (nothing is selected) when there is none. An empty one selects all.

    Its operators have to be valid: validation of the object that holds it comes before.
    """
    if selector is None:
        return None
    found = [Requirement(key, "in", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()]
    names = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    found += [
        Requirement(each["key"], names[each["operator"]], frozenset(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    ]
    return tuple(found)


def validate_object(selector: Mapping[str, Any], path: str) -> list[Cause]:
    """Return what is wrong with a LabelSelector object at ``path``."""
    causes = syntax.check_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, each in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        operator = each.get("operator", "")
        if operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            causes.append(wrong(f"{at}.operator", operator, "not a valid selector operator"))
        elif operator in {"In", "NotIn"} and not each.get("values"):
            causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in {"Exists", "DoesNotExist"} and each.get("values"):
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(not_allowed(f"{at}.values", text))
        causes += [wrong(f"{at}.key", each.get("key", ""), text) for text in syntax.qualified_name(each.get("key", ""))]
    return causes


# ── fields ───────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=1024)
def parse_fields(text: str) -> tuple[tuple[str, str, str], ...]:
    r"""Parse a field selector to (path, operator, value); ``\,``, ``\=`` and ``\\`` are escapes in values.

    Raises:
        StatusError: 400 with the real server's text.
    """
    found = []
    for term in re.findall(r"(?:[^,\\]|\\.|\\$)+", text):
        match = re.match(r"(?P<path>(?:[^=!\\]|\\.|!(?!=))*)(?P<op>!=|==|=)(?P<value>.*)", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        operator = "!=" if match["op"] == "!=" else "="
        found.append((match["path"], operator, _unescaped(match["value"])))
    return tuple(found)


def _unescaped(value: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[0][1:] not in {"\\", ",", "="}:
            raise bad_request(f"invalid field selector: invalid escape sequence: {match[0]}")
        return match[0][1:]

    unescaped = re.sub(r"\\.|\\$", replace, value)
    if re.search(r"(?<!\\)=", value):
        raise bad_request("invalid field selector: unescaped character in value: 61")
    return unescaped


def matcher(resource: Resource, labels: str, fields: str) -> Matcher | None:
    """Return the test of both selectors for the resource's objects; None when all match.

    Raises:
        StatusError: 400 when a selector is malformed or a field isn't one by which the resource can be selected.
    """
    requirements = parse_labels(labels) if labels else ()
    terms = parse_fields(fields) if fields else ()
    for path, _, _ in terms:
        _check_field(resource, path)
    if not requirements and not terms:
        return None

    def matches(obj: dict[str, Any]) -> bool:
        if requirements and not matches_labels(requirements, obj["metadata"].get("labels")):
            return False
        return all((field_value(obj, path) == value) == (operator == "=") for path, operator, value in terms)

    return matches


def _check_field(resource: Resource, path: str) -> None:
    if path in {"metadata.name", "metadata.namespace"} or path in resource.selectable:
        return
    if resource.selectable or resource.custom:
        if resource.group == "batch":
            raise bad_request(f"field label {quote(path)} not supported for {resource.kind}")
        raise bad_request(f"field label not supported: {path}")
    raise bad_request(f'{quote(path)} is not a known field selector: only "metadata.name", "metadata.namespace"')


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """Return a field as text; empty when it is absent, as the real server does."""
    if path in {"reportingComponent", "source"} and obj.get("kind") == "Event":
        component: str = obj.get("reportingComponent") or (obj.get("source") or {}).get("component", "")
        return component
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return _ABSENT.get(path, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


# Fields whose zero value isn't an empty text.
_ABSENT: Final = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.successful": "0",
    "status.replicas": "0",
}
