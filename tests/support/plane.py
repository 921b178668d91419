"""The API server that a test talks to: the sandbox in virtual time, or the real one.

A test that asks for the fixture ``plane`` runs on both, unless its mark ``only`` says on which one and why. What it
makes is its own: namespaces and names of cluster-scoped objects are given out here, and are gone at the end.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import itertools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from controlplane import ControlPlane

from certs import authority
from certs.serving import CertificateFiles
from muster.cli.installation import crds
from muster.kube import auth, errors, wait
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.clock import LoopClock, SystemClock
from muster.kube.http import HttpTransport
from muster.kube.reflector import Reflector
from muster.kube.transport import Request, Transport
from muster.model import kinds, names, objects
from muster.model.kinds import Kind
from muster.sandbox.compose import Sandbox
from muster.sandbox.core.users import ADMIN, User
from muster.sandbox.virtual_time import VirtualTimeLoop
from webhooks.registration import UrlBase, configurations
from webhooks.server import WebhookServer

T = TypeVar("T", bound=objects.Object)

PATIENCE = 90.0
"""Seconds after which what should have happened by now has not."""

_START = datetime(2026, 1, 1, tzinfo=UTC)
_CONTENTS = (kinds.DEPLOYMENTS, kinds.REPLICASETS, kinds.JOBS, kinds.PODS, kinds.PODGROUPS)
# Nobody ends a pod gracefully whose node is gone already; and who owns something isn't there to say so.
_AT_ONCE = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
_NUMBERS = itertools.count(1)


class RealLoop(asyncio.SelectorEventLoop):
    """A loop for tests with sockets.

    A peer may be opening a connection just as a test ends. Its handshake belongs to nobody yet who could close it, and
    a process that ends needs not care; here the next test would be blamed for it.
    """

    def close(self) -> None:
        """Abort the connections that are left, then close."""
        if not self.is_closed() and not self.is_running():
            for transport in list(self._transports.values()):
                transport.abort()
            self.run_until_complete(asyncio.sleep(0))
        super().close()


def use_real_loops() -> None:
    """Have `asyncio.run` use such loops too: commands that are run within a test's process do."""
    if sys.version_info >= (3, 14):
        return  # policies are deprecated there, and what is tried on it opens no connections

    class RealLoops(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return RealLoop()

    asyncio.set_event_loop_policy(RealLoops())


def kubernetes_loop() -> asyncio.AbstractEventLoop:
    """Make the loop of tests on the real control plane."""
    return RealLoop()


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "sandbox": VirtualTimeLoop,
    "kubernetes": kubernetes_loop,
}
"""The parameter of tests that ask for a `Plane`: on which it runs, by the loop that goes with it."""


