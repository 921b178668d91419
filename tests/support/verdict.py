"""Runs pytest for CI: `python tests/support/verdict.py [options of pytest …]`.

A failed test that starts processes is run once more, alone, unless more than `LIMIT` tests failed. If it passes then, it
is a defect that only a busy machine shows: it is printed as such with its first traceback, and the run is green. Other
failures are failures. The last line is ``N passed, N failed``; above it, of a red run, is the first traceback.

Options after ``--then`` are those of another run of pytest, after the first whatever became of it; the last line counts
both.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

LIMIT = 5
"""More failures than these are not bad luck."""

KNOWN = Path(__file__).parents[1] / "known_defects.yaml"
"""Names of tests that are known to need a second run, with the reason of each."""

_LINES = 120


@dataclass(frozen=True)
class Failure:
    """A failed test; ``name`` is what pytest runs it alone by."""

    name: str
    processes: bool
    traceback: str

    @property
    def shown(self) -> str:
        """The end of the traceback, where it is long."""
        lines = self.traceback.splitlines()
        left_out = [f"… {len(lines) - _LINES} lines …"] if len(lines) > _LINES else []
        return "\n".join([*left_out, *lines[-_LINES:]])


class Outcomes:
    """A plugin of pytest: what became of the tests, where all results arrive."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failures: dict[str, Failure] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a test's setup, call or teardown."""
        name = report.nodeid
        if report.failed:
            self.passed.discard(name)
            self.failures.setdefault(name, Failure(name, "processes" in report.keywords, report.longreprtext))
        elif report.passed and report.when == "call":
            self.passed.add(name)


def passes(failure: Failure) -> bool:
    """Run a test once more, alone; whether it passes."""
    _heading(f"once more, alone: {failure.name}")
    return subprocess.run([sys.executable, "-m", "pytest", "-n", "0", failure.name], check=False).returncode == 0


def tell(defect: Failure, known: Mapping[str, str]) -> None:
    """Print a defect."""
    _heading(f"DEFECT: {defect.name} failed, and passed alone. Its first traceback:")
    print(defect.shown)
    reason = known.get(defect.name)
    print(f"Known: {reason}" if reason else f"Not known yet: fix it, or list it in {KNOWN.name} with the reason.")


def _heading(line: str) -> None:
    print(f"\n=== {line}", flush=True)


def main(options: Sequence[str]) -> int:
    """Return the status of all runs."""
    done = [judge(run) for run in _runs(options)]
    print(f"\n{sum(each.passed for each in done)} passed, {sum(each.failed for each in done)} failed", flush=True)
    return next((each.status for each in done if each.status), 0)


def _runs(options: Sequence[str]) -> list[list[str]]:
    runs: list[list[str]] = [[]]
    for each in options:
        if each == "--then":
            runs.append([])
        else:
            runs[-1].append(each)
    return runs


@dataclass(frozen=True)
class Verdict:
    """What became of one run."""

    status: int
    passed: int
    failed: int


def judge(options: Sequence[str]) -> Verdict:
    """Run pytest, and what failed of processes once more."""
    outcomes = Outcomes()
    status = int(pytest.main([*options], plugins=[outcomes]))
    failures = [*outcomes.failures.values()]
    again = [each for each in failures if each.processes] if len(failures) <= LIMIT else []
    defects = [each for each in again if passes(each)]
    known = yaml.safe_load(KNOWN.read_text()) or {}
    for each in defects:
        tell(each, known)
    left = [each for each in failures if each not in defects]
    if left:
        _heading(f"the first of {len(left)} that failed: {left[0].name}")
        print(left[0].shown)
    # Only failures of tests are made good by defects: not a session that was broken off.
    green = status == pytest.ExitCode.OK or (status == pytest.ExitCode.TESTS_FAILED and bool(defects) and not left)
    if not green and not left:
        _heading(f"pytest ended with status {status}")
    return Verdict(0 if green else status or 1, len(outcomes.passed) + len(defects), len(left))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
