"""Places kept for pods that don't exist yet, of groups that were admitted because others leave for them.

Muster holds a Job back until its group is admitted, so its pods come after the evictions. Until they do, a task that
stands for each has its place in every cycle, so that nobody else takes it; once all pods of the minimum are there, they
get these places. That lasts for the time that a group may be Inqueue without progress, at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from scheduler.engine import placement
from scheduler.engine.requeue import EnqueueArguments
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model.kept_places import KeptPlace, KeptPlaces
from scheduler.model.snapshot import GroupKey, Phase, Task, TaskStatus

_NUMBERS = "{}/{}"
"""The uid of a task that stands for a pod: that of its group, and which one it is. No pod's uid has a slash."""


def lacks_pods(session: Session, job: JobState) -> bool:
    """Whether some pods of its minimum don't exist yet, and all of these are going to."""
    if session.extensions.valid(job) is None or job.info.inadmissible:
        return False
    coming = sum(each.count for each in job.info.expected_pods)
    return bool(coming) and job.ready + len(job.waiting) + coming >= job.info.min_member


def stand_ins(session: Session, job: JobState) -> Iterator[Task]:
    """Return tasks that stand for the pods of a job that wait, and then for those that are yet to come.

    Of pods alike there are no more than the minimum lacks; more than one task per place would be of no use.
    """
    numbers, most = count(), max(session.extensions.missing(job), 1)
    for task in job.waiting:
        yield _stand_in(session, job, task, next(numbers))
    for each in job.info.expected_pods:
        like = Task(
            uid="",
            namespace=job.info.key.namespace,
            name=job.info.key.name,
            task_class=each.task_class,
            status=TaskStatus.PENDING,
            priority=each.priority,
            role=each.role,
            never_preempts=each.never_preempts,
        )
        for _ in range(each.count if job.info.min_task_member else min(each.count, most)):
            yield _stand_in(session, job, like, next(numbers))


def _stand_in(session: Session, job: JobState, like: Task, number: int) -> Task:
    task = Task(
        uid=_NUMBERS.format(job.info.uid, number),
        namespace=like.namespace,
        name=like.name,
        task_class=like.task_class,
        status=TaskStatus.PENDING,
        priority=like.priority,
        role=like.role,
        never_preempts=like.never_preempts,
    )
    session.allocations.stand_ins[task.uid] = job
    return task


def keep(session: Session, job: JobState, places: Sequence[KeptPlace], since: float) -> None:
    """Note that a job's stand-ins have these places."""
    job.kept = len(places)
    session.kept[job.info.key] = KeptPlaces(job.info.uid, tuple(places), since)


def left(session: Session) -> Mapping[GroupKey, KeptPlaces]:
    """Return the places that the next cycle is to keep: those of groups that are still admitted."""
    kept = session.kept
    return {job.info.key: kept[job.info.key] for job in session.jobs if job.kept and job.unfinished} if kept else kept


def restore(session: Session) -> None:
    """Keep again what earlier cycles kept, and let pods that have come since have it."""
    kept_places = session.snapshot.kept_places
    for job in session.jobs if kept_places else ():
        kept = kept_places.get(job.info.key)
        if kept is None or kept.uid != job.info.uid or not _lasts(session, job, kept):
            continue
        if session.extensions.valid(job) is None:
            _nominate(session, job, kept)
        else:
            _keep_again(session, job, kept)


def _lasts(session: Session, job: JobState, kept: KeptPlaces) -> bool:
    queue, arguments = session.queue_of(job), session.policy.arguments.get("enqueue")
    if queue is None or job.phase is not Phase.INQUEUE or session.extensions.ready(job) or job.info.inadmissible:
        return False
    if placement.unreserved(job) is not None or placement.closed(queue) is not None:
        return False
    arguments = arguments if isinstance(arguments, EnqueueArguments) else EnqueueArguments()
    after = arguments.requeue_after(scales=arguments.scales(session.snapshot))
    return not session.deadlines.passed(kept.since + after)


def _nominate(session: Session, job: JobState, kept: KeptPlaces) -> None:
    """Name the places for pods: each that was kept for one like it, what is left for the others in turn."""
    left = list(kept.places)
    others = []
    for task in job.waiting:
        place = next((each for each in left if each.task_class is task.task_class), None)
        if place is None:
            others.append(task)
            continue
        left.remove(place)
        session.nominated.setdefault(task.uid, place.node)
    for task, place in zip(others, left, strict=False):
        session.nominated.setdefault(task.uid, place.node)


def _keep_again(session: Session, job: JobState, kept: KeptPlaces) -> None:
    rows, key = session.snapshot.table.row, job.info.key
    with session.statement() as statement:
        for number, place in enumerate(kept.places):
            like = Task("", key.namespace, key.name, place.task_class, TaskStatus.PENDING, role=place.role)
            row = rows.get(place.node)
            if row is None or not session.picker.fits(place.task_class, row, session.future):
                return
            statement.pipeline(job, _stand_in(session, job, like, number), row)
        statement.commit()
    keep(session, job, kept.places, kept.since)
