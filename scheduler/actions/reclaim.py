"""reclaim: let queues that have less than they deserve take it back from those that have more."""

from __future__ import annotations

from scheduler.engine.action import Action
from scheduler.engine.eviction import EvictionRun, starving_jobs
from scheduler.engine.eviction_rules import EvictionArguments, ReclaimArguments, in_turns, preemption, reclamation
from scheduler.engine.session import Session
from scheduler.engine.states import QueueState
from scheduler.model.snapshot import Phase


class Reclaim(Action):
    """From pods that are made again first, and from nobody who has just begun. Which tasks may go is up to the plugins.

    A Pending job is admitted where that gives it its whole minimum, together with what the action preempt would take,
    where that action runs, too.
    """

    name = "reclaim"
    arguments_type = ReclaimArguments

    def __call__(self, session: Session, arguments: ReclaimArguments, /) -> None:
        """Evict what lets such jobs start."""

        def allowed(queue: QueueState) -> bool:
            return queue.info.state == "Open" and not session.extensions.overused(queue)

        if sum(any(queue.allocated) and queue.info.reclaimable for queue in session.queues.values()) == 0:
            return
        rules = reclamation(session, arguments)
        run = EvictionRun(session, [rules])
        in_turns(session, run, starving_jobs(session), allowed)
        preempting = session.policy.arguments.get("preempt")
        if isinstance(preempting, EvictionArguments):
            run = EvictionRun(session, [preemption(session, preempting), rules])
            in_turns(session, run, [job for job in starving_jobs(session) if job.phase is Phase.PENDING], allowed)
