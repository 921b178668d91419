"""The PodGroup that is generated for a workload that names none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from muster.model import grouping, kinds, names, native_groups, scopes
from muster.model.amounts import Resources
from muster.model.device_quota import NO_DEVICES, DeviceNeed
from muster.model.objects import Meta, NativePodGroup, OwnerReference, PodSpec
from muster.model.requests import pod_request


class Description(Struct, frozen=True):
    """What a workload says of its group: fields of its spec, and the traits of its pods."""

    spec: Mapping[str, Any]
    traits: str = ""


def podgroup(
    owner: OwnerReference,
    metas: Sequence[Meta],
    template: PodSpec,
    need: Callable[[int], Resources] | None = None,
    *,
    followed: bool = False,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write the PodGroup generated for ``owner``; ``metas`` are read for annotations, the nearest first.

    Where these don't say what it needs it is what so many pods as its minimum ``need``, by default each as the template
    says. ``followed``: note on it what was
    described, so that a change of the description can be told from what people change in the group. ``annotations``: more of them.

    Raises:
        QuantityError: a request can't be read.
    """
    member, _ = grouping.min_member(*metas)
    stated, _ = grouping.min_resources(*metas)
    topology, _ = grouping.network_topology(*metas)
    need = need or partial(estimate, [template])
    amounts = stated if stated is not None else need(member)
    spec = {
        "minMember": member,
        "queue": grouping.queue_name(*metas),
        "minResources": amounts.quantities(),
        **({"priorityClassName": template.priority_class_name} if template.priority_class_name else {}),
        **({"networkTopology": topology} if topology is not None else {}),
    }
    noted = noted_on_group(Description(spec, scopes.scope_facts(template)))
    if not followed:
        del noted[names.DESCRIBED]
    return {
        "metadata": {
            "name": grouping.generated_name(owner.uid),
            "annotations": {
                # The same answers as admission's, for whom what this group holds was or wasn't reserved already.
                **noted,
                **(annotations or {}),
                names.OWNER: f"{owner.kind} {owner.name}",
                **({names.QUOTA_POLICY: names.POLICY_QUEUE} if grouping.reserves_late(*metas) else {}),
            },
            "ownerReferences": [
                {
                    "apiVersion": owner.api_version,
                    "kind": owner.kind,
                    "name": owner.name,
                    "uid": owner.uid,
                    "controller": True,
                }
            ],
        },
        "spec": spec,
    }


def of_native(
    native: NativePodGroup, pods: Sequence[PodSpec], above: Sequence[Meta], devices: DeviceNeed = NO_DEVICES
) -> dict[str, Any]:
    """Write the PodGroup that stands for one of Kubernetes' own with these pods; ``above``: its owners and the namespace.

    ``devices``: gives what a pod's claims on devices take of quotas.

    Raises:
        QuantityError: a request can't be read.
    """
    noted, metas = native_groups.noted(native), [native_groups.described(native), *above]
    need = partial(native_need, native, pods, devices=devices)
    return podgroup(native_owner(native), metas, native_template(native, pods), need, followed=True, annotations=noted)


def native_need(native: NativePodGroup, pods: Sequence[PodSpec], member: int, devices: DeviceNeed) -> Resources:
    """Return what so many pods of a native group need: claims that they share once, all else for each.

    Raises:
        QuantityError: a request can't be read.
    """
    shared = native.spec.resource_claims
    alone = [native_groups.without_shared(shared, each) for each in pods]
    return estimate(alone, member, devices) + devices(PodSpec(resource_claims=shared))


def native_owner(native: NativePodGroup) -> OwnerReference:
    """Write a PodGroup of Kubernetes' own as the owner of the group that stands for it."""
    kind = kinds.NATIVE_PODGROUPS
    return OwnerReference(api_version=kind.api_version, kind=kind.name, name=native.name, uid=native.metadata.uid)


def native_template(native: NativePodGroup, pods: Sequence[PodSpec]) -> PodSpec:
    """Return what stands for its pods: the first, but with the priority of the group, which counts whatever theirs is."""
    return structs.replace(pods[0], priority_class_name=native.spec.priority_class_name)


def without_reservation(body: dict[str, Any]) -> dict[str, Any]:
    """Write a group that `podgroup` wrote so that it holds nothing, and says what it waits for."""
    metadata, spec = body["metadata"], body["spec"]
    wanted = wanted_by(spec["minResources"])
    return {
        "metadata": {**metadata, "annotations": {**metadata["annotations"], **wanted}},
        "spec": {field: value for field, value in spec.items() if field != "minResources"},
    }


def wanted_by(amounts: Mapping[str, Any]) -> dict[str, str]:
    """Write the annotation with which a group waits for its minimum."""
    return {names.WANTED_RESOURCES: msgspec.json.encode(amounts).decode()}


def noted_on_group(described: Description) -> dict[str, str]:
    """Write what was described as annotations of the group."""
    return {names.POD_TRAITS: described.traits, names.DESCRIBED: msgspec.json.encode(described).decode()}


def described(body: dict[str, Any]) -> Description:
    """Return what a group that `podgroup` wrote to be followed was described as."""
    return Description(body["spec"], body["metadata"]["annotations"][names.POD_TRAITS])


def description(group: Meta) -> Description | None:
    """Return what was described when a group was made or changed last; None where nothing is noted on it."""
    try:
        return msgspec.json.decode(group.annotation(names.DESCRIBED), type=Description)
    except (msgspec.DecodeError, RecursionError):
        return None


def estimate(known: Sequence[PodSpec], member: int, devices: DeviceNeed = NO_DEVICES) -> Resources:
    """Return what the first of the ``known`` pods request; those that nobody has seen yet are taken to be like the last one.

    ``devices``: gives what a pod's claims on devices take of quotas.

    Raises:
        QuantityError: a request can't be read.
    """
    requests = [pod_request(each) + devices(each) for each in known[: max(member, 1)]]
    return sum(requests[:member], requests[-1] * max(member - len(requests), 0))


def warnings(metas: Sequence[Meta]) -> list[str]:
    """Say which annotations can't be meant as they are written."""
    return list(grouping.warnings(*metas))
