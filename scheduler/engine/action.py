"""The base class of actions: an action is one step of a cycle."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import field

from scheduler.engine.arguments import BuiltinArguments, without_effect
from scheduler.engine.session import Session


class ActionArguments(BuiltinArguments, frozen=True, kw_only=True):
    """What any action may be given."""

    cache: Annotated[bool, without_effect("what a node refused isn't asked again before something changed")] = field(
        default=True, name="predicateErrorCacheEnable"
    )


class Action:
    """The base of actions. Stateless; the arguments come with each call."""

    name: ClassVar[str]
    arguments_type: ClassVar[type[BuiltinArguments]] = ActionArguments

    def __call__(self, session: Session, arguments: Any, /) -> None:
        """Do it to the session."""
        raise NotImplementedError
