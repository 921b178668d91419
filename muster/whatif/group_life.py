"""The life of a group: what its conditions, its pods and the events about it say, in the order of time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from muster.model import grouping, kinds, names
from muster.model.objects import Event, Pod, PodGroup
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects

PODS: Final = 500
"""Of more pods of a group the first are told, and how many there are."""
_SCHEDULED: Final = "PodScheduled"
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Moment(Struct, frozen=True, rename="camel"):
    """Something that happened. ``kind``: created, phase, condition, event or pods; ``times``: how often, where it is told."""

    when: datetime
    kind: str
    what: str
    message: str = ""
    times: int = 1


class PodLine(Struct, frozen=True, rename="camel"):
    """A pod of the group: from its creation to its place, and from there on."""

    name: str
    node: str
    phase: str
    created: datetime | None
    placed: datetime | None
    over: bool


class GroupLife(Struct, frozen=True, rename="camel"):
    """A group and what happened to it, the oldest first. ``missing``: what may not be read, a sentence."""

    namespace: str
    name: str
    title: str
    queue: str
    phase: str
    min_member: int
    taken: datetime
    moments: tuple[Moment, ...]
    pods: tuple[PodLine, ...]
    all_pods: int
    missing: str = ""


def find(state: ClusterObjects, namespace: str, name: str) -> PodGroup | None:
    """Return a group of any of the kinds that Muster serves."""
    found = (state.find(kind, name, namespace) for kind in PODGROUPS)
    return next((each for each in found if each is not None), None)


def of(state: ClusterObjects, group: PodGroup, events: Iterable[Event], missing: str = "") -> GroupLife:
    """Return the life of a group of a state; ``events`` are those about it."""
    pods = [each for each in state.of(kinds.PODS, group.namespace) if _names(each, group)]
    moments = sorted(_moments(group, pods, events), key=lambda each: each.when)
    return GroupLife(
        group.namespace,
        group.name,
        grouping.called(group.name, grouping.owner_of(group.metadata)),
        group.spec.queue or names.DEFAULT_QUEUE,
        group.status.phase or "Pending",
        group.spec.min_member,
        state.taken,
        tuple(moments),
        tuple(_pod(each) for each in sorted(pods, key=lambda pod: pod.name)[:PODS]),
        len(pods),
        missing,
    )


def _names(pod: Pod, group: PodGroup) -> bool:
    return grouping.group_of(pod.metadata) == group.name


def _moments(group: PodGroup, pods: list[Pod], events: Iterable[Event]) -> Iterator[Moment]:
    meta, status = group.metadata, group.status
    if meta.creation_timestamp is not None:
        yield Moment(meta.creation_timestamp, "created", "created")
    if status.last_phase_transition_time is not None:
        yield Moment(status.last_phase_transition_time, "phase", status.phase)
    for each in status.conditions or ():
        if each.last_transition_time is not None:
            said = "" if each.status == "True" else f" is {each.status}"
            reason = f" ({each.reason})" if each.reason and each.reason != each.type else ""
            yield Moment(each.last_transition_time, "condition", f"{each.type}{said}{reason}", each.message)
    for event in events:
        when = event.last_timestamp or event.metadata.creation_timestamp
        if when is not None:
            yield Moment(when, "event", event.reason, event.message, event.count or 1)
    placed = sorted(when for each in pods if (when := _placed(each)) is not None)
    whole = len(placed) == len(pods)
    if placed and not (whole and placed[0] == placed[-1]):
        yield Moment(placed[0], "pods", "first pod on a node")
    if placed and whole:
        yield Moment(placed[-1], "pods", f"all of its pods on nodes: {len(pods)}")


def _placed(pod: Pod) -> datetime | None:
    """Return when a pod got its node: as its condition says, else when it began there."""
    if not pod.spec.node_name:
        return None
    told = (each for each in pod.status.conditions or () if each.type == _SCHEDULED and each.status == "True")
    found = next((each.last_transition_time for each in told), None)
    return found or pod.status.start_time


def _pod(pod: Pod) -> PodLine:
    phase = pod.status.phase
    return PodLine(
        pod.name, pod.spec.node_name, phase, pod.metadata.creation_timestamp, _placed(pod), over=phase in _ENDED
    )
