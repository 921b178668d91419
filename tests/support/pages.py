"""Pages with commands, played as a reader plays them: what they say is what happens."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.model import names

DOCS = Path(__file__).parents[2] / "docs"
SECONDS = 120
_READING = re.compile(
    r"(kubectl get|kubectl diff|muster why|muster podgroup why|muster admit|muster quota view|muster queue view)[^|]*|.* --dry-run=server"
)


@dataclass(frozen=True)
class Section:
    """A section of a page: its files, and its commands with what they print."""

    page: str
    title: str
    files: dict[str, str]
    commands: tuple[tuple[str, tuple[str, ...]], ...]

    def __str__(self) -> str:
        return f"{self.page}: {self.title}"


def sections(page: str) -> list[Section]:
    text = (DOCS / page).read_text()
    return [_section(page, part) for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:] if "```console" in part]


def _section(page: str, text: str) -> Section:
    files, commands = {}, []
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language in {"yaml", "python"}:
            files[block.partition("\n")[0].removeprefix("# ")] = block
        elif language == "console":
            for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *printed = each.rstrip("\n").split("\n")
                commands.append((command, tuple(printed)))
    return Section(page, text.partition("\n")[0], files, tuple(commands))


def matches(printed: str, lines: tuple[str, ...]) -> bool:
    """Whether a command printed these lines; ``…`` stands for anything in a line, alone for any lines."""
    parts = [r"(?:[^\n]*\n)*" if line == "…" else _pattern(line) for line in lines]
    plain = "".join(f"{' '.join(line.split())}\n" for line in printed.splitlines())
    return re.fullmatch("".join(parts), plain) is not None


def _pattern(line: str) -> str:
    words = re.sub(r"[ \t]+", " ", line).strip()
    return re.escape(words).replace("…", r"[^\n]*") + r"\n"


def clusters(*options: str) -> pytest.MarkDecorator:
    """Run a test on both control planes, with Muster run with these options."""
    planes = ("sandbox", "kubernetes")
    return pytest.mark.parametrize("cluster", [(plane, *options) for plane in planes], ids=planes, indirect=True)


def run(command: str, folder: Path, kubeconfig: Path) -> str:
    """Run a command as a reader does, with our programs on the path."""
    ours = f"{shlex.quote(sys.executable)} -m muster.cli"
    # As `vcctl` the program is known by its name alone.
    script = f'muster() {{ {ours} "$@"; }}; vcctl() {{ {ours} "$@"; }}; python() {{ {shlex.quote(sys.executable)} "$@"; }}; {command}'
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(folder / "cache")}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return done.stdout


def hurried(text: str) -> str:
    """Have the pods of a Job run for one second, where by themselves they do for five."""
    if "restartPolicy: Never" not in text or names.RUN_SECONDS in text:
        return text
    second = f'{names.RUN_SECONDS}: "1"'
    text = re.sub(
        r"^( *)template:\n(?=\1  spec:)",
        rf"\g<0>\1  metadata: {{annotations: {{{second}}}}}\n",
        text,
        flags=re.MULTILINE,
    )
    return re.sub(r"^( *)template:\n\1  metadata:\n\1    annotations: {", rf"\g<0>{second}, ", text, flags=re.MULTILINE)


def told(command: str, printed: tuple[str, ...], folder: Path, kubeconfig: Path) -> str:
    """Run a command; one that changes nothing again, until it prints what is said: what it shows may be a moment old."""
    deadline = time.monotonic() + (SECONDS if _READING.fullmatch(command) else 0)
    while not matches(said := run(command, folder, kubeconfig), printed) and time.monotonic() < deadline:
        time.sleep(0.2)
    return said


def follow(section: Section, kubeconfig: Path, folder: Path) -> None:
    """Do what a section says, and hold what is printed against what it says is."""
    for file, text in section.files.items():
        if not file.startswith("part of "):
            (folder / file).write_text(hurried(text))
    # A reader is in a checkout; what the commands write is not to be in ours.
    (folder / "docs").mkdir()
    shutil.copytree(DOCS / "examples", folder / "docs" / "examples")
    for command, printed in section.commands:
        said = told(command, printed, folder, kubeconfig)
        assert matches(said, printed), f"$ {command}\n{said}\n--- the page says:\n" + "\n".join(printed)
    # The next section begins with nothing of this one.
    run("kubectl delete cronjobs,jobs,deployments,statefulsets,daemonsets,pods --all --wait=true", folder, kubeconfig)
    run("kubectl delete podgroups.scheduling.volcano.sh --all", folder, kubeconfig)
