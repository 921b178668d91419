"""Where a pod may run, apart from how much it asks for: compiled from its spec once, compared by signature.

Two pods of the same signature are treated alike by every node, whatever job they belong to. What Muster doesn't
evaluate yet is listed in `Constraints.unsupported`: such a pod waits, and its group's condition says why; it is never
placed as though it had not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from muster.model import labels
from muster.model.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PreferredNode,
    Taint,
    Toleration,
)

Port = tuple[str, str, int]
"""Protocol, address, port on the host."""

_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, never listened on
_PLAIN_VOLUMES: Final = frozenset(
    {"emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "nfs", "image", "gitRepo"}
)
_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Constraints:
    """A pod's demands on nodes.

    Attributes:
        signature: equal for equal demands.
        unsupported: what it asks for that Muster doesn't evaluate, in words that follow "it uses".
        repelled: (label key, value) of the nodes that a running pod's anti-affinity keeps it away from.
    """

    signature: bytes = b""
    node_name: str = ""
    selector: tuple[tuple[str, str], ...] = ()
    required: NodeSelector | None = None
    preferred: tuple[PreferredNode, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: frozenset[Port] = frozenset()
    unsupported: tuple[str, ...] = ()
    repelled: frozenset[tuple[str, str]] = frozenset()

    def repelled_by(self, domains: frozenset[tuple[str, str]]) -> Constraints:
        """Give the same demands, kept away from ``domains``."""
        return replace(self, repelled=domains, signature=self.signature + _encode(sorted(domains))) if domains else self

    def with_unsupported(self, what: str) -> Constraints:
        """Give the same demands and one more that isn't evaluated."""
        return replace(self, unsupported=(*self.unsupported, what), signature=self.signature + what.encode())


def of_pod(spec: PodSpec) -> Constraints:
    """Compile a pod's spec."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    ports = frozenset(_host_ports(spec))
    unsupported = tuple(_unsupported(spec))
    parts = (spec.node_selector or {}, affinity, spec.tolerations or (), sorted(ports), unsupported)
    return Constraints(
        signature=_encode(parts),
        selector=tuple(sorted((spec.node_selector or {}).items())),
        required=affinity.required if affinity else None,
        preferred=(affinity.preferred or ()) if affinity else (),
        tolerations=spec.tolerations or (),
        ports=ports,
        unsupported=unsupported,
    )


def _host_ports(spec: PodSpec) -> Iterable[Port]:
    # Ports of init containers count only for sidecars, which stay.
    sidecars = (container for container in spec.init_containers or () if container.restart_policy == "Always")
    for container in (*spec.containers, *sidecars):
        for port in container.ports or ():
            if port.host_port:
                yield (port.protocol or "TCP", port.host_ip, port.host_port)


def _unsupported(spec: PodSpec) -> Iterable[str]:
    affinity = spec.affinity
    if affinity and affinity.pod_affinity and affinity.pod_affinity.required:
        yield "required pod affinity"
    if affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.required:
        yield "required pod anti-affinity"
    if any(each.when_unsatisfiable != "ScheduleAnyway" for each in spec.topology_spread_constraints or ()):
        yield "topology spread with DoNotSchedule"
    if spec.resource_claims:
        yield "resource claims"
    for volume in spec.volumes or ():
        kinds = [key for key in volume if key != "name" and key not in _PLAIN_VOLUMES]
        if kinds:
            yield f"volume {volume.get('name', '')!r} of type {kinds[0]}"


def ports_clash(wanted: frozenset[Port], taken: Iterable[Port]) -> bool:
    """Whether a node whose ``taken`` ports are these can't give ``wanted``."""
    return any(
        protocol == used[0]
        and port == used[2]
        and (address == used[1] or address in _ANY_ADDRESS or used[1] in _ANY_ADDRESS)
        for used in taken
        for protocol, address, port in wanted
    )


# ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def selects(constraints: Constraints, node: Node) -> bool:
    """Whether the selector and the required node affinity accept the node."""
    has = node.metadata.labels or {}
    if any(has.get(key) != value for key, value in constraints.selector):
        return False
    required = constraints.required
    return required is None or any(term_matches(term, node) for term in required.node_selector_terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Whether all of a term holds; an empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    has = node.metadata.labels or {}
    return all(requirement_holds(each, has) for each in term.match_expressions or ()) and all(
        requirement_holds(each, {"metadata.name": node.name}) for each in term.match_fields or ()
    )


def requirement_holds(requirement: LabelSelectorRequirement, has: Mapping[str, str]) -> bool:
    """Whether one expression holds of the labels ``has``; an operator that isn't known never does."""
    value = has.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement.operator, value, values)
        case _:
            return False


def _compares(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    try:
        left, right = int(value or ""), int(values[0] if len(values) == 1 else "")
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def repelling_taint(constraints: Constraints, taints: Iterable[Taint]) -> Taint | None:
    """Give the first taint that keeps the pod off a node."""
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerated(constraints.tolerations, taint):
            return taint
    return None


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of ``tolerations`` puts up with the taint."""
    return any(
        (not each.effect or each.effect == taint.effect)
        and (not each.key or each.key == taint.key)
        and (each.operator == "Exists" or (each.operator in {"", "Equal"} and each.key and each.value == taint.value))
        for each in tolerations
    )


# ── other pods ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Repeller:
    """A pod on a node whose required anti-affinity keeps others away from its domain."""

    topology_key: str
    domain: str
    namespaces: frozenset[str]
    selector: LabelSelector | None

    def keeps_away(self, pod: Pod) -> bool:
        """Whether the pod is one of those it doesn't want near."""
        if self.namespaces and pod.namespace not in self.namespaces:
            return False
        return self.selector is not None and labels.matches(self.selector, pod.metadata.labels)


def has_repellers(pod: Pod) -> bool:
    """Whether a pod has required anti-affinity."""
    affinity = pod.spec.affinity
    return bool(affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.required)


def repellers(pod: Pod, node: Node) -> Iterable[Repeller]:
    """List what a pod on ``node`` keeps away."""
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity else None
    for term in (anti.required if anti else None) or ():
        domain = (node.metadata.labels or {}).get(term.topology_key)
        if domain is None:
            continue
        # Which namespaces a namespace selector picks isn't known here, so it counts as all: too careful, never wrong.
        named = term.namespaces or (pod.namespace,)
        yield Repeller(
            term.topology_key,
            domain,
            frozenset() if term.namespace_selector is not None else frozenset(named),
            term.label_selector,
        )
