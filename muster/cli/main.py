"""The entry point: ``muster`` (also ``kubectl muster``), and ``vcctl``, the name of Volcano's command line.

Commands are imported when they are called, and their one-line helps stand here, so that ``--help`` answers at once.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Final, NoReturn

import click

from muster.cli.flags import ClusterGroup

_COMMANDS: Final = {
    "up": ("muster.cli.local.up:up", "Run Muster on this machine, with an embedded cluster or beside an existing one."),
    "demo": ("muster.cli.demo.command:demo", "Run the steps of the README, and check each answer."),
    "queue": ("muster.cli.commands.queue:queue", "Create, change, list, view, close, open and delete queues."),
    "podgroup": (
        "muster.cli.commands.podgroup:podgroup",
        "List, view, suspend and move PodGroups, and explain why one waits.",
    ),
    "job": ("muster.cli.commands.job:job", "List, view, suspend and resume Jobs."),
    "why": ("muster.cli.commands.why:why", "Explain why a workload or PodGroup waits."),
    "top": ("muster.cli.top.command:top", "Show queues, who waits and why, quotas and evictions, again and again."),
    "ui": ("muster.cli.ui.command:ui", "Serve a page: queues with shares and history, who waits and why, what if."),
    "admit": ("muster.cli.commands.admit:admit", "Check whether files would be admitted, and when they would start."),
    "simulate": (
        "muster.cli.simulate.command:simulate",
        "Simulate the scheduler on the objects of files.",
    ),
    "dump": ("muster.cli.commands.dump:dump", "Write the state of the cluster to a file, for admit, why and simulate."),
    "quota": ("muster.cli.commands.quota:quota", "Show the reservations of a namespace's quotas."),
    "topology": ("muster.cli.commands.topology:topology", "Show the network between nodes, and what is free in it."),
    "install": (
        "muster.cli.commands.install:install_command",
        "Install CRDs and permissions in a cluster, and register the webhooks.",
    ),
    "uninstall": ("muster.cli.commands.install:uninstall_command", "Uninstall Muster; workloads stay."),
    "check": ("muster.cli.commands.check:check", "Check whether the installation in a cluster works."),
    "version": (
        "muster.cli.commands.check:version",
        "Print the versions of this program, of Muster and of Kubernetes.",
    ),
    "certs": ("muster.cli.certs.command:certs", "Create, rotate and check the webhooks' certificates."),
    "completion": (
        "muster.cli.commands.completion:completion",
        "Print a completion script for a shell.",
    ),
    "webhook": ("webhooks.__main__:webhook", "Run the admission server."),
    "scheduler": ("scheduler.__main__:scheduler", "Run the scheduler worker."),
    "visibility": ("muster.cli.commands.visibility:visibility", "Run the API that tells tenants why they wait."),
}


_ALIASES: Final = {"pg": "podgroup", "podgroups": "podgroup", "q": "queue", "queues": "queue"}


class LazyGroup(ClusterGroup):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the commands, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """Import a command."""
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
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
    """Print the version and, in an image, the revision of the sources that it was built from."""
    if asked and not context.resilient_parsing:
        from muster.cli.versions import own_version

        click.echo(own_version())
        context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="KUBECONFIG, --kubeconfig and --context choose the cluster, as with kubectl. Its flags --cluster, --user, --server, --token, "
    "--certificate-authority, --tls-server-name, --insecure-skip-tls-verify, --as, --as-group, --request-timeout and -v work too, before a "
    "command or behind it.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and exit."
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
    """Run ``vcctl``: the commands for queues and Jobs under the name of Volcano's command line."""
    from muster.cli.commands.job import job
    from muster.cli.commands.queue import queue

    text = "Muster's commands for queues and for Jobs of Kubernetes, with the options of Volcano's vcctl."
    group = ClusterGroup("vcctl", commands={"queue": queue, "job": job}, help=text)
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
