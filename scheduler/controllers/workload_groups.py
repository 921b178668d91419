"""The groups of Deployments, StatefulSets and operators' objects: made from the object when it is applied, as a Job's is.

So a group reserves its minimum before there are pods, and follows what its object says later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import structs

from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.workqueue import WorkQueue
from muster.model import grouping, workloads
from muster.model.gangs import DescribedGang, gangs_of
from muster.model.kinds import Kind, ObjectKey
from muster.model.objects import Json, Object, OwnerReference, PodGroup, Workload
from muster.model.workloads import WorkloadKind, WorkloadObject
from scheduler.controllers.generated_groups import GeneratedGroups, GroupSource
from scheduler.controllers.served_kinds import ServedKinds
from scheduler.model.snapshot import Phase
from scheduler.state import conversion
from scheduler.state.informers import Informers

_RESOURCES: Final = "minResources"
_ENDED: Final = frozenset({"Complete", "Completed", "Error", "Failed", "Finished", "Succeeded"})
"""How the statuses of operators' objects call that nothing more is made from them."""


class CustomWorkload(WorkloadObject, frozen=True, kw_only=True):
    """An operator's object, with its status."""

    status: Mapping[str, Json] | None = None


_BUILTIN: Final[Mapping[Kind[Any], WorkloadKind]] = {
    each.kind: each for each in (workloads.DEPLOYMENT, workloads.STATEFULSET, workloads.REPLICASET)
}
_OPERATORS: Final[Mapping[Kind[Any], WorkloadKind]] = {
    structs.replace(each.kind, struct=CustomWorkload): each for each in workloads.OPERATORS if each.templates
}
_KINDS: Final[Mapping[Kind[Any], WorkloadKind]] = {**_BUILTIN, **_OPERATORS}
_BY_NAME: Final[Mapping[tuple[str, str], Kind[Any]]] = {(kind.api_version, kind.name): kind for kind in _KINDS}


class WorkloadController:
    """Makes the groups of workloads, and changes them as the workloads change."""

    def __init__(
        self, client: Client, informers: Informers, generated: GeneratedGroups, scheduler_names: Sequence[str]
    ) -> None:
        self._client = client
        self._informers = informers
        self._generated = generated
        self._names = frozenset(scheduler_names)
        self._work: WorkQueue[ObjectKey] = WorkQueue("group of workload", self._reconcile)
        self._served = ServedKinds(client, tuple(_OPERATORS), self._on_change)
        for kind in _BUILTIN:
            informers.cache(kind).subscribe(partial(self._on_change, kind))
        for cache in informers.groups.values():
            cache.subscribe(self._on_group)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work.run(), name="groups of workloads")
            group.create_task(self._served.run(), name="kinds of operators")

    def takes_over(self, owner: OwnerReference, namespace: str) -> bool:
        """Whether the group of an owner is made from the owner itself, and not from its pods; it is made soon then."""
        kind = _BY_NAME.get((owner.api_version, owner.kind))
        item = self._find(ObjectKey(kind, namespace, owner.name)) if kind is not None else None
        if kind is None or item is None or item.metadata.uid != owner.uid or self._gang(kind, item) is None:
            return False
        self._work.add(ObjectKey(kind, namespace, owner.name))
        return True

    # ── what to look at ──────────────────────────────────────────────────────────────────────────────────────────

    def _on_change(self, kind: Kind[Any], change: ObjectChange[Any]) -> None:
        old, new = change.old, change.new
        if new is not None and (old is None or not _read_alike(old, new)) and self._gang(kind, new) is not None:
            self._work.add(ObjectKey(kind, new.namespace, new.name))

    def _on_group(self, change: ObjectChange[PodGroup]) -> None:
        """Have a group that is gone made again, and one that is started again brought up to date."""
        old, new = change.old, change.new
        if old is None or (
            new is not None and not (conversion.phase_of(old) is Phase.COMPLETED is not conversion.phase_of(new))
        ):
            return
        for owner in old.metadata.owner_references or ():
            if old.name == grouping.generated_name(owner.uid):
                self.takes_over(owner, old.namespace)

    def _find(self, ref: ObjectKey) -> Object | None:
        cache = self._informers.cache(ref.kind) if ref.kind in _BUILTIN else self._served.cache(ref.kind)
        found: Object | None = cache.get(ref.name, ref.namespace) if cache is not None else None
        return found

    def _gang(self, kind: Kind[Any], item: Object) -> DescribedGang | None:
        """Return the gang whose group stands for an object, where pods of ours are made from it now and name no group."""
        if item.metadata.deletion_timestamp is not None or not self._may_be_ours(item) or not _is_active(item):
            return None
        try:
            found = gangs_of(_KINDS[kind], _untyped(item), self._generated.rules())
        except msgspec.ValidationError:
            return None  # Its operator says what is wrong with it.
        own = next((each for each in found if each.own and each.tasks), None)
        if (
            own is None
            or own.group()
            or own.in_native_group()
            or not own.at_once
            or self._names.isdisjoint(own.scheduler_names)
        ):
            return None
        return own

    def _may_be_ours(self, item: Object) -> bool:
        """Whether it is worth reading: most Deployments of a cluster are none of ours."""
        return not isinstance(item, Workload) or item.spec.template.spec.scheduler_name in self._names

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _reconcile(self, ref: ObjectKey) -> None:
        item = self._find(ref)
        gang = self._gang(ref.kind, item) if item is not None else None
        if item is None or gang is None:
            return
        source = GroupSource(
            ref.kind,
            item,
            _reference(ref.kind, item),
            gang.metas,
            gang.tasks[0].template.spec,
            partial(gang.need, devices=self._generated.devices(ref.namespace)),
            followed=True,
        )
        found = self._informers.find_group(ref.namespace, grouping.generated_name(item.metadata.uid))
        if found is None:
            await self._generated.make(source, partial(self._work.add, ref))
        else:
            await self._generated.follow(source, found[1])


def _reference(kind: Kind[Any], item: Object) -> OwnerReference:
    return OwnerReference(api_version=kind.api_version, kind=kind.name, name=item.name, uid=item.metadata.uid)


def _untyped(item: Object) -> WorkloadObject:
    if isinstance(item, WorkloadObject):
        return item
    assert isinstance(item, Workload)
    return WorkloadObject(metadata=item.metadata, spec=msgspec.to_builtins(item.spec))


def _read_alike(old: Any, new: Any) -> bool:
    """Whether two versions of an object describe the same gang; their statuses may differ."""
    return bool(
        old.spec == new.spec
        and old.metadata.annotations == new.metadata.annotations
        and old.metadata.owner_references == new.metadata.owner_references
    )


def _is_active(item: Object) -> bool:
    """Whether pods are made from an operator's object now: it is neither suspended nor over."""
    if not isinstance(item, CustomWorkload):
        return True
    policy, status = item.spec.get("runPolicy"), item.status or {}
    if item.spec.get("suspend") is True or (isinstance(policy, dict) and policy.get("suspend") is True):
        return False
    state, conditions = status.get("applicationState"), status.get("conditions")
    words = [
        *(status.get(field) for field in ("phase", "jobDeploymentStatus", "terminalState")),
        *([state.get("state")] if isinstance(state, dict) else []),
        *(each.get("type") for each in conditions or () if isinstance(each, dict) and each.get("status") == "True"),
    ]
    return _ENDED.isdisjoint(str(word).capitalize() for word in words if word)
