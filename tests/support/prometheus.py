"""Prometheus, as Debian has it: found, or unpacked from its package into the cache. Standard library only.

The package isn't installed, which would start a service. As a program it unpacks it; exit status: 0 it is there, 1 it isn't.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "prometheus"


def cache() -> Path:
    """Return the folder that the package is unpacked in."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "muster" / PACKAGE


def find(name: str) -> Path | None:
    """Return the path of one of its programs, or None where it has yet to be unpacked."""
    installed = shutil.which(name)
    if installed:
        return Path(installed)
    unpacked = cache() / "usr" / "bin" / name
    return unpacked if os.access(unpacked, os.X_OK) else None


def main() -> int:
    """Unpack what is missing."""
    if find("prometheus") and find("promtool"):
        return 0
    with tempfile.TemporaryDirectory(prefix="muster-prometheus-") as folder:
        # As root, apt would fetch as a user who may not write there.
        words = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", PACKAGE]
        for update in (False, True):
            # A machine that has never asked knows no packages, and one that asked long ago knows those that are gone.
            if update:
                subprocess.run(["apt-get", "-q", "update"], stdout=sys.stderr, check=False)
            if not subprocess.run(words, cwd=folder, stdout=sys.stderr, check=False).returncode:
                break
        else:
            sys.stderr.write("prometheus: its package can't be downloaded\n")
            return 1
        (package,) = Path(folder).glob("*.deb")
        unpacked = cache().with_suffix(".unfinished")
        shutil.rmtree(unpacked, ignore_errors=True)
        if subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=False).returncode:
            return 1
        shutil.rmtree(cache(), ignore_errors=True)
        unpacked.rename(cache())
    return 0


if __name__ == "__main__":
    sys.exit(main())
