"""reclaim: let queues that have less than they deserve take it back from those that have more."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.engine.action import Action
from scheduler.engine.eviction import EvictionArguments, EvictionRun, Rules, starving_jobs
from scheduler.engine.job_order import JobOrder
from scheduler.engine.session import Session
from scheduler.engine.states import QueueState


class Reclaim(Action):
    """One attempt for each job that starves, in the order of queues and jobs. Which tasks may go is up to the plugins."""

    name = "reclaim"
    arguments_type = EvictionArguments

    def __call__(self, session: Session, arguments: EvictionArguments, /) -> None:
        """Evict what lets such jobs start."""

        def sources(queue: QueueState) -> Iterable[QueueState]:
            return (other for other in session.queues.values() if other is not queue and other.info.reclaimable)

        rules = Rules(
            sources=sources,
            choose=session.extensions.reclaimable,
            eligible=session.extensions.preemptive,
            whole=arguments.whole,
        )
        evictions = EvictionRun(session, rules)
        order = JobOrder(session, starving_jobs(session))
        for queue, job in order:
            if queue.info.state != "Open" or session.extensions.overused(queue):
                order.drop_queue(queue)
            else:
                evictions.attempt(queue, job)
