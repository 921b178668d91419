"""The workload that a PodGroup is generated for, as an event names its object: of any kind, by the owner reference."""

from __future__ import annotations

from typing import Any, Final

from muster.model import grouping, kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Condition, Meta, Object, OwnerReference
from muster.model.text import counted

ABSENT_SECONDS: Final = 10.0
"""How long a PodGroup that people name may be missing before events say so: what is applied together comes in any order."""

CREATED: Final = "PodGroupCreated"
HELD: Final = "Held"
"""Reason of the event that no pod may start yet."""
STARTED: Final = "Started"
"""Reason of the event that the minimum of pods runs."""


def as_object(owner: OwnerReference, namespace: str) -> tuple[Kind[Any], Object]:
    """Return the kind and the metadata of an owner as far as a reference tells them; its plural is not known."""
    group, _, version = owner.api_version.rpartition("/")
    kind: Kind[Any] = Kind(group, version, owner.kind.lower(), owner.kind, Object)
    return kind, Object(metadata=Meta(name=owner.name, namespace=namespace, uid=owner.uid))


def generated_for(group: Meta) -> tuple[Kind[Any], Object] | None:
    """Return the workload that a group was generated for; None for a group that people wrote, or of one pod alone.

    A pod has events of its own, which say the same.
    """
    owner = next(iter(group.owner_references or ()), None)
    if owner is None or not grouping.owner_of(group) or owner.kind == kinds.PODS.name:
        return None
    return as_object(owner, group.namespace)


def created_text(queue: str, minimum: int) -> str:
    """Say which group was made."""
    return f"Its PodGroup is in queue {queue} and needs {counted(minimum, 'pod')} to start"


def held_text(queue: str, wrong: Condition | None) -> str:
    """Say what a workload waits for."""
    return f"Waits in queue {queue}" + (f": {wrong.message}" if wrong is not None else "")


def absent_text(group: str) -> str:
    """Say that what waits names a group that isn't there."""
    return f"PodGroup {group} does not exist: create it, or remove the annotation {names.GROUP_NAME}"