def loops_of(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Say on which control planes a test runs; None for one that asks for none."""
    if "plane" not in getattr(item, "fixturenames", ()):
        return None
    mark = item.get_closest_marker("only")
    if mark is None:
        return LOOPS
    (name,) = mark.args
    if not mark.kwargs.get("reason"):
        raise pytest.UsageError(f"{item.nodeid}: only({name!r}) needs a reason")
    return {name: LOOPS[name]}


def on_kubernetes(item: pytest.Item) -> bool:
    """Whether this is a test on the real control plane, by its parameter."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and kubernetes_loop in callspec.params.values()


class InProcess:
    """Calls webhooks without a network: a host is the name of a webhook server of the test."""

    def __init__(self) -> None:
        self._servers: dict[str, Iterable[WebhookServer]] = {}

    def serve(self, servers: Sequence[WebhookServer]) -> str:
        """Return the URL under which they answer in turns."""
        host = f"webhooks-{len(self._servers) + 1}"
        self._servers[host] = itertools.cycle(servers)
        return f"https://{host}"

    async def call(
        self, url: str, ca_bundle: bytes, body: bytes, *, within: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        assert ca_bundle
        target = urlsplit(url)
        server = next(iter(self._servers[target.netloc]))
        async with asyncio.timeout(within):
            status, headers, answer = await server.handle(target.path, dict(parse_qsl(target.query)), body)
        return status, {name.lower(): value for name, value in headers.items()}, answer


class Plane:
    """One control plane, with Muster's kinds installed.

    Attributes:
        name: ``sandbox`` or ``kubernetes``.
        client: may do everything.
        clock: the one of the control plane.
        certificate: a pair that its API server trusts, for webhook servers on loopback.
    """

    def __init__(self, name: str, transport: Transport, clock: Any, folder: Path) -> None:
        self.name = name
        self.client = Client(transport)
        self.clock = clock
        self.certificate = CertificateFiles(folder)
        self._ca = authority.new_ca(clock.now())
        self._own = contextlib.AsyncExitStack()
        self._registered = contextlib.AsyncExitStack()
        self.renew_certificate()

    def renew_certificate(self) -> None:
        """Put a new pair into the files."""
        pair = authority.issue(self._ca, ("127.0.0.1",), self.clock.now())
        (self.certificate.folder / "tls.crt").write_bytes(pair.certificate)
        (self.certificate.folder / "tls.key").write_bytes(pair.key)

    @property
    def transport(self) -> Transport:
        return self.client.transport

    async def connect(self) -> Client:
        """Return a client of its own to a program.

        Over one HTTP transport, requests that wait for a webhook would use up what the webhook itself waits for.
        """
        raise NotImplementedError

    async def acting_as(self, user: str) -> Client:
        """Return a client that is ``user`` with every permission: what stops it is admission."""
        raise NotImplementedError

    async def close(self) -> None:
        """Take away what the test made."""
        await self.unregister()
        await self._own.aclose()

    async def unregister(self) -> None:
        """Have no webhooks called any more: before their servers end, nobody may be left to wait for them."""
        await self._registered.aclose()

    def unique(self, name: str) -> str:
        """Return a name that no other test has."""
        return f"{name}-{os.getpid()}-{next(_NUMBERS)}"

    async def namespace(self, **labels: str) -> str:
        """Make a namespace in which pods can be made, as soon as they can."""
        name = self.unique("test")
        await self.create(kinds.NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        for kind in reversed(_CONTENTS):
            self._own.push_async_callback(self.client.send, Request("DELETE", kind.path(name), _AT_ONCE))
        await self.until(ACCOUNTS, "default", name)
        return name

    async def create(self, kind: Kind[T], manifest: dict[str, Any], namespace: str = "") -> T:
        """Create an object; a cluster-scoped one is deleted at the end."""
        made = await self.client.create(kind, manifest, namespace)
        if not kind.namespaced:
            self._own.push_async_callback(self._delete, kind, made.name)
        return made

    async def _delete(self, kind: Kind[Any], name: str) -> None:
        with contextlib.suppress(errors.NotFoundError):
            # What holds it back in production has stopped with the test.
            if kind in {kinds.QUEUES, *kinds.LEGACY_QUEUES}:
                await self.client.patch(kind, name, {"metadata": {"finalizers": None}})
            await self.client.delete(kind, name)

    async def legacy_apis(self) -> None:
        """Serve kube-batch's kinds too."""
        await crds.apply(self.client, legacy_apis=True, adopt=True)

    async def node(self, cpu: str, memory: str = "16Gi", *, labels: Mapping[str, str] | None = None) -> str:
        """Add a simulated node; give its name when it is ready."""
        name = self.unique("node")
        amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
        meta = {"name": name, "labels": dict(labels or {}), "annotations": {"kwok.x-k8s.io/node": "fake"}}
        await self.create(kinds.NODES, {"metadata": meta, "status": {"capacity": amounts, "allocatable": amounts}})
        await self.until(kinds.NODES, name, holds=_ready)
        return name

    async def alone(self) -> None:
        """Take away what others left that a scheduler would care for: nodes, and what is or was to be scheduled.

        A controller that hasn't yet noticed that an owner is gone may go on creating for it, so what comes back is
        deleted too; and what held an object back in another test has stopped with that test.
        """
        for kind in (*_CONTENTS, kinds.NODES):
            for each in (await self.client.list(kind)).items:
                await self._clear(kind, each)
        for kind in (kinds.PODS, kinds.PODGROUPS):
            while left := (await self.client.list(kind)).items:
                for each in left:
                    await self._clear(kind, each)
                await self._gone(kind, {each.metadata.uid for each in left})

    async def _gone(self, kind: Kind[Any], uids: set[str]) -> None:
        await self.all(kind, holds=lambda items: not uids & {each.metadata.uid for each in items})

    async def _clear(self, kind: Kind[Any], each: objects.Object) -> None:
        with contextlib.suppress(errors.NotFoundError):
            if each.metadata.finalizers:
                await self.client.patch(kind, each.name, {"metadata": {"finalizers": None}}, each.namespace)
            await self.client.send(Request("DELETE", kind.path(each.namespace, each.name), _AT_ONCE))

    async def until(
        self,
        kind: Kind[T],
        name: str,
        namespace: str = "",
        holds: Callable[[T | None], Any] = lambda found: found is not None,
        within: float = PATIENCE,
    ) -> Any:
        """Wait, by watching, until something is so of an object (None while there is none), and give it."""
        return await wait.until(
            self.client, kind, name, namespace, holds=lambda found: bool(holds(found)), within=within
        )

    async def all(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        labels: str = "",
        holds: Callable[[list[T]], Any],
        within: float = PATIENCE,
    ) -> list[T]:
        """Wait, by watching, until something is so of all objects of a kind, and give them."""
        cache: ObjectCache[T] = ObjectCache()
        changed = asyncio.Event()
        cache.subscribe(lambda _: changed.set())
        reflector = Reflector(self.client, kind, cache, namespace=namespace, labels=labels)
        async with asyncio.timeout(within), running(reflector.run()):
            await reflector.wait_synced()
            while not holds(items := list(cache.items())):
                changed.clear()
                await changed.wait()
        return items

    async def register(
        self,
        *servers: WebhookServer,
        namespace: str,
        beside: Sequence[str] = (),
        own_namespace: str = "",
        legacy_apis: bool = False,
        chosen: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Have the API server call the webhooks for one namespace (and for all queues); return when it does.

        With several servers it calls them in turns. ``chosen`` picks webhooks by name; what shows that the API server
        has noticed are ``jobs.mutate.muster.sh`` and ``podgroupminresources.muster.sh``. ``beside``: other namespaces
        for which it calls them, unless they are the system's or ``own_namespace``.
        """
        base = UrlBase(await self._reach(servers))
        both = configurations(
            base,
            self._ca.certificate,
            scheduler_names=["muster"],
            legacy_apis=legacy_apis,
            own_namespace=own_namespace,
        )
        for kind, whole in zip((kinds.MUTATING, kinds.VALIDATING), both, strict=True):
            if webhooks := _narrowed(whole["webhooks"], [namespace, *beside], chosen):
                metadata = {"name": self.unique("muster")}
                made = await self.client.create(kind, {"metadata": metadata, "webhooks": webhooks})
                # Waited for too: a server that has ended would be missed by other tests, whose queues it judges.
                self._registered.push_async_callback(self._noticed, _PROBES[kind], namespace, called=False)
                self._registered.push_async_callback(self.client.delete, kind, made.name)
                await self._noticed(_PROBES[kind], namespace, called=True)

    async def register_sibling(self, server: WebhookServer, path: str, *, namespace: str) -> None:
        """Have the API server also call ``path``, as a mutating webhook of somebody else, for PodGroups of a namespace."""
        rule = {
            "apiGroups": [kinds.PODGROUPS.group],
            "apiVersions": ["*"],
            "resources": [kinds.PODGROUPS.plural],
            "operations": ["CREATE"],
        }
        config = UrlBase(await self._reach([server])).client_config(path)
        webhook = {
            "name": "sibling.example.com",
            "clientConfig": config | {"caBundle": base64.b64encode(self._ca.certificate).decode()},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {names.NAMESPACE_NAME: namespace}},
        }
        metadata = {"name": self.unique("sibling")}
        made = await self.client.create(kinds.MUTATING, {"metadata": metadata, "webhooks": [webhook]})
        self._registered.push_async_callback(self.client.delete, kinds.MUTATING, made.name)

    async def _noticed(
        self, probe: tuple[Kind[Any], Any, Callable[[Any], bool]], namespace: str, *, called: bool
    ) -> None:
        """Wait until the API server calls us, or doesn't any more: it takes a moment to notice, and tells nobody."""
        kind, manifest, shows = probe
        async with asyncio.timeout(PATIENCE):
            while shows(await self._tried(kind, manifest, namespace)) is not called:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)

    async def _tried(self, kind: Kind[Any], manifest: Any, namespace: str) -> Any:
        try:
            return await self.client.create(kind, manifest, namespace, dry_run=True)
        except errors.ForbiddenError as error:
            return error

    async def _reach(self, servers: Sequence[WebhookServer]) -> str:
        raise NotImplementedError


ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", objects.ConfigMap)
_PROBE = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
_PROBES: Mapping[Kind[Any], tuple[Kind[Any], Any, Callable[[Any], bool]]] = {
    kinds.MUTATING: (
        kinds.JOBS,
        {"metadata": {"name": "probe"}, "spec": {"template": {"spec": _PROBE}}},
        lambda answer: bool(answer.spec.suspend),
    ),
    kinds.VALIDATING: (
        kinds.PODGROUPS,
        {"metadata": {"name": "probe"}, "spec": {"queue": "no-such-queue"}},
        lambda answer: isinstance(answer, errors.ForbiddenError),
    ),
}
"""What is sent to find out whether webhooks of that kind are called, and what shows it."""


def _ready(node: Any) -> bool:
    conditions = (node.status.conditions if node is not None else None) or ()
    ready = any(each.type == "Ready" and each.status == "True" for each in conditions)
    return ready and not node.spec.taints


def _narrowed(webhooks: Any, namespaces: Sequence[str], chosen: Callable[[str], bool]) -> list[Any]:
    """Keep the chosen webhooks, for these namespaces: other tests' objects are none of ours."""
    mine = [copy.deepcopy(each) for each in webhooks if chosen(each["name"])]
    here = {"key": names.NAMESPACE_NAME, "operator": "In", "values": list(namespaces)}
    for webhook in mine:
        if "namespaceSelector" in webhook:
            webhook["namespaceSelector"]["matchExpressions"].append(here)
    return mine


class OnSandbox(Plane):
    """The sandbox, in this process and in virtual time."""

    def __init__(self, sandbox: Sandbox, caller: InProcess, folder: Path) -> None:
        super().__init__("sandbox", sandbox.transport(), sandbox.server.clock, folder)
        self.sandbox = sandbox
        self._caller = caller

    async def connect(self) -> Client:
        return Client(self.sandbox.transport())

    async def acting_as(self, user: str) -> Client:
        return Client(self.sandbox.transport(User(user, groups=ADMIN.groups)))

    async def _reach(self, servers: Sequence[WebhookServer]) -> str:
        return self._caller.serve(servers)


class OnKubernetes(Plane):
    """The real control plane. Whatever is registered is called over TLS on loopback."""

    def __init__(self, transport: Transport, kubeconfig: Path, folder: Path) -> None:
        super().__init__("kubernetes", transport, SystemClock(), folder)
        self._kubeconfig = kubeconfig

    async def legacy_apis(self) -> None:
        """Serve kube-batch's kinds too, until the end of the module: it takes seconds to take up new ones."""
        if self._kubeconfig not in _LEGACY:
            await super().legacy_apis()
            _LEGACY.add(self._kubeconfig)

    async def connect(self) -> Client:
        return Client(await self._own.enter_async_context(HttpTransport(await auth.load(str(self._kubeconfig)))))

    async def acting_as(self, user: str) -> Client:
        admin = await auth.load(str(self._kubeconfig))

        async def headers() -> Mapping[str, str]:
            return {**await admin.headers(), "Impersonate-User": user, "Impersonate-Group": "system:masters"}

        impersonated = msgspec.structs.replace(admin, headers=headers)
        return Client(await self._own.enter_async_context(HttpTransport(impersonated)))

    async def _reach(self, servers: Sequence[WebhookServer]) -> str:
        if len(servers) == 1:
            return f"https://127.0.0.1:{servers[0].port}"
        turns = itertools.cycle([server.port for server in servers])
        listener = await asyncio.start_server(partial(forward, turns), "127.0.0.1", 0)
        self._registered.callback(listener.close)
        return f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def forward(turns: Iterable[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass a connection on to the next port of loopback, as a Service would."""
    other_reader, other_writer = await asyncio.open_connection("127.0.0.1", next(iter(turns)))
    await asyncio.gather(_pump(reader, other_writer), _pump(other_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while (data := await reader.read(1 << 16)) and not writer.is_closing():
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def running(*parts: Awaitable[None]) -> AsyncIterator[None]:
    """Run them while the context is open."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@contextlib.asynccontextmanager
async def open_plane(real: ControlPlane | None, folder: Path) -> AsyncIterator[Plane]:
    """Return the real control plane, or a sandbox of the test's own."""
    async with contextlib.AsyncExitStack() as stack:
        plane: Plane
        if real is None:
            caller = InProcess()
            sandbox = Sandbox(LoopClock(_START), caller=caller)
            await sandbox.start()
            stack.push_async_callback(sandbox.stop)
            plane = OnSandbox(sandbox, caller, folder)
        else:
            kubeconfig = real.kubeconfig()
            transport = await stack.enter_async_context(HttpTransport(await auth.load(str(kubeconfig))))
            plane = OnKubernetes(transport, kubeconfig, folder)
        await _install(plane.client, real)
        stack.push_async_callback(plane.close)
        yield plane


def without_legacy_apis() -> None:
    """Serve kube-batch's kinds nowhere any more: beside them, ``podgroup`` means to kubectl one of theirs."""
    while _LEGACY:
        asyncio.run(_remove_legacy_apis(_LEGACY.pop()))


async def _remove_legacy_apis(kubeconfig: Path) -> None:
    async with HttpTransport(await auth.load(str(kubeconfig))) as transport:
        client = Client(transport)
        for kind in (*kinds.LEGACY_PODGROUPS, *kinds.LEGACY_QUEUES):
            await client.delete(kinds.CRDS, str(kind))
            await wait.until(client, kinds.CRDS, str(kind), holds=lambda crd: crd is None, within=PATIENCE)


async def _install(client: Client, real: ControlPlane | None) -> None:
    """Install Muster's kinds: once on the real control plane."""
    if real is not None and real in _INSTALLED:
        return
    await crds.apply(client, legacy_apis=False, adopt=True)
    if real is not None:
        _INSTALLED.add(real)


_INSTALLED: set[ControlPlane] = set()
_LEGACY: set[Path] = set()
"""The kubeconfigs of real control planes on which kube-batch's kinds are served now."""
