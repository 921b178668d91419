"""Takes the next step of `certs.paths`, one at a time: for the leader and for `muster certs rotate-path`, whatever issues certificates.

Like `certs.publish` it may end anywhere, and others may do the same: the configurations are read before the Secret, and every
write demands the version that was read.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from certs import mounts, path_probe, path_secret, paths, replicas, stored
from certs.path_probe import PathProbe, PathProber
from certs.path_secret import PathTarget
from certs.paths import PathAction, PathState, PathStep, PathWaits, Segments
from certs.stored import StoredCAError
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.model import kinds
from muster.model.kinds import Kind

_ATTEMPTS: Final = 8


class PathObservation(Struct, frozen=True):
    """What was seen at once; ``segments`` is None where the Secret is empty, ``version`` empty where there is none."""

    targets: tuple[PathTarget, ...]
    segments: Segments | None
    version: str
    probes: Mapping[str, PathProbe] | None = None

    def first(self, now: datetime) -> Segments:
        """Return what is to be stored where nothing is."""
        return paths.first(now, (each.segment for target in self.targets for each in target.entries))

    def state(self, waits: PathWaits) -> PathState:
        """Return it as what is decided upon."""
        assert self.segments is not None
        return PathState(
            self.segments,
            {f"{target.kind.plural}/{each.name}": each.segment for target in self.targets for each in target.entries},
            {address: each.taken for address, each in self.probes.items()} if self.probes is not None else None,
            max((each.failed_at for each in (self.probes or {}).values() if each.failed_at is not None), default=None),
            waits,
            bool(self.probes) and all(each.hung_up for each in (self.probes or {}).values()),
        )


def watched(namespace: str, configuration: str) -> list[tuple[Kind[Any], str, str]]:
    """Return the objects that tell of their changes and are read for the paths: kind, name, namespace."""
    return [
        (kinds.SECRETS, path_secret.PATH, namespace),
        (kinds.VALIDATING, configuration, ""),
        (kinds.MUTATING, configuration, ""),
    ]


async def stored_segments(client: Client, namespace: str) -> Segments | None:
    """Return what the Secret holds; None where there is none, or nothing in it.

    Raises:
        StoredPathError: it is damaged.
        KubeError: the API server can't be read.
    """
    secret = await client.find(kinds.SECRETS, path_secret.PATH, namespace)
    return path_secret.read(secret) if secret is not None else None


class PathRotator:
    """Takes steps, for the configurations of one name and the Secret in one namespace.

    Attributes:
        seen: what there was when a step was taken last; None where there is no Secret, or nothing in it.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        configuration: str = "muster",
        *,
        prober: PathProber = path_probe.probe,
        waits: PathWaits | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self.configuration = configuration
        self.seen: PathState | None = None
        self._prober = prober
        self._waits = waits or PathWaits()

    async def look(self) -> PathObservation:
        """See what there is.

        Raises:
            StoredPathError: the Secret is damaged.
            KubeError: the API server can't be read.
        """
        both = [
            (kind, await self._client.find(kind, self.configuration)) for kind in (kinds.VALIDATING, kinds.MUTATING)
        ]
        found = [path_secret.of_configuration(kind, each) for kind, each in both if each is not None]
        secret = await self._client.find(kinds.SECRETS, path_secret.PATH, self._namespace)
        if secret is None:
            return PathObservation(tuple(found), None, "")
        segments = path_secret.read(secret)
        seen = PathObservation(tuple(found), segments, secret.metadata.resource_version)
        if segments is None:
            return seen
        return PathObservation(seen.targets, segments, seen.version, await self._probed(seen, segments.proved))

    async def take_step(self, *, requested: bool = False) -> PathStep:
        """Take the next step, and return it; ``requested`` is whether somebody asks for another segment.

        Raises:
            StoredPathError: the Secret is damaged.
            ConflictError: another was quicker.
            KubeError: the API server can't be read or doesn't allow it.
        """
        seen, now = await self.look(), self._clock.now()
        self.seen = seen.state(self._waits) if seen.segments is not None else None
        step = self._planned(seen, now, requested=requested)
        await self._perform(step, seen, now)
        return step

    async def plan(self, *, requested: bool = False) -> PathStep:
        """Return what the next step would be.

        Raises:
            StoredPathError: the Secret is damaged.
            KubeError: the API server can't be read.
        """
        return self._planned(await self.look(), self._clock.now(), requested=requested)

    def _planned(self, seen: PathObservation, now: datetime, *, requested: bool) -> PathStep:
        if not seen.version:
            return PathStep(PathAction.WAIT, f"there is no Secret {path_secret.PATH}: run `muster certs init`")
        if seen.segments is None:
            return PathStep(PathAction.FILL, "the Secret is empty")
        return paths.plan(seen.state(self._waits), now, requested=requested)

    async def _perform(self, step: PathStep, seen: PathObservation, now: datetime) -> None:
        segments = seen.segments or seen.first(now)
        match step.action:
            case PathAction.FILL:
                await self._own(seen.targets)
                await self._store(segments, seen.version)
            case PathAction.ANNOUNCE:
                new = paths.segment(secrets.token_bytes(paths.BYTES))
                await self._store(segments.announced(new, now), seen.version)
            case PathAction.SWITCH:
                await self._store(segments.switched(now), seen.version)
            case PathAction.RETIRE:
                await self._store(segments.retired(now), seen.version)
            case PathAction.WRITE:
                # Before the configurations: the old segment lasts from the last write on.
                await self._store(segments.written(now), seen.version)
                for target in seen.targets:
                    if any(each.segment != segments.current for each in target.entries):
                        await self._client.apply(
                            target.kind, target.manifest(segments.current), manager=path_secret.MANAGER
                        )

    async def begin(self) -> str:
        """Make the Secret where there is none, and own the paths as they are; return what was done, empty for nothing.

        Who applies the configurations without paths from then on, by server-side apply, doesn't take them away.

        Raises:
            KubeError: the API server can't be read or doesn't allow it.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._begun()
            except errors.ConflictError:
                # `muster certs run` writes the same objects.
                continue
        return await self._begun()

    async def _begun(self) -> str:
        if await self._client.find(kinds.SECRETS, path_secret.PATH, self._namespace) is not None:
            return ""
        seen = await self.look()
        await self._own(seen.targets)
        filled = path_secret.new_manifest(seen.first(self._clock.now()))
        await self._client.create(kinds.SECRETS, filled, self._namespace)
        return f"made Secret {path_secret.PATH}"

    async def _own(self, targets: Sequence[PathTarget]) -> None:
        for target in targets:
            if any(each.segment is not None for each in target.entries):
                await self._client.apply(target.kind, target.without(frozenset()), manager=path_secret.MANAGER)

    async def _store(self, segments: Segments, version: str) -> None:
        changed = path_secret.manifest(segments, version)
        await self._client.patch(kinds.SECRETS, path_secret.PATH, changed, self._namespace)
        await mounts.refresh(self._client, self._clock, self._namespace)

    async def _probed(self, seen: PathObservation, segment: str) -> dict[str, PathProbe] | None:
        entries = [each for target in seen.targets for each in target.entries]
        if not entries:
            return None
        services = [each.service for each in entries if each.service is not None]
        addresses = await replicas.find(self._client, services, await self._named())
        if addresses is None:
            return None
        found = await asyncio.gather(*(self._prober(each, entries[0], segment) for each in addresses))
        return dict(zip(addresses, found, strict=True))

    async def _named(self) -> tuple[str, ...]:
        """Return the replicas that somebody named (`muster certs init --probe`), of webhooks called by URL."""
        secret = await self._client.find(kinds.SECRETS, stored.CA, self._namespace)
        try:
            return stored.read_keys(secret).probes if secret is not None and secret.data else ()
        except StoredCAError:
            return ()
