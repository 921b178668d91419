"""Looks at the certificates of a cluster and takes the next step of `certs.rotation`, one at a time.

Any number of these may run at once, and each may end anywhere. What is read is read in an order that makes a late
writer lose: the configurations and the servers' Secret before the phase, and every write demands the version that was
read. So who decided by an older phase finds that what it would write was written since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from certs import authority, bundle, mounts, observation, replicas, rotation, stored, targets
from certs.bundle import KeyPair
from certs.observation import Observation, RefusedError
from certs.replicas import Prober, ProbeResult
from certs.rotation import RotationAction, RotationCommand, RotationStep
from certs.state import PROVING, CertificateState, RotationPhase, RotationWaits
from certs.stored import ServerSecret, StoredKeys
from certs.targets import BundleTarget
from muster.kube import decoding, errors
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.transport import Request
from muster.model import kinds
from muster.model.kinds import Kind
from muster.model.objects import Secret


class RotationTarget(Struct, frozen=True):
    """Whose certificates: the namespace of the Secrets, the webhook configurations' name, CRDs that convert by webhook."""

    namespace: str = "muster-system"
    configuration: str = "muster"
    definitions: tuple[str, ...] = ()

    @property
    def watched(self) -> list[tuple[Kind[Any], str, str]]:
        """The objects that a rotation reads: kind, name, namespace."""
        return [
            (kinds.SECRETS, stored.CA, self.namespace),
            (kinds.SECRETS, stored.TLS, self.namespace),
            (kinds.VALIDATING, self.configuration, ""),
            (kinds.MUTATING, self.configuration, ""),
            *((kinds.CRDS, name, "") for name in self.definitions),
        ]


class CertificateSettings(Struct, frozen=True):
    """What somebody says of certificates; None is what there is, or the usual."""

    hosts: tuple[str, ...] | None = None
    probes: tuple[str, ...] | None = None
    waits: RotationWaits | None = None

    def of(self, keys: StoredKeys) -> StoredKeys:
        """Return the Secret's content with what was said."""
        return replace(
            keys,
            hosts=self.hosts if self.hosts is not None else keys.hosts,
            probes=self.probes if self.probes is not None else keys.probes,
            waits=self.waits or keys.waits,
        )


class StepResult(Struct, frozen=True):
    """One step: what was to be done in which state, and what was done, a sentence; empty for waiting.

    ``conflict`` is whether another was quicker, so that nothing was done.
    """

    step: RotationStep
    state: CertificateState
    did: str = ""
    conflict: bool = False


