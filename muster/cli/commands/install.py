"""``muster install`` and ``uninstall``: the CRDs, permissions and webhook configurations of Muster in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from muster.cli.connect import connected, runs
from muster.cli.installation import cleanup, crds, namespaces, permissions, preflight, webhook_configurations
from muster.cli.options import cluster_options, examples, schedulers_option
from muster.model import names


@click.command(
    "install",
    epilog=examples(
        "muster install", "muster install --url https://10.0.0.5:9443 --ca-file ca.crt", "muster install --dry-run"
    ),
)
@click.option(
    "--url", metavar="https://HOST:PORT", help="Register the webhooks of an admission server at this address."
)
@click.option(
    "--ca-file", type=click.Path(path_type=Path, exists=True), metavar="FILE", help="Who signed its certificate."
)
@schedulers_option((names.SCHEDULER_NAME,))
@click.option("--legacy-apis", is_flag=True, help="Also the kinds of kube-batch's API groups.")
@click.option("--adopt-crds", is_flag=True, help="Replace the kinds of another product of the same API group.")
@click.option("--dry-run", is_flag=True, help="Print what would be applied, as YAML, and apply nothing.")
@cluster_options
@runs
async def install_command(url: str | None, ca_file: Path | None, schedulers: tuple[str, ...], **options: Any) -> None:
    """Put the kinds, and accounts with their roles, into a cluster and, with --url, register the webhooks.

    By server-side apply: doing it again changes nothing that is right already.
    """
    if (url is None) is not (ca_file is None):
        raise click.UsageError(
            "--url and --ca-file go together: the API server must know whom to trust at that address"
        )
    legacy_apis: bool = options["legacy_apis"]
    webhooks = _registered(url, ca_file, schedulers, legacy_apis=legacy_apis) if url and ca_file else ()
    given = [*permissions.roles(legacy_apis=legacy_apis), *permissions.policies()]
    if options["dry_run"]:
        everything = [
            *crds.manifests(legacy_apis=legacy_apis),
            namespaces.manifest(names.SYSTEM_NAMESPACE),
            *given,
            *webhooks,
        ]
        click.echo(yaml.safe_dump_all(everything, sort_keys=False).rstrip())
        return
    async with connected(options["kubeconfig"], options["context"]) as client:
        await preflight.others(client, webhook_configurations.NAME)
        await crds.apply(client, legacy_apis=legacy_apis, adopt=options["adopt_crds"])
        await namespaces.ensure(client, names.SYSTEM_NAMESPACE)
        await permissions.apply(client, given)
        if webhooks:
            await webhook_configurations.apply(client, *webhooks)
    click.echo(
        "installed: PodGroup, Queue and QuotaLedger, accounts and roles" + (", and the webhooks" if webhooks else "")
    )


def _registered(
    url: str, ca_file: Path, schedulers: tuple[str, ...], *, legacy_apis: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    from webhooks.registration import UrlBase, configurations

    return configurations(
        UrlBase(url),
        ca_file.read_bytes(),
        scheduler_names=schedulers,
        legacy_apis=legacy_apis,
        own_namespace=names.SYSTEM_NAMESPACE,
    )


@click.command("uninstall", epilog=examples("muster uninstall"))
@click.option("-n", "--namespace", default=names.SYSTEM_NAMESPACE, show_default=True, help="Where Muster is installed.")
@click.option(
    "--crds", "with_crds", is_flag=True, help="Also the kinds, and with them all PodGroups, Queues and QuotaLedgers."
)
@cluster_options
@runs
async def uninstall_command(namespace: str, *, with_crds: bool, kubeconfig: str | None, context: str | None) -> None:
    """Take webhooks, roles and policies out of a cluster and let go of what Muster held.

    Jobs that Muster suspended are resumed and its finalizers removed; workloads stay, and so do kinds and their objects,
    unless --crds is given. Of a Helm release, `helm uninstall` does this first.
    """
    async with connected(kubeconfig, context) as client:
        await webhook_configurations.remove(client)
        click.echo("webhook configurations removed")
        # Before anything is let go of: a worker that still runs must not take hold of it again.
        await permissions.remove(client, [*permissions.roles(legacy_apis=True), *permissions.policies()], namespace)
        click.echo("accounts, roles and policies removed")
        for job in await cleanup.resume_jobs(client):
            click.echo(f"job {job} resumed")
        await cleanup.release_queues(client)
        if with_crds:
            await crds.remove(client)
            click.echo("kinds removed, and all objects of theirs")
