"""Draws a simulation: what was in use, the queues' shares, how long groups waited, and when they ran.

Needs matplotlib, which comes with ``muster-scheduler[plot]``. Colours can be told apart by people who see few of them, and each
queue has a pattern of line, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from muster.model.durations import human_duration
from scheduler.simulator.report import GroupLifetime, Line, SimulationReport

# Paul Tol's "muted" scheme, in an order in which neighbours differ in lightness.
_COLOURS: Final = ("#332288", "#DDCC77", "#117733", "#CC6677", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499")
_OTHERS: Final = "#777777"
_STROKES: Final = ("-", "--", "-.", ":")
_MOST_QUEUES: Final = 10
_MOST_BARS: Final = 40
_MOST_STEPS: Final = 250
_FORMATS: Final = (".png", ".svg", ".pdf")
_UNITS: Final = (
    (3 * 86400.0, 86400.0, "days"),
    (3 * 3600.0, 3600.0, "hours"),
    (600.0, 60.0, "minutes"),
    (0.0, 1.0, "seconds"),
)
_REST: Final = "others"


def check(file: Path) -> None:
    """Make sure that it can be drawn, before the time is spent.

    Raises:
        ClickException: matplotlib isn't there, or the file's name ends in a way that says no format.
    """
    if file.suffix not in _FORMATS:
        raise click.ClickException(f"--plot {file}: end the name in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}")
    try:
        import matplotlib  # noqa: F401, ICN001 - only whether it is there
    except ImportError as error:
        raise click.ClickException("--plot needs matplotlib: pip install 'muster-scheduler[plot]'") from error


def draw(reports: Sequence[tuple[str, SimulationReport]], file: Path) -> None:
    """Draw reports side by side, each under its name.

    Raises:
        ClickException: the file can't be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11 * len(reports), 15), layout="constrained")
    FigureCanvasAgg(figure)
    names = _queues([report for _, report in reports])
    grid = figure.subplots(4, len(reports), squeeze=False, height_ratios=[1, 1.2, 1.2, 2])
    for column, (name, report) in enumerate(reports):
        _draw_one([row[column] for row in grid], name, report, names)
    try:
        figure.savefig(file, dpi=110)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error


def _draw_one(axes: Sequence[Any], name: str, report: SimulationReport, queues: Sequence[str]) -> None:
    factor, unit = next((width, unit) for least, width, unit in _UNITS if report.seconds >= least)
    used, shares, waits, gangs = axes
    used.set_title(f"{name}: cluster in use", loc="left", weight="bold")
    for number, (resource, line) in enumerate(report.resources.items()):
        _steps(used, line, factor, resource, number)
    _percent(used, "part of the cluster")
    shares.set_title("Shares of the queues, one on top of the other", loc="left", weight="bold")
    _stack(shares, _by_queue(report, queues), factor, queues)
    _percent(shares, "largest part of any resource")
    for panel in (used, shares):
        panel.set_xlim(0, max(report.seconds, 1.0) / factor)
        panel.set_xlabel(f"time ({unit})")
        _legend(panel)
    _waiting(waits, report, queues)
    _gantt(gangs, report, queues, factor, unit)


def _queues(reports: Sequence[SimulationReport]) -> list[str]:
    """Name the queues that get a colour of their own: those that had most, in the order of their names."""
    used: dict[str, float] = {}
    for report in reports:
        for name, queue in report.queues.items():
            if queue.arrived or queue.used:
                used[name] = used.get(name, 0.0) + queue.used
    most = sorted(used, key=lambda name: (-used[name], name))
    if len(most) > _MOST_QUEUES:
        most = most[: _MOST_QUEUES - 1]
    return sorted(most)


def _by_queue(report: SimulationReport, queues: Sequence[str]) -> list[tuple[str, Line]]:
    """Return each queue's share over time; those without a colour together."""
    lines = [(name, report.shares[name]) for name in queues if name in report.shares]
    rest = [line for name, line in report.shares.items() if name not in queues and any(value for _, value in line)]
    if rest:
        together = tuple((each[0][0], sum(value for _, value in each)) for each in zip(*rest, strict=True))
        lines.append((f"{len(rest)} {_REST}", together))
    return lines


def _colour(number: int, queue: str) -> str:
    return _OTHERS if queue.endswith(f" {_REST}") or number >= len(_COLOURS) else _COLOURS[number]


def _steps(axes: Any, line: Line, factor: float, label: str, number: int) -> None:
    times, values = _coarse(line, factor)
    stroke = _STROKES[number % len(_STROKES)]
    axes.step(times, values, where="post", label=label, color=_colour(number, label), linestyle=stroke, linewidth=1.4)


