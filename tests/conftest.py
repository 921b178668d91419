"""The two control planes that tests run on: the sandbox, and the real thing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import binaries
import plane as planes_of_tests
import pytest
from controlplane import ControlPlane
from plane import Plane

_MISSING = [binary.name for binary in binaries.BINARIES if binaries.find(binary.name) is None]

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


@pytest.fixture(scope="session")
def real_control_plane() -> Iterator[ControlPlane]:
    """etcd, kube-apiserver, kube-controller-manager and kwok, once for the session."""
    if _MISSING:
        pytest.skip(f"real control plane: not run, {', '.join(_MISSING)} missing (make controlplane)")
    with ControlPlane() as running:
        yield running


@pytest.fixture
def _real(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real control plane, for a test whose parameter says so."""
    if not planes_of_tests.on_kubernetes(request.node):
        return None
    running: ControlPlane = request.getfixturevalue("real_control_plane")
    return running


@pytest.fixture
async def plane(_real: ControlPlane | None, tmp_path: Path) -> AsyncIterator[Plane]:
    """An API server with Muster's kinds: each test runs on the sandbox and on the real one."""
    folder = tmp_path / "webhook-certificate"
    folder.mkdir()
    async with planes_of_tests.open_plane(_real, folder) as opened:
        yield opened


@pytest.hookimpl(wrapper=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Generator[None, Loops | None, Loops]:
    """Run tests of both control planes twice, on the sandbox in virtual time; others as their folder says."""
    told = yield
    return planes_of_tests.loops_of(item) or told or {"real": asyncio.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only(plane, reason): runs on one control plane only, and why")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all that uses the real control plane in one worker process, so that it is started once."""
    for item in items:
        uses: Any = getattr(item, "fixturenames", ())
        if "real_control_plane" in uses or "[kubernetes" in item.nodeid or planes_of_tests.on_kubernetes(item):
            item.add_marker(pytest.mark.xdist_group("kubernetes"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in the summary what was not proved."""
    if _MISSING:
        terminalreporter.write_line(f"real control plane: not run ({', '.join(_MISSING)} missing)", yellow=True)
