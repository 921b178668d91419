"""The Jobs (batch/v1) that exist, by the PodGroup that their pods are in."""

from __future__ import annotations

from collections.abc import Iterable

from muster.model.objects import Job
from scheduler.state import conversion
from scheduler.state.aggregated_pods import GroupName


class BatchJobs:
    """The Jobs that exist, by the group that their pods are in."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._of: dict[GroupName, set[str]] = {}

    def update(self, job: Job | None, uid: str) -> Iterable[GroupName]:
        """Take the new version of the Job of that uid, None where it is none of ours; return the groups it was and is of."""
        touched = []
        old = self._jobs.pop(uid, None)
        if old is not None:
            touched.append(group_name := _group_name(old))
            self._of[group_name].discard(uid)
            if not self._of[group_name]:
                del self._of[group_name]
        if job is not None:
            touched.append(group_name := _group_name(job))
            self._jobs[uid] = job
            self._of.setdefault(group_name, set()).add(uid)
        return touched

    def of(self, group_name: GroupName) -> list[Job]:
        """Return the Jobs of a group, by uid."""
        return [self._jobs[uid] for uid in sorted(self._of.get(group_name, ()))]


def _group_name(job: Job) -> GroupName:
    return (job.namespace, conversion.group_of_job(job))
