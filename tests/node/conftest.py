"""One real cluster with Muster in it for all tests of this folder."""

from __future__ import annotations

import time
from collections.abc import Iterator

import binaries
import machine
import pytest
from nodes import Nodes

SPACE = "muster-system"


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Two nodes, under Pod Security `restricted` where Muster is, and the chart with its defaults."""
    unbuilt = [each.name for each in binaries.OF_A_NODE if binaries.find(each.name) is None]
    if lacking := machine.missing() or (f"{', '.join(unbuilt)} missing (make node builds them)" if unbuilt else ""):
        pytest.skip(f"real nodes: not run, {lacking}")
    with Nodes() as running:
        running.kubectl("create", "namespace", SPACE)
        running.kubectl("label", "namespace", SPACE, "pod-security.kubernetes.io/enforce=restricted")
        begun = time.monotonic()
        running.install()
        running.figures["install to Ready, s"] = time.monotonic() - begun
        yield running
        for what, figure in running.figures.items():
            print(f"{what}: {figure:.1f}")  # noqa: T201 - for benchmarks/results.md
