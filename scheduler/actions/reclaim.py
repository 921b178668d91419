"""reclaim: let queues that have less than they deserve take it back from those that have more."""

from __future__ import annotations

from scheduler.engine.action import Action
from scheduler.engine.eviction import EvictionRun
from scheduler.engine.eviction_rules import EvictionArguments, ReclaimArguments, in_turns, preemptions, reclamation
from scheduler.engine.preemptors import growing_jobs, starving_jobs
from scheduler.engine.session import Session
from scheduler.engine.states import QueueState
from scheduler.model.snapshot import Phase


class Reclaim(Action):
    """From pods that are made again first, and from nobody who has just begun. Which tasks may go is up to the plugins.

    Jobs that lack their minimum come first, then the tasks that others have beyond it, one at a time.

    A Pending job is admitted where that gives it its whole minimum, together with what the action preempt would take,
    where that action runs, too.
    """

    name = "reclaim"
    arguments_type = ReclaimArguments

    def __call__(self, session: Session, arguments: ReclaimArguments, /) -> None:
        """Evict what lets such jobs start."""

        def allowed(queue: QueueState) -> bool:
            return queue.info.state == "Open" and not session.extensions.overused(queue)

        lenders = {queue.name for queue in session.queues.values() if queue.info.reclaimable and any(queue.allocated)}
        reclaiming = {queue.name for queue in session.queues.values() if lenders - {queue.name} and allowed(queue)}
        rules = reclamation(session, arguments)
        if jobs := starving_jobs(session, reclaiming):
            in_turns(session, EvictionRun(session, [rules]), jobs, allowed)
            preempting = session.policy.arguments.get("preempt")
            if isinstance(preempting, EvictionArguments):
                run = EvictionRun(session, [*preemptions(session, preempting), rules])
                in_turns(session, run, [job for job in jobs if job.phase is Phase.PENDING], allowed)
        if jobs := growing_jobs(session, reclaiming):
            in_turns(session, EvictionRun(session, [rules]), jobs, allowed, grow=True)
