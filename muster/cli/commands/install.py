"""``muster install`` and ``uninstall``: the kinds, rights and webhook configurations of Muster in a cluster."""

from __future__ import annotations

import copy
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click
import yaml

from muster.cli import manifests
from muster.cli.connect import connected, runs
from muster.cli.installation import permissions, preflight
from muster.cli.installation.preflight import PART_OF
from muster.cli.options import cluster_options, examples, schedulers_option
from muster.kube import errors, wait
from muster.kube.client import Client
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import CustomResourceDefinition, Queue, WebhookConfiguration

SYSTEM_NAMESPACE: Final = "muster-system"
WEBHOOKS_NAME: Final = "muster"
_ESTABLISHED_SECONDS: Final = 30.0
_UNAPPROVED: Final = "unapproved, served by Muster for workloads written for kube-batch"


def definitions(*, legacy_apis: bool) -> list[dict[str, Any]]:
    """Return the CRDs; with ``legacy_apis`` also those of kube-batch's two groups."""
    folder = resources.files("deploy") / "crds"
    primary = [
        manifests.parsed(entry.read_text(), entry.name)[0]
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    ]
    if not legacy_apis:
        return primary
    shared = [each for each in primary if each["spec"]["group"] == names.VOLCANO_GROUP]
    groups = {kind.group: kind.version for kind in kinds.LEGACY_QUEUES}
    return primary + [_legacy(each, group, version) for group, version in groups.items() for each in shared]


def _legacy(primary: dict[str, Any], group: str, version: str) -> dict[str, Any]:
    """Derive a legacy CRD: the same schema, but no short names, which would be ambiguous beside the primary group's."""
    crd = copy.deepcopy(primary)
    spec = crd["spec"]
    crd["metadata"]["name"] = f"{spec['names']['plural']}.{group}"
    if group.endswith(".k8s.io"):
        # The API server refuses a CRD in a protected group that doesn't say this of itself.
        crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": _UNAPPROVED}
    spec["group"] = group
    spec["versions"][0]["name"] = version
    spec["names"].pop("shortNames", None)
    spec["names"].pop("categories", None)
    return crd


async def apply_kinds(client: Client, *, legacy_apis: bool, adopt: bool) -> None:
    """Apply the CRDs and wait until the API server serves them.

    Raises:
        ClickException: the cluster is too old, or a CRD stands in the way; nothing was changed.
        TimeoutError: one was not established in time.
    """
    wanted = definitions(legacy_apis=legacy_apis)
    await preflight.version(client)
    await preflight.definitions(client, wanted, adopt=adopt)
    for crd in wanted:
        await client.apply(kinds.CRDS, crd, manager=names.FIELD_MANAGER)
    for crd in wanted:
        name = crd["metadata"]["name"]
        await wait.until(client, kinds.CRDS, name, holds=_established, within=_ESTABLISHED_SECONDS)


def _established(crd: CustomResourceDefinition | None) -> bool:
    conditions = (crd.status or {}).get("conditions") if crd else None
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions or ())


def namespace(name: str) -> dict[str, Any]:
    """Return the manifest of a namespace of ours."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {PART_OF: "muster"}}}


async def ensure_namespace(client: Client, name: str) -> None:
    """Create the namespace where it is missing."""
    if await client.find(kinds.NAMESPACES, name) is None:
        try:
            await client.create(kinds.NAMESPACES, namespace(name))
        except errors.AlreadyExistsError:
            return  # another one of us was quicker


async def apply_webhooks(client: Client, mutating: dict[str, Any], validating: dict[str, Any]) -> None:
    """Register the webhooks. The validating ones first: nothing may be let in that they have not seen."""
    for kind, manifest in ((kinds.VALIDATING, validating), (kinds.MUTATING, mutating)):
        await _let_go(client, kind, manifest)
        await client.apply(kind, manifest, manager=names.FIELD_MANAGER)


async def _let_go(client: Client, kind: Kind[WebhookConfiguration], manifest: dict[str, Any]) -> None:
    """Have who writes the bundles give up webhooks that this version doesn't have any more."""
    from certs import targets

    found = await client.find(kind, manifest["metadata"]["name"])
    if found is None:
        return
    holder = targets.of_configuration(kind, found)
    gone = frozenset(each.name for each in holder.entries) - {each["name"] for each in manifest["webhooks"]}
    if gone:
        await client.apply(kind, targets.without(holder, gone), manager=targets.MANAGER)


