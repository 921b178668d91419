"""Room for pods that want to be together, so that the first isn't put where the others can't follow.

A scheduler that places pod by pod finds that out too late: a gang whose first pod goes to a domain too small for the
rest is undone, and tried the same way in the next cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from scheduler.engine.states import JobState
from scheduler.engine.view import SessionView
from scheduler.model import vectors
from scheduler.model.affinity import PodSet
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Floats, Mask, Matrix
from scheduler.topology.domains import Domains

Open = Callable[[TaskClass], Mask]
"""Which nodes a class may run on as far as the nodes themselves say."""


class ColocatedTasks:
    """The tasks of one session that want to be together, job by job."""

    def __init__(self, session: SessionView) -> None:
        self._session = session
        self._members: dict[PodSet, list[tuple[JobState, list[TaskClass]]]] | None = None

    def nodes_with_room(self, kind: TaskClass, free: Matrix, open_to: Open) -> Mask:
        """Tell which nodes are in domains with room for all who go along with a task of ``kind``, [nodes].

        Where no domain has, those with room for the minimum will do; where none has that either, all.
        """
        topology = self._session.topology
        everywhere = np.ones(len(topology.table.nodes), dtype=np.bool_)
        for tasks in self._task_sets(kind):
            mask = everywhere.copy()
            for term in kind.constraints.pod_terms.required_affinity:
                mask &= with_room(self._session, tasks, topology.domains(term.key), free, open_to)
            if mask.any():
                return mask
        return everywhere

    def _task_sets(self, kind: TaskClass) -> Iterable[Counter[TaskClass]]:
        """Return whom to find room for, by class: all of the largest job that it may be about, then that one's minimum."""
        together = kind.constraints.pod_terms.all_required
        jobs = self._known().get(together, []) if together is not None else []
        mine = [(job, members) for job, members in jobs if kind in members]
        if mine:
            job, members = max(mine, key=lambda each: len(each[1]))
            yield Counter(members)
            yield Counter(members[: max(self._session.missing(job), 1)])

    def _known(self) -> dict[PodSet, list[tuple[JobState, list[TaskClass]]]]:
        if self._members is None:
            self._members = {}
            for job in self._session.jobs:
                mine: dict[PodSet, list[TaskClass]] = {}
                for task in job.info.pending:
                    together = task.task_class.constraints.pod_terms.all_required
                    if together is not None:
                        mine.setdefault(together, []).append(task.task_class)
                for together, kinds in mine.items():
                    self._members.setdefault(together, []).append((job, kinds))
        return self._members


def with_room(session: SessionView, tasks: Counter[TaskClass], by: Domains, free: Matrix, open_to: Open) -> Mask:
    """Tell which nodes are in domains that have room for some tasks, [nodes]."""
    open_to_some = np.zeros(len(by.codes), dtype=np.bool_)
    enough = np.ones(by.size + 1, dtype=np.bool_)
    total = session.axes.zero
    for kind, count in tasks.items():
        wanted, mask = session.vector(kind), open_to(kind)
        enough &= _sums(by, _fitting(wanted, free) * mask) >= count
        total = vectors.add(total, vectors.scale(wanted, count))
        open_to_some |= mask
    # Of tasks alike, so many fit where they fit one by one.
    for place, amount in enumerate(total) if len(tasks) > 1 else ():
        if amount:
            enough &= _sums(by, (free[:, place].clip(min=0) * open_to_some).astype(np.float64)) >= amount
    has: Mask = enough[by.codes] & (by.codes >= 0)
    return has


def _fitting(wanted: vectors.Vector, free: Matrix) -> Floats:
    """How many tasks fit on each node."""
    columns = [place for place, amount in enumerate(wanted) if amount > 0]
    row = vectors.wanted_row(wanted)[columns]
    fitting: Floats = (free[:, columns].clip(min=0) // row).min(axis=1).astype(np.float64)
    return fitting


def _sums(by: Domains, amounts: Floats) -> Floats:
    places = np.where(by.codes >= 0, by.codes, by.size)
    return np.bincount(places, weights=amounts, minlength=by.size + 1).astype(np.float64)
