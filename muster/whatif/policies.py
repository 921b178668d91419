"""The scheduler's policy as what-if questions need it. Pure."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from scheduler.configuration.builtin import ACTIONS
from scheduler.engine.policy import Policy
from scheduler.engine.reserved_nodes import NodeReservationArguments

_AFTER: Final = "allocate"


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
