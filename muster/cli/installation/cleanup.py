"""The release of Muster's hold on a cluster when it is uninstalled: Jobs that it suspended, Queues that it finalizes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Queue

_DEPLOYMENTS: Final = ("muster-scheduler", "muster-certs")
"""Those of the chart whose pods lead by a Lease of the same name."""
_LEAVE_SECONDS: Final = 15.0
"""Longer than a leader needs to end its work and release its Lease."""
_LOOK_SECONDS: Final = 0.2


async def stop_leaders(client: Client, namespace: str) -> None:
    """End the programs that lead, while their accounts may still release their Leases.

    A Lease that is still held would make the leader of the next installation wait until it runs out. What doesn't end in
    time, since its node is gone or its image is older, is left to that.
    """
    stopped = []
    for name in _DEPLOYMENTS:
        try:
            await client.patch(kinds.DEPLOYMENTS, name, {"spec": {"replicas": 0}}, namespace, subresource="scale")
        except errors.NotFoundError:
            continue  # It runs outside this cluster, or was never there.
        stopped.append(name)
    loop = asyncio.get_running_loop()
    end = loop.time() + _LEAVE_SECONDS
    for name in stopped:
        while loop.time() < end and await _is_held(client, name, namespace):  # noqa: ASYNC110 - the question goes to the server
            await asyncio.sleep(_LOOK_SECONDS)


async def _is_held(client: Client, name: str, namespace: str) -> bool:
    lease = await client.find(kinds.LEASES, name, namespace)
    return lease is not None and bool(lease.spec.holder_identity)


async def remove_leases(client: Client, namespace: str) -> None:
    """Delete the Leases that nobody holds any more. One that is held belongs to a program that runs still."""
    for name in _DEPLOYMENTS:
        lease = await client.find(kinds.LEASES, name, namespace)
        if lease is not None and not lease.spec.holder_identity:
            with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
                await client.delete(kinds.LEASES, name, namespace, uid=lease.metadata.uid)


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
