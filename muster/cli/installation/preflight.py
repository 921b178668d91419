"""Checks for obstacles to an installation, before anything is changed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

import click

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.objects import CustomResourceDefinition

RELEASE: Final = "meta.helm.sh/release-name"
RELEASE_NAMESPACE: Final = "meta.helm.sh/release-namespace"
OLDEST: Final = (1, 30)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_LOOK_SECONDS: Final = 1.0


async def version(client: Client) -> None:
    """Refuse a cluster that is too old.

    Raises:
        ClickException: it is.
    """
    try:
        answer = json.loads((await client.send(Request("GET", "/version"))).body)
    except errors.NotFoundError:
        return  # what it lacks is told when it is asked for it
    said = str(answer.get("gitVersion", ""))
    found = re.match(r"v(\d+)\.(\d+)", said)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise click.ClickException(f"this cluster is Kubernetes {said}; Muster needs {oldest} or newer")


async def others(client: Client, configuration: str) -> None:
    """Refuse a cluster in which Muster runs already, installed in another way.

    Raises:
        ClickException: it does.
    """
    registered = await client.find(kinds.VALIDATING, configuration)
    for found in (registered, await client.find(kinds.CLUSTERROLES, "muster-webhook")):
        if found is not None and (release := found.metadata.annotation(RELEASE)):
            space = found.metadata.annotation(RELEASE_NAMESPACE)
            text = f"Muster is in this cluster already, as Helm release {space}/{release}"
            raise click.ClickException(f"{text}: use `helm upgrade {release} -n {space}`, or uninstall it first")
    for webhook in (registered.webhooks or ()) if registered is not None else ():
        if service := webhook["clientConfig"].get("service"):
            place = f"{service['namespace']}/{service['name']}"
            text = f"Muster is in this cluster already: its webhooks call Service {place}; run `muster uninstall` first"
            raise click.ClickException(text)


async def alone(client: Client, configuration: str) -> None:
    """Refuse a cluster for which Muster runs already, whether in it or outside.

    A Lease that its holder renews tells of a leader, whatever the clocks say; one of a leader that died isn't renewed.

    Raises:
        ClickException: it does.
    """
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        registered = await client.find(kind, configuration)
        for webhook in (registered.webhooks or ()) if registered is not None else ():
            url = urlsplit(webhook["clientConfig"].get("url") or "")
            if url.hostname and url.hostname not in _LOOPBACK:
                place = f"{url.scheme}://{url.netloc}"
                text = f"Muster serves this cluster already: its webhooks call {place}; run `muster uninstall` first"
                raise click.ClickException(text)
    loop = asyncio.get_running_loop()
    first = lease = await client.find(kinds.LEASES, names.SCHEDULER_LEASE, names.SYSTEM_NAMESPACE)
    until = loop.time() + (first.spec.lease_duration_seconds or 0 if first is not None else 0)
    while first is not None and lease is not None and lease.spec.holder_identity:
        if lease.spec != first.spec:
            holder = lease.spec.holder_identity.partition("_")[0]
            where = f"{names.SYSTEM_NAMESPACE}/{names.SCHEDULER_LEASE}"
            text = f"Muster serves this cluster already: {holder} holds the Lease {where}"
            raise click.ClickException(f"{text}; end that program first")
        if loop.time() >= until:
            return
        await asyncio.sleep(_LOOK_SECONDS)
        lease = await client.find(kinds.LEASES, names.SCHEDULER_LEASE, names.SYSTEM_NAMESPACE)


async def definitions(client: Client, wanted: Iterable[dict[str, Any]], *, adopt: bool) -> None:
    """Refuse CRDs that stand in the way of those that are wanted.

    Raises:
        ClickException: one belongs to another product and isn't to be adopted, or holds objects that we don't serve.
    """
    for crd in wanted:
        found = await client.find(kinds.CRDS, crd["metadata"]["name"])
        if found is not None and (why := _in_the_way(found, crd, adopt=adopt)):
            raise click.ClickException(why)


def _in_the_way(found: CustomResourceDefinition, crd: dict[str, Any], *, adopt: bool) -> str:
    if not adopt and found.metadata.label(names.PART_OF) != "muster":
        return f"{found.name} exists and isn't Muster's; --adopt-crds replaces its schema, objects stay"
    served = [each["name"] for each in crd["spec"]["versions"]]
    lost = [each for each in (found.status or {}).get("storedVersions") or () if each not in served]
    if lost:
        ours, theirs = ", ".join(served), ", ".join(lost)
        return (
            f"{found.name} has objects stored as version {theirs}, which Muster doesn't serve: migrate them to {ours}, "
            f"and take {theirs} out of its status.storedVersions"
        )
    return ""
