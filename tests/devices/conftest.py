"""Upstream's allocator as a program, built from the Go module in `upstream` as the control plane's binaries are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from binaries import cache

MODULE = Path(__file__).parent / "upstream"


@pytest.fixture(scope="session")
def upstream() -> Path:
    """Build the program once; where there is no Go, skip what needs it."""
    target = cache() / "devices"
    if not target.exists() or target.stat().st_mtime < max(each.stat().st_mtime for each in MODULE.iterdir()):
        if shutil.which("go") is None:
            pytest.skip("no Go to build upstream's allocator with")
        cache().mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished")
        command = [
            "go",
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            "-s -w",
            "-o",
            str(unfinished),
            ".",
        ]
        subprocess.run(command, cwd=MODULE, env=os.environ | {"CGO_ENABLED": "0"}, check=True)
        unfinished.replace(target)
    return target
