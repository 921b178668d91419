"""The plain listener beside a program."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from muster.telemetry.probes import Probes


@pytest.fixture
def missing() -> list[str]:
    return []


@pytest.fixture
def ills() -> list[str]:
    return []


@pytest.fixture
async def base(missing: list[str], ills: list[str]) -> AsyncIterator[str]:
    registry = CollectorRegistry()
    Counter("muster_things", "Things.", registry=registry).inc(3)
    probes = Probes(lambda: missing, registry, alive=lambda: ills, host="127.0.0.1")
    await probes.start()
    yield f"http://127.0.0.1:{probes.port}"
    await probes.stop()


async def fetched(url: str, method: str = "GET") -> tuple[int, str]:
    async with aiohttp.request(method, url) as response:
        return response.status, await response.text()


async def test_a_program_is_alive_while_its_loop_turns(base: str, missing: list[str]) -> None:
    missing.append("the first list of queues")
    assert await fetched(base + "/healthz") == (200, "ok\n")


async def test_a_program_that_only_a_new_start_can_mend_says_why(base: str, ills: list[str]) -> None:
    ills.append("the cluster isn't watched any more")
    assert await fetched(base + "/healthz") == (503, "the cluster isn't watched any more\n")


async def test_the_state_is_shown_only_where_somebody_asked_for_it(base: str) -> None:
    assert await fetched(base + "/debug/state") == (404, "it is off: start the program with --debug-state\n")
    probes = Probes(tuple, CollectorRegistry(), state=lambda: {"leading": True}, host="127.0.0.1")
    await probes.start()
    try:
        url = f"http://127.0.0.1:{probes.port}/debug/state"
        assert await fetched(url) == (200, '{"leading":true}')
        assert (await fetched(url, "POST"))[0] == 405
    finally:
        await probes.stop()


async def test_a_program_is_ready_or_says_what_it_waits_for(base: str, missing: list[str]) -> None:
    assert await fetched(base + "/readyz") == (200, "ok\n")
    missing += ["the first list of queues", "a certificate"]
    assert await fetched(base + "/readyz") == (503, "the first list of queues\na certificate\n")


async def test_metrics_are_in_prometheus_form(base: str) -> None:
    status, text = await fetched(base + "/metrics")
    assert (status, "muster_things_total 3.0" in text) == (200, True)


async def test_other_paths_and_methods_are_refused(base: str) -> None:
    assert (await fetched(base + "/"))[0] == 404
    assert (await fetched(base + "/healthz", "POST"))[0] == 405
