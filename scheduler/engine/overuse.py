"""The victims within a queue: jobs of lower priority, as plugins say; and jobs that use more than their minimum needs, for one that lacks its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scheduler.engine.session import Session
from scheduler.engine.states import JobState, priority
from scheduler.model import vectors
from scheduler.model.snapshot import GroupKey, Task
from scheduler.model.vectors import Vector


def choose(session: Session, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
    """Choose victims for a task of a job that lacks its minimum: whom plugins give up, and what is used beyond minimums.

    What protects pods counts for both. Where no plugin is asked about victims, a policy wants none.
    """
    if not session.extensions.methods("preemptable"):
        return []
    surplus = {task.uid for task in _surplus(session, session.victims.job_of(preemptor), candidates)}
    return session.extensions.preemptable(preemptor, candidates, besides=surplus)


def _surplus(session: Session, job: JobState, candidates: Sequence[Task]) -> list[Task]:
    """Return tasks of other jobs, of no higher priority, that these can do without: beyond their minimum and what it needs.

    The need is as everywhere: minResources, else minMember times what the pods ask for. A job that states no minimum keeps
    one pod, as much as it could claim itself. The preemptor takes no more than its own minimum, so that nobody has a reason
    to take anything back from it.
    """
    if _has_minimum(job):
        return []
    mine = priority(job.info, session.snapshot.priorities)
    left, gone = dict[GroupKey, Vector](), dict[GroupKey, Counter[str]]()
    chosen = []
    for task in candidates:
        owner = session.victims.job_of(task)
        if owner is job or priority(owner.info, session.snapshot.priorities) > mine:
            continue
        key, amounts = owner.info.key, session.vector(task.task_class)
        roles, rest = gone.setdefault(key, Counter()), vectors.subtract(left.get(key, owner.allocated), amounts)
        roles[task.role] += 1
        need = owner.need()
        beyond = all(rest[place] >= need[place] for place in session.axes.shared if amounts[place])
        if beyond and owner.ready > roles.total() and owner.spares(roles):
            left[key] = rest
            chosen.append(task)
        else:
            roles[task.role] -= 1
    return chosen


def _has_minimum(job: JobState) -> bool:
    return job.ready + job.pipelined >= max(job.info.min_member, 1)
