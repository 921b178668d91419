"""The public API for plugins of users: this import path is stable. See docs/plugins.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.engine.plugin import PERMIT, Key, Nodes, Permit, Plugin, Reach, Vote
from scheduler.engine.view import SessionView
from scheduler.model.obstacle import Limit, Obstacle, Reason, Stage

if TYPE_CHECKING:
    from scheduler.engine.plugin_arguments import Arguments

__all__ = [
    "PERMIT",
    "Arguments",
    "Key",
    "Limit",
    "Nodes",
    "Obstacle",
    "Permit",
    "Plugin",
    "Reach",
    "Reason",
    "SessionView",
    "Stage",
    "Vote",
]


def __getattr__(name: str) -> Any:
    """Return `Arguments`, imported when it is asked for: it brings pydantic, without which Muster's own plugins do."""
    if name == "Arguments":
        from scheduler.engine.plugin_arguments import Arguments

        return Arguments
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
