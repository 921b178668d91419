"""Waiting for an object to become something, by watching it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from muster.kube import decoding
from muster.kube.backoff import Backoff
from muster.kube.client import Client
from muster.kube.reflector import WatchEvent
from muster.kube.transport import Request
from muster.model import objects
from muster.model.kinds import Kind

T = TypeVar("T", bound=objects.Object)


async def until(
    client: Client, kind: Kind[T], name: str, namespace: str = "", *, holds: Callable[[T | None], bool], within: float
) -> T | None:
    """Wait until ``holds`` is true of an object, and return it; None stands for an object that doesn't exist.

    Raises:
        TimeoutError: it was not so within ``within`` seconds.
        KubeError: the API server can't be read.
    """
    backoff = Backoff(0.1, 5.0)
    async with asyncio.timeout(within):
        while True:
            query = {"fieldSelector": f"metadata.name={name}"}
            page = await client.page(kind, namespace, query)
            found = page.items[0] if page.items else None
            if holds(found):
                return found
            query |= {"watch": "true", "resourceVersion": page.resource_version}
            request = Request("GET", kind.path(namespace), query)
            async with client.transport.watch(request, idle=within) as lines:
                async for line in lines:
                    event = decoding.strictly(WatchEvent, line)
                    if event.type == "ERROR":
                        break
                    current = None if event.type == "DELETED" else decoding.strictly(kind.struct, event.object)
                    if holds(current):
                        return current
            await asyncio.sleep(backoff.pause())
