"""Whatever a tenant writes is read in a time that grows with its length: a quadratic step would hold the interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "bounded.py"
CPU_SECONDS = "45"
"""Ten times what all steps take together; a step that is quadratic in 256 KiB takes more alone."""


@pytest.mark.processes
def test_each_place_that_reads_free_text_is_bounded_before_it_reads():
    # A limit of processor time and not of time: a busy machine changes nothing.
    done = subprocess.run(
        [sys.executable, SCRIPT, CPU_SECONDS], capture_output=True, text=True, check=False, timeout=600
    )
    *_, last = done.stdout.splitlines()
    assert last == "all are bounded", f"{last}: {done.stderr[-2000:]}"
