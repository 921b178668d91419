"""``muster certs``: make, look at, rotate and repair the certificates of the webhook servers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from certs import diagnosis, observation, path_controller, stored
from certs.bundle import certificates
from certs.observation import RefusedError
from certs.paths import PathWaits
from certs.publish import CertificateSettings, StepResult
from certs.rotation import RotationAction, RotationCommand
from certs.state import CertificateState, RotationPhase
from muster.cli.certs import files, text
from muster.cli.certs.installation import (
    Installation,
    common,
    dry_run_option,
    installation,
    probe_option,
    publish_wait_option,
    settled,
    soak_option,
    span,
    stated_waits,
)
from muster.cli.certs.run import run
from muster.cli.flags import ClusterGroup
from muster.cli.options import examples
from muster.cli.output import DOCUMENTS, document, output_option

FORWARD = ("publish", "spread", "switch", "soak", "retire")


@click.group(cls=ClusterGroup)
def certs() -> None:
    """Create, show, rotate and repair the certificates of the webhook servers.

    Every command may be killed and run again, and may run beside others and the leader.
    """


certs.add_command(run)


@certs.command(epilog=examples("muster certs init --host 10.0.0.5 --probe 10.0.0.5:9443"))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name or address of the servers; repeatable. Default: those in the webhook configurations.",
)
@probe_option
@publish_wait_option
@soak_option
@click.option(
    "--cert-manager",
    metavar="NAMESPACE/CERTIFICATE",
    help="Use this cert-manager Certificate; Muster then writes nothing.",
)
@dry_run_option
@common
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
    """Create the CA and the first certificate, and make the webhooks trust it; create the Secret of their paths.

    If the webhooks trust another CA, it is rotated to the new one without a gap. Run again, it applies changed options.
    """
    async with installation(options) as at:
        if cert_manager is not None:
            await _give_to_cert_manager(at, cert_manager, dry_run=dry_run)
            await _begin_paths(at, dry_run=dry_run)
            return
        observed = await at.look(probing=False)
        waits = stated_waits(publish_wait, soak, observed.keys.waits if observed.keys is not None else None)
        if dry_run:
            text.would_init(observed, observation.hosts(observed, at.target.namespace), hosts)
            return
        if did := await at.rotator.begin(CertificateSettings(hosts or None, probes or None, waits)):
            click.echo(did)
        await _begin_paths(at, dry_run=False)
        result = await at.drive(settled)
        text.standing(result.state)


async def _begin_paths(at: Installation, *, dry_run: bool) -> None:
    if not dry_run and (did := await at.paths().begin()):
        click.echo(did)


async def _give_to_cert_manager(at: Installation, certificate: str, *, dry_run: bool) -> None:
    observed = await at.look(probing=False)
    if observed.keys is not None and observed.keys.phase is not RotationPhase.STEADY:
        phase = observed.keys.phase.value
        raise RefusedError(
            f"a rotation is in phase {phase}: finish it (`muster certs rotate-ca`) or roll it back first"
        )
    if not observed.targets:
        raise RefusedError(f"there are no webhook configurations named {at.target.configuration}: run `muster install`")
    if certificate.count("/") != 1:
        raise RefusedError(f"{certificate!r} is not NAMESPACE/CERTIFICATE")
    for target in observed.targets:
        key = "cert-manager.io/inject-ca-from"
        if not dry_run:
            change = {"metadata": {"resourceVersion": target.version, "annotations": {key: certificate}}}
            await at.client.patch(target.kind, target.name, change)
        click.echo(f"{'would annotate' if dry_run else 'annotated'} {target}: {key}={certificate}")


@certs.command(epilog=examples("muster certs status", "muster certs status -o json"))
@output_option
@common
async def status(output: str, **options: Any) -> None:
    """Show the CA, the certificate, the phase, the bundle of each webhook, the certificate of each replica, the path's age."""
    async with installation(options) as at:
        observed = await at.look()
        paths = await at.segments()
    if output in DOCUMENTS:
        document(text.as_json(observed) | text.paths_as_json(paths), output)
    else:
        text.status(observed)
        text.paths(paths, observed.now)


