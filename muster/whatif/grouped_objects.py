"""The groups of a state with their pods and Jobs, and since when each of them runs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from muster.ledger.reservations import COMPLETED
from muster.model import kinds
from muster.model.objects import Job, Pod, PodGroup
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects, ObjectChanges
from scheduler.model.snapshot import GroupKey
from scheduler.state import conversion
from scheduler.state.aggregated_pods import GroupName

Members = Mapping[GroupName | None, Sequence[Pod]]

_ENDED: Final = frozenset({"Succeeded", "Failed"})


class GroupedObjects:
    """Found by the name of the group. ``members`` are the pods that name one; ``before``: the same of groups other than those ``touched``.

    Attributes:
        groups: the PodGroups.
        jobs: the Jobs, by uid.
    """

    def __init__(
        self,
        state: ClusterObjects,
        members: Members,
        before: GroupedObjects | None = None,
        touched: Collection[GroupName | None] = (),
    ) -> None:
        self.groups: dict[GroupKey, PodGroup] = {
            GroupKey(kind.group, group.namespace, group.name): group for kind in PODGROUPS for group in state.of(kind)
        }
        self.jobs: dict[str, Job] = {job.metadata.uid: job for job in state.of(kinds.JOBS)}
        self._taken = state.taken
        self._members = members
        self._jobs_of: defaultdict[GroupName, list[Job]] = defaultdict(list)
        for job in self.jobs.values():
            self._jobs_of[group_name_of(job)].append(job)
        self._began: dict[GroupKey, datetime | None] = {}
        self._before = before
        self._touched = touched

    def members(self, name: GroupName) -> Sequence[Pod]:
        """Return the pods that name a group."""
        return self._members.get(name, ())

    def jobs_of(self, name: GroupName) -> Sequence[Job]:
        """Return the Jobs whose pods are in a group."""
        return self._jobs_of.get(name, ())

    def began(self, key: GroupKey) -> datetime | None:
        """Tell since when a group has pods on nodes; None for one that has none."""
        if self._before is not None and (key.namespace, key.name) not in self._touched:
            return self._before.began(key)
        if key not in self._began:
            times = [
                pod.status.start_time or pod.metadata.creation_timestamp or self._taken
                for pod in self.members((key.namespace, key.name))
                if pod.spec.node_name and pod.status.phase not in _ENDED
            ]
            self._began[key] = min(times, default=None)
        return self._began[key]

    def running(self, started: Mapping[GroupKey, datetime]) -> list[GroupKey]:
        """Return the groups that have pods on nodes, or were ``started`` since, those that have had them for the longest first."""
        found = {key: began for key in self.groups if (began := self.began(key) or started.get(key)) is not None}
        return sorted(found, key=lambda key: (found[key], key))

    def waiting(self, started: Mapping[GroupKey, datetime], now: datetime) -> list[GroupKey]:
        """Return the groups that have no pods on nodes, weren't ``started`` since, and aren't over, the oldest first."""
        found = [
            (group.metadata.creation_timestamp or now, key)
            for key, group in self.groups.items()
            if group.status.phase != COMPLETED and not self.began(key) and key not in started
        ]
        return [key for _, key in sorted(found)]

    def changed(
        self, state: ClusterObjects, changes: ObjectChanges, home: Callable[[Pod], GroupName | None]
    ) -> Changed:
        """Return those of a state that differs by ``changes``; ``home`` tells which group a pod names."""
        members, touched = dict(self._members), set[GroupName | None]()
        for old, new in changes.get(kinds.PODS, ()):
            if old is not None:
                members[home(old)] = [pod for pod in members[home(old)] if pod is not old]
                touched.add(home(old))
            members[home(new)] = [*members.get(home(new), ()), new]
            touched.add(home(new))
        for old, new in changes.get(kinds.JOBS, ()):
            touched |= {group_name_of(each) for each in (old, new) if each is not None}
        touched |= {(new.namespace, new.name) for kind in PODGROUPS for _, new in changes.get(kind, ())}
        after = GroupedObjects(state, members, self, touched)
        return after, {key for key in after.groups if (key.namespace, key.name) in touched}


Changed = tuple[GroupedObjects, set[GroupKey]]
"""Grouped objects after a change, and the groups that it touches."""


def group_name_of(job: Job) -> GroupName:
    """Return the name of the group that a Job's pods are in."""
    return (job.namespace, conversion.group_of_job(job))
