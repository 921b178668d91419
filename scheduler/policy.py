"""A configuration that has been checked: which actions run in which order, and which plugins in which tiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field
from pydantic import Field

from scheduler.plugin import Arguments, Plugin

if TYPE_CHECKING:
    from scheduler.session import Session


class ActionArguments(Arguments):
    """What any action may be given."""

    cache: bool = Field(default=True, alias="predicateErrorCacheEnable")
    """Accepted for the format's sake: what a node refused isn't asked again before something changed."""


class Action:
    """The base of actions: one step of a cycle. Stateless; the arguments come with each call."""

    name: ClassVar[str]
    arguments_type: ClassVar[type[Arguments]] = ActionArguments

    def __call__(self, session: Session, arguments: Any, /) -> None:
        """Do it to the session."""
        raise NotImplementedError


class Enabled(Struct, frozen=True):
    """A plugin with its arguments and the extension points that are on. ``guarded``: it is a user's own."""

    plugin: type[Plugin]
    arguments: Arguments
    points: frozenset[str]
    guarded: bool = False


class Policy(Struct, frozen=True):
    """What `scheduler.cycle.decide` follows."""

    actions: tuple[Action, ...]
    tiers: tuple[tuple[Enabled, ...], ...]
    arguments: Mapping[str, Arguments] = field(default_factory=dict)

    @property
    def enqueues(self) -> bool:
        """Whether groups wait in Pending until the enqueue action lets them in."""
        return any(action.name == "enqueue" for action in self.actions)
