"""Figures are told with what their minute allowed."""

from __future__ import annotations

from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WITHOUT = {
    "admission_turns": "in turns with another checkout",
    "decide_turns": "in turns with another checkout",
    "siege_limit": "in turns with and without Muster",
    "ask_parts": "a process that ask.py starts",
    "lean_binder": "a limit itself",
}
"""Programs whose figures need no calibration, and why."""


def test_each_benchmark_tells_the_calibration_of_its_minute() -> None:
    written = {path.stem: path.read_text() for path in BENCHMARKS.glob("*.py")}
    programs = {name for name, text in written.items() if '__name__ == "__main__"' in text}
    telling = {name for name in programs if "calibrat" in written[name]}
    assert programs - telling == set(WITHOUT)
