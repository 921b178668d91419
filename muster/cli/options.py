"""What several commands ask for in the same words: which scheduler's rules, whose pods, and examples in the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli import completion
from muster.cli.connect import connected
from muster.cli.output import text_option
from muster.model import names

if TYPE_CHECKING:
    from muster.whatif.cluster_view import State
    from scheduler.engine.policy import Policy

SCHEDULERS: Final = (names.SCHEDULER_NAME, *names.DROP_IN_SCHEDULER_NAMES)


def examples(*lines: str) -> str:
    """Write the examples at the end of a command's help."""
    # \b keeps click from flowing the lines into a paragraph.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--kubeconfig`` and ``--context`` to a command."""
    kubeconfig = click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config.")
    context = click.option("--context", metavar="NAME", help="Which context of the kubeconfig to use.")
    return kubeconfig(context(command))


def namespace_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--namespace`` to a command."""
    text = "Default: the context's, then default."
    option = click.option("-n", "--namespace", metavar="NAMESPACE", help=text, shell_complete=completion.namespaces)
    return option(command)


def config_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--config`` as ``configuration``; ``text`` says what for."""
    # Whether it is there is told when it is read: in one line, as of any other file.
    return click.option("--config", "configuration", type=click.Path(path_type=Path), metavar="FILE", help=text)


def schedulers_option(default: Sequence[str] = SCHEDULERS) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--scheduler-name`` as ``schedulers``."""
    text = f"Whose pods are ours; repeatable. Default: {', '.join(default)}."
    return click.option("--scheduler-name", "schedulers", multiple=True, default=default, metavar="NAME", help=text)


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--state`` as ``state_file``."""
    text = "Ask this dump of a cluster (`muster dump`) instead of the cluster; - is stdin."
    return click.option("--state", "state_file", metavar="FILE", help=text)(command)


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a question about what the scheduler would do is asked with, and of whom."""
    configured = config_option("The scheduler's actions and plugins, where it has others than the default.")
    for option in (cluster_options, text_option, schedulers_option(), configured, state_option, namespace_option):
        command = option(command)
    return command


async def state_of(file: str | None, kubeconfig: str | None, context: str | None) -> State:
    """Read the dump where one is named, else the cluster; say on stderr what could not be read.

    Raises:
        ClickException: it isn't a dump, or Muster isn't installed.
        KubeError: the cluster can't be read.
    """
    if file is not None:
        from muster.whatif import dump

        state = dump.read(file)
    else:
        from muster.kube.clock import SystemClock
        from muster.whatif import cluster_view

        async with connected(kubeconfig, context) as client:
            state = await cluster_view.read(client, SystemClock().now())
    tell(state)
    return state


def tell(state: State) -> None:
    """Tell on stderr what could not be read."""
    for sentence in (*state.unread, *state.malformed()):
        click.echo(f"note: {sentence}", err=True)


def prepared(file: Path | None, module: str) -> Policy:
    """Read a configuration, as `policy_of`, and import what answers a question: there is time while an API server writes."""
    policy = policy_of(file)
    import_module(module)
    return policy


def policy_of(file: Path | None) -> Policy:
    """Read a scheduler's configuration, the default where there is no file.

    Raises:
        ClickException: it can't be used; a line per mistake.
    """
    if file is None:
        from scheduler.configuration import builtin

        return builtin.policy()
    from scheduler.configuration.config import ConfigurationError, read

    try:
        return read(file)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
