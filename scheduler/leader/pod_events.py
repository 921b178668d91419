"""Events on pods, as the scheduler of Kubernetes has them: Scheduled, and FailedScheduling with the sentence of the group.

They are written after what matters more, so many a second, and left out where these fall behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal, NamedTuple

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.events import EventRecorder
from muster.model import grouping, kinds
from muster.model.objects import Pod
from scheduler.controllers.workload import ABSENT_SECONDS, absent_text
from scheduler.engine import lifecycle
from scheduler.model.plan import GroupStatus, Plan, Urgency
from scheduler.model.snapshot import GroupKey, JobInfo, Snapshot

EVENTS_A_SECOND: Final = 50
MOST_IN_LINE: Final = 10 * EVENTS_A_SECOND
"""Events that wait to be recorded; any more are left out."""

SCHEDULED: Final = "Scheduled"
FAILED: Final = "FailedScheduling"

_Place = tuple[str, str]


class _PodEvent(NamedTuple):
    """An event to be recorded about the pod of that namespace, name and uid."""

    place: _Place
    uid: str
    reason: str
    message: str


class PodEvents:
    """Records that pods got a node, or why their group has none for them: each reason once.

    Attributes:
        dropped: how many events were left out.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        pods: ObjectCache[Pod],
        scheduler_names: Collection[str],
        busy: Callable[[], bool],
        find_group: Callable[[str, str], object | None],
        native_obstacle: Callable[[str, str], str],
    ) -> None:
        """``busy``: whether there is something more urgent to write; ``find_group``: by namespace and name.

        ``native_obstacle``: why a pod of the native group of that namespace and name waits, where no group stands for that.
        """
        self.dropped = 0
        self._recorder = recorder
        self._pods = pods
        self._names = frozenset(scheduler_names)
        self._busy = busy
        self._find_group = find_group
        self._native_obstacle = native_obstacle
        self._line: deque[_PodEvent] = deque()
        self._some = asyncio.Event()
        self._new: set[_Place] = set()
        self._told: dict[str, str] = {}
        pods.subscribe(self._on_pod)

    def observe(self, plan: Plan, snapshot: Snapshot) -> None:
        """Take over what a cycle decided: why pods have no node, where that is news to the group or the pod is new."""
        new, self._new = self._new, set()
        changed = [
            each
            for each in plan.statuses
            if each.urgency is Urgency.NOW and lifecycle.lasting_obstacle(each.conditions) is not None
        ]
        if changed:
            waiting = {each.key for each in changed}
            jobs = {job.key: job for job in snapshot.jobs if job.key in waiting}
            for status in changed:
                if (job := jobs.get(status.key)) is not None:
                    self._fail_all(status, job)
        absent: list[tuple[_Place, str]] = []
        for place in sorted(new):
            pod = self._pods.get(place[1], place[0])
            if pod is not None and (its := self._status_of(pod, plan)) is not None:
                self._fail(its, place, pod.metadata.uid)
            elif pod is not None and (self._absent_group(pod) or _native_group(pod)):
                absent.append((place, pod.metadata.uid))
        if absent:
            asyncio.get_running_loop().call_later(ABSENT_SECONDS, self._fail_without_group, absent)

    async def run(self) -> None:
        """Record, until cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(1 / EVENTS_A_SECOND)
            if self._busy():
                continue
            event = self._line.popleft()
            if not self._line:
                self._some.clear()
            self._record(event)

    def _on_pod(self, change: ObjectChange[Pod]) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None:
                self._told.pop(old.metadata.uid, None)
            return
        if new.spec.scheduler_name not in self._names:
            return
        place = (new.namespace, new.name)
        if new.spec.node_name:
            self._told.pop(new.metadata.uid, None)
            if old is not None and not old.spec.node_name and old.metadata.uid == new.metadata.uid:
                words = f"Successfully assigned {new.namespace}/{new.name} to {new.spec.node_name}"
                self._put(_PodEvent(place, new.metadata.uid, SCHEDULED, words))
        elif old is None or grouping.group_of(old.metadata) != grouping.group_of(new.metadata):
            self._new.add(place)

    def _status_of(self, pod: Pod, plan: Plan) -> GroupStatus | None:
        name = grouping.group_of(pod.metadata)
        keys = (GroupKey(kind.group, pod.namespace, name) for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS))
        return next((plan.groups[key] for key in keys if key in plan.groups), None)

    def _fail_all(self, status: GroupStatus, job: JobInfo) -> None:
        for task in job.pending:
            self._fail(status, (task.namespace, task.name), task.uid)

    def _fail(self, status: GroupStatus, place: _Place, uid: str) -> None:
        wrong = lifecycle.lasting_obstacle(status.conditions)
        if wrong is None or self._told.get(uid) == wrong.reason:
            return
        if self._put(_PodEvent(place, uid, FAILED, f"{status.called}: {wrong.message}")):
            self._told[uid] = wrong.reason

    def _absent_group(self, pod: Pod) -> str:
        """Return the group that a pod without a node names, if people ought to make it and it isn't there."""
        name = grouping.group_of(pod.metadata)
        if not name or pod.spec.node_name or grouping.is_generated(name):
            return ""
        return name if self._find_group(pod.namespace, name) is None else ""

    def _fail_without_group(self, pods: Iterable[tuple[_Place, str]]) -> None:
        """Say of pods that the group that they name isn't there, if that is still so."""
        for place, uid in pods:
            pod = self._pods.get(place[1], place[0])
            if pod is None or pod.metadata.uid != uid:
                continue
            if name := self._absent_group(pod):
                self._put(_PodEvent(place, uid, FAILED, absent_text(name)))
            elif (native := _native_group(pod)) and (wrong := self._native_obstacle(pod.namespace, native)):
                self._put(_PodEvent(place, uid, FAILED, wrong))

    def _put(self, event: _PodEvent) -> bool:
        if len(self._line) >= MOST_IN_LINE:
            self.dropped += 1
            return False
        self._line.append(event)
        self._some.set()
        return True

    def _record(self, event: _PodEvent) -> None:
        pod = self._pods.get(event.place[1], event.place[0])
        if pod is None or pod.metadata.uid != event.uid:
            return
        failed = event.reason == FAILED
        if failed and pod.spec.node_name:
            return  # It has got one meanwhile.
        type_: Literal["Normal", "Warning"] = "Warning" if failed else "Normal"
        self._recorder.record(kinds.PODS, pod, event.reason, event.message, type_=type_)


def _native_group(pod: Pod) -> str:
    """Return the group of Kubernetes' own that a pod without a node is in, if it is in none of Muster's."""
    if pod.spec.node_name or grouping.group_of(pod.metadata):
        return ""
    return grouping.native_group(pod.spec.scheduling_group)
