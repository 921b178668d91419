"""Muster in one process: the admission server and the worker, beside a cluster or with an embedded one.

Each context manager here is entered when all of it serves, gives an awaitable that ends only with the error of a part
that failed, and leaves nothing running and nothing listening.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
from msgspec import Struct, field
from msgspec.structs import replace

from certs import authority, paths
from certs.bundle import KeyPair
from certs.serving import CertificateFiles
from certs.state import RotationWaits
from muster.cli.installation import crds, namespaces, permissions, preflight, webhook_configurations
from muster.cli.local import kubeconfig_file
from muster.cli.local.certificates import StoredCertificates
from muster.cli.local.configuration import StoredConfiguration
from muster.cli.local.private_files import write_pair, write_private
from muster.kube import auth, wait
from muster.kube.client import Client
from muster.kube.clock import Clock, SystemClock
from muster.kube.fence import Fence
from muster.kube.http import HttpTransport
from muster.kube.lease import LeaderElector
from muster.kube.transport import Request, Response, Transport
from muster.model import kinds, names
from muster.sandbox.compose import Sandbox
from muster.sandbox.core.users import ADMIN, User
from muster.sandbox.http import HttpFront, HttpWebhookCaller, kubeconfig
from muster.visibility.api import resources
from muster.visibility.paths import GROUP
from muster.visibility.program import VisibilityOptions, answering
from muster.visibility.requestheader import Caller
from scheduler.configuration.reload import LivePolicy
from scheduler.engine.policy import Policy
from scheduler.leader.worker import Worker
from webhooks.compose import WebhookOptions, serving
from webhooks.registration import UrlBase, configurations
from webhooks.server import ListenOptions, WebhookServer
from webhooks.settings import WebhookSettings

LOOPBACK: Final = "127.0.0.1"
_LEADING_SECONDS: Final = 30.0
_HERE: Final = RotationWaits(spread=timedelta(seconds=1), soak=timedelta(seconds=2))
"""The embedded API server has a new bundle at once, and the one replica its new certificate within two seconds."""
_HOSTS: Final = (LOOPBACK, "localhost")


class SimulatedNodes(Struct, frozen=True):
    """How many simulated nodes, and what each has; amounts as Kubernetes writes them."""

    count: int
    cpu: str
    memory: str
    pods: int


class LocalOptions(Struct, frozen=True):
    """What a person may choose of Muster itself; ``config`` is the file that the policy came from, to be followed.

    ``waits`` is how long a rotation of the CA waits for API servers and replicas.
    """

    schedulers: tuple[str, ...]
    legacy_apis: bool
    adopt_crds: bool
    policy: Policy
    config: Path | None = None
    waits: RotationWaits = field(default_factory=RotationWaits)


def default_kubeconfig() -> Path:
    """Return where the embedded cluster's kubeconfig goes unless told: one for each process, since several may run."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "muster" / f"kubeconfig-{os.getpid()}"


@contextlib.asynccontextmanager
async def embedded(
    file: Path, port: int, nodes: SimulatedNodes, wishes: LocalOptions
) -> AsyncIterator[Awaitable[None]]:
    """Run an API server in memory with simulated nodes, and Muster on it; write the kubeconfig to ``file``.

    Raises:
        OSError: the port is taken, or the file can't be written.
        ClickException: the file is somebody else's.
    """
    kubeconfig_file.check(file)
    clock = SystemClock()
    ca = authority.new_ca(clock.now())
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-")))
        pair = authority.issue(ca, (*_HOSTS, "kubernetes.default.svc"), clock.now())
        caller = HttpWebhookCaller()
        stack.push_async_callback(caller.close)
        sandbox = Sandbox(clock, caller=caller, root_ca=ca.certificate.decode())
        await sandbox.start()
        stack.push_async_callback(sandbox.stop)
        token = secrets.token_urlsafe(32)
        front = HttpFront(sandbox.server, users={token: ADMIN}, tls=_context(pair, folder), host=LOOPBACK, port=port)
        url = await front.start()
        stack.push_async_callback(front.stop)
        for number in range(1, nodes.count + 1):
            await sandbox.add_node(f"node-{number}", nodes.cpu, nodes.memory, nodes.pods)
        inside = sandbox.transport()
        trouble = await stack.enter_async_context(
            _muster(inside, inside, ca, folder / "webhook", clock, replace(wishes, waits=_HERE))
        )
        await _visible(stack, sandbox, clock, wishes)
        stack.enter_context(kubeconfig_file.written(file, kubeconfig(url, token, ca.certificate)))
        yield trouble


async def _visible(stack: contextlib.AsyncExitStack, sandbox: Sandbox, clock: Clock, wishes: LocalOptions) -> None:
    """Serve the visibility API, in this process, of whose users everybody may ask everything."""
    options = VisibilityOptions(
        Path(), wishes.policy, wishes.schedulers, crds.manifests(legacy_apis=wishes.legacy_apis), wishes.config,
        legacy_apis=wishes.legacy_apis,
    )  # fmt: skip
    api = await stack.enter_async_context(answering(Client(sandbox.transport()), clock, options))

    async def handle(request: Request, user: User) -> Response:
        return await api.handle(request, Caller(user.name, user.uid, user.groups, user.extra))

    sandbox.server.aggregate(GROUP, resources(), handle)


