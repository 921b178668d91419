"""Label selectors: do they match, and how do people write them.

Source: ``LabelSelectorAsSelector`` of ``k8s.io/apimachinery/pkg/apis/meta/v1``.
"""

from __future__ import annotations

from collections.abc import Mapping

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
