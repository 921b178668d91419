"""Upstream's allocator as a program, built from the Go module in `upstream` as the control plane's binaries are."""

from __future__ import annotations

from pathlib import Path

import pytest
from go_programs import built


@pytest.fixture(scope="session")
def upstream() -> Path:
    """Build the program once; where there is no Go, skip what needs it."""
    return built(Path(__file__).parent / "upstream", "devices")
