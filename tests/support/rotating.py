"""Three webhook servers behind a balancer, called by the real API server while clients create objects."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import plane as planes
from plane import Plane, running

from certs import path_secret
from certs.bundle import KeyPair
from certs.path_publish import PathRotator, stored_segments
from certs.paths import PathWaits
from certs.publish import RotationTarget
from certs.serving import CertificateFiles
from certs.stored import TLS, read_served
from muster.cli.certs import files as certs_files
from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, names, webhooks
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions, WebhookServer

REPLICAS = 3
# Nobody watches or controls ConfigMaps, so that thousands of them cost their review and little else.
_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
_CLIENTS = 16
_FOLLOW = 0.05
_OPEN = 0.2


class Load:
    """Clients that create objects, each one reviewed; what failed, in the words of the API server."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.made = 0
        self.failures: list[str] = []
        self._client = client
        self._namespace = namespace
        self._more = asyncio.Event()
        self._numbers = itertools.count()

    async def another(self, count: int) -> None:
        """Wait until that many more were made or failed."""
        count += self.made + len(self.failures)
        while self.made + len(self.failures) < count:
            self._more.clear()
            await self._more.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Create objects while the context is open."""
        async with running(*(self._create() for _ in range(_CLIENTS))):
            yield

    async def _create(self) -> None:
        for number in self._numbers:
            made = {"metadata": {"name": f"{'mv'[number % 2]}-{number}"}}
            try:
                await self._client.create(kinds.CONFIGMAPS, made, self._namespace)
            except errors.KubeError as error:
                self.failures.append(str(error))
            else:
                self.made += 1
            self._more.set()


class Rig:
    """The servers, each with a folder that follows the Secret as a kubelet would have it, and who calls them.

    Attributes:
        lag: by number of a replica, for how many seconds it doesn't notice that the Secret changed.
    """

    def __init__(self, plane: Plane, setting: Any, folder: Path) -> None:
        self.plane = plane
        self.setting = setting
        self.target: RotationTarget = setting.target
        self.lag = [0.0] * REPLICAS
        self.folders = [folder / f"replica-{number}" for number in range(REPLICAS)]
        self.servers: list[WebhookServer] = []
        self.load = Load(plane.client, self.target.namespace)
        self._stack = contextlib.AsyncExitStack()

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    async def start(self) -> None:
        """Start the servers with what the Secret holds, and have the API server call them."""
        await self.paths().begin()
        for folder in self.folders:
            await self._copy(folder)
            options = WebhookOptions(CertificateFiles(folder), ListenOptions("127.0.0.1", 0, drain=0), paths=folder)
            client = await self.plane.connect()
            self.servers.append(await self._stack.enter_async_context(serving(client, self.plane.clock, options)))
        ports = itertools.cycle(self.ports)
        balanced = await asyncio.get_running_loop().create_server(lambda: _Near(ports), "127.0.0.1", 0)
        self._stack.callback(balanced.close)
        followers = [self._follow(number) for number in range(REPLICAS)]
        await self._stack.enter_async_context(running(*followers, self._churn()))
        url = f"https://127.0.0.1:{balanced.sockets[0].getsockname()[1]}"
        await self._register(url, (await self.setting.served()).trusted)

    def paths(self, waits: PathWaits | None = None) -> PathRotator:
        """Return what replaces the segment of the paths."""
        where = self.target.namespace, self.target.configuration
        return PathRotator(self.plane.client, self.plane.clock, *where, waits=waits)

    def options(self) -> tuple[str, ...]:
        """Return the options by which a command finds what this is about."""
        config = str(self.plane._kubeconfig)
        return ("--kubeconfig", config, "-n", self.target.namespace, "--configuration", self.target.configuration)

    async def serve(self, pair: KeyPair) -> None:
        """Put a pair into the Secret, whatever trusts it."""
        data = {"tls.crt": base64.b64encode(pair.certificate).decode(), "tls.key": base64.b64encode(pair.key).decode()}
        await self.plane.client.patch(kinds.SECRETS, TLS, {"data": data}, self.target.namespace)
        await self.followed()

    async def followed(self) -> None:
        """Wait until every server serves what the Secret holds."""
        wanted = (await self.setting.served()).pair.not_after
        async with asyncio.timeout(planes.PATIENCE):
            while any(server._certificate._served.not_after != wanted for server in self.servers):  # noqa: ASYNC110 - a server tells nobody
                await asyncio.sleep(_FOLLOW)

    async def stop(self) -> None:
        """Take it all away but the ConfigMaps: nobody watches them, and to delete them takes as long as to make them."""
        for kind in (kinds.VALIDATING, kinds.MUTATING):
            with contextlib.suppress(errors.NotFoundError):
                await self.plane.client.delete(kind, self.target.configuration)
        for name in ("m-", "v-"):
            await self._called(name, called=False)
        await self._stack.aclose()

    async def _register(self, url: str, trusted: bytes) -> None:
        bundle = base64.b64encode(trusted).decode()
        for kind, hook, name in (
            (kinds.MUTATING, "pods.mutate.muster.sh", "m-"),
            (kinds.VALIDATING, "pods.guarded.muster.sh", "v-"),
        ):
            webhook = {
                "name": hook,
                "clientConfig": {"url": url + webhooks.PATHS[hook], "caBundle": bundle},
                "rules": [_RULE],
                "namespaceSelector": {"matchLabels": {names.NAMESPACE_NAME: self.target.namespace}},
                # Each object is reviewed once: half of them for one configuration, half for the other.
                "matchConditions": [{"name": "half", "expression": f"object.metadata.name.startsWith('{name}')"}],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            manifest = {"metadata": {"name": self.target.configuration}, "webhooks": [webhook]}
            await self.plane.client.create(kind, manifest)
        await self._called("m-", called=True)
        await self._called("v-", called=True)

    async def _called(self, name: str, *, called: bool) -> None:
        """Wait until the API server has the servers review such names, or doesn't any more; it tells nobody."""
        probe = {"metadata": {"name": f"{name}probe"}}
        async with asyncio.timeout(planes.PATIENCE):
            while True:
                before = self.reviews
                await self.plane.client.create(kinds.CONFIGMAPS, probe, self.target.namespace, dry_run=True)
                if (self.reviews > before) is called:
                    return
                await asyncio.sleep(0.05)

    @property
    def reviews(self) -> int:
        """How many the servers have answered."""
        return sum(sum(server._admission.metrics._reviews.values()) for server in self.servers)

    async def _copy(self, folder: Path) -> None:
        found = read_served(await self.plane.client.get(kinds.SECRETS, TLS, self.target.namespace))
        segments = await stored_segments(self.plane.client, self.target.namespace)
        assert segments is not None
        if found.pair.key:
            files = {"tls.crt": found.pair.certificate, "tls.key": found.pair.key, "ca.crt": found.trusted}
            certs_files.write(folder, files | {names.SEGMENTS_FILE: path_secret.file(segments)})

    async def _follow(self, number: int) -> None:
        """Mount the Secrets' changes into a folder, late, and have the server look at it."""
        before = None
        while True:
            secrets = [
                await self.plane.client.get(kinds.SECRETS, name, self.target.namespace)
                for name in (TLS, path_secret.PATH)
            ]
            if (versions := [each.metadata.resource_version for each in secrets]) != before:
                before = versions
                await asyncio.sleep(self.lag[number])
                await self._copy(self.folders[number])
                self.servers[number]._certificate.refresh()
                self.servers[number]._paths.refresh()
            await asyncio.sleep(_FOLLOW)

    async def _churn(self) -> None:
        """Have the API server connect anew all the time, as it would to replicas that come and go."""
        turns: Iterator[WebhookServer] = itertools.cycle(self.servers)
        while True:
            server = next(turns)
            server._draining = True
            await asyncio.sleep(_OPEN / 4)
            server._draining = False
            await asyncio.sleep(_OPEN / 4)


class _Near(asyncio.Protocol):
    """A connection of the API server, passed on to the next server as a Service would; no stream, since it is the test's
    own cost."""

    def __init__(self, ports: Iterator[int]) -> None:
        self._port = next(ports)
        self._far: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._near = transport
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            far, _ = await loop.create_connection(lambda: _Far(self._near), "127.0.0.1", self._port)
        except OSError:
            self._near.close()
            return
        self._far = far
        far.writelines(self._early)
        if self._near.is_closing():
            far.close()

    def data_received(self, data: bytes) -> None:
        if self._far is None:
            self._early.append(data)
        else:
            self._far.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._far is not None:
            self._far.close()


class _Far(asyncio.Protocol):
    """The other half."""

    def __init__(self, near: asyncio.BaseTransport) -> None:
        self._near = near

    def data_received(self, data: bytes) -> None:
        self._near.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._near.close()
