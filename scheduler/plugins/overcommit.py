"""Admit jobs while the cluster, times a factor, has idle what they need to start."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from msgspec import Meta, field

from muster.model.text import counted
from scheduler.engine import messages
from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.plugin import Plugin, Vote
from scheduler.engine.states import JobState
from scheduler.engine.view import SessionView
from scheduler.model import vectors
from scheduler.model.snapshot import JobInfo
from scheduler.model.vectors import Vector

_STEPS = 1000


class OvercommitArguments(BuiltinArguments, frozen=True, kw_only=True):
    """The factor: 1 admits what fits in what is idle, 1.2 a fifth of the cluster more."""

    factor: Annotated[float, Meta(ge=1, le=1000)] = field(default=1.2, name="overcommit-factor")


class Overcommit(Plugin):
    """Votes against admitting a job whose need exceeds what is idle and not awaited by jobs admitted before."""

    name = "overcommit"
    arguments_type = OvercommitArguments
    about_room = True

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        self._free: Vector | None = None
        self._idle = session.axes.zero
        self._awaiting: list[JobInfo] = []
        self._room: dict[str, Vector] | None = None

    def enqueueable(self, job: JobState) -> Vote:
        """Reject what exceeds the free part; leave the rest to others."""
        wanted, free = job.lacking(), self._remaining()
        if vectors.fits(wanted, free):
            return None
        where = "free in the cluster"
        where += self.session.devices.stood_for(self.session.axes.resources(vectors.short(wanted, free)))
        if self.arguments.factor != 1:
            where += f", counted {self.arguments.factor:g} times by overcommit-factor"
        if closed := len(self.session.snapshot.table.closed):
            where += (
                f" ({counted(closed, 'node')} {'is' if closed == 1 else 'are'} closed, for a pod there can't be read)"
            )
        count = max(job.info.min_member - job.ready, 1)
        return messages.cluster_obstacle(count, wanted, free, self.session.axes, where, self._held(job, free))

    def enqueued(self, job: JobState) -> None:
        """Set aside what an admitted job waits for."""
        self._set_aside(self._remaining(), job)

    def _remaining(self) -> Vector:
        if self._free is None:
            self._free = self._idle = self._at_start()
            for job in self.session.jobs:
                if job.unfinished and any(job.lacking()):
                    self._set_aside(self._free, job)
        return self._free

    def _set_aside(self, free: Vector, job: JobState) -> None:
        """Count as taken what a job that was admitted waits for; what is reserved for one is out of the count already."""
        lacking = self._bounded(job) if job is not self.session.reserved_for else self.session.axes.zero
        if any(lacking):
            self._free = vectors.subtract(free, lacking)
            self._awaiting.append(job.info)

    def _held(self, job: JobState, free: Vector) -> messages.AwaitedAmounts | None:
        """Return what of the idle amounts is set aside, and for whom; None where nothing is."""
        if not self._awaiting:
            return None
        return messages.AwaitedAmounts(vectors.subtract(self._idle, vectors.above_zero(free)), self._holders(job))

    def _bounded(self, job: JobState) -> Vector:
        """Return what a job waits for, as far as its queue and those above may have it.

        A job was judged when it was admitted; what its group asks for can be enlarged afterwards.
        """
        held = job.lacking()
        if not any(held):
            return held
        left = self._left()
        limits = self._limits(job.info.queue) if left else ()
        for name in limits:
            held = vectors.least(held, left[name])
        for name in limits:
            left[name] = vectors.subtract(left[name], held)
        return held

    def _limits(self, name: str) -> list[str]:
        """Return the queues with a capability among a queue and those above it; each once, where parents form a circle."""
        line, queues = list[str](), self.session.queues
        while name in queues and name not in line:
            line.append(name)
            name = queues[name].info.parent
        return [each for each in line if queues[each].info.capability is not None]

    def _left(self) -> dict[str, Vector]:
        """Return what each queue with a capability may still have, beyond what it and those below have and hold."""
        if self._room is None:
            axes, queues, used = self.session.axes, self.session.queues, dict[str, Vector]()
            for queue in queues.values():
                for name in self._limits(queue.name) if any(queue.allocated) else ():
                    used[name] = vectors.add(used.get(name, axes.zero), queue.allocated)
            self._room = {
                name: vectors.above_zero(vectors.subtract(axes.limit(limit), used.get(name, axes.zero)))
                for name, limit in ((queue.name, queue.info.capability) for queue in queues.values())
                if limit is not None
            }
        return self._room

    def _holders(self, job: JobState) -> str:
        """Name the only one to those who may see it: the message is a condition of ``job``, for its namespace to read."""
        if len(self._awaiting) > 1:
            return f"{len(self._awaiting)} PodGroups"
        only = self._awaiting[0]
        return only.title if only.key.namespace == job.info.key.namespace else "a PodGroup of another namespace"

    def _at_start(self) -> Vector:
        table = self.session.snapshot.table
        idle = self.session.idle if table.all_serve else self.session.idle[table.serving]
        # By node first, so that one node's debt isn't paid by another's idle resources.
        total = vectors.total(np.maximum(idle, 0), table.total)
        extra = round((self.arguments.factor - 1) * _STEPS)
        return vectors.add(total, tuple([have * extra // _STEPS for have in table.served]))
