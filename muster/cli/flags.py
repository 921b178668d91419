"""kubectl's global flags about the cluster, which every command takes, before its name or behind it.

They are kept in the context's ``meta``, which groups and commands share, so that no command has to hand them on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

CLUSTER_FLAGS: Final = "muster.cluster_flags"
"""Where a context's ``meta`` keeps kubectl's global flags, by their names."""


def with_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Have a command take kubectl's global flags; `muster.cli.connect.connected` follows them."""
    for option in _global_flags():
        command = option(command)
    return command


class ClusterGroup(click.Group):
    """A group that takes kubectl's global flags before the name of a command, too."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its options, and the flags."""
        return [*super().get_params(ctx), *_group_flags()]


def _group_flags() -> list[click.Parameter]:
    def nothing() -> None:
        """Carry the options."""

    flags = (_global_flag("--kubeconfig", metavar="FILE"), _global_flag("--context", metavar="NAME"), *_global_flags())
    for flag in flags:
        nothing = flag(nothing)
    return click.command()(nothing).params


def _global_flags() -> tuple[Callable[..., Any], ...]:
    return (
        _global_flag("--cluster", metavar="NAME"),
        _global_flag("--user", metavar="NAME"),
        _global_flag("-s", "--server", metavar="URL"),
        _global_flag("--token", metavar="TOKEN"),
        _global_flag("--certificate-authority", metavar="FILE"),
        _global_flag("--insecure-skip-tls-verify", is_flag=True),
        _global_flag("--as", metavar="USER"),
        _global_flag("--as-group", metavar="GROUP", multiple=True),
        _global_flag("--request-timeout", metavar="TIME"),
    )


def _global_flag(*given: str, **more: Any) -> Callable[..., Any]:
    """Return an option that is kept beside the command's own: in the context, which groups and commands share."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            context.meta.setdefault(CLUSTER_FLAGS, {})[given[-1]] = value

    name = given[-1].removeprefix("--").replace("-", "_") + "_flag"
    return click.option(*given, name, expose_value=False, hidden=True, callback=keep, **more)
