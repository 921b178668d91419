"""The least that a scheduler in Python does: lists nodes and pods, watches, and binds each pod to the next node. It decides nothing.

    python benchmarks/lean_binder.py --kubeconfig FILE [--scheduler-name muster]

It is the limit beside which `scheduler_plane.py` is to be read: what is over it is the deciding, the election and the telling.
It uses Muster's connections, which a leaner client of its own was no faster than, and as many at once as Muster's binder.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
import uvloop

from muster.kube import auth, errors
from muster.kube.client import Client
from muster.kube.http import HttpTransport
from muster.kube.transport import Request
from muster.model import kinds

_AT_ONCE: Final = 64
_WITHIN: Final = 60.0
_PAUSE: Final = 0.5


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[_Object]


class _Event(msgspec.Struct):
    type: str
    object: _Object


async def run(kubeconfig: str, scheduler: str) -> None:
    async with HttpTransport(await auth.load(kubeconfig)) as transport:
        client = Client(transport)
        nodes, pods = await asyncio.gather(
            _listed(transport, kinds.NODES.path()), _listed(transport, kinds.PODS.path())
        )
        places = itertools.cycle([node.metadata.name for node in nodes.items])
        waiting: asyncio.Queue[_Meta] = asyncio.Queue()
        known: set[str] = set()

        def take(found: Iterable[_Object]) -> None:
            for pod in _unbound(found, scheduler):
                if pod.uid not in known:
                    known.add(pod.uid)
                    waiting.put_nowait(pod)

        async def bind() -> None:
            while True:
                pod = await waiting.get()
                try:
                    await client.bind(pod.namespace, pod.name, pod.uid, next(places))
                except errors.ConflictError:
                    continue  # Its answer was lost, and it is bound.
                except errors.KubeError as error:
                    print(f"pod {pod.name} again: {error}", file=sys.stderr, flush=True)
                    await asyncio.sleep(_PAUSE)
                    waiting.put_nowait(pod)

        async def follow(listed: _List) -> None:
            while True:
                take(listed.items)
                await _watch(transport, listed.metadata.resource_version, take)
                # An API server ends the watch of who falls behind, as on a busy machine.
                listed = await _listed(transport, kinds.PODS.path())

        async with asyncio.TaskGroup() as group:
            group.create_task(follow(pods))
            for _ in range(_AT_ONCE):
                group.create_task(bind())


async def _listed(transport: HttpTransport, path: str) -> _List:
    answer = await transport.request(Request("GET", path, {"resourceVersion": "0"}), within=_WITHIN)
    return msgspec.json.decode(answer.body, type=_List)


async def _watch(transport: HttpTransport, version: str, take: Callable[[Iterable[_Object]], None]) -> None:
    """Take the pods that are created, until the watch ends."""
    request = Request("GET", kinds.PODS.path(), {"watch": "true", "resourceVersion": version})
    decoder = msgspec.json.Decoder(_Event)
    try:
        async with transport.watch(request, idle=3600) as lines:
            async for line in lines:
                event = decoder.decode(line)
                if event.type == "ADDED":
                    take([event.object])
    except errors.KubeError as error:
        print(f"the watch ended: {error}", file=sys.stderr, flush=True)


def _unbound(pods: Iterable[_Object], scheduler: str) -> Iterator[_Meta]:
    return (pod.metadata for pod in pods if pod.spec.scheduler_name == scheduler and not pod.spec.node_name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--scheduler-name", default="muster")
    options = parser.parse_args()
    uvloop.run(run(options.kubeconfig, options.scheduler_name))
