"""``muster scheduler``, and ``python -m scheduler``: the worker as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muster.model import kinds, names
from muster.telemetry import logs
from muster.telemetry.options import log_options, probe_options, scheduler_name_option

if TYPE_CHECKING:
    from muster.kube.client import Client
    from muster.kube.clock import SystemClock
    from muster.kube.fence import Fence
    from muster.kube.lease import LeaderElector
    from scheduler.configuration.reload import LivePolicy
    from scheduler.engine.policy import Policy
    from scheduler.leader.worker import Worker

log = logging.getLogger(__name__)

_PROBES: Final = 8081
_SWITCH: Final = 0.0005
"""Seconds for which a thread that decides keeps the interpreter from the loop, whose turns are many and short: with Python's
5 ms the loop made 1,800 round trips in a second beside a busy thread, with this 4,300."""
_GROWING: Final = (kinds.PODS, kinds.NODES, kinds.PODGROUPS, kinds.JOBS)
_LISTS: Final = 60.0
"""Seconds for which nothing is collected while the first lists are read, at most."""


@click.command(epilog="\b\nExamples:\n  muster scheduler --config scheduler.yaml --scheduler-name muster")
@click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config, then the pod's account.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
@click.option(
    "--config",
    "configuration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Actions and plugins (YAML), followed while running. Default: enqueue, allocate, reclaim, backfill.",
)
@scheduler_name_option
@click.option("--legacy-apis", is_flag=True, help="Serve the PodGroups of kube-batch's API groups too.")
@click.option(
    "--certificates/--no-certificates",
    default=False,
    hidden=True,
    help="Without effect: `muster certs run` keeps the webhooks' certificates, under an account of its own.",
)
@click.option(
    "--quota-mode",
    default=names.GUARDED,
    show_default=True,
    type=click.Choice([names.GUARDED, names.GUARANTEED, "none"]),
    help="Label muster.sh/quota of namespaces that have none, and whose PodGroups reserve from a ResourceQuota.",
)
@click.option("--lease-namespace", default="muster-system", show_default=True, help="Namespace of the leader's Lease.")
@click.option("--lease-name", default=names.SCHEDULER_LEASE, show_default=True, help="Name of the leader's Lease.")
@probe_options(_PROBES)
@click.option("--debug-state", is_flag=True, help="Serve the process's state at /debug/state, next to /metrics.")
@log_options
def scheduler(**options: Any) -> None:
    """Run the scheduler and the controllers. Of several processes, one leads."""
    logs.configure(options["log_level"], options["log_format"])
    if options["certificates"]:
        log.warning("--certificates has no effect: run `muster certs run`, which keeps the webhooks' certificates")
    sys.setswitchinterval(_SWITCH)
    # What is imported stays: looking for garbage among it takes a tenth of the start.
    gc.disable()
    # They take a second to import, which --help doesn't spend.
    import uvloop

    from muster.kube.errors import KubeError

    try:
        policy = _configured(options["configuration"])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(options, policy))
    except (KubeError, OSError) as error:
        raise click.ClickException(" ".join(str(error).split())) from error
    finally:
        gc.enable()


def _configured(file: Path | None) -> Policy | None:
    """Return what a file configures; None without a file, and then nothing that reads one is imported.

    Raises:
        ClickException: the file can't be read, or says what can't be done.
    """
    if file is None:
        return None
    from scheduler.configuration.config import ConfigurationError, read

    try:
        return read(file)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error


def _deciding() -> tuple[type[Worker], Callable[[], Policy]]:
    """Import what decides, which takes longer than all else; return the worker, and what makes the policy that is built in."""
    from scheduler.configuration import builtin
    from scheduler.leader.worker import Worker

    return Worker, builtin.policy


def _live_policy(file: Path, worker: Worker) -> LivePolicy:
    from scheduler.configuration.reload import LivePolicy

    return LivePolicy(file, worker.metrics.registry)


async def _run(options: dict[str, Any], policy: Policy | None) -> None:
    """Stand for election and work, until SIGINT or SIGTERM.

    The election, and the lists of what grows with the cluster, are under way while the rest is imported.
    """
    from muster.kube import auth
    from muster.kube.client import Client
    from muster.kube.clock import SystemClock
    from muster.kube.early_lists import EarlyLists
    from muster.kube.http import HttpTransport
    from muster.kube.threads import Heartbeat, on_loop, run_in_thread

    me = asyncio.current_task()
    assert me is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, me.cancel)
    endpoint = await auth.load(options["kubeconfig"], options["context"])
    async with HttpTransport(endpoint) as transport:
        early, clock = EarlyLists(transport), SystemClock()
        made: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        collector = GarbageCollection()

        async def lead(fence: Fence) -> None:
            collector.begin()
            early.begin(_GROWING)
            try:
                worker = await asyncio.shield(made)
                async with asyncio.TaskGroup() as parts:
                    parts.create_task(worker.run(fence), name="worker")
                    parts.create_task(collector.settle(worker.synced), name="settling")
            finally:
                early.end()

        heartbeat = Heartbeat(lambda: made.result().not_alive() if made.done() else ())
        election = _Election(options, clock, heartbeat.beats, on_loop(asyncio.get_running_loop(), lead))
        beating = asyncio.create_task(heartbeat.run(), name="heartbeat")
        leading = asyncio.create_task(run_in_thread(election.run, "election"), name="election")
        following: asyncio.Task[None] | None = None
        try:
            worker = await _worker(options, Client(early), clock, policy)
            worker.standing_by = election.standing_by
            made.set_result(worker)
            if (file := options["configuration"]) is not None:
                live = _live_policy(file, worker)
                following = asyncio.create_task(live.run(worker.adopt), name="configuration")
            async with _probes(worker, options, Client(early)):
                await leading
        except asyncio.CancelledError:
            # The signal; the lease has been given back.
            return
        finally:
            if following is not None:
                following.cancel()
            leading.cancel()
            await asyncio.wait([leading])
            beating.cancel()


async def _worker(options: dict[str, Any], client: Client, clock: SystemClock, policy: Policy | None) -> Worker:
    """Make the worker, in which most imports are; with the policy that is built in where none is given."""
    worker, built_in = await asyncio.to_thread(_deciding)
    gc.freeze()
    gc.enable()
    return worker(
        client,
        clock,
        policy if policy is not None else built_in(),
        options["schedulers"] or (names.SCHEDULER_NAME,),
        legacy_apis=options["legacy_apis"],
        namespace=options["lease_namespace"],
        quota_mode="" if options["quota_mode"] == "none" else options["quota_mode"],
    )


class _Election:
    """Stands for election, in a thread of its own, and calls ``lead`` with each fence."""

    def __init__(
        self,
        options: dict[str, Any],
        clock: SystemClock,
        alive: Callable[[], bool],
        lead: Callable[[Fence], Awaitable[None]],
    ) -> None:
        self._options = options
        self._clock = clock
        self._alive = alive
        self._lead = lead
        self._elector: LeaderElector | None = None

    def standing_by(self) -> bool:
        """Whether another process leads; from any thread."""
        # Without an elector nothing is known of an election yet.
        return self._elector is not None and self._elector.leader not in {"", self._elector.identity}

    async def run(self) -> None:
        """Stand, with connections and credentials of its own: nothing that a tenant wrote is read here."""
        from muster.kube import auth
        from muster.kube.client import Client
        from muster.kube.http import HttpTransport
        from muster.kube.lease import LeaderElector

        options = self._options
        async with HttpTransport(await auth.load(options["kubeconfig"], options["context"])) as own:
            namespace, name = options["lease_namespace"], options["lease_name"]
            self._elector = LeaderElector(
                Client(own), namespace, name, socket.gethostname(), self._clock, alive=self._alive
            )
            await self._elector.run(self._lead)


@contextlib.asynccontextmanager
async def _probes(worker: Any, options: dict[str, Any], client: Any) -> AsyncIterator[None]:
    """Listen for probes.

    Raises:
        OSError: the address is taken.
    """
    from muster.telemetry.probes import Probes

    probes = Probes(
        worker.not_ready,
        worker.metrics.registry,
        alive=worker.not_alive,
        state=worker.state if options["debug_state"] else None,
        port=options["probe_port"],
        metrics_port=None if options["metrics_tls"] else options["metrics_port"],
    )
    await probes.start()
    guarded = asyncio.create_task(_guarded_metrics(probes, options, client), name="metrics")
    try:
        yield
    finally:
        guarded.cancel()
        await asyncio.wait([guarded])
        await probes.stop()


async def _guarded_metrics(probes: Any, options: dict[str, Any], client: Any) -> None:
    """Serve metrics over TLS where that is wanted; what that needs takes a while to import."""
    if not (options["metrics_port"] and options["metrics_tls"]):
        return
    guarded_metrics = await asyncio.to_thread(importlib.import_module, "certs.guarded_metrics")
    await guarded_metrics.serve(probes, options["metrics_port"], options["metrics_tls"], client)


class GarbageCollection:
    """Has the garbage collector pass over what is listed when a leadership begins: a look through all takes a second."""

    def __init__(self) -> None:
        self._led = False

    def begin(self) -> None:
        """Free what an earlier leadership knew: the collector would pass over that, too."""
        if self._led:
            gc.unfreeze()
            gc.collect()
        self._led = True

    async def settle(self, synced: asyncio.Event) -> None:
        """Collect nothing until the lists are there, and pass over them from then on."""
        gc.disable()
        try:
            async with asyncio.timeout(_LISTS):
                await synced.wait()
            gc.freeze()
        except TimeoutError:
            return
        finally:
            gc.enable()


if __name__ == "__main__":
    scheduler()
