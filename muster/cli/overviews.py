"""Reads overviews of a cluster, one after the other, over one connection: of all of it, or of what a tenant may read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from muster.cli import cluster, configuration
from muster.cli.visible import starts_path
from muster.kube import decoding, errors
from muster.kube.clock import SystemClock
from muster.kube.transport import Request
from muster.model import kinds
from muster.visibility.paths import ROOT
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects
from muster.whatif.overview import EVICTED, Overview, of_tenant, overview

if TYPE_CHECKING:
    from muster.cli.questions import Question
    from muster.kube.client import Client
    from muster.model.kinds import Kind
    from muster.model.objects import Event
    from scheduler.engine.policy import Policy

_OF_A_TENANT: Final[tuple[Kind[Any], ...]] = (*PODGROUPS, kinds.PODS, kinds.RESOURCEQUOTAS, kinds.QUOTALEDGERS)
_ONE_NAMESPACE: Final = "of namespace {} alone: nodes may not be listed, so it is what a tenant may read"


class Seen(NamedTuple):
    """An overview, and what it was made of. ``policy`` is None where only a part of the cluster could be read."""

    overview: Overview
    state: ClusterObjects
    events: tuple[Event, ...]
    policy: Policy | None


async def read(client: Client, question: Question) -> Seen:
    """Read a cluster, or what a tenant may read of it.

    Raises:
        NotInstalledError: it serves no PodGroups of ours.
        KubeError: something couldn't be read.
    """
    now = SystemClock().now()
    try:
        await cluster.ensure_readable(client)
    except errors.ForbiddenError:
        return await _read_namespace(client, question.where(), now)
    missing: list[str] = []
    state, events = await asyncio.gather(cluster.read(client, now), _events(client, "", missing))
    return await asyncio.to_thread(of_state, state, question, events, missing)


def of_state(
    state: ClusterObjects, question: Question, events: tuple[Event, ...] = (), missing: Iterable[str] = ()
) -> Seen:
    """Decide on a state once, as the scheduler would, and return what it shows.

    Raises:
        ClickException: the configuration can't be used.
    """
    from muster.whatif.cluster import WhatIfCluster

    readable = not any(each.startswith(f"{kinds.CONFIGMAPS} ") for each in state.unread)
    found = state.of(kinds.CONFIGMAPS)
    configured = configuration.find(question.configuration, found, readable=readable, home=state.home)
    plan = WhatIfCluster(state, configured.policy, question.schedulers).decide()
    said = [*missing, *([f"decided with {configured.source}"] if configured.assumed else []), *state.malformed()]
    return Seen(overview(state, events, plan, said), state, events, configured.policy)


async def _read_namespace(client: Client, namespace: str, now: datetime) -> Seen:
    """Read one namespace, and ask the visibility API about queues."""
    missing = [_ONE_NAMESPACE.format(namespace)]
    answers: list[Awaitable[tuple[Any, ...]]] = [_listed(client, kind, namespace, missing) for kind in _OF_A_TENANT]
    found, events, told = await asyncio.gather(
        asyncio.gather(*answers), _events(client, namespace, missing), _queues(client, missing)
    )
    state = ClusterObjects(now, dict(zip(_OF_A_TENANT, found, strict=True)))
    return Seen(of_tenant(state, events, told, missing), state, events, None)


async def _listed(client: Client, kind: Kind[Any], namespace: str, missing: list[str]) -> tuple[Any, ...]:
    try:
        answer = await client.send(Request("GET", kind.path(namespace)))
    except errors.NotFoundError:
        return ()
    except errors.ForbiddenError:
        if kind not in kinds.LEGACY_PODGROUPS:
            missing.append(f"{kind.plural} of namespace {namespace} may not be listed")
        return ()
    return decoding.page(kind, answer.body).items


async def _queues(client: Client, missing: list[str]) -> list[dict[str, Any]]:
    try:
        answer = await client.send(Request("GET", f"{ROOT}/queues"))
    except (errors.ForbiddenError, errors.NotFoundError, errors.ServerError):
        missing.append("no queues: neither they nor the visibility API may be asked, or it is not served")
        return []
    return [each["status"] for each in msgspec.json.decode(answer.body)["items"]]


async def _events(client: Client, namespace: str, missing: list[str]) -> tuple[Event, ...]:
    """Read the events about evictions, those of PodGroups alone."""
    found: list[Event] = []
    for reason in EVICTED:
        selector = f"involvedObject.kind=PodGroup,reason={reason}"
        try:
            answer = await client.send(Request("GET", kinds.EVENTS.path(namespace), {"fieldSelector": selector}))
        except errors.ForbiddenError:
            missing.append("no evictions: events may not be listed")
            return ()
        found += decoding.page(kinds.EVENTS, answer.body).items
    return tuple(found)


async def starts_of(client: Client, namespace: str) -> dict[str, Any]:
    """Ask the visibility API when the groups of a namespace start.

    Raises:
        KubeError: it isn't served, may not be asked, or can't answer.
    """
    found: dict[str, Any] = msgspec.json.decode((await client.send(Request("GET", starts_path(namespace)))).body)
    return found


async def events_of(client: Client, namespace: str, name: str) -> tuple[Event, ...]:
    """Read the events about a PodGroup.

    Raises:
        KubeError: they can't be read.
    """
    selector = f"involvedObject.kind=PodGroup,involvedObject.name={name}"
    answer = await client.send(Request("GET", kinds.EVENTS.path(namespace), {"fieldSelector": selector}))
    found: tuple[Event, ...] = decoding.page(kinds.EVENTS, answer.body).items
    return found