class Rotator:
    """Takes steps, for one `RotationTarget`."""

    def __init__(self, client: Client, clock: Clock, target: RotationTarget, prober: Prober = replicas.probe) -> None:
        self._client = client
        self._clock = clock
        self._prober = prober
        self.target = target

    async def look(self, *, probing: bool | None = None, named: Sequence[str] = ()) -> Observation:
        """See what there is; replicas only where the phase depends on them, unless ``probing`` says otherwise.

        ``named`` are replicas (HOST:PORT) to look at, beside those that are known.

        Raises:
            StateError: the Secret of the CA is damaged.
            KubeError: the API server can't be read.
        """
        found = tuple([target async for target in self._targets()])
        served = stored.read_served(await self._client.find(kinds.SECRETS, stored.TLS, self.target.namespace))
        secret, clock = await self._authority()
        unfilled_version = secret.metadata.resource_version if secret is not None and not secret.data else ""
        keys = stored.read_keys(secret) if secret is not None and not unfilled_version else None
        seen = Observation(self._clock.now(), found, served, keys, clock=clock, unfilled_version=unfilled_version)
        if probing is None:
            probing = keys is not None and keys.phase in PROVING
        return replace(seen, shown=await self._shown(seen, named)) if probing else seen

    async def take_step(self, requested: RotationCommand | None = None) -> StepResult:
        """Take the next step.

        Raises:
            RefusedError: there is nothing to take care of: `muster certs init` wasn't run.
            StateError: the Secret of the CA is damaged.
            CertificateError: what would be published would not be accepted; nothing was.
            KubeError: the API server can't be read or doesn't allow it.
        """
        seen = await self.look()
        if seen.keys is None and seen.unfilled_version:
            await self.begin(CertificateSettings())
            seen = await self.look()
        state = seen.state()
        step = rotation.plan(state, seen.now, requested)
        try:
            return StepResult(step, state, await self._perform(step, seen, state))
        except errors.ConflictError:
            return StepResult(step, state, "another was quicker; looking again", conflict=True)

    def plan(self, state: CertificateState, requested: RotationCommand | None = None) -> RotationStep:
        """Say what the next step would be."""
        return rotation.plan(state, self._clock.now(), requested)

    async def begin(self, wanted: CertificateSettings) -> str:
        """Make the CA where there is none, or change what is said of it; give what was done, nothing where all is so.

        Where another CA is trusted at present, this begins the rotation from it to ours.

        Raises:
            RefusedError: cert-manager does it.
            KubeError: the API server can't be read or doesn't allow it.
        """
        seen = await self.look(probing=False)
        if reason := observation.foreign(seen.targets):
            raise RefusedError(reason)
        try:
            if seen.keys is not None:
                return await self._amend(seen.keys, wanted)
            keys = replace(wanted.of(self._first(seen)), version=seen.unfilled_version)
            if not seen.served.version:
                # Empty, and before the CA: the leader, who may already look, fills it but may not make it.
                await self._create(stored.served_manifest(seen.served, self.target.namespace))
            await (
                self._write(keys)
                if seen.unfilled_version
                else self._create(stored.keys_manifest(keys, self.target.namespace))
            )
        except errors.ConflictError:
            return await self.begin(wanted)
        return f"made CA {_subject(keys.following or keys.current)} in Secret {self.target.namespace}/{stored.CA}"

    async def hold(self, phase: RotationPhase | None) -> None:
        """Have the rotation stop in a phase, or go on.

        Raises:
            KubeError: the API server can't be read or doesn't allow it.
        """
        keys = (await self.look(probing=False)).keys
        if keys is None or keys.hold is phase:
            return
        try:
            await self._write(replace(keys, hold=phase))
        except errors.ConflictError:
            await self.hold(phase)

    async def inject(self, trusted: bytes) -> list[str]:
        """Write a bundle (PEM) into every configuration; name those that had another.

        Raises:
            ConflictError: one was changed at the same time.
        """
        wanted = observation.fingerprints(trusted)
        changed = []
        async for target in self._targets():
            if any(entry.fingerprints != wanted for entry in target.entries):
                await self._apply(target, trusted)
                changed.append(str(target))
        return changed

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _targets(self) -> AsyncIterator[BundleTarget]:
        for kind in (kinds.VALIDATING, kinds.MUTATING):
            if (found := await self._client.find(kind, self.target.configuration)) is not None:
                yield targets.of_configuration(kind, found)
        for name in self.target.definitions:
            if (definition := await self._client.find(kinds.CRDS, name)) is not None:
                yield targets.of_definition(definition)

    async def _authority(self) -> tuple[Secret | None, datetime | None]:
        """Read the Secret of the CA, and the server's clock beside it."""
        try:
            answer = await self._client.send(Request("GET", kinds.SECRETS.path(self.target.namespace, stored.CA)))
        except errors.NotFoundError:
            return None, None
        return decoding.strictly(Secret, answer.body), replicas.date(answer.headers.get("date", ""))

    async def _shown(self, seen: Observation, more: Sequence[str]) -> dict[str, ProbeResult] | None:
        services = [entry.service for target in seen.targets for entry in target.entries if entry.service is not None]
        named = (*(seen.keys.probes if seen.keys is not None else ()), *more)
        addresses = await replicas.find(self._client, services, named)
        hosts = observation.hosts(seen, self.target.namespace)
        return await replicas.look(self._prober, addresses, hosts[0]) if addresses is not None else None

    # ── doing ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _perform(self, step: RotationStep, seen: Observation, state: CertificateState) -> str:
        assert seen.keys is not None
        match step.action:
            case RotationAction.BUNDLE:
                await self._serve(replace(seen.served, trusted=observation.trusted(state, seen.keys)))
                return f"wrote a bundle of {_count(state)} to Secret {stored.TLS}"
            case RotationAction.INJECT:
                return await self._inject(seen, state)
            case RotationAction.ISSUE:
                return await self._issue(seen, state, step.why)
            case RotationAction.ENTER:
                new = None
                if (state.phase, step.phase) == (RotationPhase.STEADY, RotationPhase.PUBLISH):
                    new = authority.new_ca(seen.now, seen.keys.generation + 1)
                await self._write(seen.keys.entered(step.phase, seen.now, new))
                made = f"made CA {_subject(new)}; " if new is not None else ""
                return f"{made}{state.phase.value} -> {step.phase.value}: {step.why}"
            case RotationAction.WAIT:
                return ""

    async def _inject(self, seen: Observation, state: CertificateState) -> str:
        assert seen.keys is not None
        trusted = observation.trusted(state, seen.keys)
        out_of_date = set(state.out_of_date)
        changed = [each for each in seen.targets if any(each.key(entry) in out_of_date for entry in each.entries)]
        for target in changed:
            await self._apply(target, trusted)
        return f"wrote a bundle of {_count(state)} to {' and '.join(map(str, changed))}"

    async def _apply(self, target: BundleTarget, trusted: bytes) -> None:
        await self._client.apply(target.kind, target.manifest(trusted), manager=targets.MANAGER)

    async def _issue(self, seen: Observation, state: CertificateState, why: str) -> str:
        keys = seen.keys
        assert keys is not None
        signer = keys.following if state.issuer is state.following and keys.following is not None else keys.current
        hosts = observation.hosts(seen, self.target.namespace)
        trusted = observation.trusted(state, keys)
        pair = authority.issue(signer, hosts, seen.now)
        for host in hosts:
            bundle.check(pair, trusted, host, seen.now)
        await self._serve(replace(seen.served, pair=pair, trusted=trusted))
        return f"issued a certificate until {pair.not_after:%Y-%m-%d %H:%M} UTC into Secret {stored.TLS}: {why}"

    async def _serve(self, served: ServerSecret) -> None:
        manifest = stored.served_manifest(served, self.target.namespace)
        if served.version:
            await self._client.patch(kinds.SECRETS, stored.TLS, manifest, self.target.namespace)
        else:
            await self._create(manifest)
        await mounts.refresh(self._client, self._clock, self.target.namespace)

    async def _create(self, manifest: dict[str, Any]) -> None:
        try:
            await self._client.create(kinds.SECRETS, manifest, self.target.namespace)
        except errors.ForbiddenError as error:
            # The leader's account may change ours and make none.
            name = manifest["metadata"]["name"]
            text = f"Secret {name} doesn't exist and may not be made here ({error}): run `muster certs renew`"
            raise RefusedError(text) from error

    async def _write(self, keys: StoredKeys) -> None:
        manifest = stored.keys_manifest(keys, self.target.namespace)
        await self._client.patch(kinds.SECRETS, stored.CA, manifest, self.target.namespace)

    async def _amend(self, keys: StoredKeys, wanted: CertificateSettings) -> str:
        after = wanted.of(keys)
        if after == keys:
            return ""
        await self._write(after)
        return f"noted what was said in Secret {self.target.namespace}/{stored.CA}"

    def _first(self, seen: Observation) -> StoredKeys:
        new = authority.new_ca(seen.now)
        hosts = observation.hosts(seen, self.target.namespace)
        before = observation.trusted_before(seen)
        if not before:
            return StoredKeys(RotationPhase.STEADY, seen.now, 1, new, hosts=hosts)
        return StoredKeys(RotationPhase.PUBLISH, seen.now, 0, KeyPair(before, b""), new, hosts=hosts)


def _count(state: CertificateState) -> str:
    return "1 CA" if len(state.wanted) == 1 else f"{len(state.wanted)} CAs"


def _subject(pair: KeyPair) -> str:
    return bundle.describe(pair.parsed()).subject
