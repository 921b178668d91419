"""``muster certs``: make, look at, rotate and repair the certificates of the webhook servers."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from certs import diagnosis, stored
from certs import observation as observing
from certs.bundle import CertificateError, certificates
from certs.controller import Changes, Driver
from certs.observation import Observation, RefusedError
from certs.publish import Rotator, StepResult, Target, Wanted
from certs.rotation import Command, RotationAction
from certs.state import CertificateState, RotationPhase, Waits
from certs.stored import StoredCAError
from muster.cli.certs import files as certs_files
from muster.cli.certs import output as certs_output
from muster.cli.connect import connected, runs
from muster.cli.installation import crds, webhook_configurations
from muster.cli.options import cluster_options, examples
from muster.cli.output import DOCUMENTS, document, output_option
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.errors import ConflictError, NotFoundError
from muster.model import durations, names

FORWARD = ("publish", "spread", "switch", "soak", "retire")


def _span(_context: click.Context, _option: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return timedelta(seconds=durations.seconds("0s" if text == "0" else text))
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{text!r} is not a span of time like 10s, 2m or 1h30m") from error


@click.group()
def certs() -> None:
    """Create, show, rotate and repair the certificates of the webhook servers.

    Every command may be killed and run again, and may run beside others and the leader.
    """


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what all commands take, and turn what a person can act on into one line."""

    @functools.wraps(command)
    async def told(**options: Any) -> None:
        try:
            await command(**options)
        except (RefusedError, StoredCAError, CertificateError) as error:
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


_dry_run = click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
_probe = click.option(
    "--probe",
    "probes",
    multiple=True,
    metavar="HOST:PORT",
    help="Address of a replica, where webhooks are called by URL; repeatable, remembered.",
)
_publish_wait = click.option(
    "--publish-wait", callback=_span, metavar="TIME", help="Time for API servers to notice a new bundle. Default: 2m."
)
_soak = click.option(
    "--soak", callback=_span, metavar="TIME", help="Time before the old CA is removed from the bundle. Default: 10m."
)


class _At(Struct, frozen=True):
    """A cluster, and the certificates in it that a command is about."""

    client: Client
    rotator: Rotator
    target: Target

    async def drive(self, holds: Callable[[StepResult], bool], requested: Command | None = None) -> StepResult:
        """Take steps, telling of them, until something holds.

        Raises:
            RefusedError: it can't go on before somebody fixes something.
        """
        clock, changes = SystemClock(), Changes(self.client, self.target)
        async with changes.watched():
            driver = Driver(self.rotator, changes, clock)
            result = await driver.until(
                lambda result: result.step.blocked or holds(result), certs_output.RotationProgress(clock), requested
            )
        if result.step.blocked:
            raise RefusedError(result.step.why)
        return result

    async def look(self, *, probing: bool = True) -> Observation:
        """See everything."""
        return await self.rotator.look(probing=probing)


@asynccontextmanager
async def _at(options: dict[str, Any]) -> AsyncIterator[_At]:
    converting = [each for each in crds.manifests(legacy_apis=True) if _converts(each)]
    names = tuple(each["metadata"]["name"] for each in converting)
    target = Target(options["namespace"], options["configuration"], names)
    async with connected(options["kubeconfig"], options["context"]) as client:
        yield _At(client, Rotator(client, SystemClock(), target), target)


