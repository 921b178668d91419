"""`make release`: what is in dist/, twice the same, and what names it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import chart
import pytest
import yaml

from muster import __version__

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("release")]

FOLDER = chart.ROOT / "deploy" / "release"
URL = "https://example.com/muster/v1"


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"release_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def program() -> Any:
    return loaded("make")


@pytest.fixture(scope="module")
def audit() -> Any:
    return loaded("audit")


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
        f"muster_scheduler-{__version__}.data",
    }
    assert not [name for name in names if "/release/" in name or "/helm/" in name]


@pytest.fixture(scope="module")
def prefix(made, tmp_path_factory) -> Path:
    """Where the wheel is installed."""
    (wheel,) = made[0].glob("*.whl")
    place = tmp_path_factory.mktemp("prefix")
    words = (
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--ignore-installed",
        f"--prefix={place}",
    )
    subprocess.run([sys.executable, "-m", "pip", *words, str(wheel)], check=True)
    return place / "share"


def test_the_wheel_puts_the_manual_where_man_looks(prefix):
    man = shutil.which("man")
    page = prefix / "man" / "man1" / "muster.1"
    assert f'"Muster {__version__}"' in page.read_text().partition("\n")[0]
    if man is None:
        pytest.skip("man isn't installed here")
    words = [man, "--warnings", f"--manpath={prefix / 'man'}", "muster"]
    shown = subprocess.run(
        words, env={"PATH": "/usr/bin:/bin", "MANWIDTH": "100"}, capture_output=True, text=True, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    plain = re.sub(".\b", "", shown.stdout)
    assert "muster podgroup list" in plain
    assert "KUBECONFIG" in plain


def test_the_wheel_puts_completion_where_shells_look(prefix):
    for program in ("muster", "vcctl"):
        script = prefix / "bash-completion" / "completions" / program
        loads = f"source {script}; complete -p {program}"
        said = subprocess.run(["bash", "-c", loads], capture_output=True, text=True, check=True).stdout
        assert said.split()[-1] == program
        assert (prefix / "zsh" / "site-functions" / f"_{program}").read_text().startswith(f"#compdef {program}\n")
        assert f"--command {program} " in (prefix / "fish" / "vendor_completions.d" / f"{program}.fish").read_text()
    # Bash itself asks the program, with what is typed.
    types = "COMP_WORDS=(muster podg); COMP_CWORD=1; _muster_completion muster; echo ${COMPREPLY[@]}"
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    script = prefix / "bash-completion" / "completions" / "muster"
    done = subprocess.run(
        ["bash", "-c", f"source {script}; {types}"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["podgroup"]


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ({"vulns": [{"id": "PYSEC-1", "fix_versions": ["2.0"]}]}, 1, "some 1.0: PYSEC-1, fixed in 2.0"),
        ({"vulns": []}, 0, "make audit: no known vulnerability in 1 of 1 packages"),
        ({"skip_reason": "not found"}, 0, "make audit: not audited, the index of packages here has no advisories"),
    ],
)
def test_an_audit_fails_for_what_is_known_and_says_when_nothing_could_be_found_out(audit, said, status, words):
    report = json.dumps({"dependencies": [{"name": "some", "version": "1.0"} | said]})
    found, sentences = audit.verdict(report)
    assert found == status
    assert sentences[0].startswith(words)


def test_an_audit_asks_for_every_version_that_is_pinned(audit):
    asked = {pin for pins in audit.rounds() for pin in pins}
    text = "".join((chart.ROOT / "requirements" / f"{name}.txt").read_text() for name in audit.PINS)
    assert asked == set(re.findall(r"^\S+==[^\s;]+", text, re.MULTILINE))
    for pins in audit.rounds():
        assert len(pins) == len({each.partition("==")[0] for each in pins})


def test_an_audit_without_an_answer_says_why(audit):
    status, (sentence,) = audit.verdict("", "Traceback …\nConnectionError: no such host\n")
    assert (status, sentence) == (
        0,
        "make audit: not audited, the advisories can't be had here: ConnectionError: no such host",
    )


@pytest.mark.parametrize(
    ("engine", "words"),
    [("podman", ["podman", "save", "-o"]), ("/usr/bin/buildah", ["/usr/bin/buildah", "push", "localhost/muster:1"])],
)
def test_each_engine_saves_an_image_by_its_own_command(program, engine, words):
    assert program.saved(engine, "muster:1", Path("image.tar"))[:3] == words


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
