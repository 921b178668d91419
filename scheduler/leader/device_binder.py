"""Writes what a plan chose for a pod's resource claims before the pod is bound: their devices, and that the pod may use them.

Written by version: what somebody else changed meanwhile is decided anew. Who finishes with a claim later, the cluster's own controller
of resource claims sees to: it takes back reservations of pods that are gone, and the devices of claims that nobody uses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.model import kinds
from muster.model.objects import DeviceClass, ResourceClaim
from scheduler.leader.extended_claims import ExtendedClaimWriter, extended
from scheduler.model import claims
from scheduler.model.claims import DELETE_PROTECTION, ChosenDevices, HeldClaim
from scheduler.model.devices import Placement
from scheduler.model.extended_resources import to_be_made
from scheduler.model.plan import Bind
from scheduler.model.pod_claims import ResourceClaimKey

log = logging.getLogger(__name__)


class DeviceBinder:
    """Allocates claims and reserves them for pods. A claim that several pods share is written by one at a time."""

    def __init__(self, client: Client, existing: ObjectCache[ResourceClaim], classes: ObjectCache[DeviceClass]) -> None:
        self._client = client
        self._claims = existing
        self._classes = classes
        self._extended = ExtendedClaimWriter(client, existing, classes)
        self._returning: set[ResourceClaimKey] = set()
        self._locks: WeakValueDictionary[ResourceClaimKey, asyncio.Lock] = WeakValueDictionary()

    async def prepare(self, bind: Bind) -> bool:
        """Have a pod's claims allocated and reserved for it; tell whether they are, as the plan has it.

        Raises:
            KubeError: the API server refused, or couldn't be reached.
        """
        try:
            return all([await self._prepare(choice, bind) for choice in bind.devices])
        except (errors.NotFoundError, errors.ConflictError) as error:
            log.info("pod %s gets other devices, or another node: %s", bind.task, error)
            return False

    async def give_back(self, held: HeldClaim) -> None:
        """Take back the devices of a claim whose only user has no place for its pods."""
        if held.claim in self._returning:
            return
        self._returning.add(held.claim)
        try:
            await self._give_back(held)
        except errors.KubeError as error:
            log.info("ResourceClaim %s keeps its devices, until the next cycle: %s", held.claim, error)
        finally:
            self._returning.discard(held.claim)

    async def undo(self, bind: Bind) -> None:
        """Take a pod's reservations back, and the devices of claims that nobody else uses, where the pod has no node.

        Those of its group stay, since others of it may have nodes: where none has, the next cycle gives them back.

        Raises:
            KubeError: the API server refused, or couldn't be reached.
        """
        pod = await self._client.find(kinds.PODS, bind.task.name, bind.task.namespace) if bind.devices else None
        if pod is not None and pod.metadata.uid == bind.task.uid and pod.spec.node_name:
            return
        made = self._extended.of(bind.task) if bind.devices else []
        for each in made:
            await self._extended.delete(each)
        keys = {(each.namespace, each.name) for each in made}
        for choice in (each for each in bind.devices if each.claim not in keys):
            async with self._lock(choice.claim):
                claim = self._find(choice)
                users = claim.status.reserved_for or () if claim is not None else ()
                left = [each for each in users if each.get("uid") != bind.task.uid]
                if claim is not None and len(left) < len(users):
                    await self._write(claim, {"reservedFor": left} | ({} if left else {"allocation": None}))

    async def _prepare(self, choice: ChosenDevices, bind: Bind) -> bool:
        made = await self._extended.make(choice, bind.task) if to_be_made(choice.claim) else choice
        if made is None or not await self._reserve(made, bind):
            return False
        claim = self._find(made)
        if claim is not None and extended(claim):
            await self._extended.tell(claim, bind.task)
        return True

    def _lock(self, key: ResourceClaimKey) -> asyncio.Lock:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def _find(self, choice: ChosenDevices) -> ResourceClaim | None:
        claim = self._claims.get(choice.claim.name, choice.claim.namespace)
        return claim if claim is not None and claim.metadata.uid == choice.uid else None

    async def _reserve(self, choice: ChosenDevices, bind: Bind) -> bool:
        async with self._lock(choice.claim):
            claim = self._find(choice)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                return False
            users = claim.status.reserved_for or ()
            consumer = _consumer(choice, bind)
            if claim.status.allocation is None:
                claim = await self._protect(claim)
                allocation = self._allocation(choice, claim)
                await self._write(claim, {"allocation": allocation, "reservedFor": [consumer]})
                return True
            has = claims.state_of(claim).has
            if has is None or has.devices != choice.devices:
                return False
            if all(each.get("uid") != consumer["uid"] for each in users):
                await self._write(claim, {"reservedFor": [*users, consumer]})
            return True

    async def _give_back(self, held: HeldClaim) -> None:
        async with self._lock(held.claim):
            claim = self._claims.get(held.claim.name, held.claim.namespace)
            users = [each.get("uid") for each in claim.status.reserved_for or ()] if claim is not None else []
            if claim is not None and claim.metadata.uid == held.uid and users == [held.user]:
                await self._write(claim, {"reservedFor": [], "allocation": None})

    async def _protect(self, claim: ResourceClaim) -> ResourceClaim:
        finalizers = claim.metadata.finalizers or ()
        if DELETE_PROTECTION in finalizers:
            return claim
        change = {"metadata": _version(claim) | {"finalizers": [*finalizers, DELETE_PROTECTION]}}
        return await self._client.patch(kinds.RESOURCECLAIMS, claim.name, change, claim.namespace)

    async def _write(self, claim: ResourceClaim, status: Mapping[str, Any]) -> None:
        """Write a status, and wait until the cache shows it, so that no cycle decides on what was before."""
        change = {"metadata": _version(claim), "status": status}
        told = await self._client.patch(kinds.RESOURCECLAIMS, claim.name, change, claim.namespace, subresource="status")
        await self._claims.reached(told.metadata.resource_version)

    def _allocation(self, choice: ChosenDevices, claim: ResourceClaim) -> dict[str, Any]:
        requests = _requests(claim)
        results = []
        for request, device, admin in choice.devices:
            result = {"request": request, "driver": device.driver, "pool": device.pool, "device": device.name}
            tolerations = requests.get(request, {}).get("tolerations")
            results.append(
                result
                | ({"adminAccess": True} if admin else {})
                | ({"tolerations": tolerations} if tolerations else {})
            )
        config = list(self._config(claim, dict.fromkeys(request for request, _, _ in choice.devices)))
        devices = {"results": results} | ({"config": config} if config else {})
        selector = _selector(choice.reach)
        return {"devices": devices} | ({"nodeSelector": selector} if selector is not None else {})

    def _config(self, claim: ResourceClaim, chosen: Iterable[str]) -> Iterable[dict[str, Any]]:
        """Iterate over the parameters of drivers: those of each class once, then the claim's own for what was chosen."""
        requests, seen = _requests(claim), set[str]()
        for name in chosen:
            class_name = str(requests[name].get("deviceClassName"))
            class_ = self._classes.get(class_name)
            stated: Any = (class_.spec or {}).get("config") if class_ is not None and class_name not in seen else None
            seen.add(class_name)
            for each in stated or ():
                yield {"source": "FromClass", "requests": [name], **each}
        names = {part for name in chosen for part in (name, name.partition("/")[0])}
        for each in _devices(claim).get("config") or ():
            if not each.get("requests") or names.intersection(each["requests"]):
                yield {"source": "FromClaim", **each}


