"""Groups of a simulation that only run, out of the cluster until something happens to them: a cycle costs what waits."""

from __future__ import annotations

from collections.abc import Mapping

from muster.model.objects import PodGroup
from scheduler.engine import satisfied
from scheduler.model import vectors
from scheduler.model.snapshot import GroupKey, JobInfo, SatisfiedJobs, Snapshot
from scheduler.model.vectors import Axes, Vector
from scheduler.state.cluster import Cluster


class SettledGroups:
    """The groups of a cluster for which no cycle does anything. They are out of its list of groups; their pods stay in it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._axes = Axes()
        self._members: dict[str, dict[GroupKey, JobInfo]] = {}
        self._amounts: dict[str, Vector] = {}
        self._objects: dict[GroupKey, tuple[PodGroup, str]] = {}
        self._known: dict[str, SatisfiedJobs] = {}

    def take(self, snapshot: Snapshot) -> set[GroupKey]:
        """Take those of a snapshot's groups out that are settled from now on; return their keys."""
        if snapshot.axes is not self._axes:
            self._axes = snapshot.axes
            self._known = {name: SatisfiedJobs.of(jobs.values(), self._axes) for name, jobs in self._members.items()}
            self._amounts = {name: each.amounts for name, each in self._known.items()}
        return {self._take(job) for job in satisfied.found(snapshot)}

    def by_queue(self) -> Mapping[str, SatisfiedJobs]:
        """Return who they are, by queue."""
        for queue, members in self._members.items():
            if queue not in self._known:
                self._known[queue] = SatisfiedJobs(tuple(members.values()), self._axes, self._amounts[queue])
        return dict(self._known)

    def find(self, key: GroupKey) -> PodGroup | None:
        """Return a group that is among them."""
        known = self._objects.get(key)
        return known[0] if known is not None else None

    def restore(self, key: GroupKey) -> None:
        """Put a group back into the cluster, since something happens to it."""
        known = self._objects.pop(key, None)
        if known is not None:
            group, queue = known
            has = self._members[queue].pop(key).amounts(self._axes).allocated
            self._amounts[queue] = vectors.subtract(self._amounts[queue], has)
            self._known.pop(queue, None)
            self._cluster.group(key.group, group)

    def _take(self, job: JobInfo) -> GroupKey:
        key, queue = job.key, job.queue
        group = self._cluster.find_group(key)
        assert group is not None, "a snapshot's groups are the cluster's"
        self._cluster.group(key.group, group, gone=True)
        self._objects[key] = group, queue
        self._members.setdefault(queue, {})[key] = job
        self._amounts[queue] = vectors.add(self._amounts.get(queue, self._axes.zero), job.amounts(self._axes).allocated)
        self._known.pop(queue, None)
        return key
