"""The scheduler's policy as what-if questions need it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from scheduler.configuration.builtin import ACTIONS
from scheduler.engine.eviction_rules import EvictionArguments
from scheduler.engine.policy import Policy
from scheduler.engine.reserved_nodes import NodeReservationArguments
from scheduler.plugins.gang import Gang

_AFTER: Final = "allocate"
EVICTING: Final[Mapping[str, str]] = {"preempt": "preemptable", "reclaim": "reclaimable"}
"""The actions that evict, and the extension point at which plugins choose whom."""


def evicting(policy: Policy) -> Iterator[str]:
    """Return the names of the actions of a policy that evict."""
    return (action.name for action in policy.actions if action.name in EVICTING)


def keeps_minimums(policy: Policy, action: str) -> bool:
    """Whether an action leaves each gang its minimum: a plugin sees to that, and no job goes as a whole."""
    arguments = policy.arguments.get(action)
    if isinstance(arguments, EvictionArguments) and arguments.whole:
        return False
    enabled = (each for tier in policy.tiers for each in tier if each.plugin is Gang)
    return any(EVICTING[action] in each.points for each in enabled)


def without_reservations(policy: Policy) -> Policy:
    """Leave out what a cycle keeps for the next ones: it takes time, and nobody here remembers it."""
    known = policy.arguments.get("allocate")
    if not isinstance(known, NodeReservationArguments):
        return policy
    arguments = {**policy.arguments, "allocate": replace(known, after=None)}
    return replace(policy, arguments=arguments)


def with_action(policy: Policy, name: str) -> Policy:
    """Return a policy that runs one more action, behind allocate."""
    actions = list(policy.actions)
    place = next((index + 1 for index, each in enumerate(actions) if each.name == _AFTER), len(actions))
    actions.insert(place, ACTIONS[name])
    arguments = {**policy.arguments, name: ACTIONS[name].arguments_type()}
    return replace(policy, actions=tuple(actions), arguments=arguments)


def without_evictions(policy: Policy) -> Policy:
    """Leave out the actions that evict."""
    return replace(policy, actions=tuple(each for each in policy.actions if each.name not in EVICTING))
