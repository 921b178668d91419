"""Schedules of CronJobs: what is due when, and what is no schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox.strategies import cron

BERLIN = cron.zone("Europe/Berlin")
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
ZONES = ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Havana"]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("schedule", "after", "due"),
    [
        ("0 3 * * *", "2026-11-21T03:00:00Z", "2026-11-22T03:00:00Z"),
        ("0 3 * * *", "2026-11-21T02:59:59.9Z", "2026-11-21T03:00:00Z"),
        ("*/20 9-17 * * mon-FRI", "2026-11-20T17:40:00Z", "2026-11-23T09:00:00Z"),
        ("0 9 13 * fri", "2026-11-01T00:00:00Z", "2026-11-06T09:00:00Z"),
        ("0 9 */2 * fri", "2026-11-01T10:00:00Z", "2026-11-03T09:00:00Z"),
        ("0 9 * * fri", "2026-11-01T00:00:00Z", "2026-11-06T09:00:00Z"),
        ("5/20 0 1 1 ?", "2026-11-01T00:00:00Z", "2027-01-01T00:05:00Z"),
        ("0 0 29 2 *", "2026-11-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("@weekly", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
        ("@every 90m", "2026-11-21T00:00:00.5Z", "2026-11-21T01:30:00Z"),
    ],
)
def test_a_schedule_is_due_at_the_next_time_that_its_fields_allow(schedule: str, after: str, due: str) -> None:
    assert cron.parse(schedule).after(at(after), UTC) == at(due)


@pytest.mark.parametrize("schedule", ["0 0 30 2 *", ", * * * *"])
def test_what_never_comes_is_never_due(schedule: str) -> None:
    assert cron.parse(schedule).after(at("2026-11-21T00:00:00Z"), UTC) is None


def test_a_time_that_clocks_skip_is_skipped_and_one_that_they_repeat_comes_twice() -> None:
    night = cron.parse("30 2 * * *")
    assert night.after(at("2026-03-28T12:00:00Z"), BERLIN) == at("2026-03-30T00:30:00Z")
    first = night.after(at("2026-10-24T12:00:00Z"), BERLIN)
    assert first == at("2026-10-25T00:30:00Z")
    assert night.after(first, BERLIN) == at("2026-10-25T01:30:00Z")


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("x y", "expected exactly 5 fields, found 2: [x y]"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("-1 * * * *", 'failed to parse int from : strconv.Atoi: parsing "": invalid syntax'),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("@fortnightly", "unrecognized descriptor: @fortnightly"),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
    ],
)
def test_what_is_no_schedule_is_refused_in_the_api_servers_words(schedule: str, why: str) -> None:
    with pytest.raises(cron.ScheduleError) as caught:
        cron.parse(schedule)
    assert str(caught.value) == why


@given(st.text("0123456789*/-,? LTZ@everyjanmon.hs+", max_size=30))
def test_any_text_is_a_schedule_or_is_refused(text: str) -> None:
    try:
        schedule = cron.parse(text)
    except cron.ScheduleError:
        return
    due = schedule.after(at("2026-11-21T12:00:00Z"), BERLIN)
    assert due is None or due > at("2026-11-21T12:00:00Z")


@st.composite
def fields(draw: st.DrawFn) -> list[set[int] | None]:
    """Return the values of each field, or None for a star; days and hours are dense enough to come within days."""
    sizes = (5, 8, 20, 12, 5)
    sets = [
        st.sets(st.integers(low, high), min_size=size, max_size=size)
        for (low, high), size in zip(LIMITS, sizes, strict=True)
    ]
    return [draw(st.none() | each) for each in sets]


@given(
    fields(),
    st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - as asked for
    st.sampled_from(ZONES),
)
def test_the_next_time_is_the_first_minute_whose_local_time_is_allowed(
    values: list[set[int] | None], when: datetime, zone: str
) -> None:
    text = " ".join("*" if each is None else ",".join(map(str, sorted(each))) for each in values)
    local_zone = cron.zone(zone)

    def allowed(minute: datetime) -> bool:
        local = minute.astimezone(local_zone)
        minutes, hours, days, months, weekdays = values
        plain = (local.minute, minutes), (local.hour, hours), (local.month, months)
        by_day = days is None or local.day in days
        by_weekday = weekdays is None or local.isoweekday() % 7 in weekdays
        on = (by_day and by_weekday) if days is None or weekdays is None else (by_day or by_weekday)
        return on and all(each is None or number in each for number, each in plain)

    start = when.replace(second=0, microsecond=0) + timedelta(minutes=1)
    minutes = (start + timedelta(minutes=number) for number in range(2 * 24 * 60))
    expected = next(filter(allowed, minutes), None)
    due = cron.parse(text).after(when, local_zone)
    assert due == expected if expected else due is None or due >= start + timedelta(days=2)
