"""What an image of Muster runs, without a container engine: the built wheel in a clean venv, as a user whom nobody knows."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
USER = "65532"
PACKAGES = ("muster", "webhooks", "scheduler", "certs", "deploy")
FILES = ("pyproject.toml", "README.md", "LICENSE")
_UNSHARE = ("unshare", "--user", f"--map-user={USER}", f"--map-group={USER}")


def build(folder: Path, revision: str) -> Path:
    """Build the wheel as the Dockerfile does, install it into a venv that can't be written; give the venv.

    Its dependencies are those of this Python, which are pinned by the same file.
    """
    sources, wheels, venv = folder / "sources", folder / "wheels", folder / "venv"
    sources.mkdir(parents=True)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, sources / name)
    (sources / "muster" / "revision.txt").write_text(revision)
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels), cwd=sources)
    _run(sys.executable, "-m", "venv", "--without-pip", str(venv), cwd=folder)
    (wheel,) = wheels.iterdir()
    python = venv / "bin" / "python"
    _run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        str(wheel),
        cwd=folder,
    )
    (packages,) = (venv / "lib").glob("python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    shutil.rmtree(sources)
    for each in (venv, *venv.rglob("*")):
        if not each.is_symlink():
            each.chmod(each.stat().st_mode & ~0o222)
    return venv


def program(venv: Path) -> list[str]:
    """Return the beginning of a command line of ``muster`` in an image, as a user without rights where that can be had."""
    strange = subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    return [*(_UNSHARE if strange else ()), str(venv / "bin" / "muster")]


def _run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
