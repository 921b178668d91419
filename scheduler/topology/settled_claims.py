"""Classes of pods whose claims all have devices: nodes tell them apart by nothing but who reaches these."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from scheduler.model.claims import ChosenDevices
from scheduler.model.constraints import Constraints
from scheduler.model.snapshot import TaskClass


class SettledClasses:
    """Numbers what such classes have in common, so that many gangs that share a claim each are asked about as one.

    Args:
        waits: whether a class has a claim without devices, or one that something is wrong with.
        held: what its claims have.
    """

    def __init__(
        self, waits: Callable[[TaskClass], bool], held: Callable[[Constraints], Iterable[ChosenDevices]]
    ) -> None:
        self._waits, self._held = waits, held
        self._known: dict[TaskClass, int] = {}
        self._unsettled: set[TaskClass] = set()
        self._numbers: dict[Hashable, int] = {}

    def number(self, kind: TaskClass) -> int | None:
        """Return the number, which isn't 0, of all classes that are like one; None where it waits."""
        known = self._known.get(kind)
        if known is not None or kind in self._unsettled:
            return known
        if self._waits(kind):
            self._unsettled.add(kind)
            return None
        reach = frozenset(each.reach for each in self._held(kind.constraints))
        what = kind.request, beside_claims(kind.constraints), reach
        self._known[kind] = found = self._numbers.setdefault(what, 1 + len(self._numbers))
        return found

    def chosen(self) -> None:
        """Note that some claim got devices."""
        self._unsettled.clear()

    def undone(self) -> None:
        """Note that some claim has none any more."""
        self._known.clear()


def beside_claims(demands: Constraints) -> Hashable:
    """Return all that nodes are judged by but for the ResourceClaims."""
    stated = demands.of_nodes, demands.ports, demands.unsupported, demands.images, demands.claims, demands.peers
    return (*stated, demands.pod_terms.signature)
