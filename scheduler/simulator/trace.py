"""Traces of workloads: CSV files with a job a line.

    arrival,duration,pods,request,queue
    0,30m,4,cpu=2 memory=4Gi,research
    90,2h,16,cpu=1;memory=2Gi;nvidia.com/gpu=1,prod

``arrival`` (since the beginning of the trace) and ``duration`` are seconds or durations such as ``1h30m`` and ``2d``;
``request`` is what each pod asks for; ``minimum`` (all pods, where it isn't given) have to start together. Of the pods
``failures`` end badly; ``restarts`` of these are replaced after a ``pause``, by pods that succeed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

from msgspec import Struct

from muster.model.amounts import QuantityError, Resources
from muster.model.durations import duration

T = TypeVar("T")

REQUIRED: Final = ("arrival", "duration", "pods", "request", "queue")
OPTIONAL: Final = ("name", "namespace", "priority", "minimum", "failures", "restarts", "pause")
PAUSE: Final = 10.0
"""Seconds after which a pod that failed is replaced, where a trace doesn't say."""
SHOWN: Final = 10
"""How many mistakes are told at once."""

_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_DAYS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)d(.*)")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_REQUEST: Final = re.compile(r"[\s;,]+")
_MOST_PODS: Final = 100_000


class TraceJob(Struct, frozen=True):
    """A line of a trace: a gang of equal pods that come together and run for the same time.

    Attributes:
        arrival, duration: seconds.
        minimum: how many of the pods have to start together.
        priority: the name of a PriorityClass; empty for none.
        failures: how many of the pods fail at the end of their time.
        restarts: how many of the failed pods are replaced, each ``pause`` seconds after it failed.
    """

    name: str
    namespace: str
    queue: str
    arrival: float
    duration: float
    pods: int
    minimum: int
    request: Resources
    priority: str = ""
    failures: int = 0
    restarts: int = 0
    pause: float = PAUSE


class TraceError(ValueError):
    """A trace has mistakes; ``lines`` tells them, one each, the first `SHOWN` at most and how many more there are."""

    def __init__(self, name: str, mistakes: Iterable[str]) -> None:
        found = list(mistakes)
        more = len(found) - SHOWN
        self.lines = found[:SHOWN] + (
            [f"{name}: and {more} more {'mistake' if more == 1 else 'mistakes'}"] if more > 0 else []
        )
        super().__init__("\n".join(self.lines))


class KnownNames(Struct, frozen=True):
    """The queues and priority classes that a trace may name."""

    queues: Collection[str]
    priorities: Collection[str]


def parse(lines: Iterable[str], name: str, known: KnownNames) -> tuple[TraceJob, ...]:
    """Read a trace; the jobs come in the order of their arrival. ``name`` is that of the file, for messages.

    Raises:
        TraceError: some of it can't be read: each mistake with its line, column and value, and what to write.
    """
    mistakes: list[str] = []
    rows = csv.reader(lines)
    try:
        header = [cell.strip() for cell in next(rows, [])]
        mistakes += _in_header(header, name)
        if mistakes:
            raise TraceError(name, mistakes)
        reader = _TraceReader(name, known, mistakes)
        jobs = [job for row in rows if any(row) and (job := reader.job(rows.line_num, header, row)) is not None]
    except csv.Error as error:
        raise TraceError(name, [f"{name}, line {rows.line_num}: {error}; write the trace as CSV"]) from error
    if mistakes:
        raise TraceError(name, mistakes)
    return tuple(sorted(jobs, key=lambda job: job.arrival))


def seconds(text: str) -> float:
    """Read seconds, or a duration such as ``90s``, ``1h30m`` or ``7d``.

    Raises:
        ValueError: it is neither.
    """
    if _NUMBER.fullmatch(text):
        return float(text)
    days = _DAYS.fullmatch(text)
    if days is None:
        return duration(text)
    return float(days[1]) * 86400 + (duration(days[2]) if days[2] else 0.0)


def _in_header(header: list[str], name: str) -> Iterator[str]:
    columns = f"the columns are {', '.join(REQUIRED)}, and if you like {', '.join(OPTIONAL)}"
    if not any(header):
        yield f"{name}, line 1: the trace has no header; {columns}"
        return
    missing = [column for column in REQUIRED if column not in header]
    if missing:
        lacks = f"column {missing[0]} is" if len(missing) == 1 else f"columns {', '.join(missing)} are"
        yield f"{name}, line 1: {lacks} missing; {columns}"
    for column in dict.fromkeys(header):
        if column not in {*REQUIRED, *OPTIONAL}:
            yield f"{name}, line 1: column {column!r} is none that a trace has; {columns}"
        elif header.count(column) > 1:
            yield f"{name}, line 1: column {column} is there {header.count(column)} times; leave one of them"


