"""The results of a session (placements, statuses, shares), as the values of a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from muster.ledger import wording
from muster.model.objects import Condition
from scheduler.engine import lifecycle, partial_gangs, requeue, reserved_nodes
from scheduler.engine.decision_cache import DecisionCache
from scheduler.engine.lifecycle import PhaseFacts
from scheduler.engine.obstacles import Obstacles
from scheduler.engine.reserved_nodes import NodeReservationArguments
from scheduler.engine.session import Session
from scheduler.engine.states import JobState, QueueState, priority
from scheduler.model import vectors
from scheduler.model.claims import HeldClaim
from scheduler.model.plan import Bind, Eviction, GroupStatus, QueueShare, Urgency
from scheduler.model.pod_claims import ResourceClaimKey
from scheduler.model.records import Record
from scheduler.model.snapshot import OCCUPYING, GroupKey, JobInfo, Phase, RequeueState, ReservedNodes, Task, TaskStatus

_RUNS: Final = frozenset({Phase.RUNNING, Phase.COMPLETED})
_ON_NODES: Final = OCCUPYING | {TaskStatus.RELEASING}
_group: Final = attrgetter("group")


class PlanBuilder:
    """Reads a session whose actions are done."""

    def __init__(self, session: Session, cache: DecisionCache) -> None:
        self._session = session
        self._cache = cache
        self._obstacles = Obstacles(session)
        # As Kubernetes writes moments: the API server would cut the rest off.
        self._now = session.now.replace(microsecond=0)
        # A deterministic name for what this session changes: the same state at the same moment gives the same.
        self._transition = _uuid(f"{session.snapshot.revision} {session.now.isoformat()}")

    def binds(self) -> tuple[Bind, ...]:
        """Return the placements of jobs that may start."""
        return self._placements(TaskStatus.ALLOCATED)

    def pipelined(self) -> tuple[Bind, ...]:
        """Return the places that are reserved until others have left."""
        return self._placements(TaskStatus.PIPELINED)

    def _placements(self, status: TaskStatus) -> tuple[Bind, ...]:
        names, volumes = self._session.snapshot.table.names, self._session.volumes
        devices = self._session.devices
        allocations, extensions = self._session.allocations, self._session.extensions
        stand_ins = allocations.stand_ins
        return tuple(
            Bind(
                task,
                names[row],
                operation.job.info.key,
                volumes.choices(task.uid, row) if task.task_class.constraints.claims else (),
                devices.choices(task.uid, row) if task.task_class.constraints.devices else (),
            )
            for operation in allocations.committed
            if operation.status is status and (status is TaskStatus.PIPELINED or extensions.ready(operation.job))
            for task, row in zip(operation.tasks, operation.rows, strict=True)
            if not stand_ins or task.uid not in stand_ins
        )

    def evictions(self) -> tuple[Eviction, ...]:
        """Return who has to go, and for whom."""
        requested = [
            Eviction(
                task,
                operation.job.info.key,
                operation.beneficiary.info.key,
                operation.beneficiary.info.title,
                self._priority(operation.beneficiary),
                _other_queue(operation.job.info, operation.beneficiary.info),
            )
            for operation in self._session.allocations.committed
            if operation.status is TaskStatus.RELEASING and operation.beneficiary is not None
            for task in operation.tasks
        ]
        expired = [
            Eviction(task, job.info.key, job.info.key, job.info.title)
            for job, task in partial_gangs.expired(self._session)
        ]
        return (*requested, *expired)

    def _priority(self, job: JobState) -> int:
        return priority(job.info, self._session.snapshot.priorities)

    def reserved(self) -> ReservedNodes | None:
        """Return the nodes that are kept for a group from now on."""
        arguments = self._session.policy.arguments.get("allocate")
        return (
            reserved_nodes.choose(self._session, arguments) if isinstance(arguments, NodeReservationArguments) else None
        )

    def released(self) -> frozenset[str]:
        """Return the uids of the Jobs that we hold back and whose group has its turn."""
        return frozenset(
            each.job
            for job in self._session.jobs
            if job.unfinished and not job.info.about_to_reserve
            for each in job.info.expected_pods
            if each.suspended
        )

    def rolled_back(self) -> Mapping[str, RequeueState]:
        """Return the groups that were taken back because nothing came of them, and for how long."""
        return {
            job.info.uid: requeue.postponement(self._session, job, job.rolled_back)
            for job in self._session.jobs
            if job.rolled_back is not None
        }

    def held_claims(self) -> tuple[HeldClaim, ...]:
        """Return the claims that hold devices for pods that have no place, or for groups of which no pod has one."""
        devices = self._session.devices
        found: dict[ResourceClaimKey, HeldClaim] = {}
        for job in self._session.jobs if self._session.snapshot.devices.known else ():
            tasks = [task for task in (*job.waiting, *job.unplaced) if task.task_class.constraints.devices]
            if tasks:
                placed = any(job.info.counts.get(status) for status in _ON_NODES) or any(
                    task.uid in devices.placed for task in job.info.pending
                )
                found |= {each.claim: each for task in tasks for each in devices.held_by(task, group_placed=placed)}
        return tuple(found.values())

    def unplaced(self) -> Mapping[GroupKey, tuple[Task, ...]]:
        """Return the pods for which more nodes are all that is missing: what a cluster autoscaler is to see."""
        return {
            job.info.key: (*job.waiting, *job.unplaced)
            for job in self._session.jobs
            if (job.waiting or job.unplaced) and self._obstacles.lacks_nodes(job)
        }

    def statuses(self) -> list[GroupStatus]:
        """Return each group's status, in the order of the snapshot."""
        return [self._status(job) for job in self._session.jobs]

    def shares(self) -> Mapping[str, QueueShare]:
        """Return what each queue has and deserves."""
        return {name: self._share(queue) for name, queue in self._session.queues.items()}

    def tasks(
        self, binds: tuple[Bind, ...], pipelined: tuple[Bind, ...], evictions: tuple[Eviction, ...]
    ) -> Mapping[GroupKey, Mapping[TaskStatus, int]]:
        """Count each group's tasks by status, as they would be seen once the plan is performed."""
        seen = {job.info.key: job.info.counts for job in self._session.jobs}
        for operation in self._session.allocations.committed if evictions else ():
            seen.setdefault(operation.job.info.key, operation.job.info.counts)
        # A plan lists a group's pods one after the other, so they are counted by runs.
        changes = [
            *[(key, TaskStatus.PENDING, TaskStatus.BINDING, _length(run)) for key, run in groupby(binds, _group)],
            *[(key, TaskStatus.PENDING, TaskStatus.PIPELINED, _length(run)) for key, run in groupby(pipelined, _group)],
            *[(each.group, each.task.status, TaskStatus.RELEASING, 1) for each in evictions],
        ]
        counts: dict[GroupKey, dict[TaskStatus, int]] = {}
        for key, before, after, number in changes:
            mine = counts.get(key)
            if mine is None:
                mine = counts[key] = dict(seen[key])
            mine[before] -= number
            mine[after] = mine.get(after, 0) + number
        return seen | {key: {status: count for status, count in each.items() if count} for key, each in counts.items()}

    def _share(self, queue: QueueState) -> QueueShare:
        axes, deserved = self._session.axes, self._session.extensions.deserved(queue)
        amounts = (axes.names, queue.allocated, deserved)
        known = self._cache.share(queue.info, amounts)
        if known is not None:
            return known
        share = QueueShare(
            allocated=axes.resources(queue.allocated),
            deserved=axes.resources(deserved) if deserved is not None else None,
            share=vectors.share(queue.allocated, deserved, axes.shared) if deserved is not None else None,
        )
        self._cache.remember_share(queue.info, amounts, share)
        return share

    def _status(self, job: JobState) -> GroupStatus:
        """Return a group's status; that of one that only runs is worked out once, as long as it stays as it is."""
        if not _is_quiet(job):
            return self._new_status(job)
        policy, ready = self._session.policy, self._session.extensions.ready(job)
        known = self._cache.quiet(job.info, policy, ready=ready)
        if known is not None:
            return known
        status = self._new_status(job)
        if not differs(job.info, status):
            self._cache.remember_quiet(job.info, policy, ready=ready, status=status)
        return status

    def _new_status(self, job: JobState) -> GroupStatus:
        facts = self._facts(job)
        # Where nothing changed by what is so, and it is so still.
        known = self._cache.settled(job.info, facts)
        if known is not None:
            return known
        status = self._settle(job, facts)
        if not differs(job.info, status):
            self._cache.remember_settled(job.info, facts, status)
        return status

    def _settle(self, job: JobState, facts: PhaseFacts) -> GroupStatus:
        old = job.info
        phase = lifecycle.settle(old.phase, facts)
        finished = phase is old.phase is Phase.COMPLETED
        holding = lifecycle.next_holding(old, phase)
        conditions = lifecycle.conditions(old.conditions, phase, facts, transition=self._transition, now=self._now)
        # The pods of what is finished are deleted in time; its counters stay as they were.
        counters = old.counters if finished else (facts.running, facts.succeeded, facts.failed)
        return GroupStatus(
            key=old.key,
            uid=old.uid,
            queue=old.queue,
            before=old.phase,
            phase=phase,
            conditions=conditions,
            running=counters[0],
            succeeded=counters[1],
            failed=counters[2],
            urgency=Urgency.NOW if holding != old.holding else _urgency(old, phase, conditions),
            reserves=lifecycle.reserves(old, phase, holding),
            holding=holding,
            held_before=old.holding,
            owner=old.owner,
            since=lifecycle.phase_began(old, phase, self._now),
            lasted=self._lasted(old) if phase is not old.phase else None,
        )

    def _lasted(self, info: JobInfo) -> float | None:
        wait = self._session.snapshot.requeues.get(info.uid)
        return lifecycle.phase_seconds(info, wait, self._session.now)

    def records(self, statuses: Iterable[GroupStatus], growing: Collection[GroupKey] = ()) -> Mapping[GroupKey, Record]:
        """Return what is known of each group that doesn't run, and of those ``growing`` that run and have pods that wait."""
        phases = {status.key: status.phase for status in statuses}
        found = self._obstacles.records(
            [job for job in self._session.jobs if job.info.restarts or phases[job.info.key] not in _RUNS]
        )
        runs = [job for job in self._session.jobs if job.info.key in growing and job.info.key not in found]
        more = {job.info.key: self._obstacles.growth(job) for job in runs if job.waiting or job.unplaced}
        return {**found, **more} if more else found

    def _facts(self, job: JobState) -> PhaseFacts:
        counts = job.info.counts
        ready = self._session.extensions.ready(job) and job.ready >= max(job.info.min_member, 1)
        waiting = len(job.waiting) + len(job.unplaced)
        return PhaseFacts(
            minimum=job.info.min_member,
            admitted=job.phase is Phase.INQUEUE,
            running=counts.get(TaskStatus.RUNNING, 0),
            succeeded=counts.get(TaskStatus.SUCCEEDED, 0),
            failed=counts.get(TaskStatus.FAILED, 0),
            placed=job.ready,
            waiting=waiting,
            leaving=0 if ready else _making_room(job.info),
            pods=len(job.info.tasks),
            over=job.info.finished,
            ready=ready,
            obstacle=self._obstacles.of(job) if not ready or job.info.restarts else None,
            postponed=requeue.postponement(self._session, job, job.rolled_back) if job.rolled_back else None,
            restarts=job.info.restarts,
            refused=_refused(job.info),
            lapsed_after=job.lapsed_after,
            failing=job.info.failing,
        )