@certs.command(epilog=examples("muster certs renew --now"))
@click.option("--now", is_flag=True, help="Renew even if renewal is not due.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until every replica serves it.")
@dry_run_option
@common
async def renew(*, now: bool, wait: bool, dry_run: bool, **options: Any) -> None:
    """Renew the servers' certificate under the same CA, if it is due."""
    async with installation(options) as at:
        state = (await at.look(probing=False)).state()
        requested = RotationCommand.RENEW if now else None
        if dry_run:
            text.would(at.rotator.plan(state, requested))
            return
        before = state.leaf
        result = await at.drive(
            lambda result: result.step.action is RotationAction.WAIT or _renewed(result, before, state), requested
        )
        if result.state.leaf == before:
            text.standing(result.state)
        elif wait:
            await text.served(at.rotator)


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
@publish_wait_option
@soak_option
@probe_option
@dry_run_option
@common
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
    async with installation(options) as at:
        observed = await at.look()
        state = observed.state()
        if not observed.targets:
            name = at.target.configuration
            raise RefusedError(f"no webhook configuration is named {name}: say its name with --configuration")
        if observed.shown is None and not probes:
            raise RefusedError(
                "webhooks are called by URL, so nobody knows the replicas: name each with --probe HOST:PORT"
            )
        requested = RotationCommand.ROTATE if state.phase is RotationPhase.STEADY else None
        waits = stated_waits(publish_wait, soak, state.waits)
        if dry_run:
            text.would_rotate(at.rotator.plan(state, requested), state, waits or state.waits)
            return
        await at.rotator.begin(CertificateSettings(None, probes or None, waits))
        stop = RotationPhase(phase) if phase is not None else None
        await at.rotator.hold(stop)
        result = await at.drive(lambda result: _rotated(result, stop), requested)
        if stop is None:
            text.standing(result.state)


def _rotated(result: StepResult, stop: RotationPhase | None) -> bool:
    if result.step.action is not RotationAction.WAIT:
        return False
    return result.state.phase is (stop or RotationPhase.STEADY)


@certs.command("rotate-path", epilog=examples("muster certs rotate-path", "muster certs rotate-path --soak 2m"))
@click.option(
    "--spread", callback=span, metavar="TIME", help="Time for starting replicas to get the new path. Default: 2m."
)
@click.option("--soak", callback=span, metavar="TIME", help="Time before the old path ends. Default: 10m.")
@dry_run_option
@common
async def rotate_path(*, spread: timedelta | None, soak: timedelta | None, dry_run: bool, **options: Any) -> None:
    """Replace the secret segment of the webhooks' paths, without a failed review. The command ends when the old one is gone.

    `muster certs run` does so daily and after any failed call. A replacement in progress is continued.
    """
    usual = PathWaits()
    waits = PathWaits(spread if spread is not None else usual.spread, soak if soak is not None else usual.soak)
    async with installation(options) as at:
        if dry_run:
            step = await at.paths(waits).plan(requested=True)
            click.echo(f"would {step.action.value}: {step.why}")
            return
        await path_controller.replace_now(at.paths(waits), text.PathProgress())


@certs.command(epilog=examples("muster certs rollback"))
@dry_run_option
@common
async def rollback(*, dry_run: bool, **options: Any) -> None:
    """Go back to the old CA, from any phase before it is retired."""
    async with installation(options) as at:
        state = (await at.look()).state()
        if state.phase is RotationPhase.STEADY:
            click.echo("there is nothing to roll back: no rotation is under way")
            return
        if state.phase is RotationPhase.RETIRE:
            raise RefusedError(
                "the old CA is being retired, which can't be rolled back; `muster certs rotate-ca` finishes"
            )
        under_way = state.phase in {RotationPhase.ROLLBACK, RotationPhase.WITHDRAW}
        step = at.rotator.plan(state, None if under_way else RotationCommand.ROLL_BACK)
        if not under_way and step.action is RotationAction.WAIT:
            raise RefusedError(step.why)
        if dry_run:
            text.would(step)
            return
        await at.rotator.hold(None)
        result = await at.drive(settled, None if under_way else RotationCommand.ROLL_BACK)
        text.standing(result.state)


