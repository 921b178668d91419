"""Events: how they are thinned out, on values, and that they are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.sandbox.controllers.plans.event_correlator import EventCorrelator, EventRecord

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_an_object_gets_twenty_five_events_at_once_and_then_one_in_five_minutes() -> None:
    thinning = EventCorrelator()
    note = EventRecord("Normal", "Same", "text")
    assert sum(thinning.thin("uid", note, START) is not None for _ in range(100)) == 25

    assert thinning.thin("uid", note, START + timedelta(seconds=299)) is None
    assert thinning.thin("uid", note, START + timedelta(seconds=301)) is not None
    assert thinning.thin("other", note, START) == note


def test_many_texts_of_one_reason_are_combined_and_apart_again_after_ten_quiet_minutes() -> None:
    thinning = EventCorrelator()
    texts = []
    for number in range(12):
        note = thinning.thin("uid", EventRecord("Normal", "Created", f"pod {number}"), START)
        assert note is not None
        texts.append(note.message)

    assert texts[:9] == [f"pod {number}" for number in range(9)]
    assert texts[9:] == [f"(combined from similar events): pod {number}" for number in (9, 10, 11)]
    later = START + timedelta(minutes=11)
    assert thinning.thin("uid", EventRecord("Normal", "Created", "pod 99"), later) == EventRecord(
        "Normal", "Created", "pod 99"
    )


async def test_an_event_that_happens_again_is_counted_and_one_of_long_ago_is_forgotten(
    cluster: Any, new_job: Callable[..., dict[str, Any]]
) -> None:
    await cluster.create(new_job(suspend=True))
    await asyncio.sleep(1)
    await cluster.patch("jobs", "j", {"spec": {"suspend": False}})
    await asyncio.sleep(1800)
    await cluster.patch("jobs", "j", {"spec": {"suspend": True}})
    await asyncio.sleep(1801)

    events = {event["reason"]: event for event in await cluster.list("events", "default")}
    assert "Resumed" not in events
    suspended = events["Suspended"]
    assert suspended["count"] == 2
    assert suspended["lastTimestamp"] > suspended["firstTimestamp"]
    assert suspended["source"] == {"component": "job-controller"}

    await asyncio.sleep(1800)
    assert await cluster.list("events", "default") == []