@contextlib.asynccontextmanager
async def beside(file: Path, context: str | None, wishes: LocalOptions) -> AsyncIterator[Awaitable[None]]:
    """Run Muster beside an existing cluster, from outside; its webhook configurations and policy go when it ends.

    Raises:
        KubeError: the cluster can't be reached, or doesn't let us.
        ClickException: another product's kinds stand in the way, or Muster runs in it.
    """
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        endpoint = await auth.load(str(file), context)
        transport = await stack.enter_async_context(HttpTransport(endpoint))
        # The webhooks have connections of their own: were all of them taken by writes of ours that wait for a review,
        # the review would wait for them.
        reviewing = await stack.enter_async_context(HttpTransport(endpoint))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-")))
        ca = authority.new_ca(clock.now())
        await preflight.others(Client(transport), webhook_configurations.NAME)
        await preflight.alone(Client(transport), webhook_configurations.NAME)
        yield await stack.enter_async_context(_muster(transport, reviewing, ca, folder, clock, wishes))


@contextlib.asynccontextmanager
async def _muster(
    transport: Transport, reviewing: Transport, ca: KeyPair, folder: Path, clock: Clock, wishes: LocalOptions
) -> AsyncIterator[Awaitable[None]]:
    """Install the kinds, keep the ledgers to ourselves, serve and register the webhooks, lead."""
    client = Client(transport)
    await crds.apply(client, legacy_apis=wishes.legacy_apis, adopt=wishes.adopt_crds)
    await namespaces.ensure(client, names.SYSTEM_NAMESPACE)
    user = await _whoami(client)
    async with contextlib.AsyncExitStack() as stack:
        pair = authority.issue(ca, _HOSTS, clock.now())
        write_pair(pair, folder)
        stack.push_async_callback(permissions.remove, client, permissions.policies())
        await permissions.apply(client, permissions.policies(user, schedulers=wishes.schedulers))
        settings = WebhookSettings(
            scheduler_names=wishes.schedulers, accounts=frozenset({user}), delay=wishes.policy.enqueues
        )
        # One for as long as this runs: nobody else's processes on this machine know it.
        segment = paths.segment(secrets.token_bytes(paths.BYTES))
        write_private(folder / names.SEGMENTS_FILE, segment)
        options = WebhookOptions(
            CertificateFiles(folder),
            ListenOptions(LOOPBACK, 0, drain=0),
            settings=settings,
            legacy_apis=wishes.legacy_apis,
            paths=folder,
        )
        server = await stack.enter_async_context(serving(Client(reviewing), clock, options))
        url = f"https://{LOOPBACK}:{server.port}"
        stack.push_async_callback(webhook_configurations.remove, client, url)
        await webhook_configurations.apply(
            client,
            *configurations(
                UrlBase(url, segment),
                ca.certificate,
                scheduler_names=wishes.schedulers,
                legacy_apis=wishes.legacy_apis,
                own_namespace=names.SYSTEM_NAMESPACE,
            ),
        )
        certificates = StoredCertificates(client, clock, folder, wishes.waits)
        stack.push_async_callback(certificates.remove)
        await certificates.store(ca, pair, _HOSTS, f"{LOOPBACK}:{server.port}")
        following = asyncio.create_task(certificates.follow(), name="certificates")
        stack.push_async_callback(_cancelled, following)
        stored = StoredConfiguration(client, wishes.config)
        stack.push_async_callback(stored.remove)
        await stored.store()
        elected = asyncio.Event()
        leading = asyncio.create_task(_lead(client, clock, wishes, server, stored, elected), name="worker")
        stack.push_async_callback(_cancelled, leading)
        await _led(client, leading, elected)
        yield leading


async def _lead(
    client: Client,
    clock: Clock,
    wishes: LocalOptions,
    server: WebhookServer,
    stored: StoredConfiguration,
    elected: asyncio.Event,
) -> None:
    worker = Worker(client, clock, wishes.policy, wishes.schedulers, legacy_apis=wishes.legacy_apis)

    def adopt(policy: Policy) -> None:
        # First admission: a Job that it suspends is resumed, one that it doesn't is never held back.
        server.delay(policy.enqueues)
        worker.adopt(policy)
        stored.changed()

    async def lead(fence: Fence) -> None:
        elected.set()
        await worker.run(fence)

    live = LivePolicy(wishes.config, worker.metrics.registry) if wishes.config is not None else None
    following = asyncio.create_task(live.run(adopt), name="configuration") if live is not None else None
    try:
        await LeaderElector(client, names.SYSTEM_NAMESPACE, names.SCHEDULER_LEASE, "muster-up", clock).run(lead)
    finally:
        if following is not None:
            following.cancel()


async def _led(client: Client, leading: asyncio.Task[None], elected: asyncio.Event) -> None:
    """Wait until the worker leads and there is the default queue, the first thing that a leader makes.

    Either alone doesn't do: the queue may be of an earlier run, while another program may still take the Lease.
    """
    made = asyncio.create_task(_elected_with_queue(client, elected))
    await asyncio.wait([made, leading], return_when=asyncio.FIRST_COMPLETED)
    if leading.done():
        await _cancelled(made)
        leading.result()
    await made


async def _elected_with_queue(client: Client, elected: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(elected.wait(), _LEADING_SECONDS)
    except TimeoutError as error:
        where = f"{names.SYSTEM_NAMESPACE}/{names.SCHEDULER_LEASE}"
        raise click.ClickException(f"another program holds the Lease {where}; end that program first") from error
    await wait.until(
        client,
        kinds.QUEUES,
        names.DEFAULT_QUEUE,
        holds=lambda queue: queue is not None and bool(queue.status.state),
        within=_LEADING_SECONDS,
    )


async def _cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _whoami(client: Client) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = await client.send(Request("POST", path, {}, json.dumps(review).encode()))
    return str(json.loads(answer.body)["status"]["userInfo"]["username"])


def _context(pair: KeyPair, folder: Path) -> ssl.SSLContext:
    write_pair(pair, folder / "apiserver")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "apiserver" / "tls.crt", folder / "apiserver" / "tls.key")
    return context
