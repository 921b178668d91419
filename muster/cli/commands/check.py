"""``muster version`` and ``muster check``: what is installed in a cluster, and whether it works."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import click
from msgspec import Struct

from muster.cli.connect import connected, explained, runs
from muster.cli.installation import crds, permissions, preflight, webhook_configurations
from muster.cli.options import cluster_options, examples
from muster.cli.versions import own_version
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.transport import Request
from muster.model import kinds, names

_VERSION: Final = "app.kubernetes.io/version"
_LOOK_SECONDS: Final = 2.0
_RENEWED_WITHIN: Final = 12.0
_NOWHERE: Final = "muster-check-no-such-queue"


_place: Final = click.option(
    "-n",
    "--namespace",
    help=f"Namespace that Muster is installed in. Default: that of its webhooks, else {names.SYSTEM_NAMESPACE}.",
)


@click.command(epilog=examples("muster version", "muster version --client"))
@click.option("--client", "client_only", is_flag=True, help="Print the version of this program only; ask no cluster.")
@_place
@cluster_options
@runs
async def version(namespace: str | None, kubeconfig: str | None, context: str | None, *, client_only: bool) -> None:
    """Print the version of this program, of Muster in the cluster, and of Kubernetes."""
    click.echo(f"client: {own_version()}")
    if client_only:
        return
    async with connected(kubeconfig, context) as client:
        served = json.loads((await client.send(Request("GET", "/version"))).body)
        click.echo(f"server: {await _installed(client, namespace or await _served_from(client))}")
        click.echo(f"Kubernetes: {served.get('gitVersion', 'unknown')}")


async def _served_from(client: Client) -> str:
    """Return the namespace of the Service that the webhooks are called by, the usual one where nothing tells."""
    try:
        found = await client.find(kinds.VALIDATING, webhook_configurations.NAME)
    except errors.ForbiddenError:
        found = None
    services = [each["clientConfig"].get("service") or {} for each in (found.webhooks or () if found else ())]
    return next((str(each["namespace"]) for each in services if each.get("namespace")), names.SYSTEM_NAMESPACE)


async def _installed(client: Client, namespace: str) -> str:
    """Name what of Muster is in the cluster: its Deployments' versions, else who leads outside."""
    try:
        found = (await client.list(kinds.DEPLOYMENTS, namespace, labels=f"{names.PART_OF}=muster")).items
        lease = await client.find(kinds.LEASES, names.SCHEDULER_LEASE, namespace)
    except errors.ForbiddenError:
        return f"unknown: no permission to list Deployments and to read Leases in namespace {namespace}"
    versions = sorted({each.metadata.label(_VERSION) or "unknown" for each in found})
    if versions:
        return (
            f"muster {', '.join(versions)} ({', '.join(sorted(each.name for each in found))} in namespace {namespace})"
        )
    holder = (lease.spec.holder_identity or "").partition("_")[0] if lease is not None else ""
    return f"runs outside the cluster, as {holder}" if holder else "not installed: run `muster install`"


class CheckResult(Struct, frozen=True):
    """What one check found.

    Attributes:
        ok: None where it couldn't be looked at.
        text: what is so.
        remedy: what to do, where it isn't as it should be.
    """

    ok: bool | None
    text: str
    remedy: str = ""


@click.command(epilog=examples("muster check", "muster check --namespace muster-system"))
@_place
@cluster_options
@runs
async def check(namespace: str | None, kubeconfig: str | None, context: str | None) -> None:
    """Check an installation: CRDs, policies, webhooks and their answers, the leader, the default queue.

    Nothing is changed: what the webhooks are asked is a dry run. The status is 1 where something is wrong.
    """
    wrong = 0
    async with connected(kubeconfig, context) as client:
        async for name, found in _findings(client, namespace or await _served_from(client)):
            mark = {True: "ok", False: "WRONG", None: "unknown"}[found.ok]
            click.echo(f"{mark:<8}{name}: {found.text}")
            if found.remedy and found.ok is not True:
                click.echo(f"{'':<8}{found.remedy}")
            wrong += found.ok is False
    if wrong:
        raise click.ClickException(f"{wrong} of these checks failed")


async def _findings(client: Client, namespace: str) -> AsyncIterator[tuple[str, CheckResult]]:
    checks: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("Kubernetes", lambda: _kubernetes(client)),
        ("CRDs", lambda: _definitions(client)),
        ("policies", lambda: _policies(client)),
        ("webhooks", lambda: _registered(client)),
        ("admission", lambda: _answers(client, namespace)),
        ("scheduler", lambda: _leads(client, namespace)),
        ("queue default", lambda: _default_queue(client)),
    )
    for name, look in checks:
        try:
            yield name, await look()
        except errors.ForbiddenError as error:
            yield name, CheckResult(None, explained(error))
        except errors.NotFoundError as error:
            yield name, CheckResult(False, explained(error))