@certs.command(epilog=examples("muster certs inject --ca-file company-ca.crt --probe 10.0.0.5:9443"))
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="CA bundle of your own certificates for the webhooks to trust.",
)
@probe_option
@dry_run_option
@common
async def inject(*, ca_file: Path | None, probes: tuple[str, ...], dry_run: bool, **options: Any) -> None:
    """Write the bundle into the webhook configurations that have another. The leader does so by itself."""
    async with installation(options) as at:
        observed = await at.look(probing=False)
        if reason := observation.foreign(observed.targets):
            raise RefusedError(reason)
        if ca_file is None:
            if observed.keys is None:
                raise RefusedError(f"there is no Secret {stored.CA}: run `muster certs init`, or give --ca-file")
            trusted = observation.trusted(observed.state(), observed.keys)
        elif observed.keys is not None:
            text = f"Muster's own CA is in charge; delete Secret {stored.CA} to use certificates of your own"
            raise RefusedError(text)
        else:
            trusted = files.read(ca_file)
            await _acceptable(at, trusted, probes)
        wanted = observation.fingerprints(trusted)
        out_of_date = [
            str(each) for each in observed.targets if any(entry.fingerprints != wanted for entry in each.entries)
        ]
        if not dry_run:
            out_of_date = await at.rotator.inject(trusted)
        for name in out_of_date:
            click.echo(f"{'would write' if dry_run else 'wrote'} the bundle to {name}")
        if not out_of_date:
            click.echo("every webhook has the bundle")


async def _acceptable(at: Installation, trusted: bytes, probes: tuple[str, ...]) -> None:
    """Refuse a bundle that some replica's certificate isn't accepted by."""
    if not certificates(trusted):
        raise RefusedError("the file holds no certificate")
    observed = await at.rotator.look(probing=True, named=probes)
    if not observed.shown:
        raise RefusedError("no replica was found to try the bundle on: name each with --probe HOST:PORT")
    if wrong := diagnosis.refusals(observed, trusted, observed.now):
        raise RefusedError(f"not written, since reviews would fail: {wrong[0]}")


@certs.command(epilog=examples("muster certs verify || kubectl get events"))
@probe_option
@output_option
@common
async def verify(probes: tuple[str, ...], output: str, **options: Any) -> None:
    """Check the certificates, and print each problem with its fix; exit status 1 if there is one."""
    async with installation(options) as at:
        observed = await at.rotator.look(probing=True, named=probes)
    found = diagnosis.findings(observed, observed.now, observation.hosts(observed, at.target.namespace))
    if output in DOCUMENTS:
        document([{"about": each.about, "problem": each.text} for each in found], output)
    elif found:
        click.echo("\n".join(map(str, found)))
    else:
        click.echo(text.fine(observed))
    if found:
        raise SystemExit(1)


@certs.command(epilog=examples("muster certs export --folder /etc/muster/certificates"))
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder to write to; it is created.",
)
@click.option(
    "--authority", is_flag=True, help="Also write the CA and its key, in the form of cert-manager's CA issuer."
)
@dry_run_option
@common
async def export(*, folder: Path, authority: bool, dry_run: bool, **options: Any) -> None:
    """Write certificate, key, bundle and paths into a folder, atomically, for a webhook server outside the cluster."""
    async with installation(options) as at:
        observed = await at.look(probing=False)
        segments = await at.segments()
    contents = files.content(observed, segments, authority=authority)
    for name in files.write(folder, contents, dry_run=dry_run):
        click.echo(f"{'would write' if dry_run else 'wrote'} {folder / name}")
