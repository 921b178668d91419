"""Programs that tests need and that are written in Go: built once each, as the control plane's binaries are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from binaries import cache


def built(module: Path, name: str) -> Path:
    """Build the program of a Go module, where what is kept of it is older than its sources; where there is no Go, skip what needs it."""
    target = cache() / name
    if not target.exists() or target.stat().st_mtime < max(each.stat().st_mtime for each in module.iterdir()):
        if shutil.which("go") is None:
            pytest.skip(f"no Go to build {name} with")
        cache().mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".unfinished")
        command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
        command += ["-o", str(unfinished), "."]
        subprocess.run(command, cwd=module, env=os.environ | {"CGO_ENABLED": "0"}, check=True)
        unfinished.replace(target)
    return target
