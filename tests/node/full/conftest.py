"""One cluster of both IP families for all tests of this folder, with the chart as a platform sets it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import images
import platforms
import pytest
import yaml
from nodes import Nodes


class Former(NamedTuple):
    """The version before this one: its sources, and the archive of its image."""

    sources: Path
    archive: Path


@pytest.fixture(scope="session")
def former(real: None) -> Iterator[Former]:
    """What an upgrade begins with."""
    with tempfile.TemporaryDirectory(prefix="muster-former-") as folder:
        yield Former(Path(folder), images.former(Path(folder)))


@pytest.fixture(scope="session")
def dual(request: pytest.FixtureRequest, figures: dict[str, float]) -> Iterator[Nodes]:
    """Two nodes whose pods have addresses of both families, and Muster in them; the former version's image where a test of the run wants it."""
    # Made first: it is no part of what is timed.
    wanted = any("former" in getattr(each, "fixturenames", ()) for each in request.session.items)
    more = [request.getfixturevalue("former").archive] if wanted else []
    begun = time.monotonic()
    with Nodes(families=(4, 6), more=more) as running:
        running.figures = figures
        (running.folder / "values.yaml").write_text(yaml.safe_dump(platforms.VALUES))
        running.install("--values", str(running.folder / "values.yaml"))
        figures["two nodes of both families with Muster, s"] = time.monotonic() - begun
        yield running
