"""The life cycle of pods in a simulation: placed, run for their time, ended or evicted.

A pod starts within a second and runs for the seconds in annotation `sandbox.muster.sh/run-seconds`, as on the simulated
nodes of ``muster up``: pods of Jobs for five seconds where they don't say, others to the end. All succeed, but for those that a
trace has fail.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from muster.model import grouping, kinds, names
from muster.model.amounts import NOTHING, QuantityError, Resources
from muster.model.kinds import Kind
from muster.model.objects import Pod, PodGroup, PodStatus
from muster.model.requests import pod_request
from muster.sandbox.controllers.plans.pod_lifecycle import JOB_SECONDS, START_SECONDS, STOP_SECONDS
from scheduler.model.plan import Bind, Eviction
from scheduler.model.snapshot import GroupKey
from scheduler.simulator.admission import SimulatedAdmission
from scheduler.simulator.event_queue import EventQueue
from scheduler.simulator.gangs import SimulatedGang
from scheduler.simulator.measures import Measures
from scheduler.simulator.settled import SettledGroups
from scheduler.state.aggregated_pods import GroupName
from scheduler.state.cluster import Cluster

GROUP_KINDS: Final = {kind.group: kind for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)}
_RUNNING: Final = PodStatus(phase="Running")
_SUCCEEDED: Final = PodStatus(phase="Succeeded")
_FAILED: Final = PodStatus(phase="Failed")
_ONE_POD: Final = Resources.parse({"pods": 1})


class Controllers(Protocol):
    """Those who make pods, told of what becomes of them."""

    def succeeded(self, gang: SimulatedGang, pods: list[Pod]) -> None:
        """Pods ran their time."""
        ...

    def evicted(self, gang: SimulatedGang, pod: Pod) -> None:
        """A pod had to go."""
        ...

    def restarted(self, gang: SimulatedGang, pod: Pod) -> None:
        """A pod that failed makes room for another one."""
        ...

    def over(self, gang: SimulatedGang) -> bool:
        """Whether nobody makes more pods of a group that has none left."""
        ...

    def room(self, namespace: str) -> None:
        """Something of a namespace ended, so that its quota may have room."""
        ...


class PodLifecycle:
    """All groups and pods of a simulation, from when they exist.

    ``changed`` is called when something came that is to be decided on, ``freed`` when something ended.
    """

    controllers: Controllers

    def __init__(
        self,
        cluster: Cluster,
        admission: SimulatedAdmission,
        measures: Measures,
        events: EventQueue,
        changed: Callable[[], None],
        freed: Callable[[], None],
        start: datetime,
    ) -> None:
        self._cluster = cluster
        self._admission = admission
        self._measures = measures
        self._events = events
        self._changed = changed
        self._freed = freed
        self._start = start
        self.settled = SettledGroups(cluster)
        self.now = 0.0
        self.gangs: dict[GroupName, SimulatedGang] = {}
        self.history: list[SimulatedGang] = []
        self.leavers: list[str] = []

    # ── what exists ──────────────────────────────────────────────────────────────────────────────────────────────

    def gang(self, home: GroupName) -> SimulatedGang:
        """Return the group of a name; pods may name it before it exists."""
        known = self.gangs.get(home)
        if known is None:
            known = self.gangs[home] = SimulatedGang(home, self.now)
            self.history.append(known)
        return known

    def show_group(self, kind: Kind[PodGroup], group: PodGroup) -> SimulatedGang:
        """Take in a group."""
        gang = self.gang((group.namespace, group.name))
        gang.key = GroupKey(kind.group, group.namespace, group.name)
        gang.queue = group.spec.queue or names.DEFAULT_QUEUE
        gang.minimum = group.spec.min_member
        self._cluster.group(kind.group, group)
        self._changed()
        return gang

    def show_pod(self, pod: Pod) -> SimulatedGang | None:
        """Take in a pod, one that waits or one that runs somewhere; return its group, None where it has ended."""
        self._cluster.pod(pod)
        if pod.status.phase in {"Succeeded", "Failed"}:
            return None
        gang = self._gang_of(pod)
        gang.pods[pod.metadata.uid] = pod
        gang.most = max(gang.most, len(gang.pods))
        if gang.key is not None:
            self.settled.restore(gang.key)
        if pod.spec.node_name:
            self._run(gang, [pod], _request(pod))
        self._changed()
        return gang

    def _gang_of(self, pod: Pod) -> SimulatedGang:
        # Pods without a group are one another's company here, and nobody's business.
        return self.gang((pod.namespace, grouping.group_of(pod.metadata)))

    # ── what is decided ──────────────────────────────────────────────────────────────────────────────────────────

    def bind(self, binds: Iterable[Bind]) -> None:
        """Let pods run where they were placed; those of one group that start at once and run for the same time are looked at again at once."""
        by_group: dict[tuple[GroupKey, int], tuple[Resources, list[Pod]]] = {}
        running = replace(_RUNNING, start_time=self._start + timedelta(seconds=self.now))
        for bind in binds:
            gang = self.gangs[bind.group.namespace, bind.group.name]
            pod = gang.pods[bind.task.uid]
            bound = replace(pod, spec=replace(pod.spec, node_name=bind.node), status=running)
            gang.pods[bind.task.uid] = bound
            self._cluster.pod(bound)
            request = bind.task.task_class.request
            by_group.setdefault((bind.group, id(request)), (request, []))[1].append(bound)
        for (key, _), (request, pods) in by_group.items():
            self._run(self.gangs[key.namespace, key.name], pods, request)

    def _run(self, gang: SimulatedGang, pods: list[Pod], request: Resources) -> None:
        amounts = request + _ONE_POD
        self._measures.used(self.now, gang.queue, amounts, len(pods))
        ends: dict[float, list[str]] = {}
        for pod in pods:
            gang.running[pod.metadata.uid] = amounts
            seconds = _seconds(pod)
            if seconds is not None:
                ends.setdefault(seconds, []).append(pod.metadata.uid)
        if gang.started is None and gang.ready:
            gang.started = self.now
        for seconds, uids in ends.items():
            # Times in statuses are in whole seconds, so a container starts with one.
            self._events.schedule(math.floor(self.now) + START_SECONDS + seconds, partial(self._end, gang, uids))

    def evict(self, evictions: Iterable[Eviction]) -> None:
        """Have pods leave; it takes them a second."""
        for eviction in evictions:
            gang = self.gangs[eviction.group.namespace, eviction.group.name]
            beneficiary = self.gangs[eviction.beneficiary.namespace, eviction.beneficiary.name]
            if gang.key is not None:
                self.settled.restore(gang.key)
            self._measures.evicted(gang, beneficiary)
            self.leavers.append(str(eviction.task))
            self._events.schedule(self.now + STOP_SECONDS, partial(self._leave, gang, eviction.task.uid))

    def delete_pod(self, gang: SimulatedGang, pod: Pod) -> None:
        """Take out a pod that waits."""
        del gang.pods[pod.metadata.uid]
        self._cluster.pod(pod, gone=True)
        self._admission.hide(kinds.PODS, pod)
        self._freed()

    # ── what ends ────────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self, gang: SimulatedGang, uids: list[str]) -> None:
        """Let pods succeed or fail, those that are still there."""
        pods = [gang.pods.pop(uid) for uid in uids if uid in gang.pods]
        if not pods:
            return
        self._give_back(gang, pods)
        last = not gang.pods and not gang.lacking
        failed = [pod for pod in pods if gang.replaced and pod.metadata.annotation(names.EXIT_CODE)]
        gang.ended |= {pod.metadata.uid: replace(pod, status=_SUCCEEDED) for pod in pods}
        gang.ended |= {pod.metadata.uid: replace(pod, status=_FAILED) for pod in failed}
        for pod in failed[: gang.restarts]:
            gang.restarts, gang.coming = gang.restarts - 1, gang.coming + 1
            self._events.schedule(self.now + gang.pause, partial(self._restart, gang, pod.metadata.uid))
        self.controllers.succeeded(gang, pods)
        if last and not gang.pods and not gang.coming and self.controllers.over(gang):
            self._finish(gang)
        else:
            if gang.key is not None:
                self.settled.restore(gang.key)
            for pod in pods:
                self._show_again(gang.ended[pod.metadata.uid])
        # What becomes of a group whose pods fail is decided when they do, whether others wait or not.
        (self._changed if failed else self._freed)()
        self.controllers.room(gang.home[0])

    def _restart(self, gang: SimulatedGang, uid: str) -> None:
        """Delete a pod that failed, and have another one made in its place."""
        gang.coming -= 1
        pod = gang.ended.pop(uid)
        self._cluster.pod(pod, gone=True)
        self._admission.hide(kinds.PODS, pod)
        self.controllers.restarted(gang, pod)

    def _show_again(self, pod: Pod) -> None:
        self._cluster.pod(pod)
        self._admission.show(kinds.PODS, pod)

    def _leave(self, gang: SimulatedGang, uid: str) -> None:
        pod = gang.pods.pop(uid, None)
        if pod is None:
            return  # It ended by itself.
        if gang.key is not None:
            self.settled.restore(gang.key)
        self._give_back(gang, [pod])
        self._cluster.pod(pod, gone=True)
        self._admission.hide(kinds.PODS, pod)
        self.controllers.evicted(gang, pod)
        self._freed()
        self.controllers.room(gang.home[0])

    def _give_back(self, gang: SimulatedGang, pods: list[Pod]) -> None:
        amounts = Counter(gang.running.pop(pod.metadata.uid) for pod in pods if pod.metadata.uid in gang.running)
        for each, count in amounts.items():
            self._measures.used(self.now, gang.queue, each, -count)

    def _finish(self, gang: SimulatedGang) -> None:
        """Take a group that is over out of the cluster, with its pods and Jobs: nothing of it matters any more."""
        gang.over = self.now
        for pod in gang.ended.values():
            self._cluster.pod(pod, gone=True)
            self._admission.hide(kinds.PODS, pod)
        for job in gang.jobs.values():
            self._cluster.batch_job(job, gone=True)
            self._admission.hide(kinds.JOBS, job)
        if gang.key is not None:
            self.settled.restore(gang.key)
            group = self._cluster.find_group(gang.key)
            assert group is not None, "what was given back is there"
            self._cluster.group(gang.key.group, group, gone=True)
            self._admission.hide(GROUP_KINDS[gang.key.group], group)
        gang.ended.clear()
        gang.jobs.clear()
        del self.gangs[gang.home]


def _request(pod: Pod) -> Resources:
    try:
        return pod_request(pod.spec)
    except QuantityError:
        return NOTHING


def _seconds(pod: Pod) -> float | None:
    """Return how long a pod runs; None: to the end."""
    said = pod.metadata.annotation(names.RUN_SECONDS)
    if said:
        try:
            return max(float(said), 0.0)
        except ValueError:
            return None
    controller = pod.metadata.controller()
    return JOB_SECONDS if controller is not None and controller.kind == "Job" else None
