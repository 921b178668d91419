"""The API server without its network: requests in, responses out, with the REST semantics of kube-apiserver.

Reading a request takes these steps: path to target, body to object, verb to answer. Writing takes two more: admission
(`writes.Admission`) and the store. Nothing here waits but admission, so all between two awaits is one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from muster.kube.clock import Clock
from muster.kube.transport import MERGE_PATCH, Request, Response
from muster.sandbox.admission import Attributes
from muster.sandbox.core import paths
from muster.sandbox.core.builtins import BUILTIN
from muster.sandbox.core.identities import Identities
from muster.sandbox.core.paths import Target
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.core.request_info import RequestInfo
from muster.sandbox.core.status import StatusError, bad_request, no_such_path
from muster.sandbox.core.store import Object, Store
from muster.sandbox.core.users import ADMIN, User
from muster.sandbox.fieldmanager.ownership import Ownership
from muster.sandbox.openapi import discovery, openapi
from muster.sandbox.server import responses, verbs
from muster.sandbox.server.completing import Completer
from muster.sandbox.server.definitions import Definitions
from muster.sandbox.server.lists import flag
from muster.sandbox.server.watching import Watch, Watchers
from muster.sandbox.server.writes import Writes

Json = dict[str, Any]

VERSION: Final[Json] = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2+muster-sandbox",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
Handler = Callable[[Request, User], Awaitable[Response]]
"""Answers the requests to a group that another program serves."""
_HEALTH: Final = ("/healthz", "/livez", "/readyz")


class NoWebhooks:
    """Admission without webhooks, policies and quotas: what a server has until it is given more."""

    def __init__(self, completer: Completer) -> None:
        self._completer = completer

    async def admit(self, attributes: Attributes, warnings: list[str]) -> Json | None:
        """Complete the object, no more."""
        del warnings
        if attributes.object is None:
            return None
        return self._completer.complete(attributes, attributes.object)


class ApiServer:
    """An API server on a `Store`. Reads are plain functions of the store; writes go through `writes` and its admission.

    ``seed`` makes uids and generated names repeatable. ``native_groups``: see `Completer`.
    """

    def __init__(
        self, clock: Clock, *, store: Store | None = None, seed: int | None = None, native_groups: bool = False
    ) -> None:
        self.clock = clock
        self.store = store if store is not None else Store()
        self.registry = Registry(BUILTIN)
        self._completer = Completer(self.store, Identities(seed), clock.now, native_groups=native_groups)
        self.writes = Writes(self.store, clock, self.registry, Ownership(clock.now), NoWebhooks(self._completer))
        self._definitions = Definitions(self.store, self.registry, clock)
        self._watchers = Watchers(self.store, clock)
        self._aggregated: dict[str, Handler] = {}
        self._documents: list[Json] = []

    def aggregate(self, group: str, resources: Json, handler: Handler) -> None:
        """Have another program of this process answer for a group, discovery documents too; ``resources`` is its APIResourceList."""
        self._aggregated[group] = handler
        self._documents.append(resources)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def handle(self, request: Request, user: User = ADMIN, *, agent: str = "") -> Response:
        """Answer any request but a watch. Every error is a Status in the response; nothing is raised.

        ``agent`` is the client's User-Agent: it names the field manager of who doesn't name one.
        """
        warnings: list[str] = []
        if self._aggregated and (handler := self._aggregated.get(_group_of(request.path))) is not None:
            return await handler(request, user)
        try:
            target = paths.parse(request.path, self.registry)
            if target is None:
                return self._document(request)
            paths.check_method(target, request.method)
            if target.resource.deprecation:
                warnings.append(target.resource.deprecation)
            return await verbs.answer(self.writes, target, request, verbs.Caller(user, agent), warnings)
        except StatusError as error:
            return responses.refuse(error, warnings)
        except RecursionError:
            return responses.refuse(bad_request("the object is nested too deeply: exceeded max depth"), warnings)

    def watch(self, request: Request, user: User = ADMIN) -> Watch:
        """Open a watch.

        Raises:
            StatusError: the request can't be served.
        """
        del user  # everybody may watch everything
        target = paths.parse(request.path, self.registry)
        if target is None or "watch" not in target.resource.verbs:
            raise no_such_path()
        if target.name:
            raise bad_request("watching one object takes fieldSelector=metadata.name=… on its collection")
        return self._watchers.open(target, request)

    @staticmethod
    def watches(request: Request) -> bool:
        """Say whether a request opens a watch: one is for `watch`, all others are for `handle`."""
        return (
            request.method == "GET"
            and "watch" in request.query
            and flag(request.query, "watch")
            and _is_list(request.path)
        )

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        return self._watchers.count()

    def close(self) -> None:
        """End every watch."""
        self._watchers.close()
        self._definitions.close()

    def _document(self, request: Request) -> Response:
        path = request.path
        if path.rstrip("/") in _HEALTH or path.startswith(tuple(f"{each}/" for each in _HEALTH)):
            return Response(200, b"ok", {"content-type": "text/plain; charset=utf-8"})
        if path == "/version":
            return responses.respond(200, VERSION)
        if path.startswith("/openapi/"):
            answer = openapi.answer(path, self.registry)
        else:
            answer = discovery.answer(path, request.accept, self.registry, self._documents)
        if answer is None:
            raise no_such_path()
        return answer

    # ── for admission ────────────────────────────────────────────────────────────────────────────────────────────

    def complete(self, attributes: Attributes, obj: Json) -> Json:
        """Make the mutated object what would be stored: name, uid, defaults, reset fields; then validate it.

        Admission calls it once for CREATE and UPDATE, between mutation and validation. ``obj`` may be changed.

        Raises:
            StatusError: 422 with each wrong field as a cause.
        """
        return self._completer.complete(attributes, obj)

    # ── the same, for the sandbox's own controllers ──────────────────────────────────────────────────────────────

    async def create_object(
        self, resource: Resource, namespace: str, obj: Json, user: User, *, dry_run: bool = False
    ) -> Object:
        """Create an object; return it as stored. Raises StatusError, as all of these do."""
        info = self._call(Target(resource, namespace), user, "CreateOptions", dry_run=dry_run)
        return await verbs.create(self.writes, info, obj)

    async def update_object(
        self, resource: Resource, namespace: str, obj: Json, user: User, *, subresource: str = ""
    ) -> Object:
        """Replace an object, or its ``status``; compare-and-swap when it has a resourceVersion."""
        target = Target(resource, namespace, obj["metadata"]["name"], subresource)
        return await verbs.replace(self.writes, self._call(target, user, "UpdateOptions"), obj)

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
    ) -> Object:
        """Change part of an object, or of its ``status``."""
        target = Target(resource, namespace, name, subresource)
        return await verbs.patch(self.writes, self._call(target, user, "PatchOptions"), patch, content_type)

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
    ) -> Object:
        """Delete an object (or mark it, where a finalizer or a kubelet has the last word); return its last state."""
        options: Json = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        info = self._call(Target(resource, namespace, name), user, "DeleteOptions")
        deleted, _ = await self.writes.delete(info, options)
        return deleted

    @staticmethod
    def _call(target: Target, user: User, kind: str, *, dry_run: bool = False) -> RequestInfo:
        options = {"kind": kind, "apiVersion": "meta.k8s.io/v1"} | ({"dryRun": ["All"]} if dry_run else {})
        # Controllers manage fields under the last part of their user's name.
        return RequestInfo(target, user, user.name.rpartition(":")[2], dry_run=dry_run, options=options)


def _group_of(path: str) -> str:
    parts = path.split("/", 3)
    return parts[2] if len(parts) > 2 and parts[1] == "apis" else ""


def _is_list(path: str) -> bool:
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return len(rest) == 1
