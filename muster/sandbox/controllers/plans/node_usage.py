"""The usage of nodes by pods, as kubelet and scheduler count it. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from muster.model.amounts import NANO, NOTHING, Resources
from muster.model.objects import PodSpec
from muster.model.requests import pod_request
from muster.sandbox.core.store import Object

_ONE_POD: Final = Resources({"pods": NANO})


def requests(pod: Object) -> Resources:
    """Return the pod's requests, and one of ``pods``."""
    return pod_request(msgspec.convert(pod["spec"], PodSpec)) + _ONE_POD


class NodeUsage:
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
        """Return what is taken of a node."""
        return self._nodes.get(node, NOTHING)

    def short(self, node: str, amount: Resources, allocatable: Resources) -> list[str]:
        """Return the names of what the node has too little of for ``amount`` more."""
        return list((self.on(node) + amount.positive()).only(amount.positive()).missing_from(allocatable))
