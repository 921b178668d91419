"""The time at which a group will start, and how it is told to people and programs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from muster.model import names
from scheduler.model.obstacle import Reason
from scheduler.model.snapshot import GroupKey

NAMED: Final = 2
"""Groups that are named where nobody says how long they run; one more says that there are others."""

SHARE: Final = 0.8
"""Of the starts that lie between the times told, where others arrive in the plays: measured on generated weeks, see `docs/when.md`."""
SUSPENDED: Final = "Suspended"
"""The reason where a user suspended its Job; the others are those of PodGroups."""

LASTING: Final = frozenset({Reason.QUEUE_NOT_FOUND.value, Reason.QUEUE_CLOSED.value, SUSPENDED})
"""Reasons that are true whatever ends."""

_REASONS: Final = {
    Reason.QUEUE_NOT_FOUND.value: ("queue missing", "its queue doesn't exist"),
    Reason.QUEUE_CLOSED.value: ("queue closed", "its queue is closed"),
    Reason.NOT_ENOUGH_TASKS.value: ("lacks pods", "fewer of its pods exist than start together"),
    SUSPENDED: ("suspended", "its Job is suspended by its user"),
}
"""What is said where time alone helps nobody: in a column, and in a sentence."""


class StartForecast(Struct, frozen=True):
    """When a group will start.

    Attributes:
        key: which.
        early, middle, late: it starts between the first and the last in 80 % of the cases, half of the plays before the middle; None: at no time
            that can be told.
        after: where there is no time because plays ended before, the time until which it hadn't started in nine of ten.
        reason: where there is no time however long others run, why, in a word; empty where none applies.
        unknown: where there is no time, the titles of some running groups of which nobody says how long they run, those of its namespace
            first.
        arrivals: whether the plays had others arrive, as others arrived lately; if not, the times hold only if nothing arrives.
    """

    key: GroupKey
    early: datetime | None = None
    middle: datetime | None = None
    late: datetime | None = None
    after: datetime | None = None
    unknown: tuple[str, ...] = ()
    arrivals: bool = False
    reason: str = ""

    def brief(self, now: datetime) -> str:
        """Say it in a column, so that each sentence of `text` can be told from the others.

        ``~14:20 (14:05-15:10)`` where others arrive in the plays, ``14:20 (14:05-15:10) if no others`` where not, ``>14:20`` where it is later than was played;
        ``not in 2 weeks`` as the cluster is, ``no run times`` where nobody says how long others run; ``queue missing`` and the like where that is why.
        """
        if self.middle is None or self.early is None:
            if self.after is not None:
                return f">{_shown(self.after, now)}"
            if self.reason in _REASONS:
                return _REASONS[self.reason][0]
            return "no run times" if self.unknown else "not in 2 weeks"
        middle, early = _shown(self.middle, now), _shown(self.early, now)
        late = _shown(self.late, now) if self.late is not None else ""
        between = "" if early == late else f" ({early}-{late})"
        return f"~{middle}{between}" if self.arrivals else f"{middle}{between} if no others"

    def text(self, now: datetime) -> str:
        """Say it in a sentence; ``now`` decides whether the day has to be named."""
        if self.middle is None or self.early is None:
            if self.after is not None:
                return f"after {_shown(self.after, now)} UTC: of a cluster of this size no more was played in the time that there is"
            if self.reason in _REASONS:
                return f"no time can be told: {_REASONS[self.reason][1]}"
            if not self.unknown:
                return "no time can be told: it doesn't start within two weeks as the cluster is"
            some = ", ".join(self.unknown[:NAMED]) + (" and others" if len(self.unknown) > NAMED else "")
            return (
                f"no time can be told: nobody says how long {some} will run; the annotation {names.EXPECTED_DURATION} does, or of"
                " a Job activeDeadlineSeconds"
            )
        middle, early = _shown(self.middle, now), _shown(self.early, now)
        late = _shown(self.late, now) if self.late is not None else ""
        between = "" if early == late else f"{early} to {late}" if late else f"from {early} on"
        if self.arrivals:
            return f"about {middle} UTC, {round(SHARE * 100)} %: {between}" if between else f"about {middle} UTC"
        return f"about {middle} UTC if nothing else arrives" + (f", {between}" if between else "")

    def data(self) -> dict[str, Any]:
        """Write it for programs: times as RFC 3339, None where there is none."""
        times = {"early": self.early, "middle": self.middle, "late": self.late}
        told: dict[str, Any] = {name: _rfc3339(at) if at is not None else None for name, at in times.items()}
        told |= {"share": SHARE} if self.arrivals and self.middle is not None else {}
        told |= {"reason": self.reason} if self.reason else {}
        return told | ({"after": _rfc3339(self.after)} if self.after is not None else {})

    @classmethod
    def read(cls, data: Mapping[str, Any], unknown: tuple[str, ...]) -> StartForecast:
        """Read what `data` wrote."""
        early, middle, late, after = (
            datetime.fromisoformat(data[name]) if data.get(name) else None
            for name in ("early", "middle", "late", "after")
        )
        reason = data.get("reason", "")
        return cls(GroupKey("", "", ""), early, middle, late, after, unknown, "share" in data, reason)


def _rfc3339(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _shown(at: datetime, now: datetime) -> str:
    return (
        f"{at:%H:%M}"
        if at.date() == now.date()
        else f"{at:%a %H:%M}"
        if at - now < timedelta(days=6)
        else f"{at:%Y-%m-%d %H:%M}"
    )
