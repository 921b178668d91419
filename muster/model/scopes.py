"""The scopes of ResourceQuotas: the pods that a quota counts, as texts to store, compare and use in names.

*Scope facts* are what of a pod decides in which scopes it is: words joined by commas, ``plain`` where there is nothing to
say, ``best-effort,class=high,terminating`` where there is much. Empty facts are those of something that isn't a pod, of
which nothing is known: it is in no scope.

A *scope set* is the scopes of a quota: requirements joined by ``+``, a pod must meet all. Amounts that only count in one
have it in their name: ``cpu@NotBestEffort``, ``requests.cpu@PriorityClass:In:high|low``.

Source: ``podMatchesScopeFunc`` of ``pkg/quota/v1/evaluator/core/pods.go`` and ``GetPodQOS`` of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from muster.model.amounts import Quantity, QuantityError, Resources
from muster.model.objects import Affinity, PodAffinityTerm, PodSpec, ResourceQuotaSpec, ResourceRequirements

NO_FACTS: Final = "plain"
"""The facts of a pod of which there is nothing to say."""

_AT: Final = "@"
_BEST_EFFORT: Final = "best-effort"
_TERMINATING: Final = "terminating"
_CROSS_NAMESPACE: Final = "cross-namespace-affinity"
_CLASS: Final = "class="
_WORDS: Final = frozenset({NO_FACTS, _BEST_EFFORT, _TERMINATING, _CROSS_NAMESPACE})
_CLASS_WORD: Final = re.compile(r"class=[a-z0-9][a-z0-9.-]{0,252}")
_LONGEST_CLASS: Final = 253
_PRIORITY_CLASS: Final = "PriorityClass"
_COMPUTE: Final = ("cpu", "memory")


def scope_facts(spec: PodSpec) -> str:
    """Return the scope facts of a pod of this spec."""
    found = [_BEST_EFFORT] if _best_effort(spec) else []
    if _is_class(spec.priority_class_name):
        found.append(_CLASS + spec.priority_class_name)
    if spec.affinity is not None and _looks_elsewhere(spec.affinity):
        found.append(_CROSS_NAMESPACE)
    if spec.active_deadline_seconds is not None:
        found.append(_TERMINATING)
    return ",".join(found) if found else NO_FACTS


def parse_facts(text: str) -> str:
    """Return scope facts that somebody wrote; empty where they are none, with which nothing is in a scope."""
    return text if all(word in _WORDS or _CLASS_WORD.fullmatch(word) for word in text.split(",")) else ""


def scope_set(spec: ResourceQuotaSpec) -> str:
    """Return a quota's scopes; empty where it counts everything."""
    # A value that no PriorityClass can be called is met by none; it must not be taken for the syntax of a name either.
    every = [f"{name}:Exists" if name == _PRIORITY_CLASS else name for name in spec.scopes or ()]
    for each in (spec.scope_selector.match_expressions or ()) if spec.scope_selector is not None else ():
        values = "|".join(sorted(filter(_is_class, each.values or ())))
        if each.scope_name != _PRIORITY_CLASS:
            every.append(each.scope_name)  # any operator but Exists is refused for these
        else:
            every.append(f"{_PRIORITY_CLASS}:{each.operator}" + (f":{values}" if values else ""))
    return "+".join(sorted(set(every)))


def scoped(amounts: Resources, scope_set: str) -> Resources:
    """Write amounts as counting in a scope set only."""
    return (
        Resources({f"{name}{_AT}{scope_set}": amount for name, amount in amounts.nano.items()})
        if scope_set
        else amounts
    )


def split_name(resource: str) -> tuple[str, str]:
    """Split a resource's name from the scope set in which it counts, empty for all."""
    name, _, scope_set = resource.partition(_AT)
    return name, scope_set


def scope_sets(resources: Iterable[str]) -> frozenset[str]:
    """Return the scope sets that names of resources speak of."""
    # Most quotas have none, and every decision asks.
    return frozenset(
        [scope_set for resource in resources if _AT in resource and (scope_set := split_name(resource)[1])]
    )


def in_scopes(amounts: Resources, scope_facts: str, scope_sets: Iterable[str]) -> Resources:
    """Have amounts count too in each of the scope sets in which something with these facts is."""
    mine = (
        [scope_set for scope_set in scope_sets if matches(scope_set, scope_facts)]
        if scope_facts and amounts.nano
        else []
    )
    if not mine:
        return amounts
    return Resources(
        {**amounts.nano, **{f"{n}{_AT}{scope_set}": a for scope_set in mine for n, a in amounts.nano.items()}}
    )


def unscoped(amounts: Resources) -> Resources:
    """Undo `in_scopes`."""
    return Resources({name: amount for name, amount in amounts.nano.items() if _AT not in name})


@lru_cache(maxsize=4096)
def matches(scope_set: str, scope_facts: str) -> bool:
    """Whether something with these facts is in a scope set. A scope that isn't known has nothing in it."""
    words = frozenset(scope_facts.split(",")) if scope_facts else frozenset[str]()
    return bool(words) and all(_meets(requirement, words) for requirement in scope_set.split("+"))


def _meets(requirement: str, words: frozenset[str]) -> bool:
    scope, _, rest = requirement.partition(":")
    if scope == _PRIORITY_CLASS:
        operator, _, values = rest.partition(":")
        name = next((word.removeprefix(_CLASS) for word in words if word.startswith(_CLASS)), "")
        return operator in _OPERATORS and _OPERATORS[operator](name, list(filter(None, values.split("|"))))
    return scope in _SCOPES and _SCOPES[scope](words)


_SCOPES: Final[Mapping[str, Callable[[frozenset[str]], bool]]] = {
    "Terminating": lambda words: _TERMINATING in words,
    "NotTerminating": lambda words: _TERMINATING not in words,
    "BestEffort": lambda words: _BEST_EFFORT in words,
    "NotBestEffort": lambda words: _BEST_EFFORT not in words,
    "CrossNamespacePodAffinity": lambda words: _CROSS_NAMESPACE in words,
}
_OPERATORS: Final[Mapping[str, Callable[[str, list[str]], bool]]] = {
    "Exists": lambda name, _: bool(name),
    "DoesNotExist": lambda name, _: not name,
    "In": lambda name, values: bool(name) and name in values,
    "NotIn": lambda name, values: name not in values,
}


def _is_class(name: str) -> bool:
    return bool(name) and len(name) <= _LONGEST_CLASS and _CLASS_WORD.fullmatch(_CLASS + name) is not None


def _best_effort(spec: PodSpec) -> bool:
    """Whether nothing of a pod asks for, or is limited in, cpu or memory."""
    for containers in (spec.containers, spec.init_containers):
        for container in containers or ():
            if container.resources is not None and _computes(container.resources):
                return False
    return spec.resources is None or not _computes(spec.resources)


def _computes(resources: ResourceRequirements) -> bool:
    for amounts in (resources.requests, resources.limits):
        for name in _COMPUTE:
            if amounts and name in amounts and _differs_from_zero(amounts[name]):
                return True
    return False


def _differs_from_zero(amount: object) -> bool:
    try:
        return Quantity.parse(amount).nano != 0
    except QuantityError:
        return True  # an API server stores no such pod


def _looks_elsewhere(affinity: Affinity) -> bool:
    sides = [side for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if side is not None]
    terms: list[PodAffinityTerm] = [term for side in sides for term in side.required or ()]
    terms += [each.pod_affinity_term for side in sides for each in side.preferred or ()]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)
