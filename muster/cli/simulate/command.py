"""``muster simulate``: what the scheduler would decide on the objects of files, once or over time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct

from muster.cli import configuration, manifests
from muster.cli.options import config_option, policy_of, schedulers_option
from muster.cli.output import document, table
from muster.kube.clock import SystemClock
from muster.model import names
from muster.model.objects import ConfigMap

if TYPE_CHECKING:
    from muster.cli.configuration import Configuration
    from scheduler.engine.policy import Policy

_FORMATS: Final = ("table", "json", "yaml")
_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
_EPILOG: Final = """\b
Examples:
  muster simulate -f cluster.yaml -f gang.yaml --config scheduler.yaml -o json
  muster simulate -f cluster.yaml --trace jobs.csv --for 7d --plot week.png
  muster simulate -f state.yaml --trace jobs.csv --compare other.yaml
"""


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read seconds, or a duration such as ``12h`` or ``7d``."""
    if value is None:
        return None
    from scheduler.simulator import trace

    try:
        found = trace.seconds(value)
    except ValueError:
        found = 0.0
    if found <= 0:
        raise click.BadParameter(f"{value!r} is not a duration; write it like 90s, 12h or 7d", ctx, param)
    return found


@click.command(epilog=_EPILOG)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File of objects; repeatable, - is stdin.",
)
@click.option("--trace", type=_FILE, metavar="FILE", help="CSV file of Jobs that arrive over time.")
@config_option("The scheduler's configuration (YAML). Default: that of the files' ConfigMap, else the built-in one.")
@click.option("--compare", type=_FILE, metavar="FILE", help="Second configuration, shown beside the first.")
@click.option("--cycles", type=click.IntRange(1, 10_000), help="Number of scheduling cycles, without a clock.")
@click.option("--until-idle", is_flag=True, help="Simulate until nothing more can happen.")
@click.option("--for", "time", callback=_time, metavar="TIME", help="Simulate this much time: 90s, 12h, 7d.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed for the order of equal objects."
)
@schedulers_option()
@click.option("-o", "--output", type=click.Choice(_FORMATS), default="table", show_default=True, help="Output format.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a plot: .png, .svg, .pdf."
)
def simulate(files: tuple[str, ...], schedulers: tuple[str, ...], output: str, **options: Any) -> None:
    """Simulate the scheduler on the objects of files: one cycle, or all that happens in a week.

    The files hold the cluster: nodes, queues, quotas, PodGroups, Jobs, Pods, or a file that `muster dump` wrote. Without
    further options the command runs one scheduling cycle (--cycles for more) and prints which pods it binds and evicts,
    and why the others wait. Pods that one cycle binds run in the next.

    With --trace, --until-idle or --for, time passes: the webhooks' rules admit objects, and pods run for their duration.
    The command prints waiting times, utilization, the queues' shares, evictions and refusals.
    """
    wishes = _Choices(**options)
    wishes.check()
    objects = _joined(manifests.read(files), schedulers)
    found = configuration.find(wishes.configuration, _configmaps(objects))
    if wishes.passes:
        _over_time(objects, schedulers, wishes, found, output)
    else:
        _at_once(objects, schedulers, wishes.cycles or 1, found.policy, output)


