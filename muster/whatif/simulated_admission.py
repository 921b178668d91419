"""The webhooks' rules for a simulation: the policies and the ledger of the admission server, on objects in memory.

What the server does around them is left out: reviews as bytes, live reads to confirm a refusal (nothing is stale here),
and writing the ledger down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from muster.ledger import wording
from muster.ledger.conversion import observed_group, observed_pod, observed_quota
from muster.ledger.decision import decide
from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.reservations import Exceeded, ReservationRequest, Unavailable
from muster.ledger.table import Table
from muster.ledger.view import POD_SOURCE, QUOTA_SOURCE, source
from muster.model import kinds
from muster.model.amounts import NOTHING, QuantityError, Resources
from muster.model.kinds import Kind
from muster.model.objects import Meta, Namespace, Node, Object, Pod, PodGroup, Queue, ResourceQuota
from muster.sandbox.codec.patching import apply_operations
from scheduler.simulator.admission import Admitted
from webhooks.admission import HOOKS
from webhooks.review import AdmissionRequest, FieldError, GroupKind, GroupResource
from webhooks.settings import WebhookSettings
from webhooks.verdict import Allowed, Denied, Patched, Verdict
from webhooks.view import parent_of

T = TypeVar("T", bound=Object)

_GROUPS: Final = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
_RULES: Final[Mapping[Kind[Any], str]] = {
    **dict.fromkeys(_GROUPS, "podgroups"),
    kinds.JOBS: "jobs",
    kinds.PODS: "pods",
    kinds.QUEUES: "queues",
    kinds.RESOURCEQUOTAS: "resourcequotas",
}
_Place = tuple[str, str]


class _NamespaceLedger:
    """The ledger of a namespace, and what it rests on. ``revisions`` are shared by all books."""

    def __init__(self, revisions: Mapping[str, int]) -> None:
        self.view = NamespaceView(revisions, Tombstones())
        self.table = Table()

    def reserve(self, request: ReservationRequest, now: datetime) -> str:
        """Reserve something; return the refusal, empty where it is granted."""
        decision = decide(self.table, self.view, [request], now)
        self.table = decision.table
        answer = decision.answers[0]
        if isinstance(answer, Exceeded):
            return wording.refusal(request, answer)
        return answer.reason if isinstance(answer, Unavailable) else ""


class InMemoryAdmission:
    """Both sides of `scheduler.simulator.admission.Gate`: what exists, as policies see it, and what may come to exist."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._objects: dict[_Place, dict[_Place, Any]] = {}
        self._children: dict[str, dict[str, Queue]] = {}
        self._capacity = NOTHING
        self._revision = 1
        self._revisions: dict[str, int] = {}
        self._books: dict[str, _NamespaceLedger] = {}

    # ── as policies see it (`webhooks.view.AdmissionView`) ────────────────────────────────────────────────────────

    def get(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Return an object, or None."""
        found: T | None = self._of(kind).get((namespace, name))
        return found

    def items(self, kind: Kind[T], namespace: str = "") -> Iterable[T]:
        """Return the objects of a kind, of one namespace or of all."""
        every: Iterable[T] = self._of(kind).values()
        return [each for each in every if each.namespace == namespace] if namespace else every

    def children(self, queue: str) -> Iterable[Queue]:
        """Return the queues whose parent is the queue of that name."""
        return self._children.get(queue, {}).values()

    def capacity(self) -> Resources:
        """Return what all nodes have together."""
        return self._capacity

    def _of(self, kind: Kind[Any]) -> dict[_Place, Any]:
        return self._objects.setdefault((kind.group, kind.plural), {})

    # ── what exists ──────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, kind: Kind[Any], one: Object) -> None:
        """Tell of an object as it is now. Pods are looked at only where a quota counts them."""
        self._revision += 1
        book = self._book(one.namespace, make=kind is kinds.RESOURCEQUOTAS)
        one = self._renewed(one)
        if isinstance(one, Pod):
            if book is not None:
                book.view.put_pod(observed_pod(one))
            return
        self._of(kind)[one.namespace, one.name] = one
        if isinstance(one, Queue):
            self._children.setdefault(parent_of(one), {})[one.name] = one
        elif isinstance(one, Node):
            self._capacity += _allocatable(one)
        elif book is not None and isinstance(one, PodGroup):
            book.view.put(observed_group(kind.group, one, 0))
        elif book is not None and isinstance(one, ResourceQuota):
            book.view.put_quota(observed_quota(one))

    def hide(self, kind: Kind[Any], one: Object) -> None:
        """Tell that a group, a Job or a Pod is gone."""
        self._revision += 1
        book, uid = self._book(one.namespace), one.metadata.uid
        if kind is kinds.PODS:
            if book is not None:
                book.view.drop_pod(uid)
            return
        self._of(kind).pop((one.namespace, one.name), None)
        if book is not None and kind in _GROUPS and book.view.group(uid) is not None:
            book.view.drop(uid)

    def limited(self, namespace: str) -> bool:
        """Whether a namespace has a quota."""
        return namespace in self._books

    def table(self, namespace: str, names: Collection[str]) -> Table | None:
        """Return what is reserved in a namespace, the groups of these names apart; None where there is no quota."""
        book = self._book(namespace)
        if book is None:
            return None
        return book.table.fold(book.view, coming={name for name in names if book.view.usage(name)})

    def namespace(self, name: str) -> Meta | None:
        """Return what a namespace says of itself."""
        found: Namespace | None = self.get(kinds.NAMESPACES, name)
        return found.metadata if found is not None else None

    def _book(self, namespace: str, *, make: bool = False) -> _NamespaceLedger | None:
        if make and namespace not in self._books:
            book = self._books[namespace] = _NamespaceLedger(self._revisions)
            for kind in _GROUPS:
                for group in self.items(kind, namespace):
                    book.view.put(observed_group(kind.group, group, 0))
        book_or_none = self._books.get(namespace)
        if book_or_none is not None:
            sources = (*(source(kind.group) for kind in _GROUPS), QUOTA_SOURCE, POD_SOURCE)
            self._revisions.update(dict.fromkeys(sources, self._revision))
        return book_or_none

    def _renewed(self, one: T) -> T:
        """Return an object the version of now: the ledger tells by it what it has seen."""
        return replace(one, metadata=replace(one.metadata, resource_version=str(self._revision)))

    # ── what may come to exist ───────────────────────────────────────────────────────────────────────────────────

    def admit(self, kind: Kind[Any], one: Object, now: datetime) -> Admitted:
        """Mutate, validate and reserve, as for a CREATE; what passes exists from then on."""
        rules = _RULES.get(kind)
        verdict: Verdict = Allowed()
        if rules is not None:
            request = _creation(kind, one)
            changed = (
                HOOKS[f"/mutate/{rules}"].policy(request, self, self._settings) if f"/mutate/{rules}" in HOOKS else None
            )
            if isinstance(changed, Patched):
                document = apply_operations(msgspec.json.decode(request.object), changed.operations)
                one = msgspec.convert(document, kind.struct)
                request = _creation(kind, one)
            try:
                verdict = HOOKS[f"/validate/{rules}"].policy(request, self, self._settings)
            except FieldError as error:
                return Admitted(None, f"{error.path}: {error}" if error.path else str(error))
        refusal = self._judged(verdict, one.namespace, now)
        if refusal:
            return Admitted(None, refusal)
        self.show(kind, one)
        return Admitted(one)

    def advance(self, kind: Kind[PodGroup], before: PodGroup, after: PodGroup, now: datetime) -> str:
        """Change the status of a group; give the refusal, empty when it is stored."""
        known = self.get(kind, before.name, before.namespace)
        assert known is not None, "who changes was admitted"
        request = _creation(kind, after, old=known)
        verdict = HOOKS["/validate/podgroups"].policy(request, self, self._settings)
        refusal = self._judged(verdict, after.namespace, now)
        if not refusal:
            self.show(kind, after)
        return refusal

    def _judged(self, verdict: Verdict, namespace: str, now: datetime) -> str:
        if isinstance(verdict, Denied):
            return verdict.message
        request = verdict.reservation if isinstance(verdict, Allowed) else None
        book = self._book(namespace)
        return book.reserve(request, now) if request is not None and request.asked and book is not None else ""


def _creation(kind: Kind[Any], one: Object, old: Object | None = None) -> AdmissionRequest:
    """Write the request that a webhook would get; with ``old`` that of a new status."""
    return AdmissionRequest(
        uid=one.metadata.uid,
        operation="CREATE" if old is None else "UPDATE",
        kind=GroupKind(group=kind.group, version=kind.version, kind=kind.name),
        resource=GroupResource(group=kind.group, version=kind.version, resource=kind.plural),
        sub_resource="" if old is None else "status",
        name=one.name,
        namespace=one.namespace,
        object=msgspec.Raw(msgspec.json.encode(one)),
        old_object=msgspec.Raw(msgspec.json.encode(old)),
    )


def _allocatable(node: Node) -> Resources:
    try:
        return Resources.parse(node.status.allocatable)
    except QuantityError:
        return NOTHING
