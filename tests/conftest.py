"""The two control planes that tests run on: the sandbox, and the real thing."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path

import binaries
import plane as planes_of_tests
import pytest
import selecting
from _pytest.nodeid import coerce_node_id
from controlplane import ControlPlane
from hypothesis import HealthCheck, settings
from plane import Plane

# A landing must not depend on luck, so that what is tried is the same each time; HYPOTHESIS_PROFILE=random tries
# something new. No deadlines: how long something takes is for benchmarks to say.
settings.register_profile("default", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", settings.get_profile("default"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# An API server under load spends a fifth of its processor time collecting garbage. Tests have memory instead, up to a limit;
# benchmarks measure beside a server as it ships.
os.environ.setdefault("GOGC", "400")
os.environ.setdefault("GOMEMLIMIT", "2GiB")

_MISSING = [binary.name for binary in binaries.BINARIES if binaries.find(binary.name) is None]

_COLLECTED_AFTER = 10_000
"""New objects between two collections. Python's 700 are for programs that make fewer."""

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


@pytest.fixture(scope="module", autouse=True)
def _legacy_apis_until_the_end() -> Iterator[None]:
    yield
    planes_of_tests.without_legacy_apis()


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
    return planes_of_tests.loops_of(item) or told or {"real": planes_of_tests.RealLoop}


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in selecting.MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    sys.addaudithook(selecting.guard)
    planes_of_tests.use_real_loops()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let only tests that say so start processes; report a test by the name that runs it alone."""
    item._id = coerce_node_id(selecting.alone(item.nodeid))
    selecting.begin(item)
    try:
        return (yield)
    finally:
        selecting.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Have what isn't run without the real control plane be one line of the summary, not one for each function."""
    report = yield
    if (
        _MISSING
        and report.skipped
        and isinstance(report.longrepr, tuple)
        and "real control plane:" in report.longrepr[2]
    ):
        report.longrepr = (__file__, 0, report.longrepr[2])
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark what runs on real processes, before anything is selected by marks."""
    for item in items:
        selecting.mark(item)
    yield
    for item in items:
        # pytest-xdist 3.8 writes the group to where pytest kept its id before 9.2, which heeds it no more.
        if "_nodeid" in vars(item):
            item._id = coerce_node_id(vars(item)["_nodeid"])


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from what stays: among thousands of tests it would take a quarter of their time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER, 10, 10)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in the summary what was not proved."""
    if _MISSING:
        terminalreporter.write_line(f"real control plane: not run ({', '.join(_MISSING)} missing)", yellow=True)
