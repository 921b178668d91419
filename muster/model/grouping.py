"""The group of a pod, and the request of the group, from annotations.

Admission and the podgroup controller both answer these questions, at different times, and must answer alike: what is
reserved at a Job's creation is what its generated PodGroup holds later. Annotations are read from the nearest object
that has them: the pod (or pod template), then its owners upward, then the namespace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.model import names, tenant_texts
from muster.model.amounts import QuantityError, Resources
from muster.model.objects import Meta, OwnerReference
from muster.model.text import shown

_MAX_INT32: Final = 2**31 - 1
_SHOWN: Final = 40
_LONGEST_TIER: Final = 317  # A label key: a prefix of 253 characters, a slash, a name of 63.
_GENERATED: Final = "podgroup-"


class OwnerRule(Struct, frozen=True):
    """Which owner a generated group stands for: that of this kind, or so many levels above (+) or below (-) it."""

    api_version: str
    kind: str
    level: int = 0

    def matches(self, owner: OwnerReference) -> bool:
        """Whether ``owner`` is of the rule's kind; the case of a kind doesn't matter."""
        return self.api_version == owner.api_version and self.kind.lower() == owner.kind.lower()


JOB: Final = OwnerRule("batch/v1", "Job")
DEFAULT_RULES: Final = (OwnerRule("apps/v1", "Deployment"), JOB)


def matching_rule(owner: OwnerReference, rules: Sequence[OwnerRule]) -> OwnerRule | None:
    """Return the first rule for the kind of ``owner``."""
    for rule in rules:
        if rule.matches(owner):
            return rule
    return None


def decided(owners: Sequence[OwnerReference], rules: Sequence[OwnerRule]) -> bool:
    """Whether `chosen_owner` would say the same of any longer list."""
    found = ((place, rule) for place, owner in enumerate(owners) if (rule := matching_rule(owner, rules)))
    place, rule = next(found, (len(owners), None))
    return rule is not None and place + rule.level < len(owners)


def chosen_owner(owners: Sequence[OwnerReference], rules: Sequence[OwnerRule]) -> OwnerReference | None:
    """Return the owner that the generated group stands for; None is the pod itself.

    ``owners`` are the pod's controllers, nearest first, up to the root or at least until it is `decided`.
    """
    for place, owner in enumerate(owners):
        if rule := matching_rule(owner, rules):
            chosen = min(place + rule.level, len(owners) - 1)
            return owners[chosen] if chosen >= 0 else None
    return owners[-1] if owners else None


def job_reference(job: Meta) -> OwnerReference:
    """Write a Job (batch/v1) as the owner of its pods."""
    return OwnerReference(api_version=JOB.api_version, kind=JOB.kind, name=job.name, uid=job.uid, controller=True)


def group_of_job(job: Meta, template: Meta) -> str:
    """Name the group that a Job's pods are in: the template's, the one that Muster noted on the Job, the Job's own."""
    return group_of(template) or noted_group(job) or generated_name(job.uid)


def noted_group(job: Meta) -> str:
    """Return the group that Muster noted on a Job for its pods; empty where it noted none.

    A Job that nothing controls owns its group. What it says of another one was copied together with its manifest.
    """
    noted = job.annotation(names.JOB_GROUP)
    if not noted or not tenant_texts.is_subdomain(noted):
        return ""
    return noted if job.controller() is not None or noted == generated_name(job.uid) else ""


def is_foreign(group: Meta) -> bool:
    """Whether a group was made by a controller whose objects tell us nothing of how its job stands."""
    owners = group.owner_references or ()
    owner = group.controller() or (owners[0] if owners else None)
    return owner is not None and not JOB.matches(owner) and group.name != generated_name(owner.uid)


def owns_group(job: Meta, rules: Sequence[OwnerRule]) -> bool:
    """Whether a Job that names no group will surely own one: by its own rule, that of its controller, or as the root.

    Where it isn't sure yet, the controller finds out by reading the owners above.
    """
    above = job.controller()
    if rule := matching_rule(job_reference(job), rules):
        return rule.level == 0 or (rule.level > 0 and above is None)
    if above is None:
        return True
    rule = matching_rule(above, rules)
    return rule is not None and rule.level == -1


