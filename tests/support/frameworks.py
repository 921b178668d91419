"""What operators publish, their CRDs and samples, in the folder that MUSTER_FRAMEWORKS names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = os.environ.get("MUSTER_FRAMEWORKS", "")
needs_them = pytest.mark.skipif(not FOLDER, reason="MUSTER_FRAMEWORKS names no folder of CRDs and samples")


def sample(name: str, kind: str) -> dict[str, Any]:
    """Return the object of that kind of a sample, as published."""
    documents = yaml.safe_load_all((Path(FOLDER) / "examples" / f"{name}.yaml").read_text())
    return next(each for each in documents if each and each["kind"] == kind)


def definition(name: str) -> dict[str, Any]:
    """Return a CRD by its name, ``rayjobs.ray.io``."""
    plural, _, group = name.partition(".")
    found: dict[str, Any] = yaml.safe_load((Path(FOLDER) / "crds" / f"{group}_{plural}.yaml").read_text())
    return found
