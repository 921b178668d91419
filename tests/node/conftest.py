"""One real cluster with Muster in it for all tests of this folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import binaries
import machine
import platforms
import pytest
from nodes import SPACE, Nodes

from muster.kube.clock import SystemClock

_FIGURES: dict[str, float] = {}
"""What was measured meanwhile, by name: for benchmarks/results.md."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    for what, figure in _FIGURES.items():
        terminalreporter.write_line(f"{what}: {figure:.1f}")


@pytest.fixture(scope="session")
def figures() -> dict[str, float]:
    """Where to note what was measured."""
    return _FIGURES


@pytest.fixture(scope="session")
def real() -> None:
    """Skip what a machine without real nodes can't run."""
    unbuilt = [each.name for each in binaries.OF_A_NODE if binaries.find(each.name) is None]
    if lacking := machine.missing() or (f"{', '.join(unbuilt)} missing (make node builds them)" if unbuilt else ""):
        pytest.skip(f"real nodes: not run, {lacking}")


@pytest.fixture(scope="session")
def nodes(real: None, figures: dict[str, float]) -> Iterator[Nodes]:
    """Two nodes, under Pod Security `restricted` where Muster is, and the chart with its defaults."""
    with Nodes() as running:
        running.figures = figures
        running.kubectl("create", "namespace", SPACE)
        running.kubectl("label", "namespace", SPACE, "pod-security.kubernetes.io/enforce=restricted")
        running.untouched = _settled(running)
        begun = time.monotonic()
        running.install()
        figures["install to Ready, s"] = time.monotonic() - begun
        platforms.until(lambda: platforms.refuses(running), seconds=machine.SECONDS)
        figures["install to the first refusal, s"] = time.monotonic() - begun
        yield running


def _settled(running: Nodes) -> set[str]:
    """Return all objects, once the cluster's own controllers have made what each namespace has."""
    for namespace in ("default", "kube-node-lease", "kube-public", "kube-system", SPACE):
        made = ("configmap/kube-root-ca.crt", "serviceaccount/default", "--for=create", "--timeout=120s")
        running.kubectl("wait", "--namespace", namespace, *made)
    before, now = set[str](), running.everything()
    while now != before:
        time.sleep(2)
        before, now = now, running.everything()
    return now


@pytest.fixture(scope="module")
def quiet(nodes: Nodes) -> Iterator[None]:
    """Of tests in which nothing happens to Muster: none of its pods writes a warning meanwhile."""
    since = SystemClock().now().isoformat()
    yield
    names = nodes.kubectl("get", "pods", "--namespace", SPACE, "--output=jsonpath={.items[*].metadata.name}").split()
    logs = [nodes.kubectl("logs", each, "--namespace", SPACE, f"--since-time={since}") for each in names]
    lines = [json.loads(line) for log in logs for line in log.splitlines()]
    assert [line for line in lines if line["level"] not in {"info", "debug"}] == []
