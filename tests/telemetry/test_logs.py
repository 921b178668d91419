"""Log lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from muster.telemetry import logs


@pytest.fixture(autouse=True)
def _root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def logged(form: logs.Form, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, form, stream)
    return stream


def fail() -> None:
    try:
        int("by\nzero")
    except ValueError:
        logging.getLogger("muster").exception("failed")


def test_a_text_line_has_time_level_logger_message_and_fields() -> None:
    stream = logged("text")
    logging.getLogger("muster.webhooks").info("refused %s", "gang", extra={"user": "alice", "why": "no room", "n": 0})
    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == "INFO  muster.webhooks: refused gang user=alice why='no room' n=0\n"


def test_a_json_line_has_the_same() -> None:
    stream = logged("json")
    logging.getLogger("muster").warning("two\nlines", extra={"user": "alice", "odd": object})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["message"], line["user"]) == (
        "warning",
        "muster",
        "two\nlines",
        "alice",
    )
    assert line["odd"] == "<class 'object'>"


@pytest.mark.parametrize("form", ["text", "json"])
def test_whatever_is_logged_is_one_line(form: logs.Form) -> None:
    stream = logged(form)
    logging.getLogger("muster").info("a\nb\r\nc\u2028d", extra={"user": "mallory\nINFO forged"})
    fail()
    lines = stream.getvalue().split("\n")
    assert len(lines) == 3
    assert lines[2] == ""
    assert "ValueError" in lines[1]


def test_what_is_below_the_level_is_left_out_and_an_unknown_level_is_refused() -> None:
    stream = logged("text", "warning")
    logging.getLogger("muster").info("quiet")
    assert not stream.getvalue()
    with pytest.raises(ValueError, match="LOUD"):
        logs.configure("loud")


@pytest.mark.parametrize("form", ["text", "json"])
def test_however_long_a_tenants_text_is_a_line_is_short_and_has_its_last_field(form: logs.Form) -> None:
    stream = logged(form)
    logging.getLogger("muster").info("queue %s", "q" * 1_000_000, extra={"user": "u" * 1_000_000, "verdict": "denied"})
    (line,) = stream.getvalue().splitlines()
    assert len(line) < 3000
    assert "denied" in line


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("sign", ["\x1b", "\x07", "\x00", "\x85", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff"])
def test_no_text_moves_a_terminals_cursor_or_turns_a_line_around(form: logs.Form, sign: str) -> None:
    stream = logged(form)
    logging.getLogger("muster").info("a%s[2Kb", sign, extra={"user": f"mallory{sign}"})
    assert stream.getvalue().removesuffix("\n").isprintable()
    assert "[2Kb" in stream.getvalue()