def _joined(objects: list[Mapping[str, Any]], schedulers: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """Have the pods of native PodGroups join the groups that stand for these; tell of those that wait for good."""
    if not any(each.get("kind") == "Pod" and (each.get("spec") or {}).get("schedulingGroup") for each in objects):
        return objects
    # See `_at_once`.
    from scheduler.simulator import native_groups, state

    try:
        joined = native_groups.join(objects, schedulers)
    except state.UnreadableObjectError as error:
        raise click.ClickException(str(error)) from error
    for note in joined.notes:
        click.echo(f"note: {note}", err=True)
    return list(joined.objects)


def _configmaps(objects: Iterable[Mapping[str, Any]]) -> list[ConfigMap]:
    """Return the ConfigMaps of the scheduler that files hold, as a dump does; what isn't one is left out."""
    found = []
    for each in objects:
        metadata = each.get("metadata") if each.get("kind") == "ConfigMap" else None
        if isinstance(metadata, dict) and metadata.get("name") == names.SCHEDULER_CONFIGMAP[0]:
            with contextlib.suppress(msgspec.ValidationError):
                found.append(msgspec.convert(each, ConfigMap))
    return found


class _Choices(Struct, frozen=True):
    """The options that say what to do."""

    trace: Path | None
    configuration: Path | None
    compare: Path | None
    cycles: int | None
    until_idle: bool
    time: float | None
    seed: int
    plot: Path | None

    @property
    def passes(self) -> bool:
        """Whether time passes."""
        return self.trace is not None or self.until_idle or self.time is not None

    def check(self) -> None:
        """Refuse what doesn't go together.

        Raises:
            UsageError: naming both.
        """
        if self.until_idle and self.time is not None:
            raise click.UsageError("--until-idle and --for don't go together: give one of them")
        if self.cycles is not None and self.passes:
            raise click.UsageError("--cycles simulates without a clock: remove --trace, --until-idle and --for")
        for name, value in (("--compare", self.compare), ("--plot", self.plot)):
            if value is not None and not self.passes:
                raise click.UsageError(f"{name} needs time to pass: add --until-idle, --for or --trace")
        if self.plot is not None:
            from muster.cli.simulate import plots

            plots.check(self.plot)


def _at_once(
    objects: list[Mapping[str, Any]], schedulers: tuple[str, ...], cycles: int, policy: Policy, output: str
) -> None:
    # numpy and the plugins take half a second to import, which --help doesn't spend.
    from scheduler.simulator import state

    try:
        cluster = state.load(objects, schedulers)
    except state.UnreadableObjectError as error:
        raise click.ClickException(str(error)) from error
    began = time.perf_counter()
    report = state.run(cluster, policy, SystemClock().now(), cycles)
    result = report.json() | {"seconds": round(time.perf_counter() - began, 6)}
    if output == "table":
        _show(result)
    else:
        document(result, output)


def _over_time(
    objects: list[Mapping[str, Any]],
    schedulers: tuple[str, ...],
    wishes: _Choices,
    configured: Configuration,
    output: str,
) -> None:
    from muster.cli.simulate import run, text

    until = wishes.time if wishes.time is not None else run.NEVER
    found = run.prepare(objects, schedulers, run.SimulationOptions(wishes.trace, until, wishes.seed))
    configurations = [(_name(wishes.configuration, configured), configured.policy)]
    if wishes.compare is not None:
        configurations.append((wishes.compare.name, policy_of(wishes.compare)))
    reports = [(name, run.run(found, each, name)) for name, each in configurations]
    if wishes.plot is not None:
        from muster.cli.simulate import plots

        plots.draw(reports, wishes.plot)
    if output != "table":
        runs = [{"configuration": name, **report.json()} for name, report in reports]
        document(runs[0] if len(runs) == 1 else {"runs": runs}, output)
    elif len(reports) == 1:
        text.show(reports[0][1])
    else:
        (first, one), (second, other) = reports
        text.compare((first, second), (one, other))


def _name(file: Path | None, configured: Configuration) -> str:
    if file is not None:
        return file.name
    return "default" if configured.assumed else names.SCHEDULER_CONFIGMAP[0]


def _show(result: dict[str, Any]) -> None:
    groups = [
        (name, each["phase"], _bound(result, name), each["reason"] or "-") for name, each in result["podgroups"].items()
    ]
    if groups:
        table(("podgroup", "phase", "tasks", "reason"), groups)
    waiting = {name: _why(each) for name, each in result["podgroups"].items() if _why(each)}
    for name, message in waiting.items():
        click.echo(f"\n{name}: {message}")
    if result["binds"]:
        click.echo()
        table(("pod", "node"), sorted(result["binds"].items()))
    if result["evicted"]:
        click.echo()
        table(("evicted",), [(pod,) for pod in result["evicted"]])
    if not groups and not result["binds"]:
        click.echo("nothing to schedule: the files have no PodGroup and no pod of these scheduler names")
        click.echo("(the pods of a Job are created as time passes: see --until-idle)")


def _bound(result: dict[str, Any], group: str) -> str:
    counts = result["tasks"].get(group, {})
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "none"


def _why(group: dict[str, Any]) -> str:
    return next(
        (
            str(each["message"])
            for each in group["conditions"]
            if each["status"] == "True" and each.get("reason") == group["reason"] and group["reason"]
        ),
        "",
    )
