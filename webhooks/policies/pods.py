"""Pods that Muster schedules: which group they are in, from their creation on."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from muster.model import grouping, kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Json, Meta, OwnerReference
from webhooks import view as views
from webhooks.patch import Recorder
from webhooks.review import AdmissionRequest
from webhooks.settings import Settings
from webhooks.verdict import ALLOWED, Patched, Problem, Verdict, judge
from webhooks.view import View

_LEVELS: Final = 10
_OWNERS: Final[dict[tuple[str, str], Kind[Any]]] = {
    (kind.api_version, kind.name): kind for kind in (kinds.REPLICASETS, kinds.JOBS)
}


# Only what these rules read: decoding a whole pod takes several times as long.
class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = ""
    scheduling_group: Json = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _Spec


def mutate(request: AdmissionRequest, view: View, settings: Settings) -> Verdict:
    """Write the group's name on a pod whose chosen owner is known; of any other pod the controller finds out."""
    pod = request.new(_Pod)
    # A pod in a group of Kubernetes' own (spec.schedulingGroup) gets no second one.
    if not settings.ours(pod.spec.scheduler_name) or grouping.group_of(pod.metadata) or pod.spec.scheduling_group:
        return ALLOWED
    owner = _chosen_owner(pod.metadata, request.namespace, view, settings)
    if owner is None:
        return ALLOWED
    patch = Recorder(request.object)
    patch.set("metadata", "annotations", names.GROUP_NAME, value=grouping.generated_name(owner.uid))
    return Patched(patch.operations)


def validate(request: AdmissionRequest, view: View, settings: Settings) -> Verdict:
    """Keep a pod in its group, and tell its user what an annotation won't do."""
    pod = request.new(_Pod)
    if not settings.ours(pod.spec.scheduler_name):
        return ALLOWED
    if request.operation == "CREATE":
        return judge((), _warnings(pod.metadata, request.namespace, view))
    if request.user_info.username in settings.accounts:
        return ALLOWED
    return judge(_moves(request.old(_Pod).metadata, pod.metadata))


def _chosen_owner(meta: Meta, namespace: str, view: View, settings: Settings) -> OwnerReference | None:
    """Give the owner that the group stands for; None where the pod itself is, or where the caches don't reach."""
    owners: list[OwnerReference] = []
    above = meta.controller()
    while above is not None and len(owners) < _LEVELS:
        owners.append(above)
        rule = grouping.matching_rule(above, settings.rules)
        if rule is not None and rule.level <= 0:
            return grouping.chosen_owner(owners, settings.rules)
        kind = _OWNERS.get((above.api_version, above.kind))
        found = view.get(kind, above.name, namespace) if kind is not None else None
        if found is None or found.metadata.uid != above.uid:
            return None
        above = found.metadata.controller()
    return grouping.chosen_owner(owners, settings.rules) if above is None else None


def _warnings(meta: Meta, namespace: str, view: View) -> list[str]:
    _, member = grouping.min_member(meta)
    _, resources = grouping.min_resources(meta)
    group = grouping.group_of(meta)
    missing = ""
    # What a controller creates nobody reads the warnings of; and Muster makes the group of its pods.
    if group and meta.controller() is None and not views.groups_named(view, namespace, group):
        missing = f'PodGroup "{group}" does not exist yet; the pod waits until it does'
    return [warning for warning in (member, resources, missing) if warning]


def _moves(before: Meta, after: Meta) -> list[Problem]:
    had, has = grouping.group_of(before), grouping.group_of(after)
    if had == has:
        return []
    change = f'"{had or "none"}" to "{has or "none"}"'
    return [
        Problem(f"annotation {names.GROUP_NAME} can't change from {change} after the pod's creation: recreate the pod")
    ]