class _TraceReader:
    """Reads rows, and notes what is wrong with them."""

    def __init__(self, name: str, known: KnownNames, mistakes: list[str]) -> None:
        self._name = name
        self._known = known
        self._mistakes = mistakes
        self._jobs = 0
        self._lines: dict[tuple[str, str], int] = {}
        self._requests: dict[str, Resources] = {}

    def job(self, line: int, header: list[str], row: list[str]) -> TraceJob | None:
        """Read a row; None where something is wrong with it."""
        if len(row) != len(header):
            many = f"{len(row)} {'value' if len(row) == 1 else 'values'}"
            self._note(f"line {line}: {many} for {len(header)} columns; quote what holds a comma")
            return None
        cells = {column: cell.strip() for column, cell in zip(header, row, strict=True)}
        self._jobs += 1
        before = len(self._mistakes)

        def read(column: str, how: Callable[[str], T], otherwise: T) -> T:
            if column in OPTIONAL and not cells.get(column):
                return otherwise
            try:
                return how(cells[column])
            except ValueError as error:
                self._note(f"line {line}, column {column}: {error}")
                return otherwise

        pods = read("pods", _count, 1)
        job = TraceJob(
            name=read("name", _name, f"job-{self._jobs:05}"),
            namespace=read("namespace", _name, "default"),
            queue=read("queue", self._queue, ""),
            arrival=read("arrival", _arrival, 0.0),
            duration=read("duration", _duration, 1.0),
            pods=pods,
            minimum=read("minimum", lambda text: _at_most(_count(text), pods), pods),
            request=read("request", self._request, Resources({})),
            priority=read("priority", self._priority, ""),
            failures=(failures := read("failures", partial(_some, most=pods, of="pods"), 0)),
            restarts=read("restarts", partial(_some, most=failures, of="failures"), 0),
            pause=read("pause", _pause, PAUSE),
        )
        self._twice(line, job)
        return job if len(self._mistakes) == before else None

    def _note(self, text: str) -> None:
        self._mistakes.append(f"{self._name}, {text}")

    def _twice(self, line: int, job: TraceJob) -> None:
        first = self._lines.setdefault((job.namespace, job.name), line)
        if first != line:
            self._note(f"line {line}, column name: '{job.name}' is the job of line {first}; give it another name")

    def _queue(self, text: str) -> str:
        return _among(text, self._known.queues, "queue", "name one of them, or add a Queue to the files")

    def _priority(self, text: str) -> str:
        return _among(text, self._known.priorities, "PriorityClass", "name one of them, or add it to the files")

    def _request(self, text: str) -> Resources:
        known = self._requests.get(text)
        if known is None:
            known = self._requests[text] = _request(text)
        return known


def _arrival(text: str) -> float:
    return _time(text, "write seconds such as 90, or 1h30m, since the beginning of the trace")


def _duration(text: str) -> float:
    found = _time(text, "write seconds such as 90, or 1h30m")
    if found == 0:
        raise ValueError(f"{text!r} is no time at all; write more than 0")
    return found


def _time(text: str, remedy: str) -> float:
    if text.startswith("-"):
        raise ValueError(f"{text!r} is negative; {remedy}")
    if set(text) <= {"0", "s"} and "0" in text:
        return 0.0
    try:
        return seconds(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time; {remedy}") from error


def _count(text: str) -> int:
    remedy = f"write a whole number from 1 to {_MOST_PODS}"
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_PODS))):
        raise ValueError(f"{text!r} is no number of pods; {remedy}")
    if not 1 <= int(text) <= _MOST_PODS:
        raise ValueError(f"{text!r} is out of range; {remedy}")
    return int(text)


def _some(text: str, most: int, of: str) -> int:
    """Read a number that may be zero, and at most what another column has."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_PODS))):
        raise ValueError(f"{text!r} is no number of pods; write a whole number from 0 to the {most} in column {of}")
    if int(text) > most:
        raise ValueError(f"{text!r} is more than the {most} in column {of}; write that or less")
    return int(text)


def _pause(text: str) -> float:
    return _time(text, "write seconds such as 90, or 1h30m")


def _at_most(count: int, pods: int) -> int:
    if count > pods:
        raise ValueError(f"'{count}' is more than the {pods} in column pods; write that or less")
    return count


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name; write at most 63 lower-case letters, digits, '-' and '.'")
    return text


def _among(text: str, known: Collection[str], noun: str, remedy: str) -> str:
    if text in known:
        return text
    listed = ", ".join(sorted(known)[:SHOWN]) or "none"
    raise ValueError(f"there is no {noun} {text!r} (there {'are' if len(known) != 1 else 'is'}: {listed}); {remedy}")


def _request(text: str) -> Resources:
    amounts: dict[str, str] = {}
    for part in filter(None, _REQUEST.split(text)):
        resource, sign, amount = part.partition("=")
        if not sign or not resource or not amount or resource in amounts:
            raise ValueError(f"{text!r} is no request; write it like cpu=2 memory=4Gi")
        amounts[resource] = amount
    if not amounts:
        raise ValueError(f"{text!r} is no request; write it like cpu=2 memory=4Gi")
    try:
        return Resources.parse(amounts)
    except QuantityError as error:
        raise ValueError(f"{error}; write it like cpu=2 memory=4Gi") from error
