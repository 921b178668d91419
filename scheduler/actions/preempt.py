"""preempt: let jobs that lack their minimum take places from less important ones of their queue."""

from __future__ import annotations

from scheduler.engine.action import Action
from scheduler.engine.eviction import EvictionArguments, EvictionRun, Rules, starving_jobs
from scheduler.engine.job_order import JobOrder
from scheduler.engine.session import Session


class Preempt(Action):
    """One attempt for each job that starves, in the order of queues and jobs. Which tasks may go is up to the plugins."""

    name = "preempt"
    arguments_type = EvictionArguments

    def __call__(self, session: Session, arguments: EvictionArguments, /) -> None:
        """Evict what lets such jobs start."""
        rules = Rules(
            sources=lambda queue: [queue],
            choose=session.extensions.preemptable,
            eligible=lambda *_: True,
            whole=arguments.whole,
        )
        evictions = EvictionRun(session, rules)
        for queue, job in JobOrder(session, starving_jobs(session)):
            evictions.attempt(queue, job)
