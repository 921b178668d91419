"""Dominant resource fairness between the jobs of a queue."""

from __future__ import annotations

from scheduler import vectors
from scheduler.plugin import Key, Plugin
from scheduler.session import JobState


class Drf(Plugin):
    """The job with the smallest dominant share of the cluster goes first."""

    name = "drf"

    def job_key(self, job: JobState) -> Key:
        """Order jobs by the largest part of any resource of the cluster that they hold."""
        session = self.session
        return vectors.share(job.allocated, session.snapshot.table.total, session.axes.shared)
