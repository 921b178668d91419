"""Reads the owners of a pod upward, of any kind, metadata only."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from muster.kube import decoding, errors
from muster.kube.client import Client
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Meta, Object, OwnerReference
from scheduler.state.informers import Informers

LEVELS: Final = 10
"""How far up owners are read."""

_FRESH: Final = 60.0
"""Seconds for which what was read of an owner serves its other pods."""
_KNOWN: Final = 4096
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class OwnerChain(Struct):
    """The owners above an object.

    Attributes:
        owners: the controllers, nearest first; the last one may be known from the reference to it only.
        metas: the metadata of those that could be read.
        trouble: why one of them could not be read and what to do about it, as a sentence; empty where all could.
    """

    owners: list[OwnerReference] = field(default_factory=list)
    metas: list[Meta] = field(default_factory=list)
    trouble: str = ""


class _Resource(msgspec.Struct, frozen=True):
    """An entry of discovery."""

    name: str
    kind: str
    namespaced: bool = True


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


class OwnerReader:
    """Reads owners, each at most once a minute however many pods it has; caches come first."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        cached: tuple[Kind[Any], ...] = (kinds.DEPLOYMENTS, kinds.REPLICASETS, kinds.STATEFULSETS, kinds.JOBS)
        self._caches: dict[tuple[str, str], Callable[[str, str], Object | None]] = {
            (kind.api_version, kind.name): informers.cache(kind).get for kind in cached
        }
        self._served: dict[tuple[str, str], Kind[Any]] = {}
        self._read: OrderedDict[str, tuple[float, asyncio.Future[Meta | None]]] = OrderedDict()

    async def above(self, meta: Meta, namespace: str, until: Callable[[Sequence[OwnerReference]], bool]) -> OwnerChain:
        """Walk up from an object to the root, until that is true of the owners so far, or ten levels.

        Raises:
            KubeError: the API server can't be asked now.
        """
        lineage, seen = OwnerChain(), {meta.uid}
        owner = meta.controller()
        while owner is not None and owner.uid not in seen and len(lineage.owners) < LEVELS:
            lineage.owners.append(owner)
            seen.add(owner.uid)
            try:
                found = await self._find(owner, namespace)
            except (errors.ForbiddenError, _NotServedError) as error:
                lineage.trouble = f"{owner.kind} {owner.name} can't be read, so nothing above it is looked at: {error}"
                return lineage
            if found is None:
                return lineage
            lineage.metas.append(found)
            if until(lineage.owners):
                return lineage
            owner = found.controller()
        return lineage

    async def _find(self, owner: OwnerReference, namespace: str) -> Meta | None:
        """Return an owner's metadata; None where it is gone."""
        cached = self._caches.get((owner.api_version, owner.kind))
        found = cached(owner.name, namespace) if cached is not None else None
        if found is not None and found.metadata.uid == owner.uid:
            return found.metadata
        now = asyncio.get_running_loop().time()
        known = self._read.get(owner.uid)
        if known is None or now - known[0] > _FRESH or known[1].cancelled():
            reading = asyncio.ensure_future(self._get(owner, namespace))
            # Who asked may be gone by the time it fails.
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            known = self._read[owner.uid] = (now, reading)
            while len(self._read) > _KNOWN:
                self._read.popitem(last=False)
        try:
            return await asyncio.shield(known[1])
        except (errors.UnreachableError, errors.ServerError, errors.TooManyRequestsError):
            # Of a trouble that passes nothing is to be remembered.
            self._read.pop(owner.uid, None)
            raise

    async def _get(self, owner: OwnerReference, namespace: str) -> Meta | None:
        kind = await self._kind(owner)
        path = kind.path(namespace if kind.namespaced else "", owner.name)
        try:
            response = await self._client.send(Request("GET", path, accept=_METADATA))
        except errors.NotFoundError:
            return None
        except errors.ForbiddenError as error:
            raise errors.ForbiddenError(error.code, error.reason, f"{error.message}; {_remedy(kind)}") from error
        meta = decoding.strictly(Object, response.body).metadata
        return meta if meta.uid == owner.uid else None

    async def _kind(self, owner: OwnerReference) -> Kind[Any]:
        """Ask discovery under which path a kind is served."""
        key = (owner.api_version, owner.kind)
        if key in self._served:
            return self._served[key]
        group, _, version = owner.api_version.rpartition("/")
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            response = await self._client.send(Request("GET", root))
        except errors.NotFoundError as error:
            raise _NotServedError(owner) from error
        for each in decoding.strictly(_Resources, response.body).resources:
            if each.kind == owner.kind and "/" not in each.name:
                kind = Kind(group, version, each.name, each.kind, Object, namespaced=each.namespaced)
                self._served[key] = kind
                return kind
        raise _NotServedError(owner)


class _NotServedError(errors.KubeError):
    """Nobody serves the kind of an owner any more."""

    def __init__(self, owner: OwnerReference) -> None:
        super().__init__(f"{owner.kind} ({owner.api_version}) is served by nobody; install its CRD again")


def _remedy(kind: Kind[Any]) -> str:
    return f'allow "get" on {kind} in a ClusterRole labelled {names.OWNER_READER}: "true"'
