"""A pod's constraints on nodes, apart from how much it requests: compiled from its spec once, compared by signature.

Two pods of the same signature are treated alike by every node, whatever job they belong to. What Muster doesn't
evaluate yet is listed in `Constraints.unsupported`: such a pod waits, and its group's condition says why; it is never
placed as though it had not asked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model.objects import (
    LabelSelectorRequirement,
    Meta,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    PodSpec,
    PreferredNode,
    Taint,
    Toleration,
)
from scheduler.model import affinity, images, pod_claims, storage
from scheduler.model.affinity import CountingRule, PodSet, PodTerms
from scheduler.model.pod_claims import PodClaim
from scheduler.model.storage import ClaimRef

Port = tuple[str, str, int]
"""Protocol, address, port on the host."""

_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, never listened on
_PLAIN_VOLUMES: Final = frozenset(
    {
        *("emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "image", "gitRepo"),
        *("nfs", "csi", "azureFile", "cephfs", "fc", "flexVolume", "glusterfs"),
        *("persistentVolumeClaim", "ephemeral"),
    }
)
"""Types of volumes that leave all nodes open by themselves; claims have rules of their own."""
_SHARED_VOLUMES: Final = (_PLAIN_VOLUMES - {"persistentVolumeClaim", "ephemeral"}) | {"name"}
_LONGEST_TEMPLATE: Final = 2**14
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_encode_any: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(PodSpec).decode


class Constraints(Struct, frozen=True, dict=True):
    """A pod's demands on nodes.

    Attributes:
        signature: equal for equal demands.
        of_nodes: equal where what nodes alone decide on is; fewer of them than signatures.
        unsupported: what it asks for that Muster doesn't evaluate, in words that follow "it uses".
        images: the images of its containers, as nodes name them.
        claims: the PersistentVolumeClaims that it mounts.
        devices: the ResourceClaims that it uses.
        pod_terms: what it wants of other pods.
        peers: those of the sets of pods that anybody asks about that it belongs to itself.
    """

    signature: bytes = b""
    of_nodes: bytes = b""
    selector: tuple[tuple[str, str], ...] = ()
    required: NodeSelector | None = None
    preferred: tuple[PreferredNode, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: frozenset[Port] = frozenset()
    unsupported: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    claims: tuple[ClaimRef, ...] = ()
    devices: tuple[PodClaim, ...] = ()
    pod_terms: PodTerms = affinity.NO_TERMS
    peers: frozenset[PodSet] = frozenset()

    def among(self, peers: frozenset[PodSet]) -> Constraints:
        """Return the same demands, of a pod that belongs to ``peers``."""
        if not peers:
            return self
        return replace(self, peers=peers, signature=b"".join([self.signature, *sorted(each.digest for each in peers)]))

    def with_unsupported(self, what: str) -> Constraints:
        """Return the same demands and one more that isn't evaluated."""
        return replace(self, unsupported=(*self.unsupported, what), signature=self.signature + what.encode())

    def without_terms(self, what: str) -> Constraints:
        """Return the same demands without terms about other pods, which aren't evaluated."""
        return replace(self, pod_terms=affinity.NO_TERMS).with_unsupported(what)

    def with_devices(self, devices: tuple[PodClaim, ...]) -> Constraints:
        """Return the same demands with other ResourceClaims."""
        if devices == self.devices:
            return self
        stated = (sorted(self.ports), self.unsupported, self.images, self.claims, devices)
        signature = _signature(self.of_nodes, stated, self.pod_terms)
        return replace(self, devices=devices, peers=frozenset(), signature=signature).among(self.peers)

    @cached_property
    def counted_as(self) -> tuple[Hashable, ...]:
        """What a pod with these demands adds to on its node: sets it belongs to, terms that it carries, claims that it uses."""
        peers = sorted(self.peers, key=lambda each: each.signature)
        return (*peers, *self.pod_terms.inverse_terms, *[mount.claim for mount in self.claims])

    @property
    def conflicts_beyond_resources(self) -> bool:
        """Whether pods on a node may keep it off in other ways than by what they use."""
        return self.depends_on_other_pods or bool(self.ports or self.claims or self.devices)

    @cached_property
    def depends_on_other_pods(self) -> bool:
        """Whether it depends on more than a node whether that takes the pod, and how well: on pods on other nodes, too."""
        return bool(self.pod_terms) or any(each.purpose is CountingRule.AFFINITY for each in self.peers)