async def remove_webhooks(client: Client) -> None:
    """Take the webhook configurations away; fine where there are none."""
    for kind in (kinds.MUTATING, kinds.VALIDATING):
        try:
            await client.delete(kind, WEBHOOKS_NAME)
        except errors.NotFoundError:
            continue


async def resume_jobs(client: Client) -> list[str]:
    """Resume the Jobs that Muster suspended, whose user never asked for it; gives them as namespace/name."""
    resumed = []
    for job in (await client.list(kinds.JOBS)).items:
        if job.metadata.annotation(names.SUSPENDED):
            meta = {"uid": job.metadata.uid, "annotations": {names.SUSPENDED: None}}
            change = {"metadata": meta, "spec": {"suspend": False}}
            try:
                await client.patch(kinds.JOBS, job.name, change, job.namespace)
            except (errors.NotFoundError, errors.ConflictError):
                continue  # Gone, or another of its name, which nobody suspends any more.
            resumed.append(f"{job.namespace}/{job.name}")
    return resumed


async def release_queues(client: Client) -> None:
    """Take Muster's finalizer off all queues, which nobody would do once it is gone."""
    for kind in (kinds.QUEUES, *kinds.LEGACY_QUEUES):
        try:
            found = (await client.list(kind)).items
        except errors.NotFoundError:
            continue  # kube-batch's kinds aren't served everywhere
        for queue in found:
            await _release(client, kind, queue)


async def _release(client: Client, kind: Kind[Queue], queue: Queue) -> None:
    others = [each for each in queue.metadata.finalizers or () if each != names.QUEUE_FINALIZER]
    if len(others) != len(queue.metadata.finalizers or ()):
        # With the version that was read: a finalizer that another one added meanwhile must stay.
        version = {"resourceVersion": queue.metadata.resource_version}
        await client.patch(kind, queue.name, {"metadata": {"finalizers": others} | version})


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
        everything = [*definitions(legacy_apis=legacy_apis), namespace(SYSTEM_NAMESPACE), *given, *webhooks]
        click.echo(yaml.safe_dump_all(everything, sort_keys=False).rstrip())
        return
    async with connected(options["kubeconfig"], options["context"]) as client:
        await preflight.others(client, WEBHOOKS_NAME)
        await apply_kinds(client, legacy_apis=legacy_apis, adopt=options["adopt_crds"])
        await ensure_namespace(client, SYSTEM_NAMESPACE)
        await permissions.apply(client, given)
        if webhooks:
            await apply_webhooks(client, *webhooks)
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
        own_namespace=SYSTEM_NAMESPACE,
    )


async def remove_kinds(client: Client) -> None:
    """Delete our CRDs, and with them every object of theirs; another product's stay."""
    for crd in definitions(legacy_apis=True):
        found = await client.find(kinds.CRDS, crd["metadata"]["name"])
        if found is not None and found.metadata.label(PART_OF) == "muster":
            await client.delete(kinds.CRDS, found.name)


@click.command("uninstall", epilog=examples("muster uninstall"))
@click.option("-n", "--namespace", default=SYSTEM_NAMESPACE, show_default=True, help="Where Muster is installed.")
@click.option("--crds", is_flag=True, help="Also the kinds, and with them all PodGroups, Queues and QuotaLedgers.")
@cluster_options
@runs
async def uninstall_command(namespace: str, *, crds: bool, kubeconfig: str | None, context: str | None) -> None:
    """Take webhooks, roles and policies out of a cluster and let go of what Muster held.

    Jobs that Muster suspended are resumed and its finalizers removed; workloads stay, and so do kinds and their objects,
    unless --crds is given. Of a Helm release, `helm uninstall` does this first.
    """
    async with connected(kubeconfig, context) as client:
        await remove_webhooks(client)
        click.echo("webhook configurations removed")
        # Before anything is let go of: a worker that still runs must not take hold of it again.
        await permissions.remove(client, [*permissions.roles(legacy_apis=True), *permissions.policies()], namespace)
        click.echo("accounts, roles and policies removed")
        for job in await resume_jobs(client):
            click.echo(f"job {job} resumed")
        await release_queues(client)
        if crds:
            await remove_kinds(client)
            click.echo("kinds removed, and all objects of theirs")
