"""The configuration is followed while the scheduler runs; what can't be used changes nothing and is told."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from plane import running
from prometheus_client import CollectorRegistry

from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.configuration.reload import POLL, LivePolicy

GOOD = "actions: allocate\ntiers: [{plugins: [{name: gang}]}]\n"
BETTER = "actions: allocate, backfill\ntiers: [{plugins: [{name: gang}]}]\n"
WRONG = "actions: allocate\ntiers: [{plugins:\n  [{name: gnag}]}]\n"
REFUSED = "muster_scheduler_configuration_refused"


class Followed:
    """A file that is followed, and what was taken over from it."""

    def __init__(self, file):
        self.file = file
        self.registry = CollectorRegistry()
        self.live = LivePolicy(file, self.registry)
        self.adopted = []

    async def write(self, text):
        self.file.write_text(text)
        await self.look()

    async def look(self):
        await asyncio.sleep(2 * POLL)

    @property
    def actions(self):
        return [[action.name for action in policy.actions] for policy in self.adopted]

    @property
    def refused(self):
        return self.registry.get_sample_value(REFUSED)


@asynccontextmanager
async def following(file):
    followed = Followed(file)
    async with running(followed.live.run(followed.adopted.append)):
        await followed.look()
        yield followed


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text(GOOD)
    return path


async def test_a_change_is_taken_over_once(file):
    async with following(file) as followed:
        await followed.write(BETTER)
        await followed.look()
    assert followed.actions == [["allocate"], ["allocate", "backfill"]]
    assert followed.refused == 0


async def test_what_changes_nothing_is_told_at_the_start_and_taken_over_all_the_same(file, caplog):
    file.write_text("actions: allocate\ntiers:\n- plugins:\n  - {name: gang, enableBestNode: true}\n")
    with caplog.at_level(logging.WARNING):
        async with following(file) as followed:
            await followed.look()
    assert followed.actions == [["allocate"]]
    assert f"{file}, line 4: enableBestNode changes nothing: no plugin of Muster's has that point" in caplog.messages


async def test_what_cannot_be_used_is_told_with_its_line_and_changes_nothing(file, caplog):
    async with following(file) as followed:
        with caplog.at_level(logging.WARNING):
            await followed.write(WRONG)
            await followed.look()
        assert followed.live.trouble == f"{file}, line 3: unknown plugin 'gnag'; did you mean gang?"
        assert followed.refused == 1
        assert len(caplog.records) == 1
        assert "line 3: unknown plugin 'gnag'" in caplog.text
        await followed.write(BETTER)
    assert followed.actions == [["allocate"], ["allocate", "backfill"]]
    assert followed.live.trouble == ""


async def test_a_file_that_is_gone_for_a_while_changes_nothing(file):
    async with following(file) as followed:
        file.unlink()
        await followed.look()
        assert followed.live.trouble == f"{file} can't be read: No such file or directory"
        await followed.write(BETTER)
    assert followed.actions == [["allocate"], ["allocate", "backfill"]]


async def test_a_mounted_config_map_changes_by_its_link(tmp_path):
    for version, text in (("1", GOOD), ("2", BETTER)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "scheduler.yaml").write_text(text)
    data, file = tmp_path / "..data", tmp_path / "scheduler.yaml"
    data.symlink_to("1")
    file.symlink_to("..data/scheduler.yaml")
    async with following(file) as followed:
        (tmp_path / "new").symlink_to("2")
        (tmp_path / "new").rename(data)
        await followed.look()
    assert followed.actions == [["allocate"], ["allocate", "backfill"]]


async def test_a_worker_decides_by_what_it_was_given_last(world):
    await world.node("1")
    await world.work('actions: "enqueue"\ntiers: [{plugins: [{name: gang}]}]')
    group = {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 1, "queue": "default"}}
    await world.create(group, pod("p"))
    await world.phase("g", "Inqueue")
    world.worker.adopt(config.parse(config.DEFAULT))
    await world.phase("g", "Running")


def pod(name):
    return {
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {names.GROUP_NAME: "g"}},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main", "image": "busybox"}]},
    }


async def test_jobs_that_wait_start_where_groups_no_longer_wait(world):
    await world.node("1")
    await world.work()
    template = {
        "metadata": {"annotations": {names.GROUP_NAME: "g"}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    meta = {"name": "big", "annotations": {names.SUSPENDED: "true"}}
    spec = {"parallelism": 2, "completions": 2, "suspend": True, "template": template}
    group = {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 2, "queue": "default"}}
    await world.create(group, {"kind": "Job", "apiVersion": "batch/v1", "metadata": meta, "spec": spec})
    await world.becomes(kinds.PODGROUPS, "g", lambda found: found.status.conditions)
    assert (await world.job("big")).spec.suspend
    world.worker.adopt(config.parse(config.DEFAULT.replace("enqueue, ", "")))
    await world.becomes(kinds.JOBS, "big", lambda job: not job.spec.suspend)
