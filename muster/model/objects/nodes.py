"""Nodes and their taints."""

from __future__ import annotations

from msgspec import field

from muster.model.objects.metadata import ApiStruct, Condition, Json, Object


class Taint(ApiStruct, frozen=True, kw_only=True):
    """Why pods should keep off a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    """A node's spec."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class ContainerImage(ApiStruct, frozen=True, kw_only=True):
    """An image a node has, for those who score by it."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """A node's status."""

    capacity: dict[str, Json] | None = None
    allocatable: dict[str, Json] | None = None
    conditions: tuple[Condition, ...] | None = None
    images: tuple[ContainerImage, ...] | None = None


class Node(Object, frozen=True, kw_only=True):
    """core/v1 Node."""

    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)