def _stack(axes: Any, lines: Sequence[tuple[str, Line]], factor: float, queues: Sequence[str]) -> None:
    if not lines:
        return
    times = _coarse(lines[0][1], factor)[0]
    axes.stackplot(
        times,
        [_coarse(line, factor)[1] for _, line in lines],
        labels=[name for name, _ in lines],
        colors=[_colour(queues.index(name) if name in queues else len(_COLOURS), name) for name, _ in lines],
        step="post",
        linewidth=0,
    )


def _coarse(line: Line, factor: float) -> tuple[list[float], list[float]]:
    """Return times and percentages in no more steps than the eye can tell apart; the last value holds to the end."""
    size = -(-len(line) // _MOST_STEPS) or 1
    parts = [line[place : place + size] for place in range(0, len(line), size)]
    return [part[0][0] / factor for part in parts], [
        100 * sum(value for _, value in part) / len(part) for part in parts
    ]


def _percent(axes: Any, label: str) -> None:
    axes.set_ylabel(f"{label} (%)")
    axes.set_ylim(0, 105)
    axes.grid(alpha=0.3)


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        # What is on top of others stands on top here, too.
        axes.legend(
            reverse=bool(axes.collections),
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            frameon=False,
            fontsize="small",
            handlelength=3,
        )


def _waiting(axes: Any, report: SimulationReport, queues: Sequence[str]) -> None:
    """Draw, for each queue, which part of its groups had started after so long."""
    axes.set_title("Waiting until the minimum of a group had nodes", loc="left", weight="bold")
    longest, least = 1.0, 100.0
    for queue in queues:
        bars = [bar for bar in report.bars if bar.queue == queue]
        line = sorted(max(bar.started - bar.arrived, 1.0) for bar in bars if bar.started is not None)
        if not line:
            continue
        longest = max(longest, line[-1])
        parts = [100 * (place + 1) / len(bars) for place in range(len(line))]
        least = min(least, parts[sum(each <= 1.0 for each in line) - 1] if line[0] <= 1.0 else 0.0)
        number = queues.index(queue)
        style = {"color": _colour(number, queue), "linestyle": _STROKES[number % len(_STROKES)], "linewidth": 1.6}
        axes.step([1.0, *line], [0.0, *parts], where="post", label=f"{queue} ({len(bars)})", **style)
    axes.set_xscale("log")
    ticks = [each for each in (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400) if each <= longest * 10]
    axes.set_xticks(ticks, [human_duration(each) if each > 1 else "1s or less" for each in ticks])
    axes.minorticks_off()
    axes.set_xlim(1, max(longest * 1.2, 10))
    axes.set_xlabel("waiting time")
    axes.set_ylabel("groups that had started (%)")
    axes.set_ylim(max(least // 10 * 10 - 10, 0), 102)
    axes.grid(alpha=0.3)
    _legend(axes)


def _gantt(axes: Any, report: SimulationReport, queues: Sequence[str], factor: float, unit: str) -> None:
    """Draw when groups came, waited and ran: all of them, or where they are many those that waited longest."""
    bars = sorted(report.bars, key=lambda bar: (-_waited(bar, report), bar.arrived, bar.name))[:_MOST_BARS]
    bars.sort(key=lambda bar: (bar.arrived, bar.name))
    many = (
        f"the {len(bars)} groups of {len(report.bars)} that waited longest"
        if len(bars) < len(report.bars)
        else "all groups"
    )
    axes.set_title(f"When groups ran: {many}", loc="left", weight="bold")
    for place, bar in enumerate(bars):
        colour = _colour(queues.index(bar.queue), bar.queue) if bar.queue in queues else _OTHERS
        start = bar.started if bar.started is not None else report.seconds
        axes.plot([bar.arrived / factor, start / factor], [place, place], color=colour, linewidth=1, linestyle=":")
        if bar.started is not None:
            end = bar.over if bar.over is not None else report.seconds
            axes.barh(place, (end - start) / factor, left=start / factor, height=0.7, color=colour)
        else:
            axes.plot([start / factor], [place], marker="x", color=colour, clip_on=False)
    axes.set_yticks(range(len(bars)), [bar.name.removeprefix("default/") for bar in bars], fontsize="x-small")
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, max(report.seconds, 1.0) / factor)
    axes.set_xlabel(f"time ({unit}); dotted: waiting, cross: never started")
    axes.grid(axis="x", alpha=0.3)
    _keys(axes, sorted({bar.queue for bar in bars}), queues)


def _keys(axes: Any, shown: Sequence[str], queues: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    keys = [Patch(color=_colour(queues.index(name), name), label=name) for name in shown if name in queues]
    if any(name not in queues for name in shown):
        keys.append(Patch(color=_OTHERS, label=_REST))
    axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")


def _waited(bar: GroupLifetime, report: SimulationReport) -> float:
    return (bar.started if bar.started is not None else report.seconds) - bar.arrived
