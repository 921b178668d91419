"""allocate: assign nodes to tasks, a gang's minimum all or nothing, the other tasks one at a time."""

from __future__ import annotations

from scheduler.engine import placement
from scheduler.engine.action import Action
from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.job_order import JobOrder
from scheduler.engine.reserved_nodes import NodeReservationArguments
from scheduler.engine.session import Session


class Allocate(Action):
    """Queue by queue, one job's turn at a time.

    A turn places tasks until the job is ready: its whole minimum the first time, one task each time after that. A
    minimum that can't be placed whole leaves no trace, unless it can wait for pods that are leaving (pipelined).

    The argument ``reserveAfter`` says how long a job may wait for room before nodes are kept for it.
    """

    name = "allocate"
    arguments_type = NodeReservationArguments

    def __call__(self, session: Session, _: BuiltinArguments, /) -> None:
        """Place what can be placed."""
        order = JobOrder(session, [job for job in session.jobs if placement.may_run(session, job)])
        for queue, job in order:
            if session.extensions.overused(queue):
                order.drop_queue(queue)
            elif placement.turn(session, queue, job, session.extensions.allocatable):
                order.requeue(job)
