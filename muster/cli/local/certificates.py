"""The certificates of what `muster up` runs: in the Secrets that an installation has, so that `muster certs` works on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any, Final

from certs import stored
from certs.bundle import KeyPair
from certs.state import RotationPhase, RotationWaits
from certs.stored import ServerSecret, StoredKeys
from muster.cli.local.private_files import write_pair
from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.reflector import Reflector
from muster.model import kinds, names

_BY: Final = {names.MANAGED_BY: "muster-up"}

log = logging.getLogger(__name__)


class StoredCertificates:
    """The Secrets of the CA and of the server. Those that somebody else keeps stay as they are.

    Args:
        folder: where the server reads its certificate.
        waits: how long a rotation waits for what nobody tells.
    """

    def __init__(self, client: Client, clock: Clock, folder: Path, waits: RotationWaits) -> None:
        self._client = client
        self._clock = clock
        self._folder = folder
        self._waits = waits
        self._stored: list[str] = []

    async def store(self, ca: KeyPair, pair: KeyPair, hosts: tuple[str, ...], address: str) -> None:
        """Store what is served at ``address`` (HOST:PORT), and what it is signed with."""
        keys = StoredKeys(
            RotationPhase.STEADY, self._clock.now(), 1, ca, hosts=hosts, probes=(address,), waits=self._waits
        )
        space = names.SYSTEM_NAMESPACE
        try:
            await self._make(stored.served_manifest(ServerSecret(pair, ca.certificate), space))
            await self._make(stored.keys_manifest(keys, space))
        except errors.KubeError as error:
            log.warning("the certificates aren't stored, so `muster certs` can't rotate them: %s", error)

    async def _make(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        found = await self._client.find(kinds.SECRETS, name, names.SYSTEM_NAMESPACE)
        if found is not None:
            if found.metadata.label(names.MANAGED_BY) != _BY[names.MANAGED_BY]:
                log.warning("Secret %s/%s stays as it is: somebody else made it", names.SYSTEM_NAMESPACE, name)
                return
            # Of one that was killed: nobody serves with it.
            await self._client.delete(kinds.SECRETS, name, names.SYSTEM_NAMESPACE)
        manifest["metadata"]["labels"] = manifest["metadata"]["labels"] | _BY
        await self._client.create(kinds.SECRETS, manifest, names.SYSTEM_NAMESPACE)
        self._stored.append(name)

    async def follow(self) -> None:
        """Have the server serve what the Secret holds, until cancelled."""
        if stored.TLS not in self._stored:
            return
        changed = asyncio.Event()
        cache: ObjectCache[Any] = ObjectCache()
        cache.subscribe(lambda _: changed.set())
        fields = f"metadata.name={stored.TLS}"
        reflector = Reflector(self._client, kinds.SECRETS, cache, namespace=names.SYSTEM_NAMESPACE, fields=fields)
        watching = asyncio.create_task(reflector.run(), name="watch the server's certificate")
        try:
            while True:
                await changed.wait()
                changed.clear()
                for secret in cache.items():
                    pair = stored.read_served(secret).pair
                    if pair.certificate and pair.key:
                        write_pair(pair, self._folder)
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def remove(self) -> None:
        """Delete what was stored."""
        for name in self._stored:
            try:
                with contextlib.suppress(errors.NotFoundError):
                    await self._client.delete(kinds.SECRETS, name, names.SYSTEM_NAMESPACE)
            except errors.KubeError as error:
                log.warning("Secret %s/%s stays: %s", names.SYSTEM_NAMESPACE, name, error)
