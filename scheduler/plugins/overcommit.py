"""Let jobs in while the cluster, times a factor, has idle what they need to start."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from scheduler import messages, vectors
from scheduler.plugin import Arguments, Obstacle, Plugin, Reason, Vote
from scheduler.session import JobState, Session
from scheduler.vectors import Vector

_STEPS = 1000


class OvercommitArguments(Arguments):
    """The factor: 1 lets in what fits in what is idle, 1.2 a fifth of the cluster more."""

    factor: float = Field(default=1.2, ge=1, le=1000, alias="overcommit-factor")


class Overcommit(Plugin):
    """Votes against letting a job in whose need exceeds what is idle and not awaited by jobs let in before."""

    name = "overcommit"
    arguments_type = OvercommitArguments

    def __init__(self, arguments: Any, session: Session) -> None:
        super().__init__(arguments, session)
        self._free: Vector | None = None

    def enqueueable(self, job: JobState) -> Vote:
        """Reject what exceeds the free part; leave the rest to others."""
        wanted, free = job.lacking(), self._remaining()
        if vectors.fits(wanted, free):
            return None
        where = "free in the cluster"
        if self.arguments.factor != 1:
            where += f", counted {self.arguments.factor:g} times (overcommit-factor)"
        count = max(job.job.min_member - job.ready, 1)
        return Obstacle(Reason.NOT_ENOUGH_RESOURCES, messages.shortage(count, wanted, free, self.session.axes, where))

    def enqueued(self, job: JobState) -> None:
        """Set aside what a job let in waits for."""
        self._free = vectors.subtract(self._remaining(), job.lacking())

    def _remaining(self) -> Vector:
        if self._free is None:
            self._free = self._at_start()
        return self._free

    def _at_start(self) -> Vector:
        table = self.session.snapshot.table
        serving = table.serving
        # By node first, so that one node's debt isn't paid by another's idle resources.
        idle = vectors.total(np.maximum(self.session.idle[serving], 0))
        extra = round((self.arguments.factor - 1) * _STEPS)
        free = vectors.add(idle, tuple(have * extra // _STEPS for have in vectors.total(table.allocatable[serving])))
        for job in self.session.jobs:
            if job.unfinished:
                free = vectors.subtract(free, job.lacking())
        return free