def _converts(definition: dict[str, Any]) -> bool:
    return (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook"


def _waits(publish: timedelta | None, soak: timedelta | None, before: Waits | None) -> Waits | None:
    if publish is None and soak is None:
        return None
    usual = before or Waits()
    return Waits(publish if publish is not None else usual.spread, soak if soak is not None else usual.soak)


def _settled(result: StepResult) -> bool:
    return result.state.phase is RotationPhase.STEADY and result.step.action is RotationAction.WAIT


@certs.command(epilog=examples("muster certs init --host 10.0.0.5 --probe 10.0.0.5:9443"))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name or address of the servers; repeatable. Default: those in the webhook configurations.",
)
@_probe
@_publish_wait
@_soak
@click.option(
    "--cert-manager",
    metavar="NAMESPACE/CERTIFICATE",
    help="Use this cert-manager Certificate; Muster then writes nothing.",
)
@_dry_run
@_common
async def init(
    *,
    hosts: tuple[str, ...],
    probes: tuple[str, ...],
    publish_wait: timedelta | None,
    soak: timedelta | None,
    cert_manager: str | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Create the CA and the first certificate, and make the webhooks trust it.

    If the webhooks trust another CA, it is rotated to the new one without a gap. Run again, it applies changed options.
    """
    async with _at(options) as at:
        if cert_manager is not None:
            await _give_to_cert_manager(at, cert_manager, dry_run=dry_run)
            return
        observation = await at.look(probing=False)
        waits = _waits(publish_wait, soak, observation.keys.waits if observation.keys is not None else None)
        if dry_run:
            certs_output.would_init(observation, observing.hosts(observation, at.target.namespace), hosts)
            return
        if did := await at.rotator.begin(Wanted(hosts or None, probes or None, waits)):
            click.echo(did)
        result = await at.drive(_settled)
        certs_output.standing(result.state)


async def _give_to_cert_manager(at: _At, certificate: str, *, dry_run: bool) -> None:
    observation = await at.look(probing=False)
    if observation.keys is not None and observation.keys.phase is not RotationPhase.STEADY:
        phase = observation.keys.phase.value
        raise RefusedError(
            f"a rotation is in phase {phase}: finish it (`muster certs rotate-ca`) or roll it back first"
        )
    if not observation.targets:
        raise RefusedError(f"there are no webhook configurations named {at.target.configuration}: run `muster install`")
    if certificate.count("/") != 1:
        raise RefusedError(f"{certificate!r} is not NAMESPACE/CERTIFICATE")
    for target in observation.targets:
        key = "cert-manager.io/inject-ca-from"
        if not dry_run:
            change = {"metadata": {"resourceVersion": target.version, "annotations": {key: certificate}}}
            await at.client.patch(target.kind, target.name, change)
        click.echo(f"{'would annotate' if dry_run else 'annotated'} {target}: {key}={certificate}")


@certs.command(epilog=examples("muster certs status", "muster certs status -o json"))
@output_option
@_common
async def status(output: str, **options: Any) -> None:
    """Show the CA, the certificate, the phase, the bundle of each webhook and the certificate of each replica."""
    async with _at(options) as at:
        observation = await at.look()
    if output in DOCUMENTS:
        document(certs_output.as_json(observation), output)
    else:
        certs_output.status(observation)


@certs.command(epilog=examples("muster certs renew --now"))
@click.option("--now", is_flag=True, help="Renew even if renewal is not due.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until every replica serves it.")
@_dry_run
@_common
async def renew(*, now: bool, wait: bool, dry_run: bool, **options: Any) -> None:
    """Renew the servers' certificate under the same CA, if it is due."""
    async with _at(options) as at:
        state = (await at.look(probing=False)).state()
        requested = Command.RENEW if now else None
        if dry_run:
            certs_output.would(at.rotator.plan(state, requested))
            return
        before = state.leaf
        result = await at.drive(
            lambda result: result.step.action is RotationAction.WAIT or _renewed(result, before, state), requested
        )
        if result.state.leaf == before:
            certs_output.standing(result.state)
        elif wait:
            await certs_output.served(at.rotator)


def _renewed(result: StepResult, before: Any, first: CertificateState) -> bool:
    return result.state.phase is not first.phase or (
        result.state.leaf != before and result.step.action is not RotationAction.ISSUE
    )


@certs.command("rotate-ca", epilog=examples("muster certs rotate-ca --publish-wait 2m --soak 10m"))
@click.option(
    "--phase",
    type=click.Choice(FORWARD),
    help="Stop in this phase; the rotation continues when the command is run again.",
)
@_publish_wait
@_soak
@_probe
@_dry_run
@_common
async def rotate_ca(
    *,
    phase: str | None,
    publish_wait: timedelta | None,
    soak: timedelta | None,
    probes: tuple[str, ...],
    dry_run: bool,
    **options: Any,
) -> None:
    """Replace the CA, through all phases, without a failed review. The command ends when the old CA is gone.

    A rotation in progress is continued.
    """
    async with _at(options) as at:
        observation = await at.look()
        state = observation.state()
        if not observation.targets:
            name = at.target.configuration
            raise RefusedError(f"no webhook configuration is named {name}: say its name with --configuration")
        if observation.shown is None and not probes:
            raise RefusedError(
                "webhooks are called by URL, so nobody knows the replicas: name each with --probe HOST:PORT"
            )
        requested = Command.ROTATE if state.phase is RotationPhase.STEADY else None
        waits = _waits(publish_wait, soak, state.waits)
        if dry_run:
            certs_output.would_rotate(at.rotator.plan(state, requested), state, waits or state.waits)
            return
        await at.rotator.begin(Wanted(None, probes or None, waits))
        stop = RotationPhase(phase) if phase is not None else None
        await at.rotator.hold(stop)
        result = await at.drive(lambda result: _rotated(result, stop), requested)
        if stop is None:
            certs_output.standing(result.state)


def _rotated(result: StepResult, stop: RotationPhase | None) -> bool:
    if result.step.action is not RotationAction.WAIT:
        return False
    return result.state.phase is (stop or RotationPhase.STEADY)


@certs.command(epilog=examples("muster certs rollback"))
@_dry_run
@_common
async def rollback(*, dry_run: bool, **options: Any) -> None:
    """Go back to the old CA, from any phase before it is retired."""
    async with _at(options) as at:
        state = (await at.look()).state()
        if state.phase is RotationPhase.STEADY:
            click.echo("there is nothing to roll back: no rotation is under way")
            return
        if state.phase is RotationPhase.RETIRE:
            raise RefusedError(
                "the old CA is being retired, which can't be rolled back; `muster certs rotate-ca` finishes"
            )
        under_way = state.phase in {RotationPhase.ROLLBACK, RotationPhase.WITHDRAW}
        step = at.rotator.plan(state, None if under_way else Command.ROLL_BACK)
        if not under_way and step.action is RotationAction.WAIT:
            raise RefusedError(step.why)
        if dry_run:
            certs_output.would(step)
            return
        await at.rotator.hold(None)
        result = await at.drive(_settled, None if under_way else Command.ROLL_BACK)
        certs_output.standing(result.state)


@certs.command(epilog=examples("muster certs inject --ca-file company-ca.crt --probe 10.0.0.5:9443"))
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="CA bundle of your own certificates for the webhooks to trust.",
)
@_probe
@_dry_run
@_common
async def inject(*, ca_file: Path | None, probes: tuple[str, ...], dry_run: bool, **options: Any) -> None:
    """Write the bundle into the webhook configurations that have another. The leader does so by itself."""
    async with _at(options) as at:
        observation = await at.look(probing=False)
        if reason := observing.foreign(observation.targets):
            raise RefusedError(reason)
        if ca_file is None:
            if observation.keys is None:
                raise RefusedError(f"there is no Secret {stored.CA}: run `muster certs init`, or give --ca-file")
            trusted = observing.trusted(observation.state(), observation.keys)
        elif observation.keys is not None:
            text = f"Muster's own CA is in charge; delete Secret {stored.CA} to use certificates of your own"
            raise RefusedError(text)
        else:
            trusted = certs_files.read(ca_file)
            await _acceptable(at, trusted, probes)
        wanted = observing.fingerprints(trusted)
        out_of_date = [
            str(each) for each in observation.targets if any(entry.fingerprints != wanted for entry in each.entries)
        ]
        if not dry_run:
            out_of_date = await at.rotator.inject(trusted)
        for name in out_of_date:
            click.echo(f"{'would write' if dry_run else 'wrote'} the bundle to {name}")
        if not out_of_date:
            click.echo("every webhook has the bundle")


