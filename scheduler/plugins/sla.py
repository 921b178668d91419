"""Let nobody wait forever: after its waiting time a job is admitted whatever other plugins of later tiers think."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import field

from muster.model.durations import duration
from scheduler.engine.arguments import BuiltinArguments, read_by
from scheduler.engine.plugin import PERMIT, Key, Plugin, Vote
from scheduler.engine.states import JobState


def _waiting(text: Any) -> float | None:
    return None if text is None else duration(text)


class SlaArguments(BuiltinArguments, frozen=True, kw_only=True):
    """How long a job that doesn't say so itself may wait before it goes first; None for as long as it takes."""

    waiting: Annotated[float | None, read_by(_waiting)] = field(default=None, name="sla-waiting-time")


class Sla(Plugin):
    """Orders jobs by when their waiting time ends, and permits those whose has ended."""

    name = "sla"
    arguments_type = SlaArguments

    def job_key(self, job: JobState) -> Key:
        """Order jobs: the earlier their deadline, the sooner."""
        return self._deadline(job)

    def enqueueable(self, job: JobState) -> Vote:
        """Permit what has waited for long enough."""
        over = job.info.created and self.session.deadlines.passed(self._deadline(job))
        return PERMIT if over else None

    def _deadline(self, job: JobState) -> float:
        waiting = job.info.sla if job.info.sla is not None else self.arguments.waiting
        return job.info.created + waiting if waiting is not None else float("inf")
