"""The pods that a group is generated for, as far as they are known when it is."""

from __future__ import annotations

import asyncio
from typing import Final

from muster.model import grouping
from muster.model.objects import Pod, PodSpec
from scheduler.state import conversion
from scheduler.state.informers import BY_CONTROLLER, BY_NATIVE_GROUP, Informers, group_index_key

_MOMENT: Final = 3.0
"""Seconds that the other pods of a gang may come after the first, which may be the one that asks for most."""


class ControllerPods:
    """Finds the pods of a pod's controller, or of its native group, and says how long others are worth waiting for."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._until: dict[tuple[str, str], float] = {}

    def known(self, pod: Pod) -> list[PodSpec]:
        """Return what the pods of its gang ask for, itself among them, in the order of their creation."""
        siblings = _siblings(pod)
        if siblings is None:
            return [pod.spec]
        found = self._informers.pods.indexed(*siblings)
        alive = [each for each in found if each.metadata.deletion_timestamp is None]
        return [each.spec for each in sorted(alive, key=_age)] or [pod.spec]

    def missing(self, pod: Pod, minimum: int) -> float:
        """Return for how many seconds a group of so many pods is not to be made yet; zero where it is.

        What makes pods of one template makes them alike, so that one tells for all.
        """
        siblings = _siblings(pod)
        if siblings is None or len(self.known(pod)) >= minimum:
            return 0.0
        if siblings[0] == BY_CONTROLLER and conversion.replaced(pod):
            return 0.0
        now = asyncio.get_running_loop().time()
        until = self._until.setdefault(siblings, now + _MOMENT)
        return max(0.0, until - now)

    def made(self, pod: Pod) -> None:
        """Learn that the group of a pod's gang is there."""
        if (siblings := _siblings(pod)) is not None:
            self._until.pop(siblings, None)


def _siblings(pod: Pod) -> tuple[str, str] | None:
    """Return the index and the key of the pods that are one gang with a pod; None where it has no others."""
    if native := grouping.native_group(pod.spec.scheduling_group):
        return BY_NATIVE_GROUP, group_index_key(pod.namespace, native)
    controller = pod.metadata.controller()
    return (BY_CONTROLLER, controller.uid) if controller is not None else None


def _age(pod: Pod) -> tuple[str, str]:
    created = pod.metadata.creation_timestamp
    return str(created or ""), pod.name
