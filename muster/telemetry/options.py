"""The options that all programs have: their probes and metrics, and their logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def probe_options(port: int) -> Decorator:
    """Return what adds ``--probe-port`` with its default, ``--metrics-port`` and ``--metrics-tls``, in this order."""
    options = (
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

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        # The last decorator is applied first.
        for option in reversed(options):
            command = option(command)
        return command

    return added


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--log-level`` and ``--log-format``, in this order."""
    levels = click.Choice(["debug", "info", "warning", "error"])
    formats = click.Choice(["text", "json"])
    command = click.option("--log-format", default="text", show_default=True, type=formats)(command)
    return click.option("--log-level", default="info", show_default=True, type=levels)(command)
