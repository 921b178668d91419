"""CronJobs through the API, in virtual time. What their objects look like, tests/differential holds against the real."""

from __future__ import annotations

import asyncio
from typing import Any

Cluster = Any

HOUR = 3600.0


def cron_job(schedule: str, seconds: str = "5", code: str = "0", **spec: Any) -> dict[str, Any]:
    annotations = {"sandbox.muster.sh/run-seconds": seconds, "sandbox.muster.sh/exit-code": code}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    template = {"spec": {"backoffLimit": 0, "template": {"metadata": {"annotations": annotations}, "spec": pod}}}
    whole = {"schedule": schedule, "jobTemplate": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": whole}


async def scheduled(cluster: Cluster) -> list[str]:
    key = "batch.kubernetes.io/cronjob-scheduled-timestamp"
    return sorted(each["metadata"]["annotations"][key] for each in await cluster.list("jobs", "default"))


async def test_jobs_start_by_the_clocks_of_the_time_zone_and_the_last_ones_are_kept(running: Cluster) -> None:
    # The cluster's time starts at 2026-11-21 12:00 UTC.
    await running.create(cron_job("30 18 * * *", timeZone="Asia/Kolkata", successfulJobsHistoryLimit=2))
    await asyncio.sleep(24 * HOUR * 4)
    assert await scheduled(running) == [f"2026-11-2{day}T18:30:00+05:30" for day in (3, 4)]
    status = (await running.get("cronjobs", "c"))["status"]
    assert status["lastScheduleTime"] == "2026-11-24T13:00:00Z"
    assert "active" not in status


async def test_a_job_still_running_forbids_allows_or_is_replaced_by_the_next(running: Cluster) -> None:
    for policy, active in (("Forbid", 1), ("Allow", 3), ("Replace", 1)):
        await running.create(cron_job("*/10 * * * *", "3000", concurrencyPolicy=policy))
        await asyncio.sleep(1805)
        assert len((await running.get("cronjobs", "c"))["status"]["active"]) == active, policy
        assert len(await running.names("jobs")) == active, policy
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        said = [message for reason, message in await running.events("c") if reason == "JobAlreadyActive"]
        assert said == ([text] * 2 if policy == "Forbid" else [])
        await running.delete("cronjobs", "c")
        await asyncio.sleep(2 * HOUR - 1805)


async def test_what_was_missed_is_started_once_unless_it_is_too_late(running: Cluster) -> None:
    await running.create(cron_job("0 * * * *", suspend=True))
    await asyncio.sleep(5 * HOUR + 600)
    assert await running.names("jobs") == []
    await running.patch("cronjobs", "c", {"spec": {"suspend": False, "startingDeadlineSeconds": 60}})
    await asyncio.sleep(10)
    assert await running.names("jobs") == []
    await running.patch("cronjobs", "c", {"spec": {"startingDeadlineSeconds": None}})
    await asyncio.sleep(10)
    assert await scheduled(running) == ["2026-11-21T17:00:00Z"]


async def test_a_minutely_schedule_that_was_suspended_for_a_week_says_how_much_it_missed(running: Cluster) -> None:
    await running.create(cron_job("* * * * *", suspend=True))
    await asyncio.sleep(7 * 24 * HOUR + 30)
    await running.patch("cronjobs", "c", {"spec": {"suspend": False}})
    await asyncio.sleep(10)
    assert await scheduled(running) == ["2026-11-28T12:00:00Z"]
    assert "TooManyMissedTimes" in dict(await running.events("c"))


async def test_failed_jobs_have_a_history_of_their_own(running: Cluster) -> None:
    await running.create(cron_job("* * * * *", "1", "3"))
    await asyncio.sleep(400)
    assert len(await running.names("jobs")) == 1
    assert "lastSuccessfulTime" not in (await running.get("cronjobs", "c"))["status"]


async def test_a_job_that_went_missing_is_noted_and_one_made_by_hand_is_not_forgotten(running: Cluster) -> None:
    made = await running.create(cron_job("0 * * * *", "3000"))
    await asyncio.sleep(HOUR + 5)
    (name,) = await running.names("jobs")
    await running.delete("jobs", name)
    owner = {key: made["metadata"][key] for key in ("name", "uid")}
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "controller": True, **owner}
    metadata = {"name": "by-hand", "ownerReferences": [reference]}
    spec = made["spec"]["jobTemplate"]["spec"]
    await running.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    await asyncio.sleep(5)
    said = dict(await running.events("c"))
    assert said["MissingJob"] == f"Active job went missing: {name}"
    assert said["UnexpectedJob"] == "Saw a job that the controller did not create or forgot: by-hand"


async def test_a_day_that_never_comes_is_told(running: Cluster) -> None:
    await running.create(cron_job("0 0 30 2 *"))
    await asyncio.sleep(5)
    assert "InvalidSchedule" in dict(await running.events("c"))
