"""The obstacle that keeps a group from running, as values: the reason, the stage that it waits in, the limit that it meets."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from muster.model.amounts import Resources


class Reason(Enum):
    """Why a group waits or failed; the words are the API's."""

    NOT_ENOUGH_RESOURCES = "NotEnoughResources"
    NOT_ENOUGH_TASKS = "NotEnoughTasks"
    NOT_ENOUGH_QUOTA = "NotEnoughQuota"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    POD_FAILED = "PodFailed"
    POD_DELETED = "PodDeleted"


class Stage(Enum):
    """What a group that doesn't run waits for, on its way from left to right."""

    QUEUE = "queue"
    """Its queue, or an ancestor of it: closed, too small, full."""
    QUOTA = "quota"
    """The quota of its namespace."""
    ENQUEUE = "enqueue"
    """Room in the cluster, to be admitted."""
    GANG = "gang"
    """Its pods: fewer exist than have to start together."""
    NODES = "nodes"
    """Nodes that take its pods."""
    BIND = "bind"
    """Nothing but the binding of its pods, and their start."""


class Limit(Struct, frozen=True):
    """What is too small for a group: a ``queue``, a ``namespace`` or the ``cluster``, and by how much."""

    kind: str
    name: str
    short: Resources


class Obstacle(Struct, frozen=True):
    """What keeps a group from its next step, in one sentence for its users.

    ``limit``: which bound it meets, if one; ``nodes``: more nodes would remove it.
    """

    reason: Reason
    message: str
    stage: Stage | None = None
    limit: Limit | None = None
    nodes: bool = False


class PluginFault(NamedTuple):
    """What a plugin of a user did wrong in a cycle, first time at this extension point; ``text`` is one line."""

    plugin: str
    point: str
    text: str
