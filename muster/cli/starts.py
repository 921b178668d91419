"""Times at which groups will start, played on this machine for as long as a person waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli import cluster, configuration
from muster.kube.clock import SystemClock
from muster.model import kinds, names

if TYPE_CHECKING:
    from datetime import datetime

    from muster.kube.client import Client
    from muster.whatif.cluster_view import ClusterObjects
    from muster.whatif.start_forecast import StartForecast
    from scheduler.engine.policy import Policy
    from scheduler.model.snapshot import GroupKey

_SECONDS: Final = 5.0  # as `muster.visibility.plays` has it, which takes a while to import


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--start``; the command gets whether it was given as ``start``."""
    text = f"Also tell when what waits will start: the future is played for {_SECONDS:.0f} seconds."
    return click.option("--start", is_flag=True, help=text)(command)


def told(state: ClusterObjects, policy: Policy, schedulers: Sequence[str]) -> Mapping[GroupKey, StartForecast]:
    """Return when each waiting group of a cluster will start. Run times are those that users state, or of Jobs that ended and are still there.

    Raises:
        ClickException: the cluster can't be simulated.
    """
    from muster.visibility import plays
    from muster.whatif.run_times import RunHistory
    from scheduler.simulator.state import UnreadableObjectError

    history = RunHistory()
    history.learn(state)
    try:
        found = plays.forecasts(state, policy, schedulers, history)
    except UnreadableObjectError as error:
        raise click.ClickException(f"when something starts can't be told: {error}") from error
    return {each.key: each for each in found}


async def of_cluster(client: Client) -> tuple[Mapping[GroupKey, StartForecast], datetime]:
    """Return when each waiting group of a live cluster will start, and as of when.

    Raises:
        KubeError: the cluster can't be read.
        ClickException: its configuration of the scheduler can't be used.
    """
    await cluster.ensure_readable(client)
    state = await cluster.read(client, SystemClock().now())
    readable = not any(each.startswith(f"{kinds.CONFIGMAPS} ") for each in state.unread)
    configured = configuration.find(None, state.of(kinds.CONFIGMAPS), readable=readable, home=state.home)
    return await asyncio.to_thread(told, state, configured.policy, (names.SCHEDULER_NAME,)), state.taken
