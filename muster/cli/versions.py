"""The version of this program."""

from __future__ import annotations

from importlib import resources
from typing import Final

from muster import __version__

REVISION: Final = "revision.txt"
"""In the package ``muster`` of an image; the Dockerfile writes it."""


def own_version() -> str:
    """Return the version and, in an image, the revision of the sources that it was built from."""
    file = resources.files("muster") / REVISION
    revision = file.read_text().strip() if file.is_file() else ""
    return f"muster {__version__}" + (f" ({revision})" if revision else "")
