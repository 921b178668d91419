"""Warnings that repeat themselves."""

from __future__ import annotations

import logging

from muster.telemetry.repeated import SILENT_SECONDS, RepeatedWarnings


def test_a_cause_is_warned_of_once_and_after_a_while_with_how_often_it_came(caplog):
    caplog.set_level(logging.DEBUG)
    now = 0.0
    warnings = RepeatedWarnings(logging.getLogger("x"), lambda: now)
    for number in range(5):
        warnings.warn("refused", "pod %d: no", number)
    warnings.warn("another", "pod %d: busy", 9)
    now = SILENT_SECONDS
    warnings.warn("refused", "pod %d: no", 6)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == ["pod 0: no", "pod 9: busy", "pod 6: no (4 more of this kind since the last such line)"]
    assert sum(record.levelno == logging.DEBUG for record in caplog.records) == 4


def test_few_causes_are_remembered(caplog):
    caplog.set_level(logging.WARNING)
    warnings = RepeatedWarnings(logging.getLogger("x"), lambda: 0.0)
    for number in range(1000):
        warnings.warn(number, "%d", number)
    warnings.warn(999, "%d", 999)
    warnings.warn(0, "%d", 0)
    assert [record.getMessage() for record in caplog.records][-2:] == ["999", "0"]
