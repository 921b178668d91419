"""The webhooks' rules for a simulation: the policies and the ledger of the admission server, on objects in memory.

The order is the server's own (`webhooks.evaluation`). Here is what stands for the rest: the API server that calls one hook
after the other and applies patches, objects that are never behind, and a ledger that nobody else writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from muster.ledger.conversion import maker_of, observed_claim, observed_group, observed_pod, observed_quota, pod_of
from muster.ledger.decision import decide
from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.reservations import Observed, ReservationRequest, Reserved
from muster.ledger.table import Table
from muster.ledger.view import CLAIM_SOURCE, POD_SOURCE, QUOTA_SOURCE, source
from muster.model import kinds
from muster.model.amounts import NOTHING, QuantityError, Resources
from muster.model.kinds import Kind
from muster.model.objects import Meta, Namespace, Node, Object, Pod, PodGroup, Queue, ResourceClaim, ResourceQuota
from muster.sandbox.codec.patching import apply_operations
from scheduler.simulator.admission import Admitted
from webhooks.evaluation import HOOKS, Hook, Question, ReadObjects, Reply, Trial, evaluate, hooks_in_order
from webhooks.review import AdmissionRequest, GroupKind, GroupResource
from webhooks.settings import WebhookSettings
from webhooks.verdict import Denied, Patched, QuotaChange, Verdict
from webhooks.view import parent_of

T = TypeVar("T", bound=Object)

_GROUPS: Final = (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)
_RULES: Final[Mapping[Kind[Any], str]] = {
    **dict.fromkeys(_GROUPS, "podgroups"),
    kinds.JOBS: "jobs",
    kinds.PODS: "pods",
    kinds.RESOURCECLAIMS: "resourceclaims",
    kinds.QUEUES: "queues",
    kinds.RESOURCEQUOTAS: "resourcequotas",
}
_Place = tuple[str, str]


class _NamespaceLedger:
    """The ledger of a namespace, and what it rests on. ``revisions`` are shared by all ledgers."""

    def __init__(self, revisions: Mapping[str, int]) -> None:
        self.view = NamespaceView(revisions, Tombstones())
        self.table = Table()

    def reserve(self, request: ReservationRequest, now: datetime) -> Reply:
        """Reserve something, or say why not."""
        decision = decide(self.table, self.view, [request], now)
        self.table = decision.table
        return decision.answers[0]


class InMemoryAdmission:
    """Both sides of `scheduler.simulator.admission.SimulatedAdmission`: what exists, as policies see it, and what may come to exist."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._objects: dict[_Place, dict[_Place, Any]] = {}
        self._children: dict[str, dict[str, Queue]] = {}
        self._capacity = NOTHING
        self._revision = 1
        self._revisions: dict[str, int] = {}
        self._ledgers: dict[str, _NamespaceLedger] = {}

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
        ledger = self._ledger(one.namespace, make=kind is kinds.RESOURCEQUOTAS)
        one = self._renewed(one)
        if isinstance(one, Pod):
            if ledger is not None:
                # A pod of a file may have no scheduler name: then it is Muster's, as the scheduler's state has it.
                ours = (*self._settings.scheduler_names, "")
                ledger.view.put_pod(observed_pod(one, schedulers=ours))
            return
        self._of(kind)[one.namespace, one.name] = one
        if isinstance(one, Queue):
            self._children.setdefault(parent_of(one), {})[one.name] = one
        elif isinstance(one, Node):
            self._capacity += _allocatable(one)
        elif ledger is not None and isinstance(one, PodGroup):
            ledger.view.put(observed_group(kind.group, one, 0))
        elif ledger is not None and isinstance(one, ResourceClaim):
            standing = ledger.view.standing_for(maker_of(one))
            ledger.view.put_pod(observed_claim(one, ledger.view.pod(pod_of(one)), standing))
        elif ledger is not None and isinstance(one, ResourceQuota):
            ledger.view.put_quota(observed_quota(one))

    def hide(self, kind: Kind[Any], one: Object) -> None:
        """Tell that a group, a Job or a Pod is gone."""
        self._revision += 1
        ledger, uid = self._ledger(one.namespace), one.metadata.uid
        if kind is kinds.PODS:
            if ledger is not None:
                ledger.view.drop_pod(uid)
            return
        self._of(kind).pop((one.namespace, one.name), None)
        if ledger is not None and kind in _GROUPS and ledger.view.group(uid) is not None:
            ledger.view.drop(uid)

    def limited(self, namespace: str) -> bool:
        """Whether a namespace has a quota."""
        return namespace in self._ledgers

    def table(self, namespace: str, names: Collection[str]) -> Table | None:
        """Return what is reserved in a namespace, the groups of these names apart; None where there is no quota."""
        ledger = self._ledger(namespace)
        if ledger is None:
            return None
        return ledger.table.fold(ledger.view, coming={name for name in names if ledger.view.usage(name)})

    def namespace(self, name: str) -> Meta | None:
        """Return what a namespace says of itself."""
        found: Namespace | None = self.get(kinds.NAMESPACES, name)
        return found.metadata if found is not None else None

    def _ledger(self, namespace: str, *, make: bool = False) -> _NamespaceLedger | None:
        if make and namespace not in self._ledgers:
            ledger = self._ledgers[namespace] = _NamespaceLedger(self._revisions)
            for kind in _GROUPS:
                for group in self.items(kind, namespace):
                    ledger.view.put(observed_group(kind.group, group, 0))
        found = self._ledgers.get(namespace)
        if found is not None:
            sources = (*(source(kind.group) for kind in _GROUPS), QUOTA_SOURCE, POD_SOURCE, CLAIM_SOURCE)
            self._revisions.update(dict.fromkeys(sources, self._revision))
        return found

    def _renewed(self, one: T) -> T:
        """Return an object the version of now: the ledger tells by it what it has seen."""
        return replace(one, metadata=replace(one.metadata, resource_version=str(self._revision)))

    # ── what may come to exist ───────────────────────────────────────────────────────────────────────────────────

    def admit(self, kind: Kind[Any], one: Object, now: datetime) -> Admitted:
        """Mutate, validate and reserve, as for a CREATE; what passes exists from then on."""
        request = _request(kind, one)
        for hook in hooks_in_order(_RULES.get(kind, "")):
            verdict = self._evaluate(hook, request, now)
            if isinstance(verdict, Denied):
                return Admitted(None, verdict.message)
            if isinstance(verdict, Patched):
                document = apply_operations(msgspec.json.decode(request.object), verdict.operations)
                one = msgspec.convert(document, kind.struct)
                request = _request(kind, one)
        self.show(kind, one)
        return Admitted(one)

    def advance(self, kind: Kind[PodGroup], before: PodGroup, after: PodGroup, now: datetime) -> str:
        """Change the status of a group; give the refusal, empty when it is stored."""
        known = self.get(kind, before.name, before.namespace)
        assert known is not None, "who changes was admitted"
        verdict = self._evaluate(HOOKS["/validate/podgroups"], _request(kind, after, old=known), now)
        if isinstance(verdict, Denied):
            return verdict.message
        self.show(kind, after)
        return ""

    def _evaluate(self, hook: Hook, request: AdmissionRequest, now: datetime) -> Verdict:
        steps = evaluate(hook, request, self, self._settings)
        try:
            question = next(steps)
            while True:
                question = steps.send(self._answer(question, now))
        except StopIteration as decided:
            verdict: Verdict = decided.value
            return verdict

    def _answer(self, question: Question, now: datetime) -> Reply:
        """Answer what the evaluation asks. Nothing here is behind; and a quota counts once it is shown."""
        match question:
            case ReadObjects(refs):
                return {ref: self.get(ref.kind, ref.name, ref.namespace) for ref in refs}
            case QuotaChange():
                return Observed()
            case Trial():
                raise AssertionError("a simulation applies no workload whose group comes later")
        ledger = self._ledger(question.namespace)
        return ledger.reserve(question, now) if ledger is not None and question.asked else Reserved(recorded=False)


def _request(kind: Kind[Any], one: Object, old: Object | None = None) -> AdmissionRequest:
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