async def _acceptable(at: _At, trusted: bytes, probes: tuple[str, ...]) -> None:
    """Refuse a bundle that some replica's certificate isn't accepted by."""
    if not certificates(trusted):
        raise RefusedError("the file holds no certificate")
    observation = await at.rotator.look(probing=True, named=probes)
    if not observation.shown:
        raise RefusedError("no replica was found to try the bundle on: name each with --probe HOST:PORT")
    if wrong := diagnosis.refusals(observation, trusted, observation.now):
        raise RefusedError(f"not written, since reviews would fail: {wrong[0]}")


@certs.command(epilog=examples("muster certs verify || kubectl get events"))
@_probe
@output_option
@_common
async def verify(probes: tuple[str, ...], output: str, **options: Any) -> None:
    """Check the certificates, and print each problem with its fix; exit status 1 if there is one."""
    async with _at(options) as at:
        observation = await at.rotator.look(probing=True, named=probes)
    found = diagnosis.findings(observation, observation.now, observing.hosts(observation, at.target.namespace))
    if output in DOCUMENTS:
        document([{"about": each.about, "problem": each.text} for each in found], output)
    elif found:
        click.echo("\n".join(map(str, found)))
    else:
        click.echo(certs_output.fine(observation))
    if found:
        raise SystemExit(1)


@certs.command(epilog=examples("muster certs export --folder /etc/muster/certificates"))
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), required=True, metavar="DIR")
@click.option(
    "--authority", is_flag=True, help="Also write the CA and its key, in the form of cert-manager's CA issuer."
)
@_dry_run
@_common
async def export(*, folder: Path, authority: bool, dry_run: bool, **options: Any) -> None:
    """Write certificate, key and bundle into a folder, atomically, for a webhook server outside the cluster."""
    async with _at(options) as at:
        observation = await at.look(probing=False)
    files = certs_files.content(observation, authority=authority)
    for name in certs_files.write(folder, files, dry_run=dry_run):
        click.echo(f"{'would write' if dry_run else 'wrote'} {folder / name}")
