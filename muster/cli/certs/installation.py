"""The options of all commands of ``muster certs``, and the installation that they are about."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import click
from msgspec import Struct

from certs import path_publish
from certs.bundle import CertificateError
from certs.controller import ChangeWatcher, StepRunner
from certs.observation import Observation, RefusedError
from certs.path_publish import PathRotator
from certs.path_secret import StoredPathError
from certs.paths import PathWaits, Segments
from certs.publish import RotationTarget, Rotator, StepResult
from certs.rotation import RotationAction, RotationCommand
from certs.state import RotationPhase, RotationWaits
from certs.stored import StoredCAError
from muster.cli.certs.text import RotationProgress
from muster.cli.connect import connected, runs
from muster.cli.installation import crds, webhook_configurations
from muster.cli.options import cluster_options
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.errors import ConflictError, NotFoundError
from muster.model import durations, names


def span(_context: click.Context, _option: click.Parameter, text: str | None) -> timedelta | None:
    """Read a span of time as people write it, for an option."""
    if text is None:
        return None
    try:
        return timedelta(seconds=durations.seconds("0s" if text == "0" else text))
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{text!r} is not a span of time like 10s, 2m or 1h30m") from error


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what all commands take, and turn what a person can act on into one line."""

    @functools.wraps(command)
    async def told(**options: Any) -> None:
        try:
            await command(**options)
        except (RefusedError, StoredCAError, StoredPathError, CertificateError) as error:
            raise click.ClickException(str(error)) from error
        except NotFoundError as error:
            if error.details.get("kind") != "namespaces":
                raise
            text = f"namespace {options['namespace']} doesn't exist: run `muster install`, which makes it"
            raise click.ClickException(text) from error
        except ConflictError as error:
            raise click.ClickException(f"another changed it at the same time; run it again ({error})") from error

    space = click.option(
        "-n", "--namespace", default=names.SYSTEM_NAMESPACE, show_default=True, help="Namespace of the Secrets."
    )
    name = click.option(
        "--configuration",
        default=webhook_configurations.NAME,
        show_default=True,
        help="Name of the webhook configurations.",
    )
    return space(name(cluster_options(runs(told))))


dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
probe_option = click.option(
    "--probe",
    "probes",
    multiple=True,
    metavar="HOST:PORT",
    help="Address of a replica, where webhooks are called by URL; repeatable, remembered.",
)
publish_wait_option = click.option(
    "--publish-wait", callback=span, metavar="TIME", help="Time for API servers to notice a new bundle. Default: 2m."
)
soak_option = click.option(
    "--soak", callback=span, metavar="TIME", help="Time before the old CA is removed from the bundle. Default: 10m."
)


class Installation(Struct, frozen=True):
    """A cluster, and the certificates in it that a command is about."""

    client: Client
    rotator: Rotator
    target: RotationTarget

    def paths(self, waits: PathWaits | None = None) -> PathRotator:
        """Return what replaces the segment of the webhooks' paths."""
        return PathRotator(self.client, SystemClock(), self.target.namespace, self.target.configuration, waits=waits)

    async def segments(self) -> Segments | None:
        """Return what the Secret of the paths holds; None where there is none, or nothing in it."""
        return await path_publish.stored_segments(self.client, self.target.namespace)

    async def drive(self, holds: Callable[[StepResult], bool], requested: RotationCommand | None = None) -> StepResult:
        """Take steps, telling of them, until something holds.

        Raises:
            RefusedError: it can't go on before somebody fixes something.
        """
        clock, changes = SystemClock(), ChangeWatcher(self.client, self.target.watched)
        async with changes.watched():
            driver = StepRunner(self.rotator, changes, clock)
            result = await driver.until(
                lambda result: result.step.blocked or holds(result), RotationProgress(clock), requested
            )
        if result.step.blocked:
            raise RefusedError(result.step.why)
        return result

    async def look(self, *, probing: bool = True) -> Observation:
        """See everything."""
        return await self.rotator.look(probing=probing)


@asynccontextmanager
async def installation(options: dict[str, Any]) -> AsyncIterator[Installation]:
    """Connect to the cluster that the options name."""
    converting = [each for each in crds.manifests(legacy_apis=True) if _converts(each)]
    names = tuple(each["metadata"]["name"] for each in converting)
    target = RotationTarget(options["namespace"], options["configuration"], names)
    async with connected(options["kubeconfig"], options["context"]) as client:
        yield Installation(client, Rotator(client, SystemClock(), target), target)


def _converts(definition: dict[str, Any]) -> bool:
    return (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook"


def stated_waits(
    publish: timedelta | None, soak: timedelta | None, before: RotationWaits | None
) -> RotationWaits | None:
    """Return the waits of a rotation, what is stated before what is remembered; None where nothing is stated."""
    if publish is None and soak is None:
        return None
    usual = before or RotationWaits()
    return RotationWaits(publish if publish is not None else usual.spread, soak if soak is not None else usual.soak)


def settled(result: StepResult) -> bool:
    """Whether nothing is left to do."""
    return result.state.phase is RotationPhase.STEADY and result.step.action is RotationAction.WAIT