def _other_queue(victim: JobInfo, beneficiary: JobInfo) -> str:
    return beneficiary.queue if beneficiary.queue != victim.queue else ""


def _uuid(text: str) -> str:
    """Write a UUID of a text, of the version that leaves how to its maker (RFC 9562, 8)."""
    drawn = blake2b(text.encode(), digest_size=15).hexdigest()
    return f"{drawn[:8]}-{drawn[8:12]}-8{drawn[12:15]}-a{drawn[15:18]}-{drawn[18:30]}"


def _is_quiet(job: JobState) -> bool:
    """Whether nothing of a job waits and nothing was done to it in this cycle."""
    return (
        job.phase in _RUNS
        and not job.waiting
        and not job.unplaced
        and job.obstacle is None
        and job.allocated is job.amounts.allocated
        and not job.pipelined
    )


def _making_room(job: JobInfo) -> int:
    if not job.counts.get(TaskStatus.RELEASING):
        return 0
    return sum(task.status is TaskStatus.RELEASING and bool(task.controller) for task in job.tasks)


def _refused(job: JobInfo) -> str:
    """Say why the ledger refused a group the reservation that it should have from its creation on; empty where it did not."""
    # For the moments in which the ledger hasn't looked at a new group yet, nobody knows.
    return "" if job.reserves_late or job.unreserved == wording.unreserved(()) else job.unreserved


def differs(old: JobInfo, status: GroupStatus) -> bool:
    """Whether a status has to be written."""
    return (
        status.phase is not old.phase
        or status.holding != old.holding
        or not old.written
        or status.conditions != old.conditions
        or (status.running, status.succeeded, status.failed) != old.counters
    )


def _urgency(old: JobInfo, phase: Phase, conditions: tuple[Condition, ...]) -> Urgency:
    if phase is not old.phase or not old.written:
        return Urgency.NOW
    before = {(each.type, each.status, each.reason) for each in old.conditions}
    if {(each.type, each.status, each.reason) for each in conditions} != before:
        return Urgency.NOW
    return Urgency.LATER if conditions != old.conditions else Urgency.SOON


def _length(run: Iterable[Any]) -> int:
    return sum(1 for _ in run)
