"""A configuration that has been checked: which actions run in which order, and which plugins in which tiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field

from scheduler.engine.arguments import Given
from scheduler.engine.plugin import Plugin

if TYPE_CHECKING:
    from scheduler.engine.plugin_arguments import Arguments
    from scheduler.engine.session import Session


class ActionArguments(Given, frozen=True, kw_only=True):
    """What any action may be given."""

    cache: bool = field(default=True, name="predicateErrorCacheEnable")
    """Accepted for the format's sake: what a node refused isn't asked again before something changed."""


class Action:
    """The base of actions: one step of a cycle. Stateless; the arguments come with each call."""

    name: ClassVar[str]
    arguments_type: ClassVar[type[Given]] = ActionArguments

    def __call__(self, session: Session, arguments: Any, /) -> None:
        """Do it to the session."""
        raise NotImplementedError


class Enabled(Struct, frozen=True):
    """A plugin with its arguments and the extension points that are on. ``guarded``: it is a user's own."""

    plugin: type[Plugin]
    arguments: Given | Arguments
    points: frozenset[str]
    guarded: bool = False


class Policy(Struct, frozen=True):
    """What `scheduler.engine.cycle.decide` follows."""

    actions: tuple[Action, ...]
    tiers: tuple[tuple[Enabled, ...], ...]
    arguments: Mapping[str, Given] = field(default_factory=dict)

    @property
    def enqueues(self) -> bool:
        """Whether groups wait in Pending until the enqueue action admits them."""
        return any(action.name == "enqueue" for action in self.actions)
