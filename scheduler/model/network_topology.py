"""Values of the network: the closeness that groups ask for their pods, and the HyperNodes that describe it."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from msgspec import Struct

from muster.model.objects import HyperNode

_MOST_TIERS: Final = 64
SubGroupKey = tuple[int, tuple[str, ...]]
"""Which subgroup of its group a pod is in: the place of its policy, and the values of the labels that the policy matches."""


class TopologyConstraint(Struct, frozen=True):
    """Pods that belong close together.

    Attributes:
        required: they wait until they can be; else they are put as close as they can be now.
        highest_tier: the largest domain that will do, by the number of its tier; None where that isn't limited by number.
        tier_name: the same by the tier's name; empty where that isn't limited by name.
    """

    required: bool
    highest_tier: int | None = None
    tier_name: str = ""

    @property
    def reach(self) -> float:
        """How far apart they may be, to compare: the number of the tier; of one that is named nobody knows that here, so more than any."""
        return float(_MOST_TIERS if self.highest_tier is None else self.highest_tier)


class SubGroups(Struct, frozen=True):
    """Subgroups that one policy divides pods into.

    Attributes:
        size: how many pods of one start together.
        minimum: how many of them start with the group.
        topology: how close the pods of one belong.
    """

    name: str
    size: int = 1
    minimum: int = 0
    topology: TopologyConstraint | None = None


class HyperNodes(Struct, frozen=True, eq=False):
    """All HyperNodes of a cluster, in the order of their names. Compared by identity: one that changed makes another value."""

    items: tuple[HyperNode, ...] = ()

    @classmethod
    def of(cls, items: Iterable[HyperNode]) -> HyperNodes:
        """Sort HyperNodes."""
        return cls(tuple(sorted(items, key=attrgetter("name"))))


NO_HYPERNODES: Final = HyperNodes()
