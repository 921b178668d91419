"""Errors that nobody foresaw are counted once each, whichever module isolates them."""

from __future__ import annotations

import asyncio
import io
import logging

import pytest

from muster.kube.workqueue import WorkQueue
from muster.sandbox import virtual_time
from muster.telemetry import logs
from muster.telemetry.defects import DEFECTS
from muster.telemetry.registry import registry


@pytest.fixture(autouse=True)
def _log():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logs.configure(stream=io.StringIO())
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def count():
    return registry("scheduler").get_sample_value("muster_errors_total")


def test_it_is_there_from_the_start():
    assert count() is not None


def test_an_error_that_a_controller_isolates_counts_once():
    async def reconcile(key):
        if key == "hostile":
            raise KeyError(key)
        done.append(key)

    async def work():
        queue = WorkQueue("thing", reconcile)
        running = asyncio.create_task(queue.run())
        queue.add("hostile")
        queue.add("honest")
        await asyncio.sleep(600)
        running.cancel()

    before, done = count(), []
    virtual_time.run(work())
    assert done == ["honest"]
    assert count() == before + 1


@pytest.mark.parametrize(
    ("name", "level", "error", "counts"),
    [
        ("webhooks.admission", logging.ERROR, ValueError("x"), 1),
        ("certs.leader", logging.ERROR, ValueError("x"), 1),
        ("scheduler.leader", logging.ERROR, None, 0),
        ("scheduler.leader", logging.WARNING, ValueError("x"), 0),
        ("aiohttp.server", logging.ERROR, ValueError("x"), 0),
    ],
)
def test_what_counts_is_an_error_of_ours_with_a_traceback(name, level, error, counts):
    before = count()
    logging.getLogger(name).log(level, "failed", exc_info=error)
    assert count() == before + counts


def test_it_is_the_handler_that_configure_installs():
    assert DEFECTS in logging.getLogger().handlers
