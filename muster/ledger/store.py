"""Reads and writes QuotaLedger objects: compare-and-swap, and the newest version that this process knows."""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from muster.kube import errors
from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.timeline import Timeline, WentBackError, behind
from muster.ledger.rows import MalformedLedgerError, check
from muster.ledger.table import Table
from muster.model import names, versions
from muster.model.kinds import QUOTALEDGERS
from muster.model.names import LEDGER_NAME
from muster.model.objects import Meta, QuotaLedger

_TURN_SECONDS: Final = 0.1  # seconds; several times what a read and a write take
_REMEDY: Final = "delete it, and it is made again from what exists"


class StoredLedger(Struct, frozen=True):
    """A ledger as it was stored, and what it says."""

    ledger: QuotaLedger
    table: Table

    @property
    def revision(self) -> int:
        """The resourceVersion that a write must still find."""
        return versions.number(self.ledger.metadata.resource_version)


class Store:
    """The ledgers of all namespaces.

    Whatever reads or writes one may raise a `WentBackError`: an older version was there than was known.
    """

    def __init__(self, client: Client, cache: ObjectCache[QuotaLedger], timeline: Timeline) -> None:
        self._client = client
        self._timeline = timeline
        self._cache = cache
        self._entries: dict[str, StoredLedger] = {}
        self._me = uuid4().hex[:8]
        self._moved: dict[str, asyncio.Event] = {}
        cache.subscribe(self._changed)
        timeline.subscribe(self._entries.clear)

    def namespaces(self) -> set[str]:
        """Return the namespaces that are known to have a ledger."""
        return {ledger.namespace for ledger in self._cache.items()} | set(self._entries)

    def has(self, namespace: str) -> bool:
        """Whether a ledger of that namespace is known."""
        return namespace in self._entries or self._cache.get(LEDGER_NAME, namespace) is not None

    def known(self, namespace: str) -> StoredLedger | None:
        """Return the newest version that was read, written or watched; None where none is known.

        Raises:
            MalformedLedgerError: it can't be trusted.
        """
        cached, entry = self._cache.get(LEDGER_NAME, namespace), self._entries.get(namespace)
        if cached is None or (entry and entry.revision >= versions.number(cached.metadata.resource_version)):
            return entry
        return self._keep(cached)

    async def read(self, namespace: str) -> StoredLedger | None:
        """Read it from the API server; None where there is none.

        Raises:
            KubeError: it couldn't be read.
            MalformedLedgerError: it can't be trusted.
        """
        # What is seen while the answer is on its way may be newer than the answer, without anything having gone back.
        seen = self._seen(namespace)
        ledger = await self._client.find(QUOTALEDGERS, LEDGER_NAME, namespace)
        if ledger is None:
            self._entries.pop(namespace, None)
            return None
        for uid, version in seen:
            if uid == ledger.metadata.uid:
                self._check_newer(ledger, version)
        return self._keep(ledger)

    async def read_unparsed(self, namespace: str) -> StoredLedger | None:
        """Read one that can't be trusted, for who replaces all that it says; None where there is none.

        Raises:
            KubeError: it couldn't be read.
        """
        ledger = await self._client.find(QUOTALEDGERS, LEDGER_NAME, namespace)
        return StoredLedger(ledger, Table()) if ledger is not None else None

    async def take_turn(self, namespace: str) -> StoredLedger | None:
        """Read it and ask the others for a turn: it is at another version then, and they wait a moment; None for none.

        Who writes a ledger knows the next version at once and whoever lost has to read it: without this the winner would
        win again, for as long as it has something to write.

        Raises:
            KubeError: it couldn't be read.
            MalformedLedgerError: it can't be trusted.
        """
        change = {"metadata": {"annotations": {names.TURN: self._me}}}
        try:
            return self._keep(await self._client.patch(QUOTALEDGERS, LEDGER_NAME, change, namespace))
        except errors.NotFoundError:
            self._entries.pop(namespace, None)
            return None

    async def yield_turn(self, namespace: str, entry: StoredLedger | None) -> StoredLedger | None:
        """Return the entry, after another that asked for its turn had it; not for long, it may have died."""
        turn = entry.ledger.metadata.annotation(names.TURN) if entry is not None else ""
        if entry is None or turn in {"", self._me}:
            return entry
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                while (known := self.known(namespace)) is None or known.revision <= entry.revision:
                    moved = self._moved.setdefault(namespace, asyncio.Event())
                    moved.clear()
                    await moved.wait()
        except TimeoutError:
            return entry
        finally:
            self._moved.pop(namespace, None)
        return known

    async def create(self, namespace: str) -> StoredLedger:
        """Make an empty ledger, which admits nothing until it is seeded.

        Raises:
            AlreadyExistsError: somebody else made it.
            KubeError: it couldn't be made.
        """
        ledger = QuotaLedger(metadata=Meta(name=LEDGER_NAME, namespace=namespace))
        return self._keep(await self._client.create(QUOTALEDGERS, ledger, namespace))

    async def write(self, entry: StoredLedger, table: Table, summary: str = "") -> StoredLedger:
        """Replace ``entry`` by ``table``, if the ledger is still at that version; ``summary`` is the table's, where it is known.

        Raises:
            ConflictError: somebody else wrote it.
            NotFoundError: it was deleted.
            KubeError: it couldn't be written, or nobody knows whether it was: read it again.
        """
        table.validate()
        # Of a ledger that nobody can read there are no rows, however many texts.
        known = dict(zip(map(id, entry.table.rows), entry.ledger.data.rows, strict=False))
        data = table.render(known, summary)
        for row, text in zip(table.rows, data.rows, strict=True):
            if id(row) not in known:
                check(row, text)
        meta = entry.ledger.metadata
        if meta.annotation(names.TURN):
            rest = {name: value for name, value in (meta.annotations or {}).items() if name != names.TURN}
            meta = msgspec.structs.replace(meta, annotations=rest or None)
        ledger = msgspec.structs.replace(entry.ledger, metadata=meta, data=data)
        seen = self._cache.revision
        stored = await self._client.replace(QUOTALEDGERS, ledger, entry.ledger.namespace, owned=False)
        if stored.metadata.resource_version != meta.resource_version:  # a write that changes nothing moves nothing
            self._check_newer(stored, seen)
        if stored.data != ledger.data:
            return self._keep(stored)
        written = self._entries[stored.namespace] = StoredLedger(stored, table)
        return written

    def _seen(self, namespace: str) -> list[tuple[str, str]]:
        """Return the uid and the version of all that is known of a namespace's ledger."""
        entry, cached = self._entries.get(namespace), self._cache.get(LEDGER_NAME, namespace)
        known = (entry.ledger if entry else None, cached)
        return [(each.metadata.uid, each.metadata.resource_version) for each in known if each is not None]

    def _check_newer(self, ledger: QuotaLedger, seen: str) -> None:
        version = ledger.metadata.resource_version
        if behind(version, seen):
            why = f"QuotaLedger {ledger.namespace}/{ledger.name} is at {version}, and {seen} was seen"
            self._timeline.went_back(str(QUOTALEDGERS), why)
            raise WentBackError("the cluster was restored from a backup, and is being read again")

    def _keep(self, ledger: QuotaLedger) -> StoredLedger:
        try:
            entry = StoredLedger(ledger, Table.parse(ledger.data))
        except MalformedLedgerError as error:
            # What is known of an older version must not be written over what can't be read.
            self._entries.pop(ledger.namespace, None)
            raise MalformedLedgerError(f"QuotaLedger {ledger.namespace}/{ledger.name}: {error}; {_REMEDY}") from error
        self._entries[ledger.namespace] = entry
        return entry

    def _changed(self, change: ObjectChange[QuotaLedger]) -> None:
        if change.new is not None and (moved := self._moved.get(change.new.namespace)):
            moved.set()
        if change.new is None and change.old is not None:
            known = self._entries.get(change.old.namespace)
            if known is not None and known.ledger.metadata.uid == change.old.metadata.uid:
                del self._entries[change.old.namespace]
