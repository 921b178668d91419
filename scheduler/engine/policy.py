"""A validated configuration: the actions in their order, and the plugins in their tiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin import Plugin

if TYPE_CHECKING:
    from scheduler.engine.plugin_arguments import Arguments


class ConfiguredAction(Protocol):
    """One step of a cycle: an action, as far as a policy knows it. What it does, `scheduler.engine.action` says."""

    @property
    def name(self) -> str:
        """Its name in configurations."""

    def __call__(self, session: Any, arguments: Any, /) -> None:
        """Do it to a session."""


class ConfiguredPlugin(Struct, frozen=True):
    """A plugin with its arguments and the extension points that are on. ``isolated``: it is a user's own."""

    plugin: type[Plugin]
    arguments: BuiltinArguments | Arguments
    points: frozenset[str]
    isolated: bool = False


class Policy(Struct, frozen=True):
    """What `scheduler.engine.cycle.decide` follows.

    Attributes:
        remarks: what the configuration says and what changes nothing, a line each.
    """

    actions: tuple[ConfiguredAction, ...]
    tiers: tuple[tuple[ConfiguredPlugin, ...], ...]
    arguments: Mapping[str, BuiltinArguments] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def enqueues(self) -> bool:
        """Whether groups wait in Pending until the enqueue action admits them."""
        return any(action.name == "enqueue" for action in self.actions)

    @property
    def topology_levels(self) -> tuple[str, ...]:
        """The node labels whose values are domains of the network, the widest first; none where no plugin lists them."""
        listed = (getattr(each.arguments, "levels", ()) for tier in self.tiers for each in tier)
        return next(filter(None, listed), ())