def group_of(meta: Meta) -> str:
    """Return the name of the PodGroup that a pod says it belongs to; empty when it doesn't say.

    What no PodGroup can be called names none.
    """
    annotations = meta.annotations
    if annotations:
        for key in names.GROUP_NAME_KEYS:
            text = annotations.get(key)
            if text and tenant_texts.is_subdomain(text):
                return text
    return ""


def native_group(scheduling_group: object) -> str:
    """Return the PodGroup of Kubernetes' own (``scheduling.k8s.io``) that a pod's ``spec.schedulingGroup`` names, or ``""``."""
    named = scheduling_group.get("podGroupName") if isinstance(scheduling_group, dict) else None
    return named if isinstance(named, str) else ""


def member_of(meta: Meta, scheduler: str, schedulers: Collection[str] | None) -> str:
    """Return the PodGroup that a pod of a scheduler is a member of, so that what the group reserved is for it too.

    Pods that Muster schedules are members of the group that they name. A pod of another scheduler is one only where
    admission noted, at its creation, that the group's owner owns it too. ``schedulers`` are the names that Muster has,
    None where they aren't known: then all are.
    """
    if schedulers is None or scheduler in schedulers:
        return group_of(meta)
    noted = meta.annotation(names.MEMBER_OF)
    return noted if noted and tenant_texts.is_subdomain(noted) else ""


def counted_with(pod: Meta, scheduler: str, schedulers: Collection[str] | None) -> str:
    """Return the PodGroup whose reservation a pod that exists is counted against: as `member_of`, and a bare pod's own.

    That is made a moment after the pod; until the pod names it, both would be counted.
    """
    ours = schedulers is None or scheduler in schedulers
    return member_of(pod, scheduler, schedulers) or (own_group(pod) if ours else "")


def own_group(pod: Meta) -> str:
    """Name the PodGroup that is generated for a pod itself; empty where the pod has a controller, or no uid yet."""
    return generated_name(pod.uid) if pod.uid and pod.controller() is None else ""


def generated_name(uid: str) -> str:
    """Name the PodGroup generated for the owner of this uid; making it twice makes it once.

    An owner reference may have any text for a uid. One that can't be part of a name is hashed, so that every owner has a
    group of its own.
    """
    name = _GENERATED + uid
    return (
        name
        if tenant_texts.is_subdomain(name)
        else _GENERATED + hashlib.sha256(uid.encode(errors="replace")).hexdigest()
    )


def is_generated(name: str) -> bool:
    """Whether a group's name looks like one of `generated_name`."""
    return name.startswith(_GENERATED)


def owner_of(group: Meta) -> str:
    """Return kind and name of the workload that a group was generated for, ``Job train``; empty for any other group."""
    owner = next(iter(group.owner_references or ()), None)
    if owner is None or group.name != generated_name(owner.uid):
        return ""
    return f"{owner.kind} {owner.name}" if owner.kind.isalnum() and tenant_texts.is_subdomain(owner.name) else ""


def called(name: str, owner: str) -> str:
    """Write what the people of its namespace know a group by: ``Job train`` where it has an `owner_of`, else ``PodGroup g``."""
    return owner or f"PodGroup {name}"


def title(namespace: str, name: str, owner: str) -> str:
    """Write what people know a group by: ``Job ns/train`` where it has an `owner_of`, else ``PodGroup ns/name``."""
    kind, _, its_name = called(name, owner).partition(" ")
    return f"{kind} {namespace}/{its_name}"


def queue_name(*nearest_first: Meta | None) -> str:
    """Return the queue of the nearest object that names one, else the default queue."""
    return _nearest(nearest_first, names.QUEUE_NAME_KEYS, tenant_texts.is_subdomain)[1] or names.DEFAULT_QUEUE


def min_member(*nearest_first: Meta | None) -> tuple[int, str]:
    """Return the generated group's minMember (1 unless told otherwise), and a warning where the value is illegal."""
    key, text = _nearest(nearest_first, names.GROUP_MIN_MEMBER_KEYS)
    if not key:
        return 1, ""
    # Length first: int() of a megabyte of digits takes minutes.
    if text.isascii() and text.isdigit() and len(text) <= _SHOWN and int(text) <= _MAX_INT32:
        return int(text), ""
    return 1, f"{key} {shown(text)} counts as 1: write a whole number from 0 to {_MAX_INT32}"


