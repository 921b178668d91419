"""Does for a pod's volumes what a plan chose, and waits until it came about: before that its node can't start it.

A volume that exists is given to its claim (its claimRef; the volume controller does the rest), for one to be made the
claim is told the node. Written by version: what somebody else changed meanwhile is decided anew.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from muster.kube import errors
from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.model import kinds
from muster.model.objects import Node, PersistentVolume, PersistentVolumeClaim
from scheduler.model import storage
from scheduler.model.plan import Bind
from scheduler.model.storage import ClaimKey, VolumeDecision
from scheduler.topology import free_volumes

log = logging.getLogger(__name__)

CLAIMS_BOUND_WITHIN_SECONDS: Final = 600.0
"""Seconds that claims of a pod have to be bound, before its place is given up."""
_BY_US: Final = {"pv.kubernetes.io/bound-by-controller": "yes"}


class VolumeBinder:
    """Prepares volumes. What it waits for it learns from the caches."""

    def __init__(
        self,
        client: Client,
        claims: ObjectCache[PersistentVolumeClaim],
        existing: ObjectCache[PersistentVolume],
        nodes: ObjectCache[Node],
    ) -> None:
        self._client = client
        self._claims = claims
        self._volumes = existing
        self._nodes = nodes
        self._waiting: dict[ClaimKey, set[asyncio.Future[None]]] = {}
        claims.subscribe(self._wake)

    async def prepare(self, bind: Bind) -> bool:
        """Have a pod's claims bound; tell whether they are, and within reach of its node.

        Raises:
            KubeError: the API server refused, or couldn't be reached.
        """
        try:
            async with asyncio.timeout(CLAIMS_BOUND_WITHIN_SECONDS):
                for choice in bind.volumes:
                    await self._carry_out(choice)
                for choice in bind.volumes:
                    await self._bound(choice)
        except (errors.NotFoundError, errors.ConflictError) as error:
            log.info("pod %s gets other volumes, or another node: %s", bind.task, error)
            return False
        except TimeoutError:
            log.warning("pod %s gives up its place on %s: its claims weren't bound in time", bind.task, bind.node)
            return False
        return all(self._reached(choice, bind.node) for choice in bind.volumes)

    async def _carry_out(self, choice: VolumeDecision) -> None:
        claim = self._claims.get(choice.claim.name, choice.claim.namespace)
        if claim is None or claim.metadata.uid != choice.uid or claim.spec.volume_name:
            return
        if choice.volume:
            await self._give(choice, claim)
        elif claim.metadata.annotation(storage.SELECTED_NODE) != choice.node:
            change = _versioned(claim, {"annotations": {storage.SELECTED_NODE: choice.node}})
            told = await self._client.patch(kinds.CLAIMS, claim.name, change, claim.namespace)
            await self._claims.reached(told.metadata.resource_version)

    async def _give(self, choice: VolumeDecision, claim: PersistentVolumeClaim) -> None:
        volume = self._volumes.get(choice.volume)
        if volume is None or (volume.spec.claim_ref is not None and volume.spec.claim_ref.uid == choice.uid):
            return
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        }
        change = _versioned(volume, {"annotations": _BY_US}) | {"spec": {"claimRef": reference}}
        await self._client.patch(kinds.VOLUMES, volume.name, change)

    async def _bound(self, choice: VolumeDecision) -> None:
        """Wait until a claim is bound, or isn't there any more."""
        while self._pending(choice):
            change = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(choice.claim, set())
            waiting.add(change)
            try:
                await change
            finally:
                waiting.discard(change)
                if not waiting and self._waiting.get(choice.claim) is waiting:
                    del self._waiting[choice.claim]

    def _pending(self, choice: VolumeDecision) -> bool:
        claim = self._claims.get(choice.claim.name, choice.claim.namespace)
        if claim is None or claim.metadata.uid != choice.uid or storage.is_bound(claim):
            return False
        # A provisioner that finds no room for the node removes the annotation, so that another is chosen.
        return bool(choice.volume or claim.spec.volume_name or claim.metadata.annotation(storage.SELECTED_NODE))

    def _wake(self, change: ObjectChange[PersistentVolumeClaim]) -> None:
        claim = change.new or change.old
        if claim is not None:
            for waiting in self._waiting.get(ClaimKey(claim.namespace, claim.name), ()):
                if not waiting.done():
                    waiting.set_result(None)

    def _reached(self, choice: VolumeDecision, name: str) -> bool:
        claim, node = self._claims.get(choice.claim.name, choice.claim.namespace), self._nodes.get(name)
        if claim is None or node is None or not storage.is_bound(claim):
            return False
        volume = self._volumes.get(claim.spec.volume_name)
        # The volumes' cache may be behind that of the claims: a volume chosen for this node is known to be reached.
        return volume is None or free_volumes.reaches(node, volume)


def _versioned(item: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    """Begin a patch that holds for this version of an object only."""
    of = item.metadata
    return {"metadata": metadata | {"uid": of.uid, "resourceVersion": of.resource_version}}
