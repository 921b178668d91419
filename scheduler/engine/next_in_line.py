"""The groups that are next in line: their queue's share lets them start, and only nodes keep them waiting.

What is idle on a node that such a group could use is what it waits for to grow. Whoever would go beyond a share leaves it alone;
a group that no node would ever hold, or whose queue has had its share, keeps nobody waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from scheduler.engine import kept_places, network_domains, reserved_nodes
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model import vectors
from scheduler.model.network_topology import TopologyConstraint
from scheduler.model.snapshot import Phase, TaskClass
from scheduler.model.vectors import Mask, Matrix, Vector
from scheduler.topology import node_filters

_Needs = tuple[tuple[TaskClass, int], ...]


class NextInLine:
    """The groups that are next in line when it is made, and the nodes that each resource is wanted of for them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._due: dict[tuple[str, _Needs], bool] = {}
        self._usable: dict[tuple[_Needs, TopologyConstraint | None], Mask | None] = {}
        self._wanted: dict[int, Mask] = {}
        self._hidden: Mask | None = None
        for job in session.jobs:
            # Who has nodes kept for it waits for those.
            if job is not session.reservation.job and (job.blocked_class is not None or self._is_coming(job)):
                self._add(job)

    def _is_coming(self, job: JobState) -> bool:
        """Whether a job was admitted, and its Job has yet to make its pods: what it was admitted for is still idle."""
        coming = job.phase is Phase.INQUEUE and bool(job.info.expected_pods) and not job.kept
        return coming and kept_places.lacks_pods(self._session, job)

    def _add(self, job: JobState) -> None:
        needs = tuple(reserved_nodes.needs(job)) or ((job.blocked_class, 1),) if job.blocked_class is not None else ()
        needs = needs or tuple(reserved_nodes.needs(job))
        mask = self._nodes_for(needs, job.info.topology) if self._is_due(job, needs) else None
        for place in self._session.axes.shared if mask is not None else ():
            if any(self._session.vector(kind)[place] for kind, _ in needs):
                self._wanted[place] = self._wanted.get(place, np.zeros_like(mask)) | mask

    def _is_due(self, job: JobState, needs: _Needs) -> bool:
        """Whether the share of its queue, and all else that holds a queue back, has a place for all that a group needs."""
        session, queue = self._session, self._session.queue_of(job)
        coming = self._is_coming(job)
        if queue is None or (session.extensions.valid(job) is not None and not coming):
            return False
        known = self._due.get((queue.name, needs))
        if known is None:
            tasks = kept_places.stand_ins(session, job) if coming else (*job.waiting, *job.unplaced)
            first = {task.task_class: task for task in tasks}
            known = self._due[queue.name, needs] = all(
                session.extensions.allocatable(queue, first[kind], count) is None
                for kind, count in needs
                if kind in first
            )
        return known

    def _nodes_for(self, needs: _Needs, topology: TopologyConstraint | None) -> Mask | None:
        """Return the nodes that take some of what a group needs once others have ended; None where all don't suffice."""
        if (needs, topology) not in self._usable:
            self._usable[needs, topology] = self._find_nodes(needs, topology)
        return self._usable[needs, topology]

    def _find_nodes(self, needs: _Needs, topology: TopologyConstraint | None) -> Mask | None:
        allocatable = self._session.snapshot.table.allocatable
        # Where pods keep each other away, others may make way in time: these are looked at node by node.
        alone = [(kind, count) for kind, count in needs if not kind.constraints.conflicts_beyond_resources]
        # Empty nodes first, which is quick: what fits them may still not fit beside daemons.
        if not self._fit(alone, allocatable) or not self._fit(alone, self._drained):
            return None
        inside = self._inside(needs, topology)
        masks = [
            inside & self._open(kind) & (self._session.picker.places(kind, self._drained) > 0) for kind, _ in needs
        ]
        return np.logical_or.reduce(masks) if all(mask.any() for mask in masks) else None

    def _inside(self, needs: _Needs, topology: TopologyConstraint | None) -> Mask:
        """Return the nodes of the domains that may hold a group whose pods have to be together; of any other group, all."""
        inside = np.full(len(self._drained), topology is None or not topology.required)
        if topology is None or not topology.required:
            return inside
        members = network_domains.Members(dict(needs), sum(count for _, count in needs), ())
        for scope in network_domains.scopes_to_clear(self._session, topology, members, self._drained):
            inside |= scope is None or scope.mask
        return inside

    def _fit(self, needs: Sequence[tuple[TaskClass, int]], free: Matrix) -> bool:
        return not needs or bool(reserved_nodes.fit(self._session, needs, free, range(len(free))))

    def _open(self, kind: TaskClass) -> Mask:
        """Tell which nodes accept a class, now or once other pods are gone."""
        session, demands = self._session, kind.constraints
        mask = session.picker.open_to(kind)
        if demands.unsupported or session.trouble(demands):
            return mask
        return mask | node_filters.eligible(session.topology, demands) if demands.conflicts_beyond_resources else mask

    @cached_property
    def _drained(self) -> Matrix:
        return reserved_nodes.drained(self._session)

    def holds_back(self, job: JobState) -> Mask | None:
        """Return the nodes where groups next in line could use what the waiting tasks of a job would take; None where none is."""
        if not self._wanted:
            return None
        kinds = job.info.task_counts.wanting
        asked = {place for kind in kinds for place in self._wanted if self._session.vector(kind)[place]}
        masks = [self._wanted[place] for place in sorted(asked)]
        return np.logical_or.reduce(masks) if masks else None

    def idle(self) -> Vector:
        """Return what is idle together, out of sight or not."""
        return vectors.total((self._session.idle + self._session.allocations.hidden.idle).clip(min=0))

    @contextmanager
    def out_of_sight(self) -> Iterator[NextInLine]:
        """Show again at the end what `hide` took out of sight."""
        try:
            yield self
        finally:
            self.hide(None)

    def hide(self, mask: Mask | None) -> None:
        """Take what is idle on these nodes out of sight, and no other nodes."""
        if self._hidden is None if mask is None else self._hidden is not None and bool((self._hidden == mask).all()):
            return
        self._session.allocations.hide([] if mask is None else np.flatnonzero(mask).tolist())
        self._hidden = mask
