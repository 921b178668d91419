"""A pod's terms about other pods: affinity, anti-affinity and spreading, compiled from its spec once.

Terms name other pods by `PodSet`, which are compared by what they select: a thousand pods with the same term ask one
question. Who of the cluster answers to it is counted in `scheduler.state.peer_index`, by node.

Source: the plugins ``interpodaffinity`` and ``podtopologyspread`` of kube-scheduler, and the merging of matchLabelKeys
into selectors, which API servers do when pods are created (templates haven't been through that).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct, field

from muster.model.labels import matches
from muster.model.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    PodAffinityTerm,
    PodSpec,
    TopologySpreadConstraint,
)

_encode: Final = msgspec.json.Encoder(order="sorted").encode
Labels = Mapping[str, str]


class CountingRule(Enum):
    """What a set of pods is counted for, which decides who counts."""

    AFFINITY = "affinity"
    """Pods on nodes, those that are leaving included."""
    SPREAD = "spread"
    """Pods on nodes that aren't being deleted."""
    BUDGET = "budget"
    """The pods of a PodDisruptionBudget."""


class PodSelection(Struct, frozen=True):
    """Pods of ``namespaces``, or of namespaces that ``namespace_selector`` picks, whose labels ``selector`` picks."""

    namespaces: frozenset[str]
    selector: LabelSelector | None
    namespace_selector: LabelSelector | None = None

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether a pod is one of them. No selector picks nothing, an empty one everything."""
        if self.selector is None or not matches(self.selector, labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and matches(self.namespace_selector, namespace_labels)


class PodSet(Struct, frozen=True, eq=False):
    """Which pods a term is about: those in all of ``selections``. Equal when their signature is, of which ``digest`` is short."""

    signature: bytes
    digest: bytes
    purpose: CountingRule
    selections: tuple[PodSelection, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PodSet) and self.signature == other.signature

    def __hash__(self) -> int:
        return hash(self.signature)

    @classmethod
    def of(cls, purpose: CountingRule, *selections: PodSelection) -> PodSet:
        """Name a set of pods."""
        parts = [(sorted(each.namespaces), each.selector, each.namespace_selector) for each in selections]
        signature = _encode((purpose.value, parts))
        return cls(signature, blake2b(signature, digest_size=16).digest(), purpose, selections)

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether a pod is one of them."""
        return all(each.matches(namespace, labels, namespace_labels) for each in self.selections)

    def labels(self) -> list[tuple[str, str]]:
        """Return labels of which each of these pods has one; none where the selectors don't say."""
        for each in self.selections:
            chosen = each.selector or LabelSelector()
            for pair in (chosen.match_labels or {}).items():
                return [pair]
            for wanted in chosen.match_expressions or ():
                if wanted.operator == "In":
                    return [(wanted.key, value) for value in wanted.values or ()]
        return []


class AffinityTerm(NamedTuple):
    """Peers, and the label that says which nodes are one place. ``weight`` is of a preference; anti-affinity's is below zero."""

    peers: PodSet
    key: str
    weight: int = 0


class InverseTermKind(Enum):
    """What the term of a pod on a node means to pods that come."""

    REQUIRED = "required affinity"
    APART = "required anti-affinity"
    PREFERRED = "preference"


class InverseTerm(NamedTuple):
    """A term that pods on nodes carry."""

    role: InverseTermKind
    term: AffinityTerm


class SpreadConstraint(Struct, frozen=True):
    """One topology spread constraint.

    Attributes:
        peers: the pods that are spread.
        min_domains: how many domains there have to be before the emptiest counts (minDomains).
        honors_node_affinity, honors_taints: whether only nodes that the pod's node affinity, and its tolerations, accept count.
        required: whether it must hold; else it is a preference.
    """

    peers: PodSet
    key: str
    max_skew: int
    min_domains: int = 1
    honors_node_affinity: bool = True
    honors_taints: bool = False
    required: bool = True


class PodTerms(Struct, frozen=True, dict=True):
    """All that a pod wants of others.

    Attributes:
        required_affinity, required_anti_affinity: required affinity and anti-affinity.
        all_required: the peers of all of ``near`` at once; None without any.
        preferred: preferences, those of anti-affinity with a weight below zero.
    """

    required_affinity: tuple[AffinityTerm, ...] = ()
    all_required: PodSet | None = None
    required_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    spreads: tuple[SpreadConstraint, ...] = ()

    def __bool__(self) -> bool:
        """Whether it wants anything."""
        return bool(self.required_affinity or self.required_anti_affinity or self.preferred or self.spreads)

    @cached_property
    def peers(self) -> frozenset[PodSet]:
        """List whom it asks about."""
        found = {term.peers for term in (*self.required_affinity, *self.required_anti_affinity, *self.preferred)}
        found |= {each.peers for each in self.spreads}
        return frozenset(found | ({self.all_required} if self.all_required else set()))

    @cached_property
    def signature(self) -> bytes:
        """Equal for equal wishes."""
        terms = [
            (term.peers.signature, term.key, term.weight)
            for term in (*self.required_affinity, *self.required_anti_affinity, *self.preferred)
        ]
        return (
            repr((len(self.required_affinity), len(self.required_anti_affinity), terms, self.spreads)).encode()
            if self
            else b""
        )

    @cached_property
    def inverse_terms(self) -> tuple[InverseTerm, ...]:
        """List what a pod like this means to others once it is on a node."""
        return (
            *[InverseTerm(InverseTermKind.REQUIRED, term) for term in self.required_affinity],
            *[InverseTerm(InverseTermKind.APART, term) for term in self.required_anti_affinity],
            *[InverseTerm(InverseTermKind.PREFERRED, term) for term in self.preferred],
        )


