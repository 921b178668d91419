"""Groups that no cycle does anything about: what they have counts, and that can be counted for all of a queue at once.

For those who ask the same of a cluster many times over, each time with a little supposed, and about one group; and for
simulations, in which most groups run. A worker has to write the status of each group, and looks at all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from scheduler.engine.policy import Policy
from scheduler.engine.states import JobState
from scheduler.model import vectors
from scheduler.model.snapshot import JobInfo, Phase, SatisfiedJobs, Snapshot, TaskStatus
from scheduler.model.tasks import RequestVectors
from scheduler.model.vectors import Axes


def may_set_aside(policy: Policy) -> bool:
    """Whether satisfied groups need not be among the jobs of a snapshot: no plugin of a user's own is asked.

    Who evicts finds their pods all the same (`scheduler.engine.allocations.Allocations.victims`), as far as they are known:
    `scheduler.model.plan.Plan.lacks_victims`.
    """
    return not any(enabled.isolated for tier in policy.tiers for enabled in tier)


def found(snapshot: Snapshot) -> Iterator[JobInfo]:
    """Return the jobs that have all they want and go on so, whatever is decided about others."""
    for job in snapshot.jobs:
        queue = snapshot.queues.get(job.queue)
        # Where a queue takes only so many groups, they are counted.
        if queue is not None and not queue.max_groups and _is_content(job, snapshot.axes):
            yield job


def _is_content(job: JobInfo, axes: Axes) -> bool:
    if job.phase not in {Phase.RUNNING, Phase.COMPLETED} or job.expected_pods or job.pending:
        return False
    if job.phase is Phase.COMPLETED:
        return not job.restarts
    if job.finished or job.task_counts.ready < max(job.min_member, 1):
        return False
    if TaskStatus.SUCCEEDED not in job.counts:
        return job.min_resources is None or vectors.fits(axes.request(job.min_resources), job.amounts(axes).allocated)
    return not any(JobState(job, RequestVectors(axes), job.amounts(axes)).lacking())


def sum_by_queue(jobs: Iterable[JobInfo], axes: Axes) -> Mapping[str, SatisfiedJobs]:
    """Return for each queue what all the given jobs of it have."""
    queues: defaultdict[str, list[JobInfo]] = defaultdict(list)
    for job in jobs:
        queues[job.queue].append(job)
    return {name: SatisfiedJobs.of(members, axes) for name, members in queues.items()}


def without(queues: Mapping[str, SatisfiedJobs], gone: Iterable[JobInfo]) -> Mapping[str, SatisfiedJobs]:
    """Return what `sum_by_queue` gave, but for some of these jobs: quicker than to add up all others again."""
    less: defaultdict[str, list[JobInfo]] = defaultdict(list)
    for job in gone:
        less[job.queue].append(job)
    return {name: _less(each, less[name]) if name in less else each for name, each in queues.items()}


def _less(jobs_of_queue: SatisfiedJobs, gone: Sequence[JobInfo]) -> SatisfiedJobs:
    keys = {job.key for job in gone}
    left = tuple([job for job in jobs_of_queue.jobs if job.key not in keys])
    had = SatisfiedJobs.of(gone, jobs_of_queue.axes).amounts
    return SatisfiedJobs(left, jobs_of_queue.axes, vectors.subtract(jobs_of_queue.amounts, had))
