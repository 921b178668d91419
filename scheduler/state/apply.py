"""Applies a plan to a cluster, for the worker, simulations and what-if questions.

Each of them begins with this and adds what is its own: requests to an API server, or what would become of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from scheduler.model.plan import GroupStatus, Plan
from scheduler.state.blame import about
from scheduler.state.cluster import Cluster


def apply_plan(cluster: Cluster, plan: Plan, statuses: Iterable[GroupStatus] | None = None) -> None:
    """Count a plan as carried out: pods as bound or leaving, statuses as stored, and what the next cycle is to know.

    ``statuses``: those of the plan that count as stored; all where nothing is said.

    Raises:
        BlamedError: nobody foresaw it; how much of the plan counts as carried out isn't known then.
    """
    for bind in plan.binds:
        with about("", "pods", bind.task.namespace, bind.task.name):
            cluster.assume(bind.task.uid, bind.node, bind.volumes, bind.devices)
    for eviction in plan.evictions:
        with about("", "pods", eviction.task.namespace, eviction.task.name):
            cluster.evicting(eviction.task.uid)
    carry_over(cluster, plan)
    for status in plan.statuses if statuses is None else statuses:
        group = cluster.find_group(status.key)
        if group is not None:
            cluster.group(status.key.group, replace(group, status=status.struct()))


def carry_over(cluster: Cluster, plan: Plan | None) -> None:
    """Have the next snapshot tell what a plan leaves to the next cycle, in place of what an earlier one left.

    ``None``: there was no cycle before.
    """
    if plan is None:
        cluster.nominate({})
        cluster.remember(None, {})
        return
    cluster.nominate({bind.task.uid: bind.node for bind in plan.pipelined}, plan.kept_places)
    cluster.remember(plan.reserved_nodes, plan.partially_bound, left_out=plan.left_out)