NO_TERMS: Final = PodTerms()
MAX_TERMS: Final = 100
"""Terms of one pod that are read: each is matched with the pods of all tenants. People write three."""
MAX_PARTS: Final = 2000
"""Labels, expressions, values and names of namespaces that these terms may have together."""


def has_too_many_terms(spec: PodSpec) -> bool:
    """Whether a pod has more terms about other pods than are read; then none of them is."""
    affinity, spreads = spec.affinity, spec.topology_spread_constraints or ()
    sides = [side for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if side] if affinity else []
    count = sum(len(side.required or ()) + len(side.preferred or ()) for side in sides) + len(spreads)
    if not count:
        return False
    if count > MAX_TERMS:
        return True
    terms = [term for side in sides for term in side.required or ()]
    terms += [each.pod_affinity_term for side in sides for each in side.preferred or ()]
    parts = sum(
        len(term.namespaces or ()) + _parts(term.label_selector) + _parts(term.namespace_selector) for term in terms
    )
    parts += sum(len(term.match_label_keys or ()) + len(term.mismatch_label_keys or ()) for term in terms)
    parts += sum(_parts(each.label_selector) + len(each.match_label_keys or ()) for each in spreads)
    return parts > MAX_PARTS


def _parts(selector: LabelSelector | None) -> int:
    if selector is None:
        return 0
    return len(selector.match_labels or ()) + sum(
        1 + len(each.values or ()) for each in selector.match_expressions or ()
    )


def of_pod(namespace: str, labels: Labels, spec: PodSpec) -> PodTerms:
    """Compile what a pod wants of others."""
    affinity, spreads = spec.affinity, spec.topology_spread_constraints or ()
    near = affinity.pod_affinity if affinity else None
    apart = affinity.pod_anti_affinity if affinity else None
    if (near is None and apart is None and not spreads) or has_too_many_terms(spec):
        return NO_TERMS
    required = [_selection(namespace, labels, term) for term in (near.required if near else None) or ()]
    return PodTerms(
        required_affinity=_terms(namespace, labels, near.required if near else None),
        all_required=PodSet.of(CountingRule.AFFINITY, *required) if required else None,
        required_anti_affinity=_terms(namespace, labels, apart.required if apart else None),
        preferred=(
            *[
                _term(namespace, labels, each.pod_affinity_term, each.weight)
                for each in (near.preferred if near else None) or ()
            ],
            *[
                _term(namespace, labels, each.pod_affinity_term, -each.weight)
                for each in (apart.preferred if apart else None) or ()
            ],
        ),
        spreads=tuple(_spread(namespace, labels, each) for each in spreads),
    )


def _terms(namespace: str, labels: Labels, terms: Iterable[PodAffinityTerm] | None) -> tuple[AffinityTerm, ...]:
    return tuple(_term(namespace, labels, term) for term in terms or ())


def _term(namespace: str, labels: Labels, term: PodAffinityTerm, weight: int = 0) -> AffinityTerm:
    return AffinityTerm(
        PodSet.of(CountingRule.AFFINITY, _selection(namespace, labels, term)), term.topology_key, weight
    )


def _selection(namespace: str, labels: Labels, term: PodAffinityTerm) -> PodSelection:
    own = not term.namespaces and term.namespace_selector is None
    selector = _merged(term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys)
    return PodSelection(frozenset([namespace] if own else term.namespaces or ()), selector, term.namespace_selector)


def _merged(
    selector: LabelSelector | None, labels: Labels, same: Iterable[str] | None, other: Iterable[str] | None = None
) -> LabelSelector | None:
    """Add what matchLabelKeys and mismatchLabelKeys mean for a pod with these labels; doing it twice changes nothing."""
    wanted = [
        LabelSelectorRequirement(key=key, operator="In", values=(labels[key],)) for key in same or () if key in labels
    ]
    wanted += [
        LabelSelectorRequirement(key=key, operator="NotIn", values=(labels[key],))
        for key in other or ()
        if key in labels
    ]
    if selector is None or not wanted:
        return selector
    have = selector.match_expressions or ()
    return LabelSelector(
        match_labels=selector.match_labels,
        match_expressions=(*have, *[each for each in wanted if each not in have]),
    )


def _spread(namespace: str, labels: Labels, constraint: TopologySpreadConstraint) -> SpreadConstraint:
    selection = PodSelection(
        frozenset([namespace]), _merged(constraint.label_selector, labels, constraint.match_label_keys)
    )
    return SpreadConstraint(
        peers=PodSet.of(CountingRule.SPREAD, selection),
        key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        honors_node_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
        required=constraint.when_unsatisfiable != "ScheduleAnyway",
    )


class PeerCounts(Struct, frozen=True, eq=False):
    """Who is where, as far as terms of pods ask.

    Attributes:
        present: by set of pods or carried term (`Constraints.counted_as`), how many such pods each node has, by its name.
        leaving: how many of these are being deleted.
        inverse_terms: by set of pods, the terms about it that pods carry, or will once they are placed.
    """

    present: Mapping[Hashable, Mapping[str, int]] = field(default_factory=dict)
    leaving: Mapping[Hashable, Mapping[str, int]] = field(default_factory=dict)
    inverse_terms: Mapping[PodSet, tuple[InverseTerm, ...]] = field(default_factory=dict)
