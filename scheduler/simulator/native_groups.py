"""PodGroups of Kubernetes' own in the objects of a simulation: the groups that stand for them, as the controller would make them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model import grouping, kinds, names, native_groups
from muster.model.amounts import QuantityError
from muster.model.kinds import Kind
from muster.model.objects import Meta, NativePodGroup, Pod
from muster.model.text import counted
from scheduler.controllers.manifests import of_native
from scheduler.simulator import state
from scheduler.simulator.state import UnreadableObjectError

_Raw = Mapping[str, Any]
_Place = tuple[str, str]


class JoinedObjects(Struct, frozen=True):
    """Objects in which pods of native groups have joined a group of Muster's; ``notes`` says which are left out, and why."""

    objects: tuple[_Raw, ...]
    notes: tuple[str, ...] = ()


def join(objects: Sequence[_Raw], schedulers: Sequence[str]) -> JoinedObjects:
    """Add the groups that stand for native ones, and have their pods join them. Pods that would wait for good are left out.

    Raises:
        UnreadableObjectError: a native group, or one of its pods, isn't what its kind says.
    """
    members: dict[_Place, list[int]] = defaultdict(list)
    pods: dict[int, Pod] = {}
    for at, raw in enumerate(objects):
        if (pod := _member(raw, schedulers)) is not None:
            members[pod.namespace, grouping.native_group(pod.spec.scheduling_group)].append(at)
            pods[at] = pod
    if not members:
        return JoinedObjects(tuple(objects))
    natives = {(each.namespace, each.name): each for each in _read(objects, kinds.NATIVE_PODGROUPS)}
    spaces: dict[str, Meta] = {each.name: each.metadata for each in _read(objects, kinds.NAMESPACES)}
    there = {(each.namespace, each.name) for each in _read(objects, kinds.PODGROUPS)}
    found, made, notes = dict[int, _Raw | None](), list[_Raw](), list[str]()
    for place, mine in members.items():
        native = natives.get(place)
        wrong = native_groups.not_evaluated(native) if native is not None else native_groups.absent_text(place[1])
        if wrong or native is None:
            found |= dict.fromkeys(mine)
            notes.append(f"{counted(len(mine), 'pod')} left out: {wrong}")
            continue
        group = grouping.generated_name(native.metadata.uid)
        found |= {at: _joined(objects[at], group) for at in mine}
        if (native.namespace, group) not in there:
            above = [spaces[native.namespace]] if native.namespace in spaces else []
            made.append(_manifest(native, [pods[at] for at in mine], above))
    kept = (found.get(at, raw) for at, raw in enumerate(objects))
    rest = [raw for raw in kept if raw is not None and state.kind_of(raw, (kinds.NATIVE_PODGROUPS,)) is None]
    return JoinedObjects((*made, *rest), tuple(notes))


def _member(raw: _Raw, schedulers: Sequence[str]) -> Pod | None:
    """Read a pod of ours that names a native group, and no other; None where it isn't one."""
    spec = raw.get("spec")
    if raw.get("kind") != kinds.PODS.name or not isinstance(spec, Mapping) or not spec.get("schedulingGroup"):
        return None
    if state.kind_of(raw, (kinds.PODS,)) is None:
        return None
    pod: Pod = state.decoded(kinds.PODS, raw)
    ours = pod.spec.scheduler_name in schedulers and not grouping.group_of(pod.metadata)
    return pod if ours and grouping.native_group(pod.spec.scheduling_group) else None


def _read(objects: Sequence[_Raw], kind: Kind[Any]) -> Iterator[Any]:
    """Read the objects of a kind; one without a namespace is in ``default``, and one without a uid has its name for one."""
    for raw in objects:
        if state.kind_of(raw, (kind,)) is not None:
            one = state.decoded(kind, raw)
            metadata = replace(
                one.metadata,
                namespace=one.metadata.namespace or ("default" if kind.namespaced else ""),
                uid=one.metadata.uid or one.metadata.name,
            )
            yield replace(one, metadata=metadata)


def _joined(raw: _Raw, group: str) -> _Raw:
    metadata = raw.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), names.GROUP_NAME: group}
    return {**raw, "metadata": {**metadata, "annotations": annotations}}


def _manifest(native: NativePodGroup, pods: Sequence[Pod], above: Sequence[Meta]) -> _Raw:
    try:
        body = of_native(native, [pod.spec for pod in pods], above)
    except QuantityError as error:
        raise UnreadableObjectError(f"PodGroup {native.name}: the pods' request can't be read: {error}") from error
    meta: dict[str, Any] = {**body["metadata"], "namespace": native.namespace}
    if native.metadata.creation_timestamp is not None:
        meta["creationTimestamp"] = msgspec.to_builtins(native.metadata.creation_timestamp)
    kind = kinds.PODGROUPS
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": body["spec"]}
