"""Log lines: one event, one line, whatever it contains and however long it is; as text for people or as JSON for collectors.

Names of users, queues and objects are tenants' texts. A message and a field are cut here, where all lines pass; what
isn't printable (control characters, marks that turn the direction of writing) is written as an escape.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec

from muster.telemetry.defects import DEFECTS

Form = Literal["text", "json"]

_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_MESSAGE: Final = 2000
_FIELD: Final = 512
"""Characters. The longest object that the API server names has about 450."""

_TRACE: Final = 20_000
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str = "info", form: Form = "text", stream: TextIO | None = None) -> None:
    """Send the log of the whole process to ``stream`` (standard error).

    Fields given by ``extra=`` follow the message of a text line as ``key=value`` and are members of a JSON line.

    Raises:
        ValueError: there is no such level.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler, DEFECTS]
    root.setLevel(level.upper())


class TextLines(logging.Formatter):
    """``2026-11-21T12:00:00.123Z INFO  muster.webhooks: refused … user=alice``."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line; a traceback's lines are joined by ``⏎``."""
        parts = [_text(record), *(f"{key}={_word(value)}" for key, value in _extra(record).items())]
        level = _LEVELS.get(record.levelname, record.levelname)
        line = f"{_time(record)} {level:5} {record.name}: {' '.join(parts)}"
        return _printable(
            "⏎".join((line + _trace(self, record, "\n")).splitlines()),
            lambda sign: sign.encode("unicode_escape").decode(),
        )


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, the extra fields, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line of JSON."""
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _text(record),
            **_extra(record),
        }
        if trace := _trace(self, record, ""):
            fields["trace"] = trace
        # In JSON's own escapes, so that who decodes the line gets the text.
        return _printable(msgspec.json.encode(fields, enc_hook=str).decode(), lambda sign: json.dumps(sign)[1:-1])


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(record: logging.LogRecord) -> str:
    return _cut(record.getMessage(), _MESSAGE)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields given by ``extra=``; texts are cut, numbers stay numbers."""
    given = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    return {key: value if isinstance(value, (int, float)) else _cut(str(value), _FIELD) for key, value in given.items()}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _printable(line: str, escape: Callable[[str], str]) -> str:
    """Escape what would move a terminal's cursor or turn a line around."""
    return line if line.isprintable() else "".join(each if each.isprintable() else escape(each) for each in line)


def _word(value: object) -> str:
    text = str(value)
    return text if text and not any(each.isspace() or each in '"=' for each in text) else repr(text)


def _trace(formatter: logging.Formatter, record: logging.LogRecord, before: str) -> str:
    return before + _cut(formatter.formatException(record.exc_info), _TRACE) if record.exc_info else ""
