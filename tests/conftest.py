"""The two control planes that tests run on: the sandbox, and the real thing."""

from __future__ import annotations

from collections.abc import Iterator

import binaries
import pytest
from controlplane import ControlPlane

_MISSING = [binary.name for binary in binaries.BINARIES if binaries.find(binary.name) is None]


@pytest.fixture(scope="session")
def real_control_plane() -> Iterator[ControlPlane]:
    """etcd, kube-apiserver, kube-controller-manager and kwok, once for the session."""
    if _MISSING:
        pytest.skip(f"real control plane: not run, {', '.join(_MISSING)} missing (make controlplane)")
    with ControlPlane() as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all that uses the real control plane in one worker process, so that it is started once."""
    for item in items:
        if "real_control_plane" in getattr(item, "fixturenames", ()) or "[kubernetes" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("kubernetes"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in the summary what was not proved."""
    if _MISSING:
        terminalreporter.write_line(f"real control plane: not run ({', '.join(_MISSING)} missing)", yellow=True)
