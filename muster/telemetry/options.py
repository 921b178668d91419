"""The options that programs share: where they listen, their probes and metrics, whose pods are theirs, their logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from muster.model import names

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def probe_options(port: int) -> Decorator:
    """Return what adds ``--probe-port`` with its default, ``--metrics-port`` and ``--metrics-tls``, in this order."""
    return _added(
        click.option(
            "--probe-port",
            default=port,
            show_default=True,
            help="Port of /healthz and /readyz (plain); /metrics: this machine only.",
        ),
        click.option(
            "--metrics-port", type=int, metavar="PORT", help="Serve /metrics to other machines at this port (plain)."
        ),
        click.option(
            "--metrics-tls",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Serve /metrics there over TLS, with tls.crt and tls.key of this folder, to clients that RBAC allows it.",
        ),
    )


def server_options(port: int, of: str, probe_port: int) -> Decorator:
    """Return what adds the options of a server of API servers' calls: ``--host``, ``--port``, probes, ``--certificates``."""
    return _added(
        click.option("--host", default="", help="Address to listen on. Default: all, of IPv6 and of IPv4."),
        click.option("--port", default=port, show_default=True, help=f"Port of the {of} (TLS)."),
        probe_options(probe_port),
        click.option(
            "--certificates",
            type=click.Path(path_type=Path),
            required=True,
            metavar="DIR",
            help="Folder with tls.crt and tls.key; changes apply while running.",
        ),
    )


drain_option: Final = click.option(
    "--drain", default=5.0, show_default=True, metavar="SECONDS", help="Time to continue serving after SIGTERM."
)

scheduler_name_option: Final = click.option(
    "--scheduler-name",
    "schedulers",
    multiple=True,
    metavar="NAME",
    help="Scheduler name of the pods that Muster schedules; repeatable.",
)

rules_option: Final = click.option(
    "--namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    help="Namespace of the ConfigMap with owner rules.",
)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--log-level`` and ``--log-format``, in this order."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    formats = click.Choice(["text", "json"])
    command = click.option("--log-format", default="text", show_default=True, type=formats)(command)
    return click.option("--log-level", default="info", show_default=True, type=levels)(command)


def _added(*options: Decorator) -> Decorator:
    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        # The last decorator is applied first.
        for option in reversed(options):
            command = option(command)
        return command

    return added
