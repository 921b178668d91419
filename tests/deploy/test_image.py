"""What is in the image, and what it runs, without a container engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import image as images
import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from muster import __version__
from muster.cli import main
from muster.cli.commands import install

pytestmark = pytest.mark.processes

TAG = f"muster:{re.escape(__version__)}"
DOCKERFILE = (images.ROOT / "Dockerfile").read_text()
INSTRUCTIONS = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", DOCKERFILE)).splitlines()


def instructions(word: str) -> list[str]:
    return [each.removeprefix(f"{word} ") for each in INSTRUCTIONS if each.startswith(f"{word} ")]


def run(image: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the image, as a user whom nobody knows, with nothing in the environment."""
    return subprocess.run(
        [*images.program(image), *words],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_base_is_one_version_and_the_same_for_both_stages():
    # Whoever releases appends the digest.
    (base,) = [each for each in instructions("ARG") if each.startswith("BASE=")]
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert instructions("FROM") == ["${BASE} AS build", "${BASE}"]


def test_whatever_is_installed_has_a_hash_or_is_our_own_wheel():
    commands = [each.strip() for line in instructions("RUN") for each in line.split("&&")]
    installs = [each for each in commands if " install " in each]
    assert len(installs) == 3
    for each in installs:
        pinned = "--require-hashes" in each and "--only-binary :all:" in each
        assert pinned or "--no-deps --no-index /wheels/muster_scheduler-*.whl" in each


@pytest.mark.parametrize("name", ["build", "image", "runtime"])
def test_all_that_is_pinned_has_hashes_and_no_address(name):
    text = (images.ROOT / "requirements" / f"{name}.txt").read_text()
    for each in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"[a-z0-9-]+==[^ ]+ .*\\\n", each + "\n"), each
        assert "--hash=sha256:" in each
    assert "://" not in text


def pinned(name: str) -> set[str]:
    return set(re.split(r"\n(?=\S)", (images.ROOT / "requirements" / f"{name}.txt").read_text().strip()))


