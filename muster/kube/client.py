"""Typed verbs over a `Transport`: JSON in, structs out, errors from `muster.kube.errors`.

Nothing is repeated here: who asked knows whether a write may be sent twice, and how long it can wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from muster.kube import decoding, errors, transport
from muster.kube.decoding import ListPage, Unreadable, decoder
from muster.kube.transport import Request, Response, Transport
from muster.model import names, objects
from muster.model.kinds import PODS, Kind

__all__ = ["PAGE", "TIMEOUT", "Client", "ListPage", "Listing", "Unreadable", "decoder"]

T = TypeVar("T", bound=objects.Object)

TIMEOUT: Final = 30.0
"""Seconds for one request; an API server gives up a write after 34."""

_LONGEST_NAME: Final = 253
"""Characters."""

PAGE: Final = 500
"""Objects in one page of a list."""


class Listing(Struct, Generic[T], frozen=True):
    """A whole list. An object that can't be decoded doesn't make it fail.

    Attributes:
        items: the objects, in the order of the server: by namespace and name.
        resource_version: the version that the list shows; a watch continues from it.
        unreadable: the objects that can't be decoded, each with the reason.
    """

    items: tuple[T, ...]
    resource_version: str
    unreadable: tuple[Unreadable, ...] = ()


class Client:
    """Verbs on typed kinds. Holds no state but its transport; cheap to make.

    A kind of namespaces needs a ``namespace``; one of the cluster takes none. Source of paths, verbs and bodies:
    https://kubernetes.io/docs/reference/using-api/api-concepts/.

    Args:
        via: sends the requests.
        within: seconds for each request.

    Raises, each verb:
        ApiError: the server refused; the classes of `muster.kube.errors` say how.
        UnreachableError: no answer within that time. `UnreachableError.maybe_applied` says whether a write may have
            happened.
        FenceLostError: the verb writes, and the transport's fence is no longer live.
        ServerError: the answer can't be decoded to the struct of the kind.
    """

    def __init__(self, via: Transport, *, within: float = TIMEOUT) -> None:
        self.transport = via
        self.within = within

    def limited(self, within: float) -> Client:
        """Return a client of the same transport whose requests may take that many seconds each."""
        return Client(self.transport, within=within)

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """Read one object from the server (a quorum read).

        Raises:
            NotFoundError: it doesn't exist; or nothing can be called that, and the server wasn't asked.
        """
        if not _may_be_name(name):
            raise errors.NotFoundError(
                404, "NotFound", f'{kind} "{errors.bounded(name)}" not found: nothing can be called that'
            )
        return await self._object(kind, Request("GET", kind.path(namespace, name)))

    async def find(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Read one object, or None where it doesn't exist."""
        try:
            return await self.get(kind, name, namespace)
        except errors.NotFoundError:
            return None

    async def page(self, kind: Kind[T], namespace: str = "", query: Mapping[str, str] | None = None) -> ListPage[T]:
        """Read one page of a list, of all namespaces where none is given.

        ``query`` has the API's parameters: limit, continue, labelSelector, fieldSelector.

        Raises:
            GoneError: the token for ``continue`` is older than the history that the server keeps, about five minutes.
        """
        response = await self.send(Request("GET", kind.path(namespace), dict(query or {})))
        return decoding.page(kind, response.body)

    async def list(self, kind: Kind[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        """Read all objects (a quorum read), in pages of `PAGE`; of all namespaces where none is given.

        ``labels`` and ``fields`` are selectors as kubectl takes them: ``app=web,tier!=db``.
        """
        query = {key: value for key, value in {"labelSelector": labels, "fieldSelector": fields}.items() if value}
        try:
            return await self._pages(kind, namespace, query | {"limit": str(PAGE)})
        except errors.GoneError:
            # The token for the next page outlived the state it points to. Starting over in pages could go on like
            # this forever where the list is long and the server busy; a list in one piece can't.
            return await self._pages(kind, namespace, query)

    async def _pages(self, kind: Kind[T], namespace: str, query: dict[str, str]) -> Listing[T]:
        items: list[T] = []
        unreadable: list[Unreadable] = []
        while True:
            page = await self.page(kind, namespace, query)
            items.extend(page.items)
            unreadable.extend(page.unreadable)
            if not page.token:
                return Listing(tuple(items), page.resource_version, tuple(unreadable))
            query = query | {"continue": page.token}

    async def create(self, kind: Kind[T], manifest: Any, namespace: str = "", *, dry_run: bool = False) -> T:
        """Create an object from a struct or JSON, and return it as stored; ``dry_run``: as it would be stored.

        Raises:
            AlreadyExistsError: the name is taken.
            InvalidError: the object breaks its schema.
            ForbiddenError: RBAC, a quota or a webhook refuses it.
        """
        body = msgspec.json.encode(_complete(kind, manifest))
        return await self._object(kind, Request("POST", kind.path(namespace), _query(dry_run=dry_run), body))

    async def replace(self, kind: Kind[T], manifest: Any, namespace: str = "", *, owned: bool = True) -> T:
        """Write an object whole, and return it as stored; with its resourceVersion this is compare-and-swap.

        Where not ``owned``, the API server keeps no account of who set which field (managedFields), nor looks for fields that
        it doesn't know: a tenth less to wait, for what nobody applies and who writes it writes often.

        Raises:
            ConflictError: the object is at another version.
            NotFoundError: it doesn't exist.
        """
        whole, query = _complete(kind, manifest), _query()
        if not owned:
            # One empty entry has an API server forget all; only an apply begins the account anew.
            whole["metadata"]["managedFields"] = [{}]
            query["fieldValidation"] = "Ignore"
        body = msgspec.json.encode(whole)
        return await self._object(kind, Request("PUT", kind.path(namespace, whole["metadata"]["name"]), query, body))

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        change: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = transport.MERGE_PATCH,
        dry_run: bool = False,
    ) -> T:
        """Change part of an object, and return it as stored; ``dry_run``: as it would be stored.

        ``change`` is the patch as a JSON value: a merge patch (RFC 7386), or what ``content_type`` says. A merge patch with
        metadata.resourceVersion, or metadata.uid, applies to that version, or object, alone.

        Raises:
            ConflictError: the object is at another version, or has another uid.
            NotFoundError: it doesn't exist.
        """
        path, body = kind.path(namespace, name, subresource), msgspec.json.encode(change)
        return await self._object(kind, Request("PATCH", path, _query(dry_run=dry_run), body, content_type))

    async def apply(self, kind: Kind[T], manifest: Any, namespace: str = "", *, manager: str, force: bool = True) -> T:
        """Create or change an object by server-side apply, and return it as stored.

        ``manager`` owns the fields of ``manifest``; with ``force`` also those that another manager owns.

        Raises:
            ConflictError: another manager owns a field, and ``force`` is false.
        """
        whole = _complete(kind, manifest)
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        path = kind.path(namespace, whole["metadata"]["name"])
        body = msgspec.json.encode(whole)
        return await self._object(kind, Request("PATCH", path, query, body, transport.APPLY_PATCH))

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> None:
        """Delete an object; with ``uid``, only that very one; ``dry_run``: only ask.

        ``propagation``: Background, Foreground or Orphan.

        Raises:
            ConflictError: an object of this name exists, but not of this uid.
            NotFoundError: it doesn't exist.
        """
        options: dict[str, Any] = {
            "kind": "DeleteOptions",
            "apiVersion": "meta.k8s.io/v1",
            "propagationPolicy": propagation,
        }
        if uid:
            options["preconditions"] = {"uid": uid}
        if dry_run:
            # Where there is a body, the server doesn't look at the query.
            options["dryRun"] = ["All"]
        await self.send(Request("DELETE", kind.path(namespace, name), {}, msgspec.json.encode(options)))

    async def bind(self, namespace: str, pod: str, uid: str, node: str) -> None:
        """Bind a pod to a node. The answer of success is a Status, not a Binding.

        Raises:
            ConflictError: the pod has a node, is being deleted, or has another uid.
            NotFoundError: the pod doesn't exist.
        """
        await self._subresource(
            namespace,
            pod,
            "binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod, "namespace": namespace, "uid": uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )

    async def evict(self, namespace: str, pod: str, uid: str, *, dry_run: bool = False) -> None:
        """Evict a pod through the Eviction API, which respects disruption budgets; ``dry_run``: only ask.

        Raises:
            TooManyRequestsError: a PodDisruptionBudget doesn't allow it now.
            ConflictError: the pod has another uid.
            NotFoundError: it doesn't exist.
        """
        await self._subresource(
            namespace,
            pod,
            "eviction",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod, "namespace": namespace},
                "deleteOptions": {"preconditions": {"uid": uid}},
            },
            dry_run=dry_run,
        )

    async def send(self, request: Request) -> Response:
        """Send any request; for what the verbs above don't cover.

        Raises:
            ApiError: the server said no.
        """
        response = await self.transport.request(request, within=self.within)
        if not 200 <= response.status < 300:
            raise errors.from_answer(response.status, response.body, response.headers)
        return response

    async def _object(self, kind: Kind[T], request: Request) -> T:
        response = await self.send(request)
        decoded: T = decoding.strictly(kind.struct, response.body)
        return decoded

    async def _subresource(
        self, namespace: str, pod: str, subresource: str, body: dict[str, Any], *, dry_run: bool = False
    ) -> None:
        path, query = PODS.path(namespace, pod, subresource), _query(dry_run=dry_run)
        await self.send(Request("POST", path, query, msgspec.json.encode(body)))


def _may_be_name(name: str) -> bool:
    """Whether an object can be called that, by what holds for names of all kinds.

    Tenants write names of queues into annotations as they like: one with a slash would lead to another path.
    """
    return 0 < len(name) <= _LONGEST_NAME and name not in {".", ".."} and not {"/", "%"} & set(name)


def _query(*, dry_run: bool = False) -> dict[str, str]:
    return {"fieldManager": names.FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})


def _complete(kind: Kind[Any], manifest: Any) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(manifest)
    return whole | {"apiVersion": kind.api_version, "kind": kind.name}
