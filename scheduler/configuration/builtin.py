"""The built-in actions and plugins, and the default policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.actions.allocate import Allocate
from scheduler.actions.backfill import Backfill
from scheduler.actions.enqueue import Enqueue
from scheduler.actions.preempt import Preempt
from scheduler.actions.reclaim import Reclaim
from scheduler.engine.action import Action
from scheduler.engine.plugin import POINTS, Plugin
from scheduler.engine.policy import ConfiguredPlugin, Policy
from scheduler.plugins.binpack import Binpack
from scheduler.plugins.capacity import Capacity
from scheduler.plugins.conformance import Conformance
from scheduler.plugins.drf import Drf
from scheduler.plugins.gang import Gang
from scheduler.plugins.network_topology_aware import NetworkTopologyAware
from scheduler.plugins.nodeorder import NodeOrder
from scheduler.plugins.overcommit import Overcommit, OvercommitArguments
from scheduler.plugins.pdb import Pdb
from scheduler.plugins.predicates import Predicates
from scheduler.plugins.priority import Priority
from scheduler.plugins.proportion import Proportion
from scheduler.plugins.resource_strategy_fit import ResourceStrategyFit
from scheduler.plugins.resourcequota import ResourceQuotaPlugin
from scheduler.plugins.sla import Sla

ACTIONS: Final[Mapping[str, Action]] = {
    each.name: each for each in (Enqueue(), Allocate(), Backfill(), Preempt(), Reclaim())
}
PLUGINS: Final[Mapping[str, type[Plugin]]] = {
    each.name: each
    for each in (
        Gang,
        Priority,
        Conformance,
        Overcommit,
        Drf,
        Proportion,
        Predicates,
        NodeOrder,
        Binpack,
        ResourceStrategyFit,
        NetworkTopologyAware,
        Capacity,
        ResourceQuotaPlugin,
        Pdb,
        Sla,
    )
}
_TIERS: Final[tuple[tuple[type[Plugin], ...], ...]] = (
    (Priority, Gang, Conformance, Pdb),
    (ResourceQuotaPlugin, Overcommit, Drf, Predicates, Proportion, NodeOrder, Binpack),
)


def policy() -> Policy:
    """Return what `scheduler.configuration.config.DEFAULT` says. To read that would take longer than many a question that it answers."""
    actions = tuple(ACTIONS[name] for name in ("enqueue", "allocate", "reclaim", "backfill"))
    tiers = tuple(tuple(_enabled(plugin) for plugin in tier) for tier in _TIERS)
    return Policy(actions, tiers, {each.name: each.arguments_type() for each in actions})


def _enabled(plugin: type[Plugin]) -> ConfiguredPlugin:
    arguments = OvercommitArguments(factor=1.0) if plugin is Overcommit else plugin.arguments_type()
    return ConfiguredPlugin(plugin, arguments, frozenset(POINTS))
