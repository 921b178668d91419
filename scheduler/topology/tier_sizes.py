"""The network as admission needs it: the tiers that exist, and the most that one domain of each has."""

from __future__ import annotations

from collections import Counter

from muster.model.amounts import NOTHING, QuantityError, Resources
from muster.model.objects import NetworkTier, Node
from scheduler.model.node_table import NodeTable
from scheduler.topology.tiers import NOWHERE, Tier, TopologyTree


def of(tree: TopologyTree, table: NodeTable, *, autoscaled: bool) -> tuple[NetworkTier, ...]:
    """Return the tiers, the closest first; without sizes where an autoscaler makes nodes: a domain may grow.

    A resource that some node has is listed for each tier, be it with nothing: one that isn't listed nobody knows of.
    """
    if autoscaled or not tree.tiers:
        return tuple(
            NetworkTier(tier=each.number, name=each.label, key=each.key, domains=len(each.names)) for each in tree.tiers
        )
    amounts = [_allocatable(node) for node in table.nodes]
    known = sorted({name for each in amounts for name in each.nano})
    return tuple(_sized(tier, amounts, known) for tier in tree.tiers)


def _sized(tier: Tier, amounts: list[Resources], known: list[str]) -> NetworkTier:
    sums: list[Counter[str]] = [Counter() for _ in tier.names]
    for code, has in zip(tier.codes.tolist(), amounts, strict=True):
        if code != NOWHERE:
            sums[code].update(has.nano)
    most = {name: max((each[name] for each in sums), default=0) for name in known}
    written = Resources(most).quantities()
    return NetworkTier(
        tier=tier.number,
        name=tier.label,
        key=tier.key,
        domains=len(tier.names),
        largest={name: written.get(name, "0") for name in known},
    )


def _allocatable(node: Node) -> Resources:
    try:
        return Resources.parse(node.status.allocatable)
    except QuantityError:
        return NOTHING
