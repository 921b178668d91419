"""Schedules of CronJobs: their grammar, with its errors' texts, and when they are due. Pure.

Source: the parser that kube-controller-manager uses (robfig/cron v3, five fields and descriptors). The libraries for
Python read other dialects: a 7 for Sunday, ``L``, ``#``, seconds, which a real cluster refuses.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from msgspec import Struct

from muster.cel.times import parse_duration
from muster.cel.values import CelError
from muster.sandbox.core.status import quote

_YEARS_AHEAD: Final = 5
_MONTHS: Final = dict(
    zip(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), range(1, 13), strict=True)
)
_DAYS: Final = dict(zip(("sun", "mon", "tue", "wed", "thu", "fri", "sat"), range(7), strict=True))
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every "
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_LARGEST: Final = 2**63 - 1


class ScheduleError(ValueError):
    """A schedule or time zone is none; the text is the API server's."""


class Schedule(Protocol):
    """When something is due."""

    def after(self, when: datetime, zone: tzinfo) -> datetime | None:
        """Return the first time after ``when`` by the clocks of ``zone``, in UTC; None: never in five years."""


class _Field(Struct, frozen=True):
    """What one field allows; ``star`` when it doesn't restrict."""

    values: frozenset[int]
    star: bool


class _Bounds(Struct, frozen=True):
    least: int
    most: int
    names: dict[str, int]


_FIELDS: Final = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _DAYS),
)


class Calendar(Struct, frozen=True):
    """Due at each minute whose local time the five fields allow: not at one that clocks skip, twice at one they repeat."""

    minutes: _Field
    hours: _Field
    days: _Field
    months: _Field
    weekdays: _Field

    def after(self, when: datetime, zone: tzinfo) -> datetime | None:
        """Return the first due minute after ``when``."""
        if not (self.minutes.values and self.hours.values):
            return None  # A field of commas alone is one, and allows nothing.
        local = _local(when.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1), zone)
        last_year = local.year + _YEARS_AHEAD
        while local.year <= last_year:
            later = self._earliest_change(local)
            if later is None:
                return local.astimezone(UTC)
            local = later
        return None

    def _earliest_change(self, local: datetime) -> datetime | None:
        """Return the next time that can differ from this in what rules it out; None when nothing does."""
        if local.month not in self.months.values:
            year, month = divmod(local.year * 12 + local.month, 12)
            return _midnight(year, month + 1, 1, local)
        if not self._on(local):
            tomorrow = local.date() + timedelta(days=1)
            return _midnight(tomorrow.year, tomorrow.month, tomorrow.day, local)
        if local.hour not in self.hours.values:
            return _later(local, 60 - local.minute)
        return _later(local, 1) if local.minute not in self.minutes.values else None

    def _on(self, local: datetime) -> bool:
        """Whether a day is one: by both fields, or by either of two that both restrict."""
        day, weekday = local.day in self.days.values, local.isoweekday() % 7 in self.weekdays.values
        return (day and weekday) if self.days.star or self.weekdays.star else (day or weekday)


class Every(Struct, frozen=True):
    """Due again and again after a delay, counted from the last time."""

    delay: timedelta

    def after(self, when: datetime, zone: tzinfo) -> datetime | None:  # noqa: ARG002 - the same in all zones
        """Return the time one delay after ``when``, in whole seconds."""
        return when.astimezone(UTC).replace(microsecond=0) + self.delay


def parse(text: str) -> Schedule:
    """Read a schedule.

    Raises:
        ScheduleError: it is none.
    """
    if text.startswith(_EVERY):
        return Every(_delay(text))
    if text.startswith("@") and text not in _DESCRIPTORS:
        raise ScheduleError(f"unrecognized descriptor: {text}")
    fields = _DESCRIPTORS.get(text, text).split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{' '.join(fields)}]")
    return Calendar(*(_field(each, bounds) for each, bounds in zip(fields, _FIELDS, strict=True)))


def zone(name: str) -> tzinfo:
    """Return the time zone of that name in the IANA's database.

    Raises:
        ScheduleError: there is none.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ScheduleError(f"unknown time zone {name}") from error


# ── fields ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _field(text: str, bounds: _Bounds) -> _Field:
    values: set[int] = set()
    star = False
    for part in filter(None, text.split(",")):
        found, unrestricted = _range(part, bounds)
        values.update(found)
        star = star or unrestricted
    return _Field(frozenset(values), star)


def _range(text: str, bounds: _Bounds) -> tuple[range, bool]:
    """Read ``*``, ``3``, ``mon-fri``, each with ``/step`` or without; whether it is a star without a step."""
    ends, *steps = text.split("/")
    low, *high = ends.split("-")
    star = low in {"*", "?"}
    if star:
        start, end = bounds.least, bounds.most
    else:
        start = _number(low, bounds)
        if len(high) > 1:
            raise ScheduleError(f"too many hyphens: {text}")
        end = _number(high[0], bounds) if high else start
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _integer(steps[0]) if steps else 1
    if steps and not high:
        end = bounds.most
    _check(start, end, step, bounds, text)
    return range(start, end + 1, step), star and step == 1


def _check(start: int, end: int, step: int, bounds: _Bounds, text: str) -> None:
    if start < bounds.least:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({bounds.least}): {text}")
    if end > bounds.most:
        raise ScheduleError(f"end of range ({end}) above maximum ({bounds.most}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def _number(text: str, bounds: _Bounds) -> int:
    named = bounds.names.get(text.lower())
    return _integer(text) if named is None else named


def _integer(text: str) -> int:
    failed = f"failed to parse int from {text}: strconv.Atoi: parsing {quote(text)}"
    if not _INTEGER.fullmatch(text):
        raise ScheduleError(f"{failed}: invalid syntax")
    # Longer ones are out of range, and would take Python time that grows with the square of their length.
    number = int(text) if len(text) <= len(str(_LARGEST)) + 1 else _LARGEST + 1
    if abs(number) > _LARGEST:
        raise ScheduleError(f"{failed}: value out of range")
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


def _delay(text: str) -> timedelta:
    """Read what follows ``@every``: a duration as Go writes it; at least a second, in whole seconds."""
    try:
        delay = parse_duration(text.removeprefix(_EVERY))
    except CelError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error}") from error
    return timedelta(seconds=max(1, int(delay.total_seconds())))


# ── times ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _local(when: datetime, zone: tzinfo) -> datetime:
    return when.astimezone(UTC).astimezone(zone)


def _later(local: datetime, minutes: int) -> datetime:
    """Return the time so many minutes later, as they pass: arithmetic on local time would ignore the clocks' changes."""
    return _local(local.astimezone(UTC) + timedelta(minutes=minutes), local.tzinfo or UTC)


def _midnight(year: int, month: int, day: int, local: datetime) -> datetime:
    """Return the beginning of a day; where clocks skip midnight, the first minute after it."""
    return _local(datetime(year, month, day, tzinfo=local.tzinfo), local.tzinfo or UTC)
