"""Victims that are of use: those whose going helps another pod to a place."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.engine.session import Session
from scheduler.model.constraints import ports_clash
from scheduler.model.snapshot import Task
from scheduler.model.vectors import Vector

Helps = Callable[[Session, Task, Task, Vector], bool]
"""Whether a task gains by a victim's going, on a node that is short of some amounts."""


def helps(session: Session, task: Task, victim: Task, short: Vector) -> bool:
    """Whether a node that is ``short`` gains by something's going; one that isn't is left for its queue's sake."""
    del task
    amounts = session.vector(victim.task_class)
    return not any(short) or any(has > 0 and lacks > 0 for has, lacks in zip(amounts, short, strict=True))


def gives_way(session: Session, task: Task, victim: Task, short: Vector) -> bool:
    """Whether a pod makes way for what isn't to be had beside it: not one that says itself that it is as important."""
    queues = [session.victims.job_of(each).info.queue for each in (task, victim)]
    if queues[0] == queues[1] and victim.priority and victim.priority >= task.priority:
        return False
    mine, its = task.task_class.constraints, victim.task_class.constraints
    # Who is unwanted near is told by trying.
    frees = mine.depends_on_other_pods or ports_clash(mine.ports, its.ports) or bool(mine.claims and its.claims)
    return frees or (any(short) and helps(session, task, victim, short))
