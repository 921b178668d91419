"""The API server without its network: requests in, responses out, with the REST semantics of kube-apiserver.

Reading a request takes these steps: path to target, body to object, verb to answer. Writing takes two more: admission
(`Admission`) and the store. Nothing here waits but admission, so all between two awaits is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from muster.kube.clock import Clock
from muster.kube.transport import MERGE_PATCH, Request, Response
from muster.sandbox.builtins import BUILTIN
from muster.sandbox.registry import Registry, Resource
from muster.sandbox.store import Store
from muster.sandbox.users import ADMIN, User

if TYPE_CHECKING:
    from muster.sandbox.admission import Attributes
    from muster.sandbox.watching import Watch


class Admission(Protocol):
    """What stands between a write and the store."""

    async def admit(self, attributes: Attributes, warnings: list[str]) -> dict[str, Any] | None:
        """Give the object to store, or None for a deletion; add to ``warnings`` what the user shall read.

        In the real server's order: mutating steps, then `ApiServer.complete` on the result (it names the object,
        resets what a client may not set, applies defaults and validates), then validating steps on what it gave.

        Raises:
            StatusError: the write is refused.
        """
        ...


class ApiServer:
    """An API server on a `Store`. Reads are plain functions of the store; writes go through `admission`."""

    def __init__(self, clock: Clock, *, store: Store | None = None) -> None:
        self.clock = clock
        self.store = store if store is not None else Store()
        self.registry = Registry(BUILTIN)
        self.admission: Admission

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def handle(self, request: Request, user: User = ADMIN) -> Response:
        """Answer any request but a watch. Every error is a Status in the response; nothing is raised."""
        raise NotImplementedError

    def watch(self, request: Request, user: User = ADMIN) -> Watch:
        """Open a watch.

        Raises:
            StatusError: the request can't be served.
        """
        raise NotImplementedError

    # ── for admission ────────────────────────────────────────────────────────────────────────────────────────────

    def complete(self, attributes: Attributes, obj: dict[str, Any]) -> dict[str, Any]:
        """Make the mutated object what would be stored: name, uid, defaults, reset fields; then validate it.

        Admission calls it once for CREATE and UPDATE, between mutation and validation. ``obj`` may be changed.

        Raises:
            StatusError: 422 with each wrong field as a cause.
        """
        raise NotImplementedError

    # ── the same, for the sandbox's own controllers ──────────────────────────────────────────────────────────────

    async def create_object(
        self, resource: Resource, namespace: str, obj: dict[str, Any], user: User, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object; give it as stored. Raises StatusError, as all of these do."""
        raise NotImplementedError

    async def update_object(
        self, resource: Resource, namespace: str, obj: dict[str, Any], user: User, *, subresource: str = ""
    ) -> dict[str, Any]:
        """Replace an object, or its ``status``; compare-and-swap when it has a resourceVersion."""
        raise NotImplementedError

    async def patch_object(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        user: User,
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
    ) -> dict[str, Any]:
        """Change part of an object, or of its ``status``."""
        raise NotImplementedError

    async def delete_object(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        user: User,
        *,
        propagation: str = "Background",
        uid: str = "",
        grace: int | None = None,
    ) -> dict[str, Any]:
        """Delete an object (or mark it, where a finalizer or a kubelet has the last word); give its last state."""
        raise NotImplementedError

    def on_change(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Subscribe to the store; see `Store.subscribe`."""
        return self.store.subscribe(callback)
