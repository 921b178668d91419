"""kubectl's global flags about the cluster, which every command takes, before its name or behind it.

They are kept in the context's ``meta``, which groups and commands share, so that no command has to hand them on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import click

CLUSTER_FLAGS: Final = "muster.cluster_flags"
"""Where a context's ``meta`` keeps kubectl's global flags, by their names."""

_SHOWN: Final = ("--kubeconfig", "--context", "--namespace")
"""Flags that are options of commands, too; their help shows them."""
_DRY_RUN: Final = {"--dry-run=server": "--dry-run", "--dry-run=client": "--dry-run"}
"""What kubectl judges by itself, without the webhooks, is worth little here: the API server does in both cases."""
_SHORT: Final = re.compile(r"(?s)^(-[A-Za-z])=(.+)$")


def with_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Have a command take kubectl's global flags; `muster.cli.connect.connected` follows them."""
    for option in _global_flags():
        command = option(command)
    return command


class ClusterCommand(click.Command):
    """A command that takes kubectl's ``--namespace`` even where what it is about has none, as kubectl does."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its options, with ``--namespace``."""
        own = super().get_params(ctx)
        # Where -n means something else, as vcctl's name of a queue, it goes on meaning that.
        if any({"-n", "--namespace"} & {*each.opts} for each in own):
            return own
        return [*own, *_params(_global_flag("-n", "--namespace"))]


class ClusterGroup(click.Group):
    """A group that takes kubectl's global flags before the name of a command, too."""

    command_class = ClusterCommand

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its options, and the flags."""
        return [*super().get_params(ctx), *_group_flags()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line, in which ``-o=json`` means ``-o json`` and ``--dry-run`` may have a value, as for kubectl."""
        end = args.index("--") if "--" in args else len(args)
        plain = [_DRY_RUN.get(each, _SHORT.sub(r"\1\2", each)) for each in args[:end] if each != "--dry-run=none"]
        return super().parse_args(ctx, plain + args[end:])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; what was said before its name of options that its help shows goes before its own."""
        name, command, rest = super().resolve_command(ctx, args)
        known = {option for each in (command.params if command is not None else ()) for option in each.opts}
        given = ctx.meta.get(CLUSTER_FLAGS, {})
        return name, command, [*(f"{flag}={given[flag]}" for flag in _SHOWN if flag in given and flag in known), *rest]


def _group_flags() -> list[click.Parameter]:
    shown = (_global_flag("--kubeconfig"), _global_flag("--context"), _global_flag("-n", "--namespace"))
    return _params(*shown, *_global_flags())


def _params(*flags: Callable[..., Any]) -> list[click.Parameter]:
    def nothing() -> None:
        """Carry the options."""

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
        _global_flag("--tls-server-name", metavar="NAME"),
        _global_flag("--as", metavar="USER"),
        _global_flag("--as-group", metavar="GROUP", multiple=True),
        _global_flag("--request-timeout", metavar="TIME"),
        _global_flag("-v", "--v", type=click.IntRange(0), metavar="LEVEL"),
    )


def _global_flag(*given: str, **more: Any) -> Callable[..., Any]:
    """Return an option that is kept beside the command's own: in the context, which groups and commands share."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            context.meta.setdefault(CLUSTER_FLAGS, {})[given[-1]] = value

    name = given[-1].removeprefix("--").replace("-", "_") + "_flag"
    return click.option(*given, name, expose_value=False, hidden=True, callback=keep, **more)
