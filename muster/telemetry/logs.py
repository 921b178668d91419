"""Log lines: one event, one line, whatever it contains; as text for people or as JSON for collectors."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec

Form = Literal["text", "json"]

_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
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
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class TextLines(logging.Formatter):
    """``2026-11-21T12:00:00.123Z INFO  muster.webhooks: refused … user=alice``."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line; a traceback's lines are joined by ``⏎``."""
        parts = [_text(record), *(f"{key}={_word(value)}" for key, value in _extra(record).items())]
        level = _LEVELS.get(record.levelname, record.levelname)
        line = f"{_time(record)} {level:5} {record.name}: {' '.join(parts)}"
        return "⏎".join((line + _trace(self, record, "\n")).splitlines())


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
        return msgspec.json.encode(fields, enc_hook=str).decode()


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(record: logging.LogRecord) -> str:
    return record.getMessage()


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _word(value: object) -> str:
    text = str(value)
    return text if text and not any(each.isspace() or each in '"=' for each in text) else repr(text)


def _trace(formatter: logging.Formatter, record: logging.LogRecord, before: str) -> str:
    return before + formatter.formatException(record.exc_info) if record.exc_info else ""
