"""The base class of actions: an action is one step of a cycle."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field

from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.session import Session


class ActionArguments(BuiltinArguments, frozen=True, kw_only=True):
    """What any action may be given."""

    cache: bool = field(default=True, name="predicateErrorCacheEnable")
    """Accepted for the format's sake: what a node refused isn't asked again before something changed."""


class Action:
    """The base of actions. Stateless; the arguments come with each call."""

    name: ClassVar[str]
    arguments_type: ClassVar[type[BuiltinArguments]] = ActionArguments

    def __call__(self, session: Session, arguments: Any, /) -> None:
        """Do it to the session."""
        raise NotImplementedError