def _consumer(choice: ChosenDevices, bind: Bind) -> dict[str, str]:
    """Write for whom a claim is reserved."""
    if choice.group is None:
        return {"resource": "pods", "name": bind.task.name, "uid": bind.task.uid}
    group, kind = choice.group, kinds.NATIVE_PODGROUPS
    return {"apiGroup": kind.group, "resource": kind.plural, "name": group.name, "uid": group.uid}


def _devices(claim: ResourceClaim) -> dict[str, Any]:
    devices: Any = (claim.spec or {}).get("devices") or {}
    return dict(devices)


def _requests(claim: ResourceClaim) -> dict[str, Any]:
    """Return what each request says, by the name that results have."""
    found = {}
    for each in _devices(claim).get("requests") or ():
        found[each["name"]] = each.get("exactly") or {}
        for part in each.get("firstAvailable") or ():
            found[f"{each['name']}/{part['name']}"] = part
    return found


def _selector(reach: Placement) -> Any:
    """Write which nodes reach the devices of a claim, as the API has it; None for all."""
    if reach.name:
        field = {"key": "metadata.name", "operator": "In", "values": [reach.name]}
        return {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return msgspec.to_builtins(reach.selector) if reach.selector is not None else None


def _version(claim: ResourceClaim) -> dict[str, Any]:
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
