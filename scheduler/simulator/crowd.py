"""Groups of a simulation that only run, out of the cluster until something happens to them: a cycle costs what waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from muster.model.objects import PodGroup
from scheduler import bystanders
from scheduler.cluster import Cluster
from scheduler.snapshot import Bystanders, GroupKey, Job, Snapshot
from scheduler.tasks import TaskClass


class Crowd:
    """The bystanders of a cluster. They are out of the cluster's list of groups; their pods stay in it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._members: dict[str, dict[GroupKey, Job]] = {}
        self._kinds: dict[str, Counter[TaskClass]] = {}
        self._objects: dict[GroupKey, tuple[PodGroup, str]] = {}
        self._known: dict[str, Bystanders] = {}

    def take(self, snapshot: Snapshot) -> set[GroupKey]:
        """Take in who of a snapshot's groups is a bystander from now on."""
        return {self._take(job) for job in bystanders.found(snapshot)}

    def by_queue(self) -> Mapping[str, Bystanders]:
        """Give who they are, by queue; what doesn't change is the same object each time."""
        for queue, members in self._members.items():
            if members and queue not in self._known:
                self._known[queue] = Bystanders(tuple(members.values()), dict(self._kinds[queue]))
        return dict(self._known)

    def find(self, key: GroupKey) -> PodGroup | None:
        """Give a group that is among them."""
        known = self._objects.get(key)
        return known[0] if known is not None else None

    def give_back(self, key: GroupKey) -> None:
        """Put a group back into the cluster, since something happens to it."""
        known = self._objects.pop(key, None)
        if known is not None:
            group, queue = known
            self._kinds[queue].subtract(self._members[queue].pop(key).tally.occupying)
            self._known.pop(queue, None)
            self._cluster.group(key.group, group)

    def _take(self, job: Job) -> GroupKey:
        group = self._cluster.find_group(job.key)
        assert group is not None, "a snapshot's groups are the cluster's"
        self._cluster.group(job.key.group, group, gone=True)
        self._objects[job.key] = group, job.queue
        self._members.setdefault(job.queue, {})[job.key] = job
        self._kinds.setdefault(job.queue, Counter()).update(job.tally.occupying)
        self._known.pop(job.queue, None)
        return job.key
