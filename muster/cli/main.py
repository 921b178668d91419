"""The entry point: ``muster`` (also ``kubectl muster``), and ``vcctl`` for those who know it.

Commands are imported when they are called, and their one-line helps stand here, so that ``--help`` answers at once.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Final, NoReturn

import click

from muster import __version__

REVISION: Final = "revision.txt"
"""In the package ``muster`` of an image; the Dockerfile writes it."""

_COMMANDS: Final = {
    "up": ("muster.cli.local.up:up", "Run everything on this machine, or beside an existing cluster."),
    "demo": ("muster.cli.demo.command:demo", "Play the story of the README, and check every step."),
    "queue": ("muster.cli.commands.queue:queue", "Create, look at, close, open and delete queues."),
    "podgroup": ("muster.cli.commands.podgroup:podgroup", "List PodGroups, look at one, and ask why it waits."),
    "admit": ("muster.cli.commands.admit:admit", "Ask whether files would be admitted, and when they would start."),
    "simulate": (
        "muster.cli.simulate.command:simulate",
        "See what the scheduler would decide on the objects of some files.",
    ),
    "dump": ("muster.cli.commands.dump:dump", "Write the state of the cluster, to ask questions of later."),
    "quota": ("muster.cli.commands.quota:quota", "See what is reserved of a namespace's quotas, and by whom."),
    "install": (
        "muster.cli.commands.install:install_command",
        "Put the kinds into a cluster, and register the webhooks.",
    ),
    "uninstall": ("muster.cli.commands.install:uninstall_command", "Take them out again; workloads stay."),
    "certs": ("muster.cli.certs.command:certs", "Make, rotate and check the webhooks' certificates."),
    "completion": (
        "muster.cli.commands.completion:completion",
        "Write a script that completes commands and names in a shell.",
    ),
    "webhook": ("webhooks.__main__:webhook", "Run the admission server."),
    "scheduler": ("scheduler.__main__:scheduler", "Run the scheduler worker."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the commands, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        # What is imported stays; to look for garbage in it takes a tenth of the time.
        gc.disable()
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """Write the commands' helps without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _version(context: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001 - click's signature
    """Say which version this is and, in an image, from which revision of the sources it was built."""
    if asked and not context.resilient_parsing:
        from importlib import resources

        file = resources.files("muster") / REVISION
        revision = file.read_text().strip() if file.is_file() else ""
        click.echo(f"muster {__version__}" + (f" ({revision})" if revision else ""))
        context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="KUBECONFIG, --kubeconfig and --context choose the cluster, as with kubectl.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Say which this is."
)
def muster() -> None:
    """Gang scheduling, queues and guaranteed quotas for batch workloads on Kubernetes."""


def main() -> NoReturn:
    """Run ``muster``; the process ends with its status."""
    # kubectl finds the plugin by the name kubectl-muster; people know it as `kubectl muster`.
    plugin = os.path.basename(sys.argv[0]).startswith("kubectl-")  # noqa: PTH119 - a name, not a path; pathlib costs 10 ms
    _run(muster, "kubectl muster" if plugin else "muster")


def kubectl_complete() -> NoReturn:
    """Complete ``kubectl muster``, as kubectl asks it."""
    from muster.cli.commands.completion import for_kubectl

    for_kubectl(muster)


def vcctl() -> NoReturn:
    """Run ``vcctl``: the queue commands under the name that Volcano's users know."""
    from muster.cli.commands.queue import queue

    group = click.Group("vcctl", commands={"queue": queue}, help="The queue commands of muster, as vcctl has them.")
    _run(group, "vcctl")


def _run(command: click.Command, name: str) -> NoReturn:
    """Run a command; whatever goes wrong ends in one line on stderr and a status, never in a traceback."""
    # Where numpy is imported: what it would start threads for is never asked of it here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        status = command.main(prog_name=name, standalone_mode=False, obj=_end)
    except click.exceptions.Exit as end:
        status = end.exit_code
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        status = 130
    except BrokenPipeError:
        # `muster queue list | head`: the reader has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    sys.exit(status if isinstance(status, int) else 0)


def _end(status: int) -> NoReturn:
    """End the process at once, for a command that asks for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
