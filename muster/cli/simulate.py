"""``muster simulate``: what the scheduler would decide on the objects of some files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli import manifests
from muster.cli.output import document, table
from muster.kube.clock import SystemClock
from muster.model import names

if TYPE_CHECKING:
    from scheduler.policy import Policy

_FORMATS: Final = ("table", "json", "yaml")


@click.command(epilog="Example: muster simulate -f cluster.yaml -f gang.yaml --config scheduler.yaml -o json")
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help="Objects; repeatable, - is stdin."
)
@click.option(
    "--config",
    "configuration",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Actions and plugins (YAML). Default: that of muster scheduler.",
)
@click.option(
    "--cycles", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many times to decide."
)
@click.option("--scheduler-name", "schedulers", multiple=True, metavar="NAME", help="Whose pods are ours; repeatable.")
@click.option(
    "-o", "--output", type=click.Choice(_FORMATS), default="table", show_default=True, help="How to print it."
)
def simulate(
    files: tuple[str, ...], configuration: Path | None, cycles: int, schedulers: tuple[str, ...], output: str
) -> None:
    """Decide on the objects of files: who is bound where, who is evicted, and why the others wait.

    Nodes, pods, PodGroups, Queues, Jobs, PriorityClasses, volumes and what else scheduling looks at are the cluster as it
    is at the moment; nothing else happens there. What one cycle binds runs in the next.
    """
    # numpy and the plugins take half a second to import, which --help doesn't spend.
    from scheduler.simulator import state

    policy = policy_of(configuration)
    try:
        cluster = state.load(
            manifests.read(files), schedulers or (names.SCHEDULER_NAME, *names.DROP_IN_SCHEDULER_NAMES)
        )
    except state.StateError as error:
        raise click.ClickException(str(error)) from error
    began = time.perf_counter()
    report = state.run(cluster, policy, SystemClock().now(), cycles)
    result = report.json() | {"seconds": round(time.perf_counter() - began, 6)}
    if output == "table":
        _show(result)
    else:
        document(result, output)


def policy_of(file: Path | None) -> Policy:
    """Read a scheduler's configuration, the default where there is no file.

    Raises:
        ClickException: it can't be used; a line per mistake.
    """
    from scheduler.config import DEFAULT, ConfigurationError, parse

    try:
        return parse(file.read_text(encoding="utf-8"), str(file)) if file is not None else parse(DEFAULT)
    except (ConfigurationError, UnicodeDecodeError, OSError) as error:
        raise click.ClickException(str(error)) from error


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
