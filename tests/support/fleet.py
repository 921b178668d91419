"""Muster as a cluster has it, several replicas of everything, and somebody who breaks it on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from os import kill
from typing import Any

from controlplane import free_ports
from deployed import Deployed, Program

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.reflector import Reflector
from muster.model import kinds
from muster.model.kinds import Kind
from muster.model.objects import Pod, PodGroup


@dataclass
class Balancer:
    """One address for all webhook replicas, by connection, as a Service has it; its connections can be cut."""

    ports: list[int]
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Listen while the context is open."""
        turns = itertools.cycle(self.ports)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._pass_on(turns, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        async with await asyncio.start_server(accept, "127.0.0.1", port):
            yield
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection, whatever is under way."""
        for writer in self._open:
            writer.transport.abort()

    async def _pass_on(self, turns: Iterator[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in itertools.islice(turns, len(self.ports)):
            with contextlib.suppress(OSError):
                other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
                break
        else:
            writer.transport.abort()
            return
        pair = {writer, other_writer}
        self._open |= pair
        await asyncio.gather(self._pump(reader, other_writer), self._pump(other_reader, writer))
        self._open -= pair

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()


# Of workers seldom: what was reserved and never stored is dropped by a leader that has known it for 45 seconds.
_FAULTS = ("kill webhook",) * 12 + ("stop webhook",) * 12 + ("cut",) * 12 + ("kill worker", "stop worker")


class Fleet:
    """Three webhook replicas behind a balancer, and two workers of which one leads."""

    def __init__(self, deployed: Deployed) -> None:
        self.deployed = deployed
        self.ports = free_ports(3)
        self.balancer = Balancer(self.ports)
        self.webhooks = [deployed.start_webhook(port) for port in self.ports]
        # They are ready when the queue `default` is there, which the webhooks have to see: when the balancer serves.
        self.workers = [deployed.start_scheduler(wait=False) for _ in range(2)]
        self.faults: list[str] = []

    def end(self) -> None:
        for program in (*self.webhooks, *self.workers):
            program.kill()

    async def trouble(self, chance: random.Random) -> None:
        """Do something to it, for a while."""
        match chance.choice(_FAULTS):
            case "kill webhook":
                which = chance.randrange(len(self.webhooks))
                self.faults.append(f"kill -9 of webhook replica {which}")
                self.webhooks[which].kill()
                await asyncio.sleep(chance.uniform(0, 1))
                self.webhooks[which] = self.deployed.start_webhook(self.ports[which], wait=False)
            case "stop webhook":
                await self._pause("webhook replica", chance.choice(self.webhooks), chance.uniform(0.2, 6))
            case "kill worker":
                which = chance.randrange(len(self.workers))
                self.faults.append(f"kill -9 of worker {which}")
                self.workers[which].kill()
                self.workers[which] = self.deployed.start_scheduler(wait=False)
            case "stop worker":
                await self._pause("worker", chance.choice(self.workers), chance.uniform(0.2, 20))
            case _:
                self.faults.append("cut of all connections")
                self.balancer.cut()

    async def _pause(self, what: str, program: Program, seconds: float) -> None:
        try:
            kill(program.pid, signal.SIGSTOP)
        except ProcessLookupError:
            return  # Somebody else's fault was the end of it, and nobody has started it again yet.
        self.faults.append(f"SIGSTOP of a {what} for {seconds:.1f} s")
        try:
            await asyncio.sleep(seconds)
        finally:
            # Somebody else's fault may have been the end of it.
            with contextlib.suppress(ProcessLookupError):
                kill(program.pid, signal.SIGCONT)


@dataclass
class History:
    """What the API server stored of a namespace, in its order: (resourceVersion, kind, uid, object or None)."""

    namespace: str
    events: list[tuple[int, str, str, PodGroup | Pod | None]] = field(default_factory=list)
    groups: ObjectCache[PodGroup] = field(default_factory=ObjectCache)
    pods: ObjectCache[Pod] = field(default_factory=ObjectCache)

    @contextlib.asynccontextmanager
    async def recorded(self, client: Client) -> AsyncIterator[None]:
        caches: list[tuple[Kind[Any], ObjectCache[Any]]] = [(kinds.PODGROUPS, self.groups), (kinds.PODS, self.pods)]
        tasks = []
        for kind, cache in caches:
            reflector = Reflector(client, kind, cache, namespace=self.namespace)
            tasks.append(asyncio.create_task(reflector.run()))
            await reflector.wait_synced()
            cache.subscribe(self._noting(kind, cache))
        try:
            yield
        finally:
            await asyncio.sleep(2)  # for what is under way on the watches
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(outcome, asyncio.CancelledError), outcome

    def _noting(self, kind: Kind[Any], cache: ObjectCache[Any]) -> Callable[[ObjectChange[Any]], None]:
        def note(change: ObjectChange[Any]) -> None:
            about = change.new or change.old
            self.events.append((int(cache.revision), kind.plural, about.metadata.uid, change.new))

        return note
