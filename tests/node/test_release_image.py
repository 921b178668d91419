"""`make release` where an engine answers: the image is in dist/, named like the rest, and is that of the commit."""

from __future__ import annotations

import json
import os
import subprocess

import images
import pytest

from muster import __version__

pytestmark = pytest.mark.processes

NAME = f"muster-{__version__}.image.tar"


def test_a_release_has_the_image_of_its_commit(real, tmp_path):
    checkout, dist = tmp_path / "checkout", tmp_path / "checkout" / "dist"
    subprocess.run(["git", "clone", "--quiet", str(images.ROOT), str(checkout)], check=True)
    commit = subprocess.run(["git", "describe", "--always"], cwd=checkout, capture_output=True, text=True, check=True)
    with images.engine(tmp_path) as engine:
        done = subprocess.run(
            ["make", "release", f"ENGINE={engine}", "URL=https://example.com/muster"],
            cwd=checkout,
            env=os.environ | {"BASE": images.BASE},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no image" not in done.stdout
        assert NAME in (dist / "SHA256SUMS").read_text()
        statement = json.loads((dist / "provenance.json").read_text())
        assert NAME in {each["name"] for each in statement["subject"]}
        made = [str(engine), "from", "--name", "released", f"docker-archive:{dist / NAME}"]
        subprocess.run(made, capture_output=True, check=True)
        said = [str(engine), "run", "released", "--", "muster", "--version"]
        version = subprocess.run(said, capture_output=True, text=True, check=True).stdout.strip()
    assert version == f"muster {__version__} ({commit.stdout.strip()})"