NONE: Final = Constraints()


def shape_of(spec: PodSpec) -> PodSpec | None:
    """Return what the pods of a workload have in common; None where what one asks for depends on the pod itself."""
    if not _has_pod_affinity(spec) and not spec.topology_spread_constraints and not _has_claims(spec):
        return replace(spec, node_name="", volumes=None)
    return None


def template_of(spec: PodSpec) -> bytes | None:
    """Return the same, written down."""
    shape = shape_of(spec)
    written = _encode_any(shape) if shape is not None else None
    # What is kept for later is bounded by number, so it must be in size: one pod may have a megabyte of its own.
    return written if written is not None and len(written) <= _LONGEST_TEMPLATE else None


def _has_pod_affinity(spec: PodSpec) -> bool:
    affinity_ = spec.affinity
    return affinity_ is not None and (affinity_.pod_affinity is not None or affinity_.pod_anti_affinity is not None)


def of_pod(metadata: Meta, spec: PodSpec) -> Constraints:
    """Compile a pod's spec."""
    template = template_of(spec)
    return _of_pod(metadata, spec) if template is None else of_template(template)


def _has_claims(spec: PodSpec) -> bool:
    return bool(spec.resource_claims) or (
        spec.volumes is not None and any(not _SHARED_VOLUMES.issuperset(volume) for volume in spec.volumes)
    )


@lru_cache(maxsize=4096)
def of_template(template: bytes) -> Constraints:
    """Compile what `template_of` gave, once for all pods of a workload."""
    return _of_pod(Meta(), _decode(template))


def _of_pod(metadata: Meta, spec: PodSpec) -> Constraints:
    wanted = spec.affinity.node_affinity if spec.affinity else None
    pod_terms = affinity.of_pod(metadata.namespace, metadata.labels or {}, spec)
    ports = frozenset(_host_ports(spec))
    unsupported = tuple(_unsupported(spec))
    names = images.of_containers((*(spec.containers or ()), *(spec.init_containers or ())))
    mounted = tuple(sorted(set(storage.mounts(metadata, spec))))
    used = pod_claims.of_pod(metadata, spec)
    of_nodes = _encode((spec.node_selector or {}, wanted, spec.tolerations or ()))
    return Constraints(
        signature=_signature(of_nodes, (sorted(ports), unsupported, names, mounted, used), pod_terms),
        of_nodes=of_nodes,
        selector=tuple(sorted((spec.node_selector or {}).items())),
        required=wanted.required if wanted else None,
        preferred=(wanted.preferred or ()) if wanted else (),
        tolerations=spec.tolerations or (),
        ports=ports,
        unsupported=unsupported,
        images=names,
        claims=mounted,
        devices=used,
        pod_terms=pod_terms,
    )


def _signature(of_nodes: bytes, stated: tuple[object, ...], pod_terms: PodTerms) -> bytes:
    """Return what is equal for the same demands: of nodes, what else is stated, and of other pods."""
    return of_nodes + _encode(stated) + pod_terms.signature


def _host_ports(spec: PodSpec) -> Iterable[Port]:
    # Ports of init containers count only for sidecars, which stay.
    sidecars = (container for container in spec.init_containers or () if container.restart_policy == "Always")
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port:
                yield (port.protocol or "TCP", port.host_ip, port.host_port)


def _unsupported(spec: PodSpec) -> Iterable[str]:
    if affinity.has_too_many_terms(spec):
        yield f"more than {affinity.MAX_TERMS} terms about other pods, or terms of more than {affinity.MAX_PARTS} parts"
    if len(pod_claims.of_pod(Meta(), spec)) < len(spec.resource_claims or ()):
        yield "resource claims of an unknown form"
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
    return required is None or any(term_matches(term, node) for term in required.node_selector_terms or ())


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
    """Return the first taint that keeps the pod off a node."""
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
