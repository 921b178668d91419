"""The filters of a node for a pod: its labels and name against the pod's request, its taints against tolerations. Pure."""

from __future__ import annotations

from typing import Any, Final

from muster.sandbox.codec.selectors import Requirement
from muster.sandbox.core.store import Object

NAME_FIELD: Final = "metadata.name"

_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"}


def fits(spec: Object, node: Object) -> bool:
    """Whether the node is one that a pod's spec allows, by name, selector and required affinity."""
    name = node["metadata"]["name"]
    if spec.get("nodeName", name) != name:
        return False
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    terms = _terms(spec)
    return terms is None or any(_met(term, labels, name) for term in terms)


def named_node(pod: Object) -> str:
    """Return the node that a pod is on, or asks for by name in its affinity; empty when there is none."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    for term in _terms(pod["spec"]) or ():
        for each in term.get("matchFields") or ():
            if each["key"] == NAME_FIELD and each["operator"] == "In" and len(each["values"]) == 1:
                return str(each["values"][0])
    return ""


def tolerated(spec: Object, taint: dict[str, Any]) -> bool:
    """Whether a pod's spec tolerates a taint."""
    return any(_matches(toleration, taint) for toleration in spec.get("tolerations") or ())


def _terms(spec: Object) -> list[Object] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required["nodeSelectorTerms"]


def _met(term: Object, labels: dict[str, str], name: str) -> bool:
    """Whether a term holds; an empty one never does."""
    conditions = [
        (_OPERATORS[each["operator"]], each, labels if part == "matchExpressions" else {NAME_FIELD: name})
        for part in ("matchExpressions", "matchFields")
        for each in term.get(part) or ()
    ]
    return bool(conditions) and all(
        Requirement(each["key"], operator, frozenset(each.get("values") or ())).matches(found)
        for operator, each, found in conditions
    )


def _matches(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    key, operator = toleration.get("key", ""), toleration.get("operator") or "Equal"
    if not key:
        return bool(operator == "Exists")
    if key != taint["key"]:
        return False
    return operator == "Exists" or (operator == "Equal" and toleration.get("value", "") == taint.get("value", ""))
