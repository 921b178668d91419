"""Remedies for pods that have to be close together: a wider tier, or being close only where it is possible. Pure.

As in `muster.whatif.remedies`, each is tried: what is given let the group start.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from muster.model import labels, names
from muster.model.objects import NetworkTopology
from muster.model.objects.scheduling import SubGroupPolicy
from muster.whatif import trials
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.trials import Remedy
from scheduler.model.snapshot import JobInfo
from scheduler.topology import tiers
from scheduler.topology.tiers import Tier


def remedies(cluster: WhatIfCluster, job: JobInfo) -> Iterator[Remedy]:
    """Try wider tiers for the pods of a group, the closest first, and then mode soft; for each of its subgroups, too."""
    group = cluster.group(job.key)
    if group is None:
        return
    for field, asked in (("networkTopology", job.topology), ("subGroupPolicy", _closest(job))):
        if asked is None or not asked.required:
            continue
        wider = _wider(cluster, asked.highest_tier, asked.tier_name)
        for tier in (*wider, None):
            spec = _whole(tier) if field == "networkTopology" else _parts(group.spec.sub_group_policy or (), tier)
            if trials.helps(cluster, job.key, partial(cluster.restate, job.key, **spec)):
                yield _remedy(job, field, tier)
                break


def _closest(job: JobInfo) -> Any:
    """Return what the subgroups ask for that have to be closest; None where none has to be."""
    asked = [each.topology for each in job.subgroups if each.topology is not None and each.topology.required]
    return min(asked, key=lambda each: each.reach, default=None)


def _wider(cluster: WhatIfCluster, highest: int | None, name: str) -> list[Tier]:
    snapshot = cluster.snapshot()
    tree = tiers.read(snapshot.table, snapshot.hypernodes, cluster.policy.topology_levels)
    if name:
        highest = max((tier.number for tier in tree.tiers if labels.means_tier(name, tier.label, tier.key)), default=0)
    return [tier for tier in tree.tiers if highest is not None and tier.number > highest and tier.names]


def _topology(tier: Tier | None) -> NetworkTopology:
    return NetworkTopology(mode="hard", highest_tier_allowed=tier.number) if tier else NetworkTopology(mode="soft")


def _whole(tier: Tier | None) -> dict[str, Any]:
    return {"network_topology": _topology(tier)}


def _parts(policies: tuple[SubGroupPolicy, ...], tier: Tier | None) -> dict[str, Any]:
    """Allow more to those subgroups that have to be closer."""
    return {"sub_group_policy": tuple(_wider_part(each, tier) for each in policies)}


def _wider_part(policy: SubGroupPolicy, tier: Tier | None) -> SubGroupPolicy:
    asked = policy.network_topology
    if asked is None or asked.mode == "soft":
        return policy
    if tier is not None and asked.highest_tier_allowed is not None and asked.highest_tier_allowed >= tier.number:
        return policy
    return replace(policy, network_topology=_topology(tier))


def _remedy(job: JobInfo, field: str, tier: Tier | None) -> Remedy:
    whose = "its pods" if field == "networkTopology" else "the pods of each subgroup"
    if job.owner:
        where = f"annotation {names.TOPOLOGY_TIER if tier else names.TOPOLOGY_MODE}"
    else:
        inside = "spec.networkTopology" if field == "networkTopology" else "spec.subGroupPolicy[].networkTopology"
        where = f"{inside}.{'highestTierAllowed' if tier else 'mode'}"
    data = {"kind": "networkTopology", "field": where, "tier": tier.number if tier else None}
    if tier is None:
        return Remedy(f"mode soft for {whose}: {where}", data)
    shown = f"{tier.number} ({tier.label})" if tier.label else str(tier.number)
    return Remedy(f"tier {shown} allowed for {whose}: {where}", data)
