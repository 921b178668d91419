"""Times at which groups will start, played on this machine for as long as a person waits."""

from __future__ import annotations

import asyncio
import time
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
    from muster.whatif.forecast import StartForecast
    from scheduler.engine.policy import Policy
    from scheduler.model.snapshot import GroupKey

SECONDS: Final = 5.0
"""How long futures are played; the first is played to its end."""
_PLAYS: Final = 30


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--start``; the command gets whether it was given as ``start``."""
    text = f"Also tell when what waits will start: the future is played for {SECONDS:.0f} seconds."
    return click.option("--start", is_flag=True, help=text)(command)


def told(
    state: ClusterObjects, policy: Policy, schedulers: Sequence[str], seconds: float = SECONDS
) -> Mapping[GroupKey, StartForecast]:
    """Return when each waiting group of a cluster will start. Run times are those that users state, or of Jobs that ended and are still there.

    Raises:
        ClickException: the cluster can't be simulated.
    """
    from muster.whatif.forecast import Forecaster
    from muster.whatif.run_times import RunHistory
    from scheduler.simulator.state import UnreadableObjectError

    history = RunHistory()
    history.learn(state)
    forecaster = Forecaster(state, policy, schedulers, history)
    if not forecaster.waiting:
        return {}
    try:
        until, plays = time.monotonic() + seconds, [forecaster.play(0)]
        while not forecaster.exact and len(plays) < _PLAYS and time.monotonic() < until:
            plays.append(forecaster.play(len(plays)))
    except UnreadableObjectError as error:
        raise click.ClickException(f"when something starts can't be told: {error}") from error
    return forecaster.summary(plays)


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