def required(names: Iterable[str]) -> set[str]:
    """Return these distributions and all that they need here."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            name = canonicalize_name(requirement.name)
            todo += [] if name in found else metadata.requires(name) or []
            found.add(name)
    return found


def test_what_the_image_pins_is_what_runs_it_without_the_package_that_no_program_of_the_chart_imports():
    direct = tomllib.loads((images.ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    programs = [each for each in direct if not each.startswith("kubernetes")]
    assert len(programs) == len(direct) - 1
    assert pinned("image") < pinned("runtime")
    assert {each.partition("==")[0] for each in pinned("image")} == required(programs)


def test_what_is_copied_is_there_and_let_through():
    let_through = {
        line[1:] for line in (images.ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    copied = {word.rstrip("/") for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]}
    assert copied == let_through
    assert all((images.ROOT / each).exists() for each in copied)
    assert copied >= {*images.PACKAGES, *images.FILES}


def test_it_runs_as_a_user_without_rights_named_by_number():
    assert instructions("USER") == [f"{images.USER}:{images.USER}"]
    assert INSTRUCTIONS.index(f"USER {images.USER}:{images.USER}") < INSTRUCTIONS.index('ENTRYPOINT ["muster"]')


def test_it_says_version_and_revision(image):
    done = run(image, "--version")
    assert (done.returncode, done.stdout) == (0, f"muster {__version__} (0123abc)\n"), done.stderr


def test_from_sources_it_says_its_version_alone():
    assert CliRunner().invoke(main.muster, ["--version"]).output == f"muster {__version__}\n"


def test_it_holds_what_an_installation_applies_and_not_the_chart(image):
    done = run(image, "install", "--dry-run", "--legacy-apis")
    assert done.stdout == CliRunner().invoke(install.install_command, ["--dry-run", "--legacy-apis"]).output
    (packages,) = (image / "lib").glob("python3*/site-packages")
    held = {each.name for each in (packages / "deploy").iterdir() if each.is_dir()}
    assert held - {"__pycache__"} == {"crds", "policies", "rbac"}


@pytest.mark.parametrize("command", [("webhook",), ("scheduler",), ("certs", "run")], ids="-".join)
def test_its_programs_say_what_is_missing_in_one_line(image, command, tmp_path):
    certificates = ("--certificates", "/") if command == ("webhook",) else ()
    done = run(image, *command, *certificates, KUBECONFIG=str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_nothing_is_written_where_the_programs_are(image):
    before = {each: each.lstat().st_mtime_ns for each in image.rglob("*")}
    assert run(image, "queue", "--help").returncode == 0
    assert {each: each.lstat().st_mtime_ns for each in image.rglob("*")} == before


@pytest.mark.parametrize("target", ["kind", "image"])
def test_without_a_container_engine_that_is_said_in_one_line(target, tmp_path):
    (tmp_path / "engine").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "engine").chmod(0o755)
    make = shutil.which("make")
    assert make is not None
    # Not those of the make that may run the tests: it would call itself make[1].
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment = inherited | {"ENGINE": str(tmp_path / "engine")}
    command = [make, "--no-print-directory", target, f"ENGINE={tmp_path / 'engine'}"]
    done = subprocess.run(command, cwd=images.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    (said, *makes_own) = (done.stdout + done.stderr).splitlines()
    assert said.startswith(f"make {target}: no container engine")
    assert all(each.startswith("make: ***") for each in makes_own)


DIGEST = "python:3.11.13-slim-bookworm@sha256:" + "0" * 64


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return how to make a stand-in for a program, which writes down how it is called, and how to read what was written."""

    def add(name: str, *lines: str, status: int = 0) -> None:
        script = ["#!/bin/sh", f'echo "{name} $*" >> {tmp_path}/calls', *lines, f"exit {status}"]
        (tmp_path / name).write_text("\n".join(script))
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # There is no other Helm than the stand-in.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    for name in [each for each in os.environ if each.startswith(("MAKE", "KUBEBUILDER"))] + ["BASE", "ENGINE", "IMAGE"]:
        monkeypatch.delenv(name, raising=False)
    return add, lambda: (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize(("words", "said"), [((), ""), ((f"BASE={DIGEST}",), f"--build-arg BASE={DIGEST} ")])
def test_the_image_is_built_on_the_base_that_is_named(machine, words, said):
    add, calls = machine
    add("engine")
    subprocess.run(["make", "image", "ENGINE=engine", *words], cwd=images.ROOT, capture_output=True, check=True)
    (built,) = [each for each in calls() if each.startswith("engine build ")]
    assert built.startswith(f"engine build {said}--build-arg REVISION=")
    assert built.endswith(f" --tag muster:{__version__} .")


@pytest.mark.parametrize(
    ("version", "lacks", "archived"),
    [
        ("Docker version 28.2.2, build e6534b4", "push", rf"engine save --output (\S+) {TAG}"),
        ("podman version 4.3.1", "", rf"engine push {TAG} docker-archive:(\S+):{TAG}"),
        ("buildah version 1.28.2", "save", rf"engine push {TAG} docker-archive:(\S+):{TAG}"),
    ],
    ids=["docker", "podman", "buildah"],
)
def test_kind_gets_the_image_of_each_engine_under_the_name_of_the_chart(machine, version, lacks, archived):
    add, calls = machine
    add("engine", f'[ "$1" != --version ] || echo "{version}"', f'[ "$1" != "{lacks}" ] || exit 125')
    add("kind", '[ "$1 $2" != "get clusters" ] || echo muster')
    for name in ("kubectl", "kwok", "make"):
        add(name)
    # The chart is where this ends.
    add("helm", status=3)
    environment = os.environ | {"ENGINE": "engine"}
    done = subprocess.run(
        [images.ROOT / "deploy" / "kind" / "up.sh"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    (archive,) = [found[1] for each in calls() if (found := re.fullmatch(archived, each))]
    assert f"kind load image-archive {archive} --name muster" in calls()
    assert not Path(archive).parent.exists()
    (installed,) = [each for each in calls() if each.startswith("helm ")]
    assert f"--set image.repository=muster,image.tag={__version__},image.pullPolicy=Never" in installed
