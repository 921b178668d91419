"""Let nobody wait forever: after its waiting time a job is let in whatever other plugins of later tiers think."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from scheduler.plugin import PERMIT, Arguments, Key, Plugin, Vote
from scheduler.session import JobState

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|m|s|ms)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def duration(text: Any) -> float:
    """Read a duration such as ``1h30m`` as seconds.

    Raises:
        ValueError: it isn't one, or isn't above zero.
    """
    written = str(text)
    parts = _PART.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise ValueError(f"{written!r} is not a duration; write it like 3m or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds <= 0:
        raise ValueError(f"{written!r} is no time at all; give a duration above zero")
    return seconds


class SlaArguments(Arguments):
    """How long a job may wait before it goes first; None for as long as it takes."""

    waiting: Annotated[float, BeforeValidator(duration)] | None = Field(default=None, alias="sla-waiting-time")


class Sla(Plugin):
    """Orders jobs by when their waiting time ends, and permits those whose has ended."""

    name = "sla"
    arguments_type = SlaArguments

    def job_key(self, job: JobState) -> Key:
        """Order jobs: the earlier their deadline, the sooner."""
        waiting = self.arguments.waiting
        return job.job.created + waiting if waiting is not None else float("inf")

    def enqueueable(self, job: JobState) -> Vote:
        """Permit what has waited for long enough."""
        waiting = self.arguments.waiting
        if waiting is not None and job.job.created and self.session.now.timestamp() >= job.job.created + waiting:
            return PERMIT
        return None
