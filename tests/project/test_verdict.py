"""What `.ci/run` makes of failed tests."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import verdict
import yaml

pytestmark = pytest.mark.processes

CONFIG = "[pytest]\nmarkers =\n    processes\n"
LUCK = """
import pathlib, pytest
def luck(name):
    seen = pathlib.Path(__file__).with_name(name)
    before = seen.exists()
    seen.write_text("")
    assert before, f"bad luck of {name}"
"""
UNLUCKY = '@pytest.mark.processes\ndef test_unlucky():\n    luck("unlucky")\n'
PURE = 'def test_pure():\n    luck("pure")\n'
BROKEN = "@pytest.mark.processes\ndef test_broken():\n    assert 1 + 1 == 3\n"
FINE = "def test_fine():\n    pass\n"
UNCLEAN = """
@pytest.fixture
def room():
    yield
    luck("room")
@pytest.mark.processes
def test_unclean(room):
    pass
"""


def judged(folder: Path, *tests: str, then: Sequence[str] = ()) -> tuple[int, str]:
    (folder / "pytest.ini").write_text(CONFIG)
    (folder / "test_some.py").write_text("\n".join([LUCK, *tests]))
    command = [sys.executable, verdict.__file__, "-p", "no:cacheprovider", *then]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout


def last(said: str) -> str:
    return said.splitlines()[-1]


def test_where_all_pass_the_last_line_says_how_many(tmp_path):
    status, said = judged(tmp_path, FINE)
    assert (status, last(said)) == (0, "1 passed, 0 failed")


@pytest.mark.parametrize(("unlucky", "name"), [(UNLUCKY, "unlucky"), (UNCLEAN, "room")])
def test_a_test_of_processes_that_passes_alone_is_a_defect_and_shown(tmp_path, unlucky, name):
    status, said = judged(tmp_path, FINE, unlucky)
    assert (status, last(said)) == (0, "2 passed, 0 failed")
    assert "=== DEFECT: test_some.py::test_un" in said
    assert f"bad luck of {name}" in said.partition("=== DEFECT")[2]


def test_another_test_gets_no_second_run(tmp_path):
    status, said = judged(tmp_path, FINE, PURE)
    assert (status, last(said)) == (1, "1 passed, 1 failed")
    assert "once more" not in said
    assert "bad luck of pure" in said.partition("=== the first of 1 that failed: test_some.py::test_pure")[2]


def test_what_fails_alone_too_has_failed(tmp_path):
    status, said = judged(tmp_path, FINE, BROKEN, UNLUCKY)
    assert (status, last(said)) == (1, "2 passed, 1 failed")
    assert "=== the first of 1 that failed: test_some.py::test_broken" in said


def test_many_failures_are_not_bad_luck(tmp_path):
    many = [BROKEN.replace("broken", f"broken_{number}") for number in range(verdict.LIMIT + 1)]
    status, said = judged(tmp_path, *many)
    assert (status, last(said)) == (1, f"0 passed, {len(many)} failed")
    assert "once more" not in said


def test_what_can_not_be_collected_is_a_failure_although_nothing_ran(tmp_path):
    status, said = judged(tmp_path, "import nothing_of_that_name")
    assert (status, last(said)) == (2, "0 passed, 0 failed")
    assert "pytest ended with status 2" in said


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("test_some.py::test_broken", "test_some.py::test_fine"),
        ("test_some.py::test_fine", "test_some.py::test_broken"),
    ],
)
def test_two_runs_are_counted_together_and_a_failure_in_either_is_one(tmp_path, first, second):
    status, said = judged(tmp_path, FINE, BROKEN, then=(first, "--then", "-p", "no:cacheprovider", second))
    assert (status, last(said)) == (1, "1 passed, 1 failed")


def wrong(known: Mapping[str, str]) -> list[str]:
    """Return the names that no test has, and those without a reason."""
    root = verdict.KNOWN.parent
    functions = {
        f"tests/{path.relative_to(root)}::{function}"
        for path in root.rglob("test_*.py")
        for function in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    return [name for name, reason in known.items() if name.partition("[")[0] not in functions or not reason]


def test_each_known_defect_is_a_test_and_has_its_reason():
    here = f"tests/project/{Path(__file__).name}::test_many_failures_are_not_bad_luck"
    assert wrong({here: "the machine is busy"}) == []
    assert wrong({here: "", f"{here}_or_are": "the machine is busy"}) == [here, f"{here}_or_are"]
    assert wrong(yaml.safe_load(verdict.KNOWN.read_text()) or {}) == []
