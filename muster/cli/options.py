"""Options that several commands share: the scheduler configuration, the scheduler's names, and examples in the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli import completion
from muster.cli.flags import with_flags
from muster.model import names

if TYPE_CHECKING:
    from scheduler.engine.policy import Policy

SCHEDULERS: Final = (names.SCHEDULER_NAME, *names.DROP_IN_SCHEDULER_NAMES)


def examples(*lines: str) -> str:
    """Write the examples at the end of a command's help."""
    # \b keeps click from flowing the lines into a paragraph.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--kubeconfig`` and ``--context`` to a command, and kubectl's other flags about the cluster, which aren't shown."""
    kubeconfig = click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config.")
    context = click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
    return kubeconfig(context(with_flags(command)))


def dry_run_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--dry-run``: the API server judges what would be done, and does nothing."""
    text = "Have the API server and its webhooks judge what would be done, and do nothing."
    return click.option("--dry-run", is_flag=True, help=text)(command)


def done(text: str, *, dry_run: bool) -> None:
    """Print what was done."""
    click.echo(f"{text} (dry run)" if dry_run else text)


def namespace_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--namespace`` to a command."""
    text = "Default: the namespace of the context, then default."
    option = click.option("-n", "--namespace", metavar="NAMESPACE", help=text, shell_complete=completion.namespaces)
    return option(command)


def config_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--config`` as ``configuration``; ``text`` says what for."""
    # Whether it is there is told when it is read: in one line, as of any other file.
    return click.option("--config", "configuration", type=click.Path(path_type=Path), metavar="FILE", help=text)


def schedulers_option(default: Sequence[str] = SCHEDULERS) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--scheduler-name`` as ``schedulers``."""
    text = f"Scheduler name of the pods that Muster schedules; repeatable. Default: {', '.join(default)}."
    return click.option("--scheduler-name", "schedulers", multiple=True, default=default, metavar="NAME", help=text)


def policy_of(file: Path | None) -> Policy:
    """Read a scheduler's configuration, the default where there is no file; say what in it changes nothing.

    Raises:
        ClickException: it can't be used; a line per mistake.
    """
    if file is None:
        from scheduler.configuration import builtin

        return builtin.policy()
    from scheduler.configuration.config import ConfigurationError, read

    try:
        policy = read(file)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    for remark in policy.remarks:
        click.echo(f"Warning: {remark}", err=True)
    return policy
