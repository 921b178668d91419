"""A cluster with webhook configurations, and replicas that take up their certificate when a test says so."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from plane import Plane, running

from certs import bundle, stored
from certs.bundle import KeyPair
from certs.controller import ChangeWatcher, StepRunner
from certs.publish import CertificateSettings, RotationTarget, Rotator, StepResult
from certs.replicas import ProbeResult
from certs.rotation import RotationCommand
from certs.state import RotationPhase, RotationWaits
from certs.stored import ServerSecret, StoredKeys
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.model import kinds

SHORT = RotationWaits(timedelta(seconds=0.3), timedelta(seconds=0.3))
HOSTS = ("muster-webhook.muster-system.svc", "127.0.0.1")


class Fleet:
    """Replicas by address; each serves what it took up last. As `certs.replicas.Prober`."""

    def __init__(self, *addresses: str) -> None:
        self.serving: dict[str, KeyPair | None] = dict.fromkeys(addresses)
        self.silent: set[str] = set()
        self.lagging: set[str] = set()

    async def __call__(self, address: str, name: str) -> ProbeResult:  # noqa: ARG002 - what a prober is asked
        pair = self.serving[address]
        if address in self.silent or pair is None:
            return ProbeResult(trouble="connection refused")
        return ProbeResult(bundle.certificates(pair.certificate))

    def take_up(self, pair: KeyPair) -> None:
        for address in self.serving:
            if address not in self.lagging:
                self.serving[address] = pair


def webhook(name: str, trusted: bytes = b"") -> dict[str, Any]:
    """A webhook that nothing matches."""
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"]}
    config = {"url": "https://127.0.0.1:9443/validate", "caBundle": base64.b64encode(trusted).decode()}
    return {
        "name": name,
        "clientConfig": config if trusted else {"url": config["url"]},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }


class Setting:
    """What a test of rotation has to do with: a namespace and configurations of its own, and three replicas."""

    def __init__(self, client: Client, clock: Clock, target: RotationTarget) -> None:
        self.client = client
        self.clock = clock
        self.target = target
        self.fleet = Fleet("a:1", "b:1", "c:1")
        self.said: list[str] = []
        self._heard = asyncio.Event()

    def rotator(self, client: Client | None = None) -> Rotator:
        return Rotator(client or self.client, self.clock, self.target, self.fleet)

    webhook = staticmethod(webhook)
    short = SHORT

    async def configure(self, trusted: bytes = b"", **metadata: Any) -> None:
        for kind in (kinds.VALIDATING, kinds.MUTATING):
            hooks = [webhook("one.example.com", trusted), webhook("two.example.com", trusted)]
            manifest = {"metadata": {"name": self.target.configuration, **metadata}, "webhooks": hooks}
            await self.client.create(kind, manifest)

    async def init(self, waits: RotationWaits = SHORT) -> None:
        await self.rotator().begin(CertificateSettings(HOSTS, tuple(self.fleet.serving), waits))

    async def begun(self) -> None:
        """Have certificates, and webhooks that trust them."""
        await self.configure()
        await self.init()
        await self.drive()

    async def keys(self) -> StoredKeys:
        return stored.read_keys(await self.client.get(kinds.SECRETS, stored.CA, self.target.namespace))

    async def served(self) -> ServerSecret:
        return stored.read_served(await self.client.find(kinds.SECRETS, stored.TLS, self.target.namespace))

    async def trusted(self) -> list[bytes]:
        """Return the bundle of every webhook."""
        found = [await self.client.get(kind, self.target.configuration) for kind in (kinds.VALIDATING, kinds.MUTATING)]
        return [base64.b64decode(each["clientConfig"].get("caBundle", "")) for one in found for each in one.webhooks]

    async def drive(
        self,
        until: RotationPhase = RotationPhase.STEADY,
        requested: RotationCommand | None = None,
        *,
        client: Client | None = None,
        idle: bool = True,
    ) -> StepResult:
        """Take steps until nothing is left to do in a phase; unless ``idle``, no more than enters it."""
        client = client or self.client
        changes = ChangeWatcher(client, self.target.watched)
        first = True

        def holds(turn: StepResult) -> bool:
            nonlocal first
            asked, first = first and requested is not None, False
            if not idle:
                # By what was done: on a slow machine the turn that sees the phase may be the one that leaves it.
                return f" -> {until.value}:" in turn.did
            return not asked and turn.state.phase is until and not turn.did

        async with changes.watched(), asyncio.timeout(60):
            driver = StepRunner(self.rotator(client), changes, self.clock)
            return await driver.until(holds, self._hear, requested)

    def _hear(self, turn: StepResult) -> None:
        self.said.append(turn.did or turn.step.why)
        self._heard.set()

    async def hears(self, text: str) -> None:
        """Wait until something is said."""
        async with asyncio.timeout(60):
            while not any(text in said for said in self.said):
                self._heard.clear()
                await self._heard.wait()

    @contextlib.asynccontextmanager
    async def taking_up(self, after: float = 0.0, look: float = 0.1) -> AsyncIterator[None]:
        """Have the replicas follow the Secret, looking each ``look`` seconds, and late by ``after``."""

        async def follow() -> None:
            while True:
                with contextlib.suppress(errors.KubeError):
                    served = await self.served()
                    await asyncio.sleep(after)
                    if served.pair.key:
                        self.fleet.take_up(served.pair)
                await asyncio.sleep(look)

        async with running(follow()):
            yield


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at replicas five times a second instead of every other: each of a rotation's phases waits for a look."""
    for module in ("certs.controller", "muster.cli.certs.text"):
        monkeypatch.setattr(f"{module}.PROBE_INTERVAL", 0.2)


@pytest.fixture
async def setting(plane: Plane, request: pytest.FixtureRequest) -> AsyncIterator[Setting]:
    if plane.name == "kubernetes":
        request.getfixturevalue("quick_looks")
    namespace = await plane.namespace()
    target = RotationTarget(namespace, plane.unique("certificates"))
    yield Setting(plane.client, plane.clock, target)
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        with contextlib.suppress(errors.NotFoundError):
            await plane.client.delete(kind, target.configuration)


@pytest.fixture(scope="session")
def make_setting() -> type[Setting]:
    """How a test makes one on an API server of its own."""
    return Setting


@pytest.fixture(scope="session")
def check() -> Callable[[Setting], Any]:
    """Say whether every webhook accepts what every replica shows."""

    async def accepted(setting: Setting) -> None:
        for pem in await setting.trusted():
            for pair in setting.fleet.serving.values():
                assert pair is not None
                chain = bundle.certificates(pair.certificate)
                bundle.accepted(chain, bundle.certificates(pem), HOSTS[0], setting.clock.now())

    return accepted
