"""Groups that no decision does anything about, out of its sight but for what they have: a decision costs what waits. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from muster.whatif.policies import evicting, keeps_minimums
from scheduler.engine import satisfied
from scheduler.engine.policy import Policy
from scheduler.model.snapshot import GroupKey, JobInfo, SatisfiedJobs, Snapshot
from scheduler.plugins.gang import may_lose_any


class SatisfiedGroups(Struct, frozen=True):
    """Which they are, and what those of each queue have."""

    jobs: Mapping[GroupKey, JobInfo] = field(default_factory=dict)
    by_queue: Mapping[str, SatisfiedJobs] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[JobInfo], snapshot: Snapshot) -> SatisfiedGroups:
        """Count those jobs of a snapshot."""
        found = {job.key: job for job in jobs}
        return cls(found, satisfied.sum_by_queue(found.values(), snapshot.axes))

    def without(self, keys: Collection[GroupKey]) -> SatisfiedGroups:
        """Return them but for some groups, to which something happens."""
        gone = [self.jobs[key] for key in keys if key in self.jobs]
        if not gone:
            return self
        left = {key: job for key, job in self.jobs.items() if key not in keys}
        return SatisfiedGroups(left, satisfied.without(self.by_queue, gone))

    def seen_anew(self, keys: Collection[GroupKey], snapshot: Snapshot) -> SatisfiedGroups:
        """Return them with some groups among them or not, as a later snapshot has these."""
        others = self.without(keys)
        content = satisfied.found(replace(snapshot, jobs=tuple([job for job in snapshot.jobs if job.key in keys])))
        if not (found := tuple(content)):
            return others
        return SatisfiedGroups.of((*others.jobs.values(), *found), snapshot)

    def again(self, snapshot: Snapshot) -> SatisfiedGroups:
        """Return the same groups as a later snapshot has them."""
        return SatisfiedGroups.of([job for job in snapshot.jobs if job.key in self.jobs], snapshot)

    def may_lose_some(self, policy: Policy) -> bool:
        """Whether some action of a policy may take one of their pods."""
        return any(may_lose(self.jobs.values(), policy, action) for action in evicting(policy))


def may_lose(jobs: Iterable[JobInfo], policy: Policy, action: str) -> bool:
    """Whether an action that evicts may take a pod of some jobs at all: each keeps its minimum, where the policy says so."""
    return not keeps_minimums(policy, action) or any(may_lose_any(job) for job in jobs)
