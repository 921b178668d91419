"""preempt: let jobs that lack their minimum take places from others of their queue."""

from __future__ import annotations

from scheduler.engine.action import Action
from scheduler.engine.eviction import EvictionRun
from scheduler.engine.eviction_rules import EvictionArguments, in_turns, preemptions
from scheduler.engine.preemptors import starving_jobs
from scheduler.engine.session import Session


class Preempt(Action):
    """From less important ones, as plugins say, and from those that use more than they stated.

    A Pending job is admitted where that gives it its whole minimum.
    """

    name = "preempt"
    arguments_type = EvictionArguments

    def __call__(self, session: Session, arguments: EvictionArguments, /) -> None:
        """Evict what lets such jobs start."""
        if jobs := starving_jobs(session, session.queues.keys()):
            in_turns(session, EvictionRun(session, preemptions(session, arguments)), jobs, lambda _: True)
