"""The container images of each node, kept node by node. Nodes report at most some fifty each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from muster.model.objects import Container, Node

_LATEST: Final = ":latest"


class NodeImages:
    """By image, its size in bytes on each node that has it. Views that were given out stay as they were."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, int]] = {}
        self._on: dict[str, dict[str, int]] = {}
        self._shown: Mapping[str, Mapping[str, int]] = {}
        self._dirty: set[str] = set()

    def node(self, node: Node, *, gone: bool) -> None:
        """Learn of a node's images."""
        images = () if gone else node.status.images or ()
        new = {name: each.size_bytes for each in images for name in each.names or ()}
        old = self._on.pop(node.name, {})
        if new:
            self._on[node.name] = new
        for name in old.keys() | new.keys() if old != new else ():
            if old.get(name) != new.get(name):
                self._put(name, node.name, new.get(name))

    def _put(self, image: str, node: str, size: int | None) -> None:
        there = self._of.setdefault(image, {})
        if size is None:
            there.pop(node, None)
        else:
            there[node] = size
        if not there:
            del self._of[image]
        self._dirty.add(image)

    def view(self) -> Mapping[str, Mapping[str, int]]:
        """Return the present state; shares with the last one what didn't change."""
        if self._dirty:
            shown = dict(self._shown)
            for name in self._dirty:
                if name in self._of:
                    shown[name] = dict(self._of[name])
                else:
                    shown.pop(name, None)
            self._shown = shown
            self._dirty.clear()
        return self._shown


def of_containers(containers: Iterable[Container]) -> tuple[str, ...]:
    """Return the images of containers as nodes name them, in order: one without a tag is of the tag latest."""
    return tuple(sorted(_tagged(each.image) for each in containers if each.image))


def _tagged(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else image + _LATEST
