"""The network between the nodes as a tree of domains, with what is free in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from muster.model import kinds, names
from muster.model.amounts import NOTHING, Resources
from muster.model.objects import HyperNode, Node
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import ClusterObjects, with_objects
from scheduler.engine.policy import Policy
from scheduler.model import vectors
from scheduler.model.snapshot import Snapshot
from scheduler.model.vectors import PODS, Mask
from scheduler.state import conversion
from scheduler.state.cluster import Cluster
from scheduler.state.handlers import handlers
from scheduler.topology import tier_sizes, tiers
from scheduler.topology.tiers import Tier, TopologyTree


class DomainUse(Struct, frozen=True, rename="camel"):
    """A domain: how many nodes are in it, what they have and what of it is free, and the domains within."""

    name: str
    tier: int
    tier_name: str
    nodes: int
    allocatable: Mapping[str, str]
    free: Mapping[str, str]
    domains: Sequence[DomainUse] = ()


class NetworkReport(Struct, frozen=True, rename="camel"):
    """The widest domains, how many nodes are in none, and what is wrong with the HyperNodes."""

    domains: Sequence[DomainUse]
    beside: int
    faults: Sequence[str] = field(default_factory=tuple)


def report(cluster: WhatIfCluster) -> NetworkReport:
    """Read the network of a cluster, as the scheduler sees it."""
    snapshot = cluster.snapshot()
    tree = tiers.read(snapshot.table, snapshot.hypernodes, cluster.policy.topology_levels)
    if not tree.tiers:
        return NetworkReport((), len(snapshot.table.nodes), tree.faults)
    everywhere = np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    found = _within(snapshot, tree, len(tree.tiers) - 1, everywhere)
    covered = np.logical_or.reduce([tier.codes >= 0 for tier in tree.tiers])
    return NetworkReport(found, int((~covered).sum()), tree.faults)


def with_tiers(state: ClusterObjects, added: Iterable[HyperNode], policy: Policy) -> ClusterObjects:
    """Return a state whose queue ``default`` says what the network is once HyperNodes are ``added``, as the scheduler writes it there."""
    described = with_objects(state, {kinds.HYPERNODES: added})
    cluster = Cluster(frozenset())
    learn = handlers(cluster)
    for node in described.of(kinds.NODES):
        learn[kinds.NODES](node)
    for hypernode in described.of(kinds.HYPERNODES):
        learn[kinds.HYPERNODES](hypernode)
    snapshot = cluster.snapshot()
    tree = tiers.read(snapshot.table, snapshot.hypernodes, policy.topology_levels)
    found = tier_sizes.of(tree, snapshot.table, autoscaled=bool(state.autoscaler))
    queue = state.find(kinds.QUEUES, names.DEFAULT_QUEUE)
    if queue is None:
        return state
    return with_objects(state, {kinds.QUEUES: [replace(queue, status=replace(queue.status, network_tiers=found))]})


def _within(snapshot: Snapshot, tree: TopologyTree, depth: int, mask: Mask) -> list[DomainUse]:
    """Return the domains in ``mask`` of a tier, and after them those of lower tiers that are in none of it."""
    if depth < 0:
        return []
    tier = tree.tiers[depth]
    codes = sorted(set(tier.codes[mask & (tier.codes >= 0)].tolist()), key=lambda code: tier.names[code])
    found = [_domain(snapshot, tree, depth, tier, code) for code in codes]
    beside = mask & (tier.codes < 0)
    return [*found, *(_within(snapshot, tree, depth - 1, beside) if beside.any() else ())]


def _domain(snapshot: Snapshot, tree: TopologyTree, depth: int, tier: Tier, code: int) -> DomainUse:
    mask, table, axes = tier.mask(code), snapshot.table, snapshot.axes
    has = Resources.total(_allocatable(table.nodes[row]) for row in np.flatnonzero(mask))
    free = axes.resources(vectors.total(snapshot.idle[mask & table.serving].clip(min=0)))
    # What no pod asks for isn't counted, and all of it is free.
    unasked = (_allocatable(table.nodes[row]) for row in np.flatnonzero(mask & table.serving))
    free += Resources.total(unasked).only(name for name in has if name not in axes.place)
    shown = [name for name in has if name != PODS and has[name]]
    left = free.quantities()
    return DomainUse(
        tier.names[code],
        tier.number,
        tier.label,
        int(mask.sum()),
        {name: each for name, each in has.quantities().items() if name in shown},
        {name: left.get(name, "0") for name in shown},
        tuple(_within(snapshot, tree, depth - 1, mask)),
    )


def _allocatable(node: Node) -> Resources:
    return conversion.allocatable(node) or NOTHING
