"""Shares of the cluster as stated: what each queue deserves and is guaranteed, in a hierarchy or flat."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, field

from muster.model.amounts import NANO, NOTHING
from muster.model.text import few
from scheduler.engine import messages
from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin import Key, Plugin, Vote
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.view import SessionView
from scheduler.model import vectors
from scheduler.model.obstacle import Obstacle, Reason, Stage
from scheduler.model.pod_claims import ResourceClaimKey
from scheduler.model.snapshot import OCCUPYING, Task
from scheduler.model.vectors import Vector

ROOT = "root"
_NAMED = 5
_OF_CLASS: Final = "deviceclass/"
"""What the names of devices in a queue's capability begin with."""


class CapacityArguments(BuiltinArguments, frozen=True, kw_only=True):
    """Whether devices count, and how many ancestors of a queue count for reclaim beside the queue itself."""

    devices: bool = field(default=False, name="capacity.DynamicResourceAllocationEnable")
    level: Annotated[int, Meta(ge=0)] = field(default=0, name="ancestorReclaimLevel")


class Capacity(Plugin):
    """Holds each queue, and each of its ancestors, to its capability and to what is guaranteed to others.

    A queue takes back what it deserves from queues that use more than they deserve. Queues without a parent, and those
    whose parent is ``root`` or doesn't exist, are directly below the whole cluster.
    """

    name = "capacity"
    arguments_type = CapacityArguments
    guards = True
    by_amount = True

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        axes, infos = session.axes, session.queues
        self._lines = {name: self._line(name) for name in infos}
        self._guarantee = {name: axes.vector(queue.info.guarantee or NOTHING) for name, queue in infos.items()}
        self._deserved = {
            name: vectors.most(axes.vector(queue.info.deserved or NOTHING), self._guarantee[name])
            for name, queue in infos.items()
        }
        self._below: dict[str, list[QueueState]] = {name: [] for name in infos}
        for name, queue in infos.items():
            for above in self._lines[name] if queue.jobs or any(queue.allocated) else ():
                self._below[above].append(queue)
        self._limit = {name: axes.limit(queue.info.capability) for name, queue in infos.items()}
        self._stated = any(queue.info.deserved or queue.info.guarantee for queue in infos.values())
        self._scarce = self._wanted_by_more() if self._stated else set[int]()
        self._beside_guaranteed: set[str] = set()
        self._most = {name: self._within(name) for name in infos}
        self._awaited: dict[str, Vector] | None = None
        self._children: dict[str, list[str]] = {}
        for name, line in self._lines.items():
            self._children.setdefault(line[1] if len(line) > 1 else ROOT, []).append(name)

    def _line(self, name: str) -> list[str]:
        """Return a queue and its ancestors below the root; what is on a circle of parents is directly below it."""
        line, queues = [name], self.session.queues
        while (parent := queues[line[-1]].info.parent) in queues and parent not in {ROOT, *line}:
            line.append(parent)
        return line[: line.index(parent) + 1] if parent in line else line

    def _used(self, name: str) -> Vector:
        """What a queue and all below it have."""
        used = self.session.axes.zero
        for queue in self._below[name]:
            used = vectors.add(used, queue.allocated)
        return used

    def queue_key(self, queue: QueueState) -> Key:
        """Order queues: the higher priority first, then by the part of what they deserve that they have, from the top down."""
        shares = [self._share(name) for name in reversed(self._lines[queue.name])]
        return (-queue.info.priority, tuple(shares))

    def _share(self, name: str) -> float:
        return vectors.share(self._used(name), self._deserved[name], self.session.axes.shared)

    def victim_queue_key(self, queue: QueueState, preemptor: QueueState) -> Key:
        """Order queues to take from: those that share the most ancestors with the preemptor's first, so siblings before others."""
        return -len(set(self._lines[queue.name][1:]) & set(self._lines[preemptor.name][1:]))

    def deserved(self, queue: QueueState) -> Vector:
        """Tell what the queue states, its guarantee at least."""
        return self._deserved[queue.name]

    def valid(self, job: JobState) -> Obstacle | None:
        """Object to starting a job in a queue that has others below it; what is left there of before goes on."""
        children = [name for name in self._children.get(job.info.queue, ()) if name != ROOT]
        if not children or job.ready:
            return None
        words = f"queue {job.info.queue} has children and starts no work itself; move it to one of them: {few(sorted(children), _NAMED)}"
        return Obstacle(Reason.NOT_ENOUGH_QUOTA, words, Stage.QUEUE)

    def allocatable(self, queue: QueueState, task: Task) -> Obstacle | None:
        """Object to a task that takes its queue, or an ancestor, beyond what it may have."""
        devices = (
            self._device_objection(queue, task)
            if self.arguments.devices and self.session.devices.asked(task.task_class)
            else None
        )
        return devices or self._objection(queue, self.session.vector(task.task_class), 1, {}, within_cluster=True)

    def _device_objection(self, queue: QueueState, task: Task) -> Obstacle | None:
        """Object to more devices of a class than a queue or an ancestor may have, by its capability ``deviceclass/NAME``."""
        more = self.session.devices.requested(task)
        for name in self._lines[queue.name]:
            capability = self.session.queues[name].info.capability or NOTHING
            limits = {key: nano // NANO for key, nano in capability.nano.items() if key.startswith(_OF_CLASS)}
            if not limits:
                continue
            used = self._devices_used(name)
            for key, limit in limits.items():
                class_ = key.removeprefix(_OF_CLASS)
                before = sum(counts.get(class_, 0) for counts in used.values())
                wanted = sum(counts.get(class_, 0) for claim, counts in more.items() if claim not in used)
                if wanted and before + wanted > limit:
                    words = (
                        f"queue {name}: {limit} devices of class {class_} at most, {before} used, {wanted} requested, short by"
                        f" {before + wanted - limit}; raise {key} in its capability, or wait for its claims to be deleted"
                    )
                    return Obstacle(Reason.NOT_ENOUGH_QUOTA, words, Stage.QUEUE)
        return None

    def _devices_used(self, name: str) -> dict[ResourceClaimKey, Mapping[str, int]]:
        """Return what the claims of pods with a node request, in a queue and all below it; one that pods share counts once."""
        devices, found = self.session.devices, dict[ResourceClaimKey, Mapping[str, int]]()
        for job in (job for queue in self._below[name] for job in queue.jobs):
            for task in job.info.tasks:
                placed = task.status in OCCUPYING or task.uid in devices.placed
                if placed and devices.asked(task.task_class):
                    found |= devices.requested(task, job.info.shared_claims)
        return found

    def enqueueable(self, job: JobState) -> Vote:
        """Reject what its queue or an ancestor could not hold beside what it holds and awaits.

        An estimate (a group without minResources) is held against capabilities only, and nobody waits for it: what it
        takes is known once its pods exist.
        """
        queue = self.session.queue_of(job)
        if queue is None:
            return None
        if (parent := self.valid(job)) is not None:
            return parent
        count = max(job.info.min_member - job.ready, 1)
        stated = job.info.min_resources is not None
        return self._objection(queue, job.lacking(), count, self._awaiting(), within_cluster=stated)

    def enqueued(self, job: JobState) -> None:
        """Set aside what an admitted job waits for."""
        if self._awaited is not None:
            self._await(self._awaited, job)

    def _awaiting(self) -> dict[str, Vector]:
        if self._awaited is None:
            self._awaited = {}
            for job in self.session.jobs:
                if job.unfinished:
                    self._await(self._awaited, job)
        return self._awaited

    def _await(self, awaited: dict[str, Vector], job: JobState) -> None:
        queue = self.session.queue_of(job)
        if queue is not None and job.info.min_resources is not None:
            for name in self._lines[queue.name]:
                awaited[name] = vectors.add(awaited.get(name, self.session.axes.zero), job.lacking())

    def _objection(
        self, queue: QueueState, wanted: Vector, count: int, awaited: dict[str, Vector], *, within_cluster: bool
    ) -> Obstacle | None:
        axes = self.session.axes
        for name in self._lines[queue.name]:
            limit = self._most[name] if within_cluster else self._limit[name]
            free = vectors.subtract(limit, vectors.add(self._used(name), awaited.get(name, axes.zero)))
            if not vectors.fits(wanted, free):
                own = vectors.add(free, vectors.subtract(self._limit[name], limit))
                return messages.queue_obstacle(
                    count, wanted, own, free, axes, name, guaranteed=name in self._beside_guaranteed
                )
        return None

    def _within(self, name: str) -> Vector:
        """What a queue may have at most: its capability, and what isn't guaranteed to those beside it."""
        axes, above = self.session.axes, self._lines[name][1:]
        rest = self.session.snapshot.table.total
        for other, line in self._lines.items():
            if other not in {name, ROOT} and line[1:] == above and any(self._guarantee[other]):
                rest = vectors.subtract(rest, self._guarantee[other])
                self._beside_guaranteed.add(name)
        counted = [most if place in axes.shared else vectors.UNLIMITED for place, most in enumerate(rest)]
        return vectors.least(self._limit[name], tuple(counted))

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        """Whether some of what a task asks for is still due to its queue, or to an ancestor that counts.

        Where no queue states what it deserves there is nothing to go by, and others decide.
        """
        return not self._stated or any(self._due(name, task) for name in self._counting(queue.name))

    def _due(self, name: str, task: Task) -> bool:
        wanted = self.session.vector(task.task_class)
        after = vectors.add(self._used(name), wanted)
        deserved = self._deserved[name]
        return any(after[place] <= deserved[place] for place in self._disputed(wanted))

    def _wanted_by_more(self) -> set[int]:
        """Return the resources of which all queues together have and ask for more than there is."""
        requested, total = self.session.axes.zero, self.session.snapshot.table.total
        for queue in self.session.queues.values():
            requested = vectors.add(requested, queue.requested())
        return {place for place in self.session.axes.shared if requested[place] > total[place]}

    def _disputed(self, amounts: Vector) -> Collection[int]:
        """Return the resources among some amounts of which there isn't enough for everybody; all of them, where there is.

        What isn't scarce nobody has to give back, so that it is no reason to keep what is.
        """
        used = {place for place in self.session.axes.shared if amounts[place]}
        return used & self._scarce or used

    def _counting(self, name: str) -> list[str]:
        return self._lines[name][: self.arguments.level + 1]

    def reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task] | None:
        """Choose tasks without which their queues have what they deserve, and all above them what they are guaranteed.

        So have as many ancestors what they deserve as ``ancestorReclaimLevel`` says, of what is scarce. The preemptor's side must be due
        something there. Ancestors that both sides share don't count: what they have doesn't change.
        """
        if not self._stated:
            return None
        session, owner = self.session, self.session.victims.job_of
        mine = owner(preemptor).info.queue
        left: dict[str, Vector] = {}
        chosen = []
        for task in candidates:
            theirs = owner(task).info.queue
            apart = [name for name in self._lines[theirs] if name not in self._lines[mine]]
            own = [name for name in self._counting(mine) if name not in self._lines[theirs]]
            amounts = session.vector(task.task_class)
            rest = {name: vectors.subtract(left.get(name) or self._used(name), amounts) for name in apart}
            counting = self._counting(theirs)
            if any(self._due(name, preemptor) for name in own) and all(
                self._keeps(name, rest[name], amounts, deserved=name in counting) for name in apart
            ):
                left |= rest
                chosen.append(task)
        return chosen

    def _keeps(self, name: str, rest: Vector, amounts: Vector, *, deserved: bool) -> bool:
        guarantee, share = self._guarantee[name], self._deserved[name]
        kept = all(rest[place] >= guarantee[place] for place in self.session.axes.shared if amounts[place])
        return kept and (not deserved or all(rest[place] >= share[place] for place in self._disputed(amounts)))
