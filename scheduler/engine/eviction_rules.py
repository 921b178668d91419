"""The rules of the actions that evict, and in which order jobs have others evicted for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import islice
from typing import Annotated, Any, Final

from msgspec import Meta, field
from msgspec.structs import replace

from muster.model.durations import seconds
from scheduler.engine import overuse
from scheduler.engine.action import ActionArguments
from scheduler.engine.arguments import read_by, without_effect
from scheduler.engine.eviction import EvictionRules, EvictionRun
from scheduler.engine.job_order import JobOrder
from scheduler.engine.session import Session
from scheduler.engine.states import JobState, QueueState, priority
from scheduler.model.snapshot import JobInfo, Task

_ALL_JUDGED: Final = without_effect("all nodes are judged, with all predicates")
_FIRST: Final = 8
"""So many jobs are tried in vain, the first in the order of queues and jobs, before others have their turns."""
_OTHERS: Final = 8
"""Of the others so many are tried in a cycle, and other ones every `_TURN` seconds."""
_TURN: Final = 10.0
_MOST_LEVELS: Final = 4
"""Priorities that are tried one after the other; who is more important than these is chosen from at once."""
_MOST_NODES: Final = 1_000
"""Nodes that are looked at in vain before no more of the first jobs are tried; and of the others, as many again."""


class EvictionArguments(ActionArguments, frozen=True, kw_only=True):
    """Arguments of the actions that evict."""

    whole: bool = field(default=False, name="evictWholeJobs")
    topology: Annotated[bool, _ALL_JUDGED] = field(default=False, name="enableTopologyAwarePreemption")
    workers: Annotated[int, Meta(ge=1), _ALL_JUDGED] = field(default=16, name="topologyAwarePreemptWorkerNum")
    least_part: Annotated[int, Meta(ge=0, le=100), _ALL_JUDGED] = field(default=10, name="minCandidateNodesPercentage")
    least: Annotated[int, Meta(ge=0), _ALL_JUDGED] = field(default=1, name="minCandidateNodesAbsolute")
    most: Annotated[int, Meta(ge=1), _ALL_JUDGED] = field(default=100, name="maxCandidateNodesAbsolute")


class ReclaimArguments(EvictionArguments, frozen=True, kw_only=True):
    """Arguments of reclaim: whether pods may go that nobody makes again, and how long a pod has run at least."""

    bare_pods: bool = field(default=False, name="barePods")
    least_run: Annotated[float, read_by(seconds)] = field(default=60.0, name="leastRunTime")


def preemptions(session: Session, arguments: EvictionArguments) -> list[EvictionRules]:
    """Return the rules of preempt one after the other: with the least important of a queue's jobs first, wherever they run, at last with all of them.

    So that node is taken whose most important victim is the least important, as kube-scheduler does.
    """
    lesser = cache(partial(_lesser, session))
    queues = session.queues if len(session.snapshot.priorities) > 1 else ()
    least = sorted({level for name in queues for level in lesser(name)})[:_MOST_LEVELS]
    everybody = preemption(session, arguments)

    def up_to(most: int) -> EvictionRules:
        def eligible(queue: QueueState, task: Task) -> bool:
            return most in lesser(queue.name) and most < _priority(session, session.victims.job_of(task))

        def permits(task: Task) -> bool:
            return _priority(session, session.victims.job_of(task)) <= most

        return replace(everybody, eligible=eligible, permits=permits)

    return [*map(up_to, least), everybody]


def _lesser(session: Session, queue: str) -> list[int]:
    """Return the priorities of a queue's jobs that have pods which might be evicted, but for the highest, ascending."""
    return sorted({_priority(session, job) for job in session.victims.owners(queue)})[:-1]


def _priority(session: Session, job: JobState) -> int:
    return priority(job.info, session.snapshot.priorities)


def preemption(session: Session, arguments: EvictionArguments) -> EvictionRules:
    """Return the rules of preempt: within a queue, by what plugins say, and of who uses more than it states."""

    def choose(preemptor: Task, candidates: Iterable[Task]) -> list[Task]:
        return overuse.choose(session, preemptor, list(candidates))

    def order(task: Task) -> tuple[Any, ...]:
        queue, job = _of(session, task)
        return session.extensions.queue_key(queue), session.extensions.victim_key(job, task)

    return EvictionRules(
        sources=lambda queue: [queue],
        choose=choose,
        eligible=lambda *_: True,
        permits=lambda _: True,
        order=order,
        whole=arguments.whole,
    )


def reclamation(session: Session, arguments: ReclaimArguments) -> EvictionRules:
    """Return the rules of reclaim: from other queues; pods that are made again first, and those that ran for a while."""

    def permits(task: Task) -> bool:
        if task.bare and not arguments.bare_pods:
            return False
        # Of a pod that no API server has stored nobody knows since when it runs.
        if not task.created:
            return True
        return bool(task.started) and session.deadlines.passed(task.started + arguments.least_run)

    def sources(queue: QueueState) -> Iterable[QueueState]:
        return (other for other in session.queues.values() if other is not queue and other.info.reclaimable)

    def order(task: Task) -> tuple[Any, ...]:
        queue, job = _of(session, task)
        return session.extensions.queue_key(queue), not task.bare, session.extensions.victim_key(job, task)

    return EvictionRules(
        sources=sources,
        choose=session.extensions.reclaimable,
        eligible=session.extensions.preemptive,
        permits=permits,
        order=order,
        whole=arguments.whole,
    )


def _of(session: Session, task: Task) -> tuple[QueueState, JobState]:
    job = session.victims.job_of(task)
    return session.queues[job.info.queue], job


def in_turns(
    session: Session,
    run: EvictionRun,
    jobs: Iterable[JobState],
    allowed: Callable[[QueueState], bool],
    *,
    grow: bool = False,
) -> None:
    """Have jobs try in the order of queues and jobs. Of jobs alike one is tried, and the next when that one succeeded.

    A cycle tries few in vain: the first in order, and of the others some in turns, by the clock. With ``grow`` a turn is about
    one more task, and who succeeded has another.
    """
    attempt = run.grow if grow else run.attempt
    lines: dict[object, deque[JobState]] = {}
    for job in jobs:
        lines.setdefault(_likeness(job.info), deque()).append(job)
    order = JobOrder(session, [line.popleft() for line in lines.values()])
    turns, vain = iter(order), 0
    for queue, job in turns:
        if not allowed(queue):
            order.drop_queue(queue)
        elif attempt(queue, job):
            line = lines[_likeness(job.info)]
            if grow and job.waiting:
                order.requeue(job)
            elif line:
                order.requeue(line.popleft())
        else:
            vain += 1
            if vain >= _FIRST or run.looked_at > _MOST_NODES:
                break
    others = [each for each in turns if allowed(each[0])]
    if not others:
        return
    turn = session.now.timestamp() // _TURN
    session.deadlines.passed((turn + 1) * _TURN)
    first = int(turn) * _OTHERS % len(others)
    # In a large cluster the first job alone looks at as many nodes, in each cycle anew: others must not wait for it.
    most = run.looked_at + _MOST_NODES
    for queue, job in islice(others + others, first, first + min(_OTHERS, len(others))):
        if run.looked_at <= most and allowed(queue):
            attempt(queue, job)


def _likeness(info: JobInfo) -> object:
    """Jobs of which this is equal are told the same by whoever is asked."""
    return (
        info.queue,
        info.key.namespace,
        info.priority_class,
        info.min_member,
        info.phase,
        info.task_counts.ready,
        tuple(info.task_counts.wanting.items()),
        tuple([(each.task_class, each.count) for each in info.expected_pods]),
    )
