"""The output of a simulation for people: tables of 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import click

from muster.cli.output import table
from muster.model import names
from muster.model.durations import human_duration
from muster.model.text import counted
from scheduler.simulator.report import QueueReport, SimulationReport, WaitingTimes

_SHOWN: Final = 10
_NOTHING: Final = "-"


def show(report: SimulationReport) -> None:
    """Print one report."""
    click.echo(_headline(report))
    click.echo()
    queues = {name: report.queues[name] for name in _shown(report)}
    rows = [(name, *_waits(queue.arrived, queue.waiting, queue.waits)) for name, queue in queues.items()]
    if len(rows) > 1:
        waiting = sum(queue.waiting for queue in report.queues.values())
        rows.append(("(all)", *_waits(report.arrived, waiting, report.waits)))
    table(("queue", "groups", "wait p50", "p95", "max", "not started"), rows)
    click.echo()
    table(
        ("queue", "share", "while groups wait", "deserved", "preempted", "reclaimed", "refused"),
        [(name, *_shares(queue, contended=report.contended > 0)) for name, queue in queues.items()],
    )
    click.echo()
    table(("resource", "in use"), [(name, _percent(part)) for name, part in report.utilisation.items()])
    for line in (*_undone(report), *_refusals(report), *_late(report)):
        click.echo(line)


def compare(labels: tuple[str, str], reports: tuple[SimulationReport, SimulationReport]) -> None:
    """Print two reports side by side."""
    for name, report in zip(labels, reports, strict=True):
        click.echo(f"{name}: {_headline(report)}")
    click.echo()
    table(("", *labels), list(_side_by_side(*reports)))
    for name, report in zip(labels, reports, strict=True):
        for line in _late(report):
            click.echo(f"{name}: {line}" if line else "")


def _shown(*reports: SimulationReport) -> list[str]:
    """Name the queues to tell of; the one that every cluster has, only where something happened in it."""
    idle = all(
        not (one.arrived or one.refused or one.used) for one in (each.queues[names.DEFAULT_QUEUE] for each in reports)
    )
    return sorted(name for name in reports[0].queues if not (idle and name == names.DEFAULT_QUEUE))


def _headline(report: SimulationReport) -> str:
    started = report.waits.started
    groups = f"{counted(report.arrived, 'group')} came, {started} started, {report.ended} ended"
    refused = f", {counted(len(report.refusals), 'creation')} refused" if report.refusals else ""
    return f"{human_duration(report.seconds)} of cluster time in {counted(report.cycles, 'cycle')}: {groups}{refused}"


def _waits(arrived: int, waiting: int, waits: WaitingTimes) -> Sequence[object]:
    times = [human_duration(each) for each in (waits.p50, waits.p95, waits.most)] if waits.started else [_NOTHING] * 3
    return (arrived, *times, waiting or _NOTHING)


def _shares(queue: QueueReport, *, contended: bool) -> Sequence[object]:
    return (
        _percent(queue.used),
        _percent(queue.held if contended else None),
        _percent(queue.deserved),
        queue.preempted or _NOTHING,
        queue.reclaimed or _NOTHING,
        queue.refused or _NOTHING,
    )


def _undone(report: SimulationReport) -> Iterator[str]:
    undone = sum(queue.undone for queue in report.queues.values())
    if undone:
        yield ""
        yield f"{counted(undone, 'pod')} had to go because the rest of their group found no place in 30 s"


def _refusals(report: SimulationReport) -> Iterator[str]:
    lines = [f"at {human_duration(each.at)}, {each.subject}: {each.text}" for each in report.refusals]
    return _first_of("Refused", "creation", lines)


def _late(report: SimulationReport) -> Iterator[str]:
    lines = [f"{each.name}, after {human_duration(each.waited)}: {each.why}" for each in report.late]
    return _first_of("Never started", "group", lines)


def _first_of(title: str, noun: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield ""
    yield f"{title}: {counted(len(lines), noun)}"
    for line in lines[:_SHOWN]:
        yield f"  {line}"
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN} more; -o json has all"


def _side_by_side(first: SimulationReport, second: SimulationReport) -> Iterator[tuple[str, str, str]]:
    both = (first, second)

    def row(what: str, *cells: str) -> tuple[str, str, str]:
        return what, cells[0], cells[1]

    yield row("groups started", *(str(each.waits.started) for each in both))
    yield row("groups ended", *(str(each.ended) for each in both))
    for words, pick in (("p50", "p50"), ("p95", "p95"), ("max", "most")):
        yield row(f"wait {words}", *(human_duration(getattr(each.waits, pick)) for each in both))
    for name in _shown(*both):
        yield row(f"wait p95, {name}", *(human_duration(each.queues[name].waits.p95) for each in both))
    for name in sorted(first.utilisation.keys() | second.utilisation.keys()):
        yield row(f"{name} in use", *(_percent(each.utilisation.get(name, 0.0)) for each in both))
    for name in _shown(*both):
        yield row(f"share, {name}", *(_percent(each.queues[name].used) for each in both))
    for words in ("preempted", "reclaimed", "undone"):
        counts = [
            Counter({name: getattr(queue, words) for name, queue in each.queues.items()}).total() for each in both
        ]
        if any(counts):
            yield row(f"pods {words}", *map(str, counts))
    if any(each.refusals for each in both):
        yield row("creations refused", *(str(len(each.refusals)) for each in both))


def _percent(part: float | None) -> str:
    return f"{part * 100:.1f}%" if part is not None else _NOTHING