async def _kubernetes(client: Client) -> CheckResult:
    said = json.loads((await client.send(Request("GET", "/version"))).body).get("gitVersion", "unknown")
    try:
        await preflight.version(client)
    except click.ClickException as error:
        return CheckResult(False, error.message)
    return CheckResult(True, str(said))


async def _definitions(client: Client) -> CheckResult:
    missing, other = [], []
    for wanted in crds.manifests(legacy_apis=False):
        name = wanted["metadata"]["name"]
        found = await client.find(kinds.CRDS, name)
        if found is None or not crds.established(found):
            missing.append(name)
        elif _fields(found.spec["versions"]) != _fields(wanted["spec"]["versions"]):
            other.append(name)
    if missing:
        return CheckResult(
            False,
            f"{', '.join(missing)} missing",
            "install them: `muster install`, or helm upgrade with crds.install=true",
        )
    if other:
        return CheckResult(
            False, f"{', '.join(other)} of another version than this program", "upgrade the older of the two"
        )
    return CheckResult(True, "those of this version")


def _fields(versions: Any) -> set[str]:
    """Name the fields that versions of a CRD have, with their paths."""
    found: set[str] = set()

    def walk(path: str, schema: Any) -> None:
        for name, inner in (schema.get("properties") or {}).items():
            found.add(f"{path}.{name}")
            walk(f"{path}.{name}", inner)

    for version in versions:
        walk(version["name"], version["schema"]["openAPIV3Schema"])
    return found


async def _policies(client: Client) -> CheckResult:
    missing = [
        f"{each['kind']} {each['metadata']['name']}"
        for each in permissions.policies()
        if await client.find(permissions.kind_of(each), each["metadata"]["name"]) is None
    ]
    if missing:
        return CheckResult(
            False, f"{', '.join(missing)} missing", "without them others may write ledgers: install Muster again"
        )
    return CheckResult(True, "all there")


async def _registered(client: Client) -> CheckResult:
    for kind in (kinds.MUTATING, kinds.VALIDATING):
        found = await client.find(kind, webhook_configurations.NAME)
        if found is None:
            remedy = "nothing is judged: helm upgrade, `muster install --url`, or `muster up` registers them"
            return CheckResult(False, f"{kind.name} {webhook_configurations.NAME} missing", remedy)
        bare = [each["name"] for each in found.webhooks or () if not each["clientConfig"].get("caBundle")]
        if bare:
            return CheckResult(
                False, f"{', '.join(bare)} without caBundle", "`muster certs status` says what it waits for"
            )
    return CheckResult(True, "registered, each with a CA bundle")


async def _answers(client: Client, namespace: str) -> CheckResult:
    """Ask the webhooks about a PodGroup that they must refuse."""
    group = {"metadata": {"generateName": "muster-check-"}, "spec": {"minMember": 0, "queue": _NOWHERE}}
    try:
        await client.create(kinds.PODGROUPS, group, "default", dry_run=True)
    except errors.ForbiddenError as error:
        if _NOWHERE in str(error):
            return CheckResult(True, "the webhooks answer")
        raise
    except errors.ApiError as error:
        if "calling webhook" not in str(error):
            raise
        return CheckResult(
            False,
            explained(error),
            f"`kubectl get pods -n {namespace}`, and docs/blocked.md where nothing can be created",
        )
    return CheckResult(
        False, "a PodGroup of a queue that doesn't exist is admitted", "no webhook is asked about namespace default"
    )


async def _leads(client: Client, namespace: str) -> CheckResult:
    lease = await client.find(kinds.LEASES, names.SCHEDULER_LEASE, namespace)
    where = f"Lease {namespace}/{names.SCHEDULER_LEASE}"
    if lease is None or not lease.spec.holder_identity:
        return CheckResult(
            False, f"nobody holds the {where}", "no scheduler runs, or none may write Leases: see its log"
        )
    holder = lease.spec.holder_identity.partition("_")[0]
    # Whatever the clocks of this machine and that of the leader say.
    for _ in range(int(_RENEWED_WITHIN / _LOOK_SECONDS)):
        await asyncio.sleep(_LOOK_SECONDS)
        now = await client.find(kinds.LEASES, names.SCHEDULER_LEASE, namespace)
        if now is not None and now.spec != lease.spec:
            return CheckResult(True, f"{holder} leads")
    return CheckResult(
        False,
        f"{holder} holds the {where} and doesn't renew it",
        "the leader has died or hangs; another takes over if one runs",
    )


async def _default_queue(client: Client) -> CheckResult:
    found = await client.find(kinds.QUEUES, names.DEFAULT_QUEUE)
    if found is None:
        return CheckResult(False, "missing", "the scheduler makes it when it leads and the webhooks answer")
    return CheckResult(True, found.status.state or "new")
