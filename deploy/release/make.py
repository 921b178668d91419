"""Makes what a release consists of, in dist/: `make release`.

Wheel and sdist, the chart, the krew manifest, a bill of materials (CycloneDX), where a container engine answers the image, and of all of
them checksums and provenance (in-toto statement, SLSA predicate). The same commit gives the same bytes, but for the image.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "muster"
KREW: Final = ROOT / "deploy" / "release" / "krew.yaml"
SUMS: Final = "SHA256SUMS"
PROVENANCE: Final = "provenance.json"
_STATEMENT: Final = "https://in-toto.io/Statement/v1"
_PREDICATE: Final = "https://slsa.dev/provenance/v1"
_BUILD: Final = "https://muster.sh/release/v1"


def version() -> str:
    """Return the version of the package, which a test holds to be that of the chart."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def git(*words: str) -> str:
    """Run git in the checkout; return what it prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def make(folder: Path, *, engine: str = "", url: str = "") -> list[str]:
    """Make everything in an empty folder; return what couldn't be made, a sentence each.

    ``url`` is where the files will be downloaded from.

    Raises:
        CalledProcessError: a tool failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    commit, when = git("rev-parse", "HEAD"), git("log", "-1", "--format=%ct")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": when}
    packages = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(folder)]
    subprocess.run(packages, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    (folder / f"muster-{version()}.tgz").write_bytes(packed_chart(int(when)))
    (sdist,) = folder.glob("*.tar.gz")
    lacking = [] if url else ["no krew manifest: it has to say where the files will be; name that with URL=https://…"]
    if url:
        (folder / "muster.krew.yaml").write_text(krew(sdist, url))
    lacking += [*_bill(folder), *_image(folder, engine)]
    subjects = dict(sums(folder))
    (folder / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in subjects.items()))
    (folder / PROVENANCE).write_text(json.dumps(provenance(subjects, commit, int(when)), indent=2) + "\n")
    return lacking


def packed_chart(when: int) -> bytes:
    """Pack the chart as ``helm package`` does, but with the time of the commit."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=when) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        # Helm wants Chart.yaml first.
        files = sorted(
            (each for each in CHART.rglob("*") if each.is_file()), key=lambda file: (file.name != "Chart.yaml", file)
        )
        for file in files:
            entry = tarfile.TarInfo(f"muster/{file.relative_to(CHART)}")
            content = file.read_bytes()
            entry.size, entry.mtime, entry.mode = len(content), when, 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def krew(sdist: Path, url: str) -> str:
    """Write the plugin's manifest for krew, with the version, and the archive's checksum."""
    text = KREW.read_text()
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    # Not as a template: what the page says of itself has braces.
    for name, value in (
        ("VERSION", f"v{version()}"),
        ("ARCHIVE", f"{url}/{sdist.name}"),
        ("SHA256", digest),
        ("HOME", url),
    ):
        text = text.replace(name, value)
    return text


def sums(folder: Path) -> Iterator[tuple[str, str]]:
    """Iterate over the files: the name of each, and its checksum."""
    for file in sorted(folder.iterdir()):
        if file.name not in {SUMS, PROVENANCE, ".gitignore"}:
            yield file.name, hashlib.sha256(file.read_bytes()).hexdigest()


def provenance(subjects: Mapping[str, str], commit: str, when: int) -> dict[str, Any]:
    """State what was made, of which commit, with which pinned packages. It is not signed."""
    pins = sorted((ROOT / "requirements").glob("*.txt"))
    materials: list[dict[str, Any]] = [{"name": "source", "digest": {"gitCommit": commit}}]
    materials += [
        {"name": f"requirements/{each.name}", "digest": {"sha256": hashlib.sha256(each.read_bytes()).hexdigest()}}
        for each in pins
    ]
    return {
        "_type": _STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD,
                "externalParameters": {"version": version(), "sourceDateEpoch": when},
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": _BUILD}, "metadata": {"invocationId": commit}},
        },
    }


def _bill(folder: Path) -> Iterator[str]:
    """Write the bill of materials of what runs, from the pinned packages."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    if not tool.exists():
        yield "no bill of materials: cyclonedx-py is missing; `make release` installs it"
        return
    words = ["requirements", "--output-reproducible", "--output-format", "JSON", "--pyproject", "pyproject.toml"]
    words += ["--output-file", str(folder / "muster.cdx.json"), "requirements/runtime.txt"]
    subprocess.run([str(tool), *words], cwd=ROOT, check=True)


def _image(folder: Path, engine: str) -> Iterator[str]:
    """Save the image, where an engine answers."""
    found = shutil.which(engine) if engine else None
    if found is None or subprocess.run([found, "info"], capture_output=True, check=False).returncode:
        yield f"no image: no container engine ({engine or 'none is named'}) answers here; name another with ENGINE=…"
        return
    tag = f"muster:{version()}"
    subprocess.run(["make", "image", f"ENGINE={engine}", f"IMAGE={tag}"], cwd=ROOT, check=True)
    subprocess.run(saved(engine, tag, folder / f"muster-{version()}.image.tar"), check=True)


def saved(engine: str, tag: str, file: Path) -> list[str]:
    """Return the command that writes an image to a file: buildah has none of that name."""
    if Path(engine).name == "buildah":
        return [engine, "push", f"localhost/{tag}", f"docker-archive:{file}:{tag}"]
    return [engine, "save", "-o", str(file), tag]


def main() -> int:
    """Make a release of a clean checkout; give the status."""
    if changed := git("status", "--porcelain"):
        sys.stderr.write(
            f"make release: the checkout has changes; commit them, so that the release is of a commit:\n{changed}\n"
        )
        return 1
    folder = ROOT / "dist"
    for old in folder.glob("*"):
        old.unlink()
    engine, url = (*sys.argv[1:], "", "")[:2]
    lacking = make(folder, engine=engine, url=url.rstrip("/"))
    print((folder / SUMS).read_text(), end="")
    for each in lacking:
        print(each)
    return 0


if __name__ == "__main__":
    sys.exit(main())
