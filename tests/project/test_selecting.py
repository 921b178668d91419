"""What tests must say of themselves, so that the targets of the Makefile can choose."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import selecting


def test_a_test_that_starts_a_process_must_say_so():
    with pytest.raises(RuntimeError, match=r"mark it pytest\.mark\.processes"):
        subprocess.run(["true"], check=True)


@pytest.mark.processes
def test_one_that_says_so_may_start_it():
    assert subprocess.run(["true"], check=True).returncode == 0


class Item:
    """A test, as far as it says what it runs on."""

    path = Path(selecting.__file__).parents[1] / "kube" / "test_lease.py"

    def __init__(self, nodeid: str, *fixtures: str) -> None:
        self.nodeid = nodeid
        self.fixturenames = fixtures
        self.marks: list[pytest.Mark] = []

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


@pytest.mark.parametrize(
    ("item", "group"),
    [
        (Item("test_lease.py::test_a", "real_control_plane"), "kubernetes kube/test_lease"),
        (Item("test_lease.py::test_a[kubernetes-1]", "up"), "kubernetes kube/test_lease"),
        (Item("test_lease.py::test_a[sandbox-1]", "up"), "processes kube/test_lease"),
        (Item("test_lease.py::test_a[sandbox]", "plane"), None),
    ],
)
def test_what_runs_on_processes_is_marked_and_a_module_of_them_stays_in_one_worker(item, group):
    selecting.mark(item)
    assert {mark.name: mark.args for mark in item.marks} == (
        {"processes": (), "xdist_group": (group,)} if group else {}
    )


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a/test_b.py::test_c", "a/test_b.py::test_c"),
        ("a/test_b.py::test_c@kubernetes a/test_b", "a/test_b.py::test_c"),
        ("a/test_b.py::test_c[d@e]", "a/test_b.py::test_c[d@e]"),
        ("a/test_b.py::test_c[d@e]@group", "a/test_b.py::test_c[d@e]"),
    ],
)
def test_a_test_is_found_again_by_its_name_without_its_group(name, plain):
    assert selecting.alone(name) == plain
