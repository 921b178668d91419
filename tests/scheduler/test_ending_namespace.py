"""A namespace that is being deleted: nothing of ours is made in it, and nobody is warned of that."""

from __future__ import annotations

import asyncio
import logging

from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.events import EventRecorder
from muster.kube.transport import Request, Response
from muster.model import kinds
from muster.model.objects import Meta, Object

ENDING = b"""{"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "is being terminated",
  "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}}"""


class Ending:
    """Refuses whatever is created."""

    async def request(self, _request: Request, *, within: float) -> Response:  # noqa: ARG002 - a Transport
        return Response(403, ENDING)


async def test_an_event_of_a_namespace_that_ends_is_dropped_without_a_warning(caplog):
    caplog.set_level(logging.DEBUG)
    recorder = EventRecorder(Client(Ending()), SystemClock(), "muster")  # type: ignore[arg-type] # no watch is asked for
    running = asyncio.create_task(recorder.run())
    recorder.record(kinds.JOBS, Object(metadata=Meta(name="train", namespace="team", uid="u")), "Held", "waits")
    while not recorder.dropped:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.1)
    running.cancel()
    told = [record for record in caplog.records if "could not be written" in record.getMessage()]
    assert [record.levelname for record in told] == ["DEBUG"]
