"""The owners of fields: ``metadata.managedFields``, as updates and applies change it.

Source: ``k8s.io/apimachinery/pkg/util/managedfields``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.codec.fields import shape_of
from muster.sandbox.core.identities import timestamp
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.request_info import RequestInfo
from muster.sandbox.core.store import Object
from muster.sandbox.fieldmanager.fieldsets import Fields, difference, minus, of_value, union

Json = dict[str, Any]

BEFORE_FIRST_APPLY: Final = "before-first-apply"
_NOT_OWNED: Final = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion",
    "deletionTimestamp", "deletionGracePeriodSeconds",
})  # fmt: skip


class Manager(Struct, frozen=True):
    """Who changes fields, and how."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


class Owned(Struct, frozen=True):
    """What a manager owns, and since when."""

    fields: Fields
    time: str


Owners = dict[Manager, Owned]


class Ownership:
    """Keeps managedFields of what clients and controllers write."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def created(self, info: RequestInfo, obj: Json) -> None:
        """Return a new object, in place, to who creates it."""
        if info.applies:
            return
        fields = of_value(ownable(info.resource, obj, ""), shape_of(info.resource), inner=True)
        if fields:
            obj["metadata"]["managedFields"] = [_entry(updater(info), Owned(fields, timestamp(self._now())))]
        else:
            obj["metadata"].pop("managedFields", None)

    def updated(self, info: RequestInfo, obj: Json, old: Object) -> None:
        """Return what an update changes, in place, to who changes it, and take it from everybody else."""
        if info.applies:
            return
        subresource = info.target.subresource
        metadata = obj["metadata"]
        given = metadata.get("managedFields")
        live = old["metadata"].get("managedFields")
        if subresource or given is None or given is live:
            owners = read(live)
        elif given in ([], [{}]):
            owners = {}  # the way to have ownership forgotten
        else:
            owners = read(given) or read(live)
        if not owners:
            # Nobody is known to own anything: that begins with an apply only.
            metadata.pop("managedFields", None)
            return
        before, after = (ownable(info.resource, each, subresource) for each in (old, obj))
        changed, removed = difference(before, after, shape_of(info.resource))
        if changed is not None or removed is not None:
            # Of a custom resource's scale the real server doesn't say when.
            now = "" if info.resource.custom and subresource == "scale" else timestamp(self._now())
            owners = _handed_over(owners, updater(info), changed, removed, now)
        entries = written(owners)
        if entries:
            metadata["managedFields"] = entries
        else:
            metadata.pop("managedFields", None)


def updater(info: RequestInfo) -> Manager:
    """Return the manager that a call's update makes its fields' owner."""
    return Manager(info.manager or "unknown", "Update", info.resource.api_version, info.target.subresource)


def ownable(resource: Resource, obj: Json, subresource: str) -> Json:
    """Return the part of an object that writes of this kind may own."""
    if subresource == "status":
        part = {"status": obj["status"]} if "status" in obj else {}
        if resource.custom:
            return part  # of custom resources the status alone; of built-in ones labels and the like too
    else:
        part = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata", "status"}}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _NOT_OWNED}
    if metadata:
        part["metadata"] = metadata
    return part


def _handed_over(owners: Owners, manager: Manager, changed: Fields | None, removed: Fields | None, now: str) -> Owners:
    result: Owners = {}
    for each, owned in owners.items():
        left = minus(minus(owned.fields, removed), None if each == manager else changed)
        if left:
            result[each] = Owned(left, owned.time)
    if changed is not None:
        mine = result.get(manager)
        whole = union(mine.fields if mine else None, changed) or {}
        # The time of a change to the values only counts too: it says when the manager last acted.
        result[manager] = Owned(whole, now)
    return result


# ── the form in objects ──────────────────────────────────────────────────────────────────────────────────────────


def read(entries: list[Json] | None) -> Owners:
    """Read managedFields; entries that aren't such are left out."""
    owners: Owners = {}
    for entry in entries or ():
        fields = entry.get("fieldsV1")
        if isinstance(fields, dict) and fields and entry.get("operation") in {"Apply", "Update"}:
            manager = Manager(
                entry.get("manager", ""), entry["operation"], entry.get("apiVersion", ""), entry.get("subresource", "")
            )
            owners[manager] = Owned(fields, entry.get("time", ""))
    return owners


def written(owners: Owners) -> list[Json]:
    """Return managedFields: applies first, then by time and name."""
    order = sorted(owners.items(), key=lambda item: (item[0].operation, item[1].time, item[0].name))
    return [_entry(manager, owned) for manager, owned in order]


def _entry(manager: Manager, owned: Owned) -> Json:
    entry: Json = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        **({"time": owned.time} if owned.time else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.fields,
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry
