"""The pods that a group is generated for, as far as they are known when it is."""

from __future__ import annotations

import asyncio
from typing import Final

from muster.model.objects import Pod, PodSpec
from scheduler.state import conversion
from scheduler.state.informers import BY_CONTROLLER, Informers

_MOMENT: Final = 3.0
"""Seconds that the other pods of a gang may come after the first, which may be the one that asks for most."""


class ControllerPods:
    """Finds the pods of a pod's controller, and says how long others are worth waiting for."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._until: dict[str, float] = {}

    def known(self, pod: Pod) -> list[PodSpec]:
        """Return what the pods of its controller ask for, itself among them, in the order of their creation."""
        controller = pod.metadata.controller()
        if controller is None:
            return [pod.spec]
        found = self._informers.pods.indexed(BY_CONTROLLER, controller.uid)
        alive = [each for each in found if each.metadata.deletion_timestamp is None]
        return [each.spec for each in sorted(alive, key=_age)] or [pod.spec]

    def missing(self, pod: Pod, minimum: int) -> float:
        """Return for how many seconds a group of so many pods is not to be made yet; zero where it is.

        What makes pods of one template makes them alike, so that one tells for all.
        """
        controller = pod.metadata.controller()
        if controller is None or conversion.replaced(pod) or len(self.known(pod)) >= minimum:
            return 0.0
        now = asyncio.get_running_loop().time()
        until = self._until.setdefault(controller.uid, now + _MOMENT)
        return max(0.0, until - now)

    def made(self, pod: Pod) -> None:
        """Learn that the group of a pod's controller is there."""
        controller = pod.metadata.controller()
        if controller is not None:
            self._until.pop(controller.uid, None)


def _age(pod: Pod) -> tuple[str, str]:
    created = pod.metadata.creation_timestamp
    return str(created or ""), pod.name
