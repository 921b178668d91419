"""The writes of controllers: as any client, with retries when the server asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from muster.kube.transport import Request
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, identity
from muster.sandbox.core.users import User
from muster.sandbox.server.requests import ApiServer

_PATIENCE: Final = 10
"""How often a write is repeated because the server said when: what client-go does."""


class Writer:
    """Writes of one user by the key of the store. All raise StatusError."""

    def __init__(self, server: ApiServer, user: User) -> None:
        self.server = server
        self.user = user
        self._resources: dict[Key, Resource] = {}
        self._known_at = -1

    async def create(self, key: Key, namespace: str, obj: Object) -> Object:
        """Create an object; return it as stored."""
        resource = self._resource(key)
        return await _patient(lambda: self.server.create_object(resource, namespace, obj, self.user))

    async def update(self, key: Key, obj: Object, subresource: str = "") -> Object:
        """Replace an object (or its ``subresource``) at the resourceVersion it carries."""
        resource, (namespace, _) = self._resource(key), identity(obj)
        return await _patient(
            lambda: self.server.update_object(resource, namespace, obj, self.user, subresource=subresource)
        )

    async def update_status(self, key: Key, obj: Object, status: Object) -> Object:
        """Return ``obj`` that status unless it has it already."""
        if obj.get("status") == status:
            return obj
        return await self.update(key, {**obj, "status": status}, "status")

    async def patch(self, key: Key, obj: Object, change: Any) -> Object:
        """Merge ``change`` into an object."""
        resource, (namespace, name) = self._resource(key), identity(obj)
        return await _patient(lambda: self.server.patch_object(resource, namespace, name, change, self.user))

    async def delete(
        self, key: Key, obj: Object, propagation: str = "Background", grace: int | None = None
    ) -> Object | None:
        """Delete this very object, if it is still there."""
        resource, (namespace, name) = self._resource(key), identity(obj)
        uid = obj["metadata"]["uid"]
        try:
            return await _patient(
                lambda: self.server.delete_object(
                    resource, namespace, name, self.user, propagation=propagation, uid=uid, grace=grace
                )
            )
        except StatusError as error:
            if error.code in {404, 409} and not self._exists(key, obj):
                return None
            raise

    async def bind(self, pod: Object, node: str) -> None:
        """Bind a pod to a node."""
        namespace, name = identity(pod)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        metadata = {"name": name, "namespace": namespace, "uid": pod["metadata"]["uid"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        await self.request(Request("POST", path, {}, msgspec.json.encode(body)))

    async def request(self, request: Request) -> None:
        """Make any write that the other verbs don't cover."""
        response = await self.server.handle(request, self.user)
        if response.status >= 400:
            status = msgspec.json.decode(response.body)
            raise StatusError(
                response.status, status.get("reason", ""), status.get("message", ""), status.get("details")
            )

    def _exists(self, key: Key, obj: Object) -> bool:
        current = self.server.store.get(key, *identity(obj))
        return current is not None and bool(current["metadata"]["uid"] == obj["metadata"]["uid"])

    def _resource(self, key: Key) -> Resource:
        registry = self.server.registry
        if self._known_at != registry.changes:
            self._resources, self._known_at = {}, registry.changes
        resource = self._resources.get(key) or registry.by_key(key)
        if resource is not None:
            self._resources[key] = resource
            return resource
        raise StatusError(404, "NotFound", f"{'.'.join(reversed(key))} is no longer served")


async def _patient(call: Callable[[], Awaitable[Object]]) -> Object:
    for _ in range(_PATIENCE):
        try:
            return await call()
        except StatusError as error:
            seconds = (error.details or {}).get("retryAfterSeconds", 0)
            if error.code not in {429, 500, 503} or not seconds:
                raise
            await asyncio.sleep(seconds)
    return await call()


async def slow_start(count: int, create: Callable[[int], Awaitable[None]]) -> StatusError | None:
    """Create things number 0 to ``count - 1`` in batches of 1, 2, 4, …, each batch at once; return the first refusal.

    A refusal ends it after its batch, so that a used-up quota costs a few refusals, not ``count``.
    """
    first, size = 0, 1
    while first < count:
        batch = range(first, min(first + size, count))
        results = await asyncio.gather(*(_refusal(create(number)) for number in batch))
        refusal = next((result for result in results if result is not None), None)
        if refusal is not None:
            return refusal
        first, size = batch.stop, size * 2
    return None


async def _refusal(creation: Awaitable[None]) -> StatusError | None:
    try:
        await creation
    except StatusError as error:
        return error
    return None
