"""Pods as they are kept: with what was made of each, and what a new version of one tells."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from muster.model.objects import Pod
from scheduler.model.snapshot import Task
from scheduler.state import conversion
from scheduler.state.aggregated_pods import GroupName


class PodChange(Enum):
    """What a pod's new version tells of it."""

    NONE = "nothing that we didn't bring about ourselves"
    ARRIVED = "the last binding of its group arrived: from now on its pods may be evicted"
    CHANGE = "it is otherwise than it was"


class IndexedPod(NamedTuple):
    """A pod, and what was made of it."""

    pod: Pod
    task: Task
    group_name: GroupName | None

    @property
    def uses(self) -> bool:
        """Whether it takes something of a node."""
        return bool(self.task.node) and self.alive

    @property
    def alive(self) -> bool:
        """Whether it hasn't ended."""
        return self.task.status not in conversion.ENDED


class AssumedPod(NamedTuple):
    """Where a pod goes whose binding is on the way, and which group it was bound for."""

    node: str
    group_name: GroupName | None
