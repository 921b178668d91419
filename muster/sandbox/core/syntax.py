"""The syntax of names, labels and annotations, with the real server's texts.

Each check gives the texts of what is wrong, none when all is right.
Source: ``k8s.io/apimachinery/pkg/util/validation`` and ``pkg/api/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from muster.sandbox.core.status import Cause, too_long, wrong

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = _LABEL + r"(\." + _LABEL + ")*"
_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_NAME})?"
_DNS_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
ANNOTATIONS_LIMIT: Final = 256 * 1024

Check = Callable[[str], tuple[str, ...]]


def _must(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{each}', " for each in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


_SUBDOMAIN_TEXT: Final = _must(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_LABEL_TEXT: Final = _must(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_DNS_1035_TEXT: Final = _must(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character",
    _DNS_1035,
    "my-name",
    "abc-123",
)
_NAME_TEXT: Final = _must(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _NAME,
    "MyName",
    "my.name",
    "123-abc",
)
_VALUE_TEXT: Final = _must(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)


def _limited(value: str, limit: int, pattern: str, text: str) -> tuple[str, ...]:
    found = [] if len(value) <= limit else [f"must be no more than {limit} bytes"]
    # The length first: a pattern over megabytes would take its time.
    if len(value) <= 4 * limit and not re.fullmatch(pattern, value):
        found.append(text)
    return tuple(found)


@lru_cache(maxsize=16384)
def subdomain(value: str) -> tuple[str, ...]:
    """Check a DNS-1123 subdomain: what most objects are named by."""
    return _limited(value, 253, _SUBDOMAIN, _SUBDOMAIN_TEXT)


@lru_cache(maxsize=16384)
def label(value: str) -> tuple[str, ...]:
    """Check a DNS-1123 label: names of namespaces and containers."""
    return _limited(value, 63, _LABEL, _LABEL_TEXT)


def dns_1035(value: str) -> tuple[str, ...]:
    """Check a DNS-1035 label: names of services."""
    return _limited(value, 63, _DNS_1035, _DNS_1035_TEXT)


def path_segment(value: str) -> tuple[str, ...]:
    """Check a name that need only fit into a path: those of RBAC objects."""
    if value in {".", ".."}:
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{each}'" for each in "/%" if each in value)


@lru_cache(maxsize=16384)
def qualified_name(value: str) -> tuple[str, ...]:
    """Check a label's or annotation's key: ``name`` or ``prefix/name``."""
    prefix, slash, name = value.rpartition("/")
    if slash and "/" in prefix:
        return (
            f"a valid label key {_NAME_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {text}" for text in subdomain(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if len(name) <= 253 and not re.fullmatch(_NAME, name):
        found.append(f"name part {_NAME_TEXT}")
    return tuple(found)


@lru_cache(maxsize=16384)
def label_value(value: str) -> tuple[str, ...]:
    """Check a label's value."""
    return _limited(value, 63, _VALUE, _VALUE_TEXT)


def check_labels(values: Mapping[str, str], path: str) -> list[Cause]:
    """Check labels at ``path``."""
    causes: list[Cause] = []
    for key, value in values.items():
        causes += [wrong(path, key, text) for text in qualified_name(key)]
        causes += [wrong(path, value, text) for text in label_value(value)]
    return causes


def check_annotations(values: Mapping[str, str], path: str) -> list[Cause]:
    """Check annotations at ``path``; their keys are checked in lower case."""
    causes = [wrong(path, key, text) for key in values for text in qualified_name(key.lower())]
    if sum(len(key) + len(value) for key, value in values.items()) > ANNOTATIONS_LIMIT:
        causes.append(too_long(path, ANNOTATIONS_LIMIT))
    return causes


def finalizer(value: Any, path: str) -> list[Cause]:
    """Check one finalizer."""
    return [wrong(path, value, text) for text in qualified_name(value)]
