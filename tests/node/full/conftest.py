"""One cluster of both IP families for all tests of this folder, with the chart as a platform sets it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import platforms
import pytest
import yaml
from nodes import Nodes


@pytest.fixture(scope="session")
def dual(real: None, figures: dict[str, float]) -> Iterator[Nodes]:
    """Two nodes whose pods have addresses of both families, and Muster in them."""
    begun = time.monotonic()
    with Nodes(families=(4, 6)) as running:
        running.figures = figures
        (running.folder / "values.yaml").write_text(yaml.safe_dump(platforms.VALUES))
        running.install("--values", str(running.folder / "values.yaml"))
        figures["two nodes of both families with Muster, s"] = time.monotonic() - begun
        yield running