def min_resources(*nearest_first: Meta | None) -> tuple[Resources | None, str]:
    """Return the generated group's minResources, None when nobody says, and a warning where the value is illegal.

    The annotation is a ResourceList in JSON: ``{"cpu": "2", "memory": "4Gi"}``. An illegal one is passed over.
    """
    key, text = _nearest(nearest_first, (names.GROUP_MIN_RESOURCES,))
    return _read_resources(key, text) if key else (None, "")


def network_topology(*nearest_first: Meta | None) -> tuple[dict[str, Any] | None, str]:
    """Return the generated group's networkTopology, None when nobody says, and a warning where a value is illegal.

    One annotation has the mode, ``hard`` or ``soft``; the other the highest tier, a number or a tier's name. Illegal ones are passed over.
    """
    key, mode = _nearest(nearest_first, (names.TOPOLOGY_MODE,))
    tier_key, tier = _nearest(nearest_first, (names.TOPOLOGY_TIER,))
    if not key and not tier_key:
        return None, ""
    if mode not in {"", "hard", "soft"}:
        return None, f"{key} {shown(mode)} is ignored: write hard or soft"
    asked: dict[str, Any] = {"mode": mode or "hard"}
    if tier.isascii() and tier.isdigit() and len(tier) <= 2:
        asked["highestTierAllowed"] = int(tier)
    elif tier and len(tier) <= _LONGEST_TIER:
        asked["highestTierName"] = tier
    elif tier:
        return None, f"{tier_key} {shown(tier)} is ignored: write the number of a tier, or its name"
    return asked, ""


def warnings(*nearest_first: Meta | None) -> Iterator[str]:
    """Iterate over what annotations of a generated group can't be meant as they are written."""
    for read in READERS:
        warning = read(*nearest_first)[1]
        if warning:
            yield warning


def wanted_resources(group: Meta) -> Resources | None:
    """Return the minimum that a group is to have once it is reserved; None where it waits for none, or for what nobody can read."""
    text = group.annotation(names.WANTED_RESOURCES)
    return _wanted_resources(text) if text else None


@lru_cache(maxsize=1024)
def _wanted_resources(text: str) -> Resources | None:
    return _read_resources(names.WANTED_RESOURCES, text)[0]


def _read_resources(key: str, text: str) -> tuple[Resources | None, str]:
    if len(text) > tenant_texts.LONGEST_LIST:
        return None, f"{key} {shown(text)} is ignored: write at most {tenant_texts.LONGEST_LIST} characters"
    try:
        written = msgspec.json.decode(text, type=dict[str, Any])
        if len(written) > tenant_texts.MOST_RESOURCES:
            return (
                None,
                f"{key} is ignored: it lists {len(written)} resources; list at most {tenant_texts.MOST_RESOURCES}",
            )
        if fault := next(filter(None, map(tenant_texts.resource_fault, written)), ""):
            return None, f"{key} is ignored: {fault}"
        return Resources.parse(written), ""
    except QuantityError as error:
        return None, f"{key} is ignored: {error}"
    except (msgspec.MsgspecError, RecursionError):
        return None, f'{key} {shown(text)} is ignored: write it like {{"cpu": "2"}}'


def reserves_late(*nearest_first: Meta | None) -> bool:
    """Whether a new group is to reserve when it becomes Inqueue, and not when it is created.

    That is so where the nearest object that says so, by annotation or label, says ``Queue``.
    """
    said = (meta.annotation(names.QUOTA_POLICY) or meta.label(names.QUOTA_POLICY) for meta in nearest_first if meta)
    return next(filter(None, said), "") == names.POLICY_QUEUE


def _nearest(
    metas: tuple[Meta | None, ...], keys: tuple[str, ...], legal: Callable[[str], bool] = bool
) -> tuple[str, str]:
    """Find the first of ``keys`` on the first object that has one: (key, value), both empty when none has.

    What is blank, or isn't legal, counts as absent.
    """
    for meta in metas:
        if meta is None or not meta.annotations:
            continue
        for key in keys:
            if (text := meta.annotations.get(key, "").strip()) and legal(text):
                return key, text
    return "", ""


READERS: Final[tuple[Callable[..., tuple[object, str]], ...]] = (min_member, min_resources, network_topology)
"""What reads the annotations of a generated group, each with a warning."""
