"""Groups that only run, taken together: one stand-in for all of a queue, so that a cycle costs what waits.

A group that has all its pods on nodes and wants no more takes part in a decision by what it uses, by its queue and by
its pods on nodes, and by nothing else, unless somebody may be evicted. So `decide` is shown, for each queue, one job
that uses what all of them use. `usable` says for which configurations that is so, `_only_runs` for which groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Final

from muster.model.objects import PodGroup
from scheduler import lifecycle
from scheduler.cluster import Cluster
from scheduler.lifecycle import Facts
from scheduler.policy import Policy
from scheduler.snapshot import GroupKey, Job, Phase, Snapshot, Status
from scheduler.tasks import Tally, TaskClass

TOGETHER: Final = "groups that run"
"""The API group of the stand-ins: none that a PodGroup can have."""

# What such a job is told: with it, there is nothing new to work out in each cycle.
_CONDITIONS: Final = lifecycle.conditions(
    (), Phase.RUNNING, Facts(minimum=0, placed=1, ready=True), transition="", now=datetime.min.replace(tzinfo=UTC)
)
_EVICTING: Final = frozenset({"preempt", "reclaim"})


def usable(policy: Policy) -> bool:
    """Whether no action looks for victims among the groups that run, and no plugin of a user may look at anything."""
    evicts = any(action.name in _EVICTING for action in policy.actions)
    return not evicts and not any(enabled.guarded for tier in policy.tiers for enabled in tier)


class Crowd:
    """The groups of a cluster that only run. They are out of the cluster's list of groups; their pods stay in it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._members: dict[str, dict[GroupKey, Job]] = {}
        self._kinds: dict[str, Counter[TaskClass]] = {}
        self._objects: dict[GroupKey, tuple[PodGroup, str]] = {}
        self._stand_ins: dict[str, Job] = {}

    def thin(self, snapshot: Snapshot, *, whole: bool) -> tuple[Job, ...]:
        """Give a snapshot's groups, of which stand-ins take the place of those that only run.

        ``whole``: with their pods, which are looked at where nodes may have to be kept for somebody.
        """
        others = []
        for job in snapshot.jobs:
            if _only_runs(job, snapshot):
                self._take(job)
            else:
                others.append(job)
        return (*self._shown(whole=whole), *others)

    def find(self, key: GroupKey) -> PodGroup | None:
        """Give a group that is among them."""
        known = self._objects.get(key)
        return known[0] if known is not None else None

    def give_back(self, key: GroupKey) -> None:
        """Put a group back into the cluster, since something happens to it."""
        known = self._objects.get(key)
        if known is not None:
            self.drop(key)
            self._cluster.group(key.group, known[0])

    def drop(self, key: GroupKey) -> None:
        """Forget a group that has ended."""
        known = self._objects.pop(key, None)
        if known is not None:
            queue = known[1]
            self._kinds[queue].subtract(self._members[queue].pop(key).tally.occupying)
            self._stand_ins.pop(queue, None)

    def _take(self, job: Job) -> None:
        group = self._cluster.find_group(job.key)
        assert group is not None, "a snapshot's groups are the cluster's"
        self._cluster.group(job.key.group, group, gone=True)
        self._objects[job.key] = group, job.queue
        self._members.setdefault(job.queue, {})[job.key] = job
        self._kinds.setdefault(job.queue, Counter()).update(job.tally.occupying)
        self._stand_ins.pop(job.queue, None)

    def _shown(self, *, whole: bool) -> Iterator[Job]:
        for queue, members in self._members.items():
            if members:
                known = self._stand_ins.get(queue)
                if known is None or (whole and not known.tasks):
                    known = self._stand_ins[queue] = self._stand_in(queue, whole=whole)
                yield known

    def _stand_in(self, queue: str, *, whole: bool) -> Job:
        members, kinds = self._members[queue].values(), +self._kinds[queue]
        return Job.standing(
            GroupKey(TOGETHER, "", queue),
            queue,
            # Counted already, member by member.
            Tally({Status.RUNNING: kinds.total()}, (), kinds, {}, kinds.total()),
            conditions=_CONDITIONS,
            counters=(kinds.total(), 0, 0),
            tasks=tuple(chain.from_iterable(member.tasks for member in members)) if whole else (),
        )


def _only_runs(job: Job, snapshot: Snapshot) -> bool:
    """Whether a group has all it wants, so that nothing but what it uses can matter."""
    counts, queue = job.tally.counts, snapshot.queues.get(job.queue)
    if job.phase is not Phase.RUNNING or len(counts) != 1 or Status.RUNNING not in counts:
        return False
    if job.coming or job.over or job.min_task_member or len(job.tasks) < max(job.min_member, 1):
        return False
    # Where groups are counted, one can't stand for many.
    if queue is None or queue.max_groups:
        return False
    axes = snapshot.axes
    have = job.sums(axes).allocated
    return job.stated is None or all(a >= b for a, b in zip(have, axes.vector(job.stated), strict=True))
