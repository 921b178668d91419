"""Values about evictions that go from one cycle to the next: the places that they make, and the pauses after refusals."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from scheduler.model.tasks import TaskClass


class KeptPlace(NamedTuple):
    """A place on a node, for a pod of this class and role."""

    node: str
    task_class: TaskClass
    role: str


class KeptPlaces(NamedTuple):
    """Places for the pods of a group, of which some don't exist yet.

    ``since`` is in seconds of the epoch. ``uid`` is that of the group.
    """

    uid: str
    places: tuple[KeptPlace, ...]
    since: float


class EvictionPause(Struct, frozen=True):
    """How long nobody is evicted for a group, since the eviction of a pod for it was refused.

    Attributes:
        tries: how often that happened in a row.
        until: when evictions may be tried again, in seconds of the epoch.
        reason: what the API server said.
    """

    tries: int
    until: float
    reason: str
