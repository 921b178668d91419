"""The resources that classes of devices stand for: pods request these in their containers, and need no claim.

Source: ``k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from muster.model.objects import DeviceClass

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""How the resource begins that every class stands for; the class's name follows."""


class StandIn(NamedTuple):
    """A class of devices: when it was made, in seconds of the epoch, and the resource that it stands for beside its implicit one."""

    name: str
    created: float = 0.0
    resource: str = ""


def class_of(class_: DeviceClass) -> StandIn:
    """Read what a class stands for."""
    created = class_.metadata.creation_timestamp
    stated = str((class_.spec or {}).get("extendedResourceName") or "")
    return StandIn(class_.name, created.timestamp() if created is not None else 0.0, stated)


def stood_for(classes: Iterable[StandIn]) -> dict[str, str]:
    """Return the classes by the resources that they stand for: of several the newest, then the first by name."""
    found = dict[str, str]()
    for each in sorted(classes, key=lambda one: (-one.created, one.name)):
        found[f"{IMPLICIT}{each.name}"] = each.name
        if each.resource:
            found.setdefault(each.resource, each.name)
    return found


def of(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return the same of classes as they are stored."""
    return stood_for(map(class_of, classes))
