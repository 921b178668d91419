"""When a scheduler is ready: whoever waits for that after an installation can create groups that name no queue."""

from __future__ import annotations

import contextlib

from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, names
from scheduler.configuration import config
from scheduler.leader.worker import Worker


async def test_who_leads_is_ready_once_there_is_a_default_queue(world, plane):
    with contextlib.suppress(errors.NotFoundError):
        await plane.client.delete(kinds.QUEUES, names.DEFAULT_QUEUE)
    world.line.refuse = lambda asked: asked.method == "POST" and asked.path.endswith("/queues")
    await world.work()
    assert world.worker.not_ready() == ["the queue default isn't there yet"]
    world.line.refuse = lambda _: False
    await world.until(lambda: ready(world.worker))
    assert await plane.client.get(kinds.QUEUES, names.DEFAULT_QUEUE)


async def ready(worker):
    return not worker.not_ready()


async def test_who_stands_by_is_ready_once_another_leads_and_stays_so(plane):
    worker = Worker(Client(plane.transport), plane.clock, config.parse(config.DEFAULT), (names.SCHEDULER_NAME,))
    worker.standing_by = lambda: False
    assert worker.not_ready() == ["a leader isn't there yet"]
    worker.standing_by = lambda: True
    assert worker.not_ready() == []
    worker.standing_by = lambda: False
    assert worker.not_ready() == []
