"""What a test runs on, told by its fixtures and marks: which targets of the Makefile run it, and what stays together.

A test that starts a process says so: by a fixture of `FIXTURES`, or by its mark ``processes``. `guard` holds it to that.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import plane
import pytest

FIXTURES = frozenset({"kubectl", "real_control_plane", "up"})
"""What starts processes, and is asked for by many."""

MARKS = {
    "only(plane, reason)": "runs on one control plane only, and why",
    "processes": "starts processes: not in `make test-fast`, and `.ci/run` tries it once more",
    "soak": "does what takes as long as one likes: in `make soak`, and a little of it in `make test-all`",
}

_TESTS = Path(__file__).parents[1]
_FONTS = "fc-list"
"""matplotlib asks it once on a machine, in whichever test draws first; on most machines it isn't there."""
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn"})
_running: list[pytest.Item] = []


def mark(item: pytest.Item) -> None:
    """Mark what starts processes, and keep in one worker what shares them.

    Each worker has a real control plane of its own, so any module may run in any of them; within a module, tests share
    what takes long to start.
    """
    fixtures = set(getattr(item, "fixturenames", ()))
    real = "real_control_plane" in fixtures or "[kubernetes" in item.nodeid or plane.on_kubernetes(item)
    if real or fixtures & FIXTURES:
        item.add_marker(pytest.mark.processes)
        module = item.path.relative_to(_TESTS).with_suffix("")
        item.add_marker(pytest.mark.xdist_group(f"{'kubernetes' if real else 'processes'} {module}"))


def alone(name: str) -> str:
    """Return the name of a test, by which pytest runs it, without the group that pytest-xdist puts behind it."""
    file, colons, test = name.partition("::")
    if "@" in test and not test.endswith("]"):
        test = test.rpartition("@")[0]
    return file + colons + test


def guard(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to start a process in a test that doesn't say that it does. An audit hook."""
    if event not in _STARTS or not _running or threading.current_thread() is not threading.main_thread():
        return
    if arguments[0] == _FONTS:
        return
    if _running[-1].get_closest_marker("processes") is None:
        raise RuntimeError(f"{_running[-1].nodeid} starts a process ({arguments[0]}): mark it pytest.mark.processes")


def begin(item: pytest.Item) -> None:
    """Say which test runs now."""
    _running.append(item)


def end() -> None:
    """Say that it has ended."""
    _running.pop()
