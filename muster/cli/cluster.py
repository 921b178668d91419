"""Reads the cluster state that ``muster.whatif`` needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from muster.cli.connect import NotInstalledError, served
from muster.kube import autoscalers, decoding, errors
from muster.kube.client import Client
from muster.kube.transport import Request, Response
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object
from muster.whatif.cluster_view import KINDS, NEEDED, ClusterObjects

T = TypeVar("T", bound=Object)

_TRIES: Final = 5
_SCHEDULER: Final = names.SCHEDULER_CONFIGMAP[0]
"""The scheduler's Deployment has the name of its ConfigMap."""
_PLACES: Final[Mapping[Kind[Any], str]] = {kinds.CONFIGMAPS: names.SYSTEM_NAMESPACE}


async def read(client: Client, now: datetime) -> ClusterObjects:
    """Read a cluster, all kinds at once. Kinds that it doesn't serve are empty.

    Raises:
        NotInstalledError: it serves no PodGroups of ours.
        ForbiddenError: nodes, pods, PodGroups or queues may not be listed; of others that is noted in `ClusterObjects.unread`.
        KubeError: something couldn't be read.
    """
    unread: list[str] = []
    closed: set[str] = set()
    found, autoscaler = await asyncio.gather(
        asyncio.gather(*(_listed(client, kind, unread, closed) for kind in KINDS)), _autoscaler(client)
    )
    objects = {kind: items or () for kind, items in zip(KINDS, found, strict=True)}
    home = await _installed_in(client, objects)
    if home != names.SYSTEM_NAMESPACE:
        unread[:] = [each for each in unread if not each.startswith(f"{kinds.CONFIGMAPS} ")]
        objects[kinds.CONFIGMAPS] = await _listed(client, kinds.CONFIGMAPS, unread, closed, home) or ()
    legacy = any(items is not None for kind, items in zip(KINDS, found, strict=True) if kind in kinds.LEGACY_PODGROUPS)
    return ClusterObjects(now, objects, tuple(unread), legacy, autoscaler, frozenset(closed), home)


async def ensure_readable(client: Client) -> None:
    """Read one node, before anything is read at length: a tenant may not, and asks the visibility API instead.

    Raises:
        ForbiddenError: nodes may not be listed.
        KubeError: the API server can't be asked.
    """
    await _sent(client, Request("GET", kinds.NODES.path(), {"limit": "1"}))


async def _installed_in(client: Client, objects: Mapping[Kind[Any], tuple[Any, ...]]) -> str:
    """Return the namespace of the scheduler's Deployment, else of the Service that webhooks are called at, else the usual one."""
    found = sorted(
        each.namespace
        for each in objects[kinds.DEPLOYMENTS]
        if each.name == _SCHEDULER and each.metadata.label(names.PART_OF) == "muster"
    )
    if found:
        return names.SYSTEM_NAMESPACE if names.SYSTEM_NAMESPACE in found else found[0]
    if any(each.name == _SCHEDULER for each in objects[kinds.CONFIGMAPS]):
        return names.SYSTEM_NAMESPACE
    try:
        registered = await client.find(kinds.VALIDATING, names.WEBHOOK_CONFIGURATION)
    except errors.ForbiddenError:
        return names.SYSTEM_NAMESPACE
    entries: tuple[dict[str, Any], ...] = (registered.webhooks or ()) if registered is not None else ()
    services = filter(None, ((each.get("clientConfig") or {}).get("service") for each in entries))
    return next((str(each["namespace"]) for each in services), names.SYSTEM_NAMESPACE)


async def _autoscaler(client: Client) -> str:
    """Return the name of the cluster's autoscaler; none where the person may not look for it."""
    try:
        return await autoscalers.find(client)
    except errors.ForbiddenError:
        return ""


async def _sent(client: Client, request: Request) -> Response:
    """Ask again, as kubectl does, where the server says that it can't answer yet."""
    for _ in range(_TRIES - 1):
        try:
            return await client.send(request)
        except errors.TooManyRequestsError as error:
            await asyncio.sleep(error.retry_after or 1.0)
    return await client.send(request)


async def _listed(
    client: Client, kind: Kind[T], unread: list[str], closed: set[str], namespace: str = ""
) -> tuple[T, ...] | None:
    """Return the objects of a kind; None of one that isn't served."""
    # In one piece, and no older than the question: who has just applied something asks about that.
    request = Request("GET", kind.path(namespace or _PLACES.get(kind, "")))
    try:
        answer = await _sent(client, request)
    except errors.NotFoundError as error:
        if kind in {kinds.PODGROUPS, kinds.QUEUES}:
            raise NotInstalledError from error
        return None
    except errors.ForbiddenError as error:
        if kind in NEEDED:
            raise
        # API servers deny permission before they say that they don't serve a group.
        if kind in kinds.LEGACY_PODGROUPS and kind not in await served(
            client, (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
        ):
            return None
        unread.append(f"{kind.plural} are left out, no permission to list them: {error}")
        return ()
    page = decoding.page(kind, answer.body)
    unread += [f"{kind.name} {each.about.namespace}/{each.about.name} is left out: {each.reason}" for each in page.unreadable]  # fmt: skip
    closed.update(each.node for each in page.unreadable if each.node)
    return page.items
