"""Label selectors: matching, and their text form.

Source: ``LabelSelectorAsSelector`` of ``k8s.io/apimachinery/pkg/apis/meta/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from muster.model.objects import LabelSelector, LabelSelectorRequirement


def matches(selector: LabelSelector, labels: Mapping[str, str] | None) -> bool:
    """Whether labels satisfy a selector. An empty one matches everything; an unknown operator nothing."""
    mine = labels or {}
    equal = all(mine.get(key) == value for key, value in (selector.match_labels or {}).items())
    return equal and all(_holds(requirement, mine) for requirement in selector.match_expressions or ())


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    there, values = requirement.key in labels, requirement.values or ()
    match requirement.operator:
        case "In":
            return there and labels[requirement.key] in values
        case "NotIn":
            return not there or labels[requirement.key] not in values
        case "Exists":
            return there
        case "DoesNotExist":
            return not there
        case _:
            return False


def text(selector: LabelSelector) -> str:
    """Write a selector the way kubectl does: ``team=ml,tier in (a,b),!legacy``."""
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    parts += [_requirement_text(requirement) for requirement in selector.match_expressions or ()]
    return ",".join(parts)


def _requirement_text(requirement: LabelSelectorRequirement) -> str:
    values = f"({','.join(requirement.values or ())})"
    forms = {
        "In": f"{requirement.key} in {values}",
        "NotIn": f"{requirement.key} notin {values}",
        "Exists": requirement.key,
        "DoesNotExist": f"!{requirement.key}",
    }
    return forms.get(requirement.operator, f"{requirement.key} {requirement.operator} {values}")


# ── what can't be a selector ─────────────────────────────────────────────────────────────────────────────────────

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""Names with dots (RFC 1123), without their bound of 253 characters: of most objects, and before the slash of a key."""

_KEY: Final = re.compile(rf"({SUBDOMAIN}/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")
_LONGEST: Final = 253 + 1 + 63


def faults(selector: LabelSelector) -> Iterator[tuple[str, str]]:
    """Return what is wrong with a selector that the API server doesn't check: (field, what and what to do).

    Source: ``ValidateLabelSelector`` of ``k8s.io/apimachinery/pkg/apis/meta/v1/validation``.
    """
    for key, value in (selector.match_labels or {}).items():
        yield from _key_faults(key, "matchLabels")
        yield from _value_faults([value], f"matchLabels[{key}]")
    for place, each in enumerate(selector.match_expressions or ()):
        path = f"matchExpressions[{place}]"
        yield from _key_faults(each.key, f"{path}.key")
        if each.operator in {"In", "NotIn"}:
            if not each.values:
                yield f"{path}.values", f"{each.operator} has nothing to compare with: list at least one value"
            yield from _value_faults(each.values or (), f"{path}.values")
        elif each.values:
            yield f"{path}.values", f"{each.operator} takes no values: leave them out, or write In or NotIn"


def _key_faults(key: str, path: str) -> Iterator[tuple[str, str]]:
    if len(key) > _LONGEST or not _KEY.fullmatch(key):
        yield (
            path,
            f'"{key[:64]}" can\'t be the key of a label: write letters, digits, "-", "_" and "." as in example.com/team',
        )


def _value_faults(values: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
    for value in values:
        if not _VALUE.fullmatch(value):
            yield (
                path,
                f'"{value[:64]}" can\'t be the value of a label: write at most 63 letters, digits, "-", "_" and "."',
            )


def means_tier(asked: str, name: str, key: str) -> bool:
    """Tell whether what somebody asks for is a tier of the network with this name, and with this node label's key where it has one.

    Of HyperNodes, which have no key, the name stands for every key that ends with it.
    """
    return asked in {name, key} or (not key and asked.rpartition("/")[2] == name)
