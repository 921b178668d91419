"""`make release`: what is in dist/, twice the same, and what names it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import chart
import pytest
import yaml

from muster import __version__

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("release")]

PROGRAM = chart.ROOT / "deploy" / "release" / "make.py"
URL = "https://example.com/muster/v1"


@pytest.fixture(scope="module")
def program() -> Any:
    spec = importlib.util.spec_from_file_location("release", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(program: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("dist")
    return folder, program.make(folder, engine="no-such-engine", url=URL)


def test_it_has_packages_chart_checksums_and_provenance_and_says_what_it_lacks(made):
    folder, lacking = made
    name = f"muster_scheduler-{__version__}"
    assert {each.name for each in folder.iterdir()} - {"muster.cdx.json", ".gitignore"} == {
        f"{name}-py3-none-any.whl",
        f"{name}.tar.gz",
        f"muster-{__version__}.tgz",
        "muster.krew.yaml",
        "SHA256SUMS",
        "provenance.json",
    }
    assert any(each.startswith("no image: no container engine (no-such-engine) answers here") for each in lacking)


def test_the_same_commit_gives_the_same_bytes(program, made, tmp_path):
    program.make(tmp_path, url=URL)
    folder, _ = made
    assert (tmp_path / "SHA256SUMS").read_text() == (folder / "SHA256SUMS").read_text()


def test_every_file_has_its_checksum_and_is_a_subject_of_the_provenance(program, made):
    folder, _ = made
    lines = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    for name, digest in lines.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    said = json.loads((folder / "provenance.json").read_text())
    assert {each["name"]: each["digest"]["sha256"] for each in said["subject"]} == lines
    materials = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert materials[0]["digest"]["gitCommit"] == program.git("rev-parse", "HEAD")
    assert "requirements/runtime.txt" in {each["name"] for each in materials[1:]}


def test_the_wheel_has_what_runs_and_no_tests(made):
    folder, _ = made
    (wheel,) = folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        *("muster", "webhooks", "scheduler", "certs", "deploy"),
        f"muster_scheduler-{__version__}.dist-info",
    }
    assert not [name for name in names if "/release/" in name or "/helm/" in name]


def test_helm_takes_the_packed_chart(made):
    chart.needed()
    folder, _ = made
    packed = folder / f"muster-{__version__}.tgz"
    done = chart.helm("template", "muster", str(packed), "--namespace", "muster-system")
    unpacked = chart.helm("template", "muster", str(chart.CHART), "--namespace", "muster-system")
    assert (done.returncode, done.stdout) == (0, unpacked.stdout), done.stderr


def test_krew_finds_the_command_in_the_archive_by_its_checksum(made):
    folder, _ = made
    plugin = yaml.safe_load((folder / "muster.krew.yaml").read_text())
    assert plugin["spec"]["version"] == f"v{__version__}"
    (platform,) = plugin["spec"]["platforms"]
    (archive,) = folder.glob("*.tar.gz")
    assert platform["uri"] == f"{URL}/{archive.name}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as opened:
        names = opened.getnames()
    for each in platform["files"]:
        assert [name for name in names if name.split("/", 1)[1:] == [each["from"].removeprefix("*/")]], each
    assert platform["bin"] in {each["from"].rpartition("/")[2] for each in platform["files"]}
