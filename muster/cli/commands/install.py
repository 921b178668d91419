"""``muster install`` and ``uninstall``: the CRDs, permissions and webhook configurations of Muster in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml

from certs import apiservice
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
@click.option("--url", metavar="https://HOST:PORT", help="Address of the admission server; registers its webhooks.")
@click.option(
    "--ca-file", type=click.Path(path_type=Path, exists=True), metavar="FILE", help="CA certificate of that server."
)
@schedulers_option((names.SCHEDULER_NAME,))
@click.option("--legacy-apis", is_flag=True, help="Also install the CRDs of kube-batch's API groups.")
@click.option("--adopt-crds", is_flag=True, help="Replace CRDs of the same API group that another product installed.")
@click.option("--dry-run", is_flag=True, help="Print the manifests as YAML; apply nothing.")
@cluster_options
@runs
async def install_command(url: str | None, ca_file: Path | None, schedulers: tuple[str, ...], **options: Any) -> None:
    """Install CRDs, service accounts, roles and policies in a cluster; with --url, register the webhooks.

    The command uses server-side apply. Run again, it changes only what differs.
    """
    if (url is None) is not (ca_file is None):
        raise click.UsageError("--url and --ca-file go together: the API server needs the CA of that address")
    legacy_apis: bool = options["legacy_apis"]

    def webhooks(segment: str) -> tuple[dict[str, Any], ...]:
        return _registered(url, segment, ca_file, schedulers, legacy_apis=legacy_apis) if url and ca_file else ()

    given = [*permissions.roles(legacy_apis=legacy_apis), *permissions.policies(schedulers=schedulers)]
    if options["dry_run"]:
        everything = [
            *crds.manifests(legacy_apis=legacy_apis),
            namespaces.manifest(names.SYSTEM_NAMESPACE),
            *given,
            *webhooks(""),
        ]
        click.echo(yaml.safe_dump_all(everything, sort_keys=False).rstrip())
        return
    async with connected(options["kubeconfig"], options["context"]) as client:
        await preflight.others(client, webhook_configurations.NAME)
        await crds.apply(client, legacy_apis=legacy_apis, adopt=options["adopt_crds"])
        await namespaces.ensure(client, names.SYSTEM_NAMESPACE)
        await permissions.apply(client, given)
        if url is not None:
            segment = await webhook_configurations.segment_at(client, url)
            await webhook_configurations.apply(client, *webhooks(segment))
    click.echo("installed: PodGroup, Queue and QuotaLedger, accounts and roles" + (", and the webhooks" if url else ""))


def _registered(
    url: str, segment: str, ca_file: Path, schedulers: tuple[str, ...], *, legacy_apis: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    from webhooks.registration import UrlBase, configurations

    return configurations(
        UrlBase(url, segment),
        ca_file.read_bytes(),
        scheduler_names=schedulers,
        legacy_apis=legacy_apis,
        own_namespace=names.SYSTEM_NAMESPACE,
    )


@click.command("uninstall", epilog=examples("muster uninstall"))
@click.option(
    "-n",
    "--namespace",
    default=names.SYSTEM_NAMESPACE,
    show_default=True,
    help="Namespace that Muster is installed in.",
)
@click.option(
    "--crds",
    "with_crds",
    is_flag=True,
    help="Also delete the CRDs, and with them all PodGroups, Queues and QuotaLedgers.",
)
@cluster_options
@runs
async def uninstall_command(namespace: str, *, with_crds: bool, kubeconfig: str | None, context: str | None) -> None:
    """Uninstall webhook configurations, service accounts, roles and policies; resume Jobs and remove finalizers.

    Jobs that Muster suspended are resumed, and its finalizers are removed. Workloads stay. CRDs and their objects stay
    unless --crds is given. For a Helm release, use `helm uninstall`, which does the same first.
    """
    async with connected(kubeconfig, context) as client:
        await webhook_configurations.remove(client)
        click.echo("webhook configurations removed")
        # Without a bundle nobody registers it again; but who was about to may still do so.
        await apiservice.remove(client)
        await cleanup.stop_leaders(client, namespace)
        await apiservice.remove(client)
        # Before anything is released: a worker that still runs must not take it again.
        await permissions.remove(
            client,
            [
                *permissions.roles(legacy_apis=True, metrics=True, visibility=True),
                permissions.for_everyone(),
                *permissions.policies(),
            ],
            namespace,
        )
        click.echo("accounts, roles and policies removed")
        await cleanup.remove_leases(client, namespace)
        for job in await cleanup.resume_jobs(client):
            click.echo(f"job {job} resumed")
        await cleanup.release_queues(client)
        if with_crds:
            click.echo("deleting the CRDs and their objects")
            left = await crds.remove(client)
            if left:
                raise click.ClickException(
                    f"still being deleted after {crds.GONE_SECONDS:g} s: {', '.join(left)}. Objects of theirs have finalizers: find them with "
                    f"`kubectl get {left[0]} --all-namespaces`, and remove the finalizers"
                )
            click.echo("CRDs and their objects removed")
