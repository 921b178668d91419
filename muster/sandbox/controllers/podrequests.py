"""What a pod asks of its node, as kubelet and scheduler count it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from muster.model.amounts import NANO, NOTHING, Resources
from muster.sandbox.store import Object

_ONE_POD: Final = Resources({"pods": NANO})


def requests(pod: Object) -> Resources:
    """Give the pod's requests and one of ``pods``.

    Containers and sidecars run side by side, so they add up; init containers run one after the other, each beside the
    sidecars that started before it, so the largest counts. Overhead comes on top; pod-level requests go first.
    """
    spec = pod["spec"]
    beside, peak = NOTHING, NOTHING
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            beside += own
            peak = peak.maximum(beside)
        else:
            peak = peak.maximum(beside + own)
    total = _sum([beside, *(_requests(container) for container in spec["containers"])]).maximum(peak)
    level = (spec.get("resources") or {}).get("requests") or {}
    total = Resources({**total.nano, **Resources.parse(level).nano})
    return total + Resources.parse(spec.get("overhead")) + _ONE_POD


def _requests(container: Object) -> Resources:
    return Resources.parse((container.get("resources") or {}).get("requests"))


def _sum(amounts: Iterable[Resources]) -> Resources:
    total = NOTHING
    for each in amounts:
        total += each
    return total


class Held:
    """How much of each node is taken, kept up pod by pod."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Resources]] = {}
        self._nodes: dict[str, Resources] = {}

    def take(self, uid: str, node: str, amount: Resources) -> None:
        """Count a pod on a node, once."""
        if uid not in self._pods:
            self._pods[uid] = (node, amount)
            self._nodes[node] = self.on(node) + amount

    def give_back(self, uid: str) -> None:
        """Count a pod no longer, if it was counted."""
        if uid in self._pods:
            node, amount = self._pods.pop(uid)
            self._nodes[node] -= amount

    def holds(self, uid: str) -> bool:
        """Whether a pod is counted."""
        return uid in self._pods

    def on(self, node: str) -> Resources:
        """Give what is taken of a node."""
        return self._nodes.get(node, NOTHING)

    def short(self, node: str, amount: Resources, allocatable: Resources) -> list[str]:
        """Give the names of what the node has too little of for ``amount`` more."""
        return list((self.on(node) + amount.positive()).only(amount.positive()).missing_from(allocatable))
