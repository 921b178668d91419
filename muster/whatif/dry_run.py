"""The answer of an API server with Muster's webhooks to a file: both are run in memory, on a cluster's state.

Nothing is sent to the cluster. Validation, defaults and selection of webhooks are the sandbox's, deciding and reserving
are the very code that `muster webhook` serves, with a ledger that the state brings along.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.transport import MERGE_PATCH, STRATEGIC_PATCH, Request
from muster.model import kinds, versions
from muster.model.grouping import OwnerRule
from muster.model.kinds import Kind
from muster.model.manifests import Manifest
from muster.model.rules import OwnerRules, RulesError
from muster.model.workloads import OPERATORS
from muster.sandbox.admission import AdmissionChain
from muster.sandbox.core.registry import Resource
from muster.sandbox.core.store import Key, Store, StoreEvent, identity
from muster.sandbox.inprocess import InProcessTransport
from muster.sandbox.server.requests import ApiServer
from muster.whatif.cluster_view import ClusterObjects
from muster.whatif.object_paths import collection_path
from muster.whatif.verdicts import DryRunResult
from webhooks.admission import Admission
from webhooks.caches import CachedView, committer
from webhooks.metrics import WebhookMetrics
from webhooks.registration import UrlBase, configurations
from webhooks.settings import WebhookSettings

Json = dict[str, Any]

STAND_IN: Final = "whatif.muster.sh/stand-in"
"""The label of a CRD whose schema nobody knows."""
_ACCOUNTS: Final = ("", "serviceaccounts")
_PARTIAL: Final[tuple[Kind[Any], ...]] = (
    kinds.JOBS,
    kinds.DEPLOYMENTS,
    kinds.STATEFULSETS,
    kinds.PODS,
    kinds.NODES,
    kinds.CLAIMS,
)
"""Kinds of which a state has too little for the server to judge a change."""
_LEGACY_GROUPS: Final = frozenset(kind.group for kind in kinds.LEGACY_PODGROUPS)
_OF_NODES: Final = frozenset({kinds.NODES, kinds.CSINODES, kinds.RESOURCESLICES})
_EXISTS: Final = (
    "this {} exists, and the state has too few of its fields to check a change: run the command on the cluster"
)
_WARNING: Final = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
_QUERY: Final = {"fieldManager": "kubectl-client-side-apply", "fieldValidation": "Strict"}


class AdmissionDryRun:
    """An API server in memory with the state of a cluster and Muster's webhooks. For one file.

    Args:
        state: of the cluster.
        schedulers: whose pods are ours.
        delay: whether groups wait in Pending, as the scheduler's configuration says.
        existing: objects of the file that exist, with all their fields: the state has only those that Muster reads.
        namespaces: those that the file writes to: nothing of others is looked at.
        definitions: the CRDs that the server has; with kube-batch's API groups among them, webhooks look at these, too.
    """

    def __init__(
        self,
        state: ClusterObjects,
        schedulers: Sequence[str],
        *,
        delay: bool,
        existing: Iterable[Json],
        namespaces: Iterable[str],
        definitions: Sequence[Json],
    ) -> None:
        self.server = ApiServer(LoopClock(state.taken), seed=0, native_groups=True)
        self._state = state
        self._namespaces = frozenset(namespaces)
        self._settings = WebhookSettings(tuple(schedulers), delay=delay, rules=rules_of(state))
        self._without_schema = {
            each["metadata"]["name"] for each in definitions if STAND_IN in (each["metadata"].get("labels") or {})
        }
        self._legacy = not _LEGACY_GROUPS.isdisjoint(each["spec"]["group"] for each in definitions)
        self._view = CachedView(legacy_apis=self._legacy)
        self._load_state(existing, definitions)
        self._register_webhooks(schedulers)
        self.server.store.subscribe(self._show_stored)
        client = Client(InProcessTransport(self.server))
        metrics = WebhookMetrics()
        ledger = committer(client, self.server.clock, self._view, metrics.registry, self._settings.scheduler_names)
        admission = Admission(self._view, ledger, client, self._settings, metrics)
        self.server.writes.admission = AdmissionChain(self.server, _InProcess(admission))
        self._ledger = ledger

    async def apply(self, manifests: Iterable[Manifest]) -> list[DryRunResult]:
        """Apply objects in order, as `kubectl apply` would; what is refused doesn't keep the others from being tried."""
        answers = [await self._apply(each) for each in manifests]
        await self._ledger.close()
        return answers

    def ledgers(self) -> list[Json]:
        """Return the quota ledgers as they are now."""
        kind = kinds.QUOTALEDGERS
        return list(self.server.store.list((kind.group, kind.plural)))

    async def _apply(self, manifest: Manifest) -> DryRunResult:
        resource = self._resource(manifest)
        if resource is None:
            return DryRunResult(manifest, 0)
        self._add_service_account(manifest, resource)
        namespace = manifest.namespace if resource.namespaced else ""
        old = self.server.store.get(resource.key, namespace, manifest.name) if manifest.name else None
        if old is not None and self._is_partial(resource.key, namespace, manifest.name):
            return DryRunResult(manifest, 0, created=False, note=_EXISTS.format(resource.kind))
        path = collection_path(resource, namespace)
        body = msgspec.json.encode(manifest.body)
        if old is None:
            request = Request("POST", path, _QUERY, body)
        else:
            form = MERGE_PATCH if resource.custom else STRATEGIC_PATCH
            request = Request("PATCH", f"{path}/{manifest.name}", _QUERY, body, form)
        response = await self.server.handle(request)
        told = msgspec.json.decode(response.body)
        fine = 200 <= response.status < 300
        return DryRunResult(
            manifest,
            response.status,
            None if fine else told,
            told if fine else None,
            old is None,
            _warnings(response.headers),
            unchecked=f"{resource.plural}.{resource.group}" in self._without_schema,
        )

    def _resource(self, manifest: Manifest) -> Resource | None:
        group, _, version = manifest.api_version.rpartition("/")
        return self.server.registry.by_kind(group, manifest.kind, version)

    def _is_partial(self, key: Key, namespace: str, name: str) -> bool:
        """Whether too little is known of an object that was there before."""
        kind = next((each for each in _PARTIAL if (each.group, each.plural) == key), None)
        known = kind is not None and self._state.find(kind, name, namespace) is not None
        return known and (key, namespace, name) not in self._complete

    def _add_service_account(self, manifest: Manifest, resource: Resource) -> None:
        """Take the service account of a pod to exist: a state has none."""
        spec = manifest.body.get("spec")
        name = spec.get("serviceAccountName") if isinstance(spec, dict) else None
        if resource.key == ("", "pods") and isinstance(name, str) and name:
            account = {"metadata": {"name": name, "namespace": manifest.namespace}}
            self.server.store.put(_ACCOUNTS, account)

    # ── what the server has ──────────────────────────────────────────────────────────────────────────────────────

    def _load_state(self, existing: Iterable[Json], definitions: Iterable[Json]) -> None:
        store = self.server.store
        for definition in definitions:
            store.put((kinds.CRDS.group, kinds.CRDS.plural), definition)
        for kind, items in self._stored():
            for item in items:
                # By way of JSON: its arrays are lists, as in whatever comes over the wire.
                _put(store, kind, msgspec.json.decode(msgspec.json.encode(item)))
        self._complete = set[tuple[Key, str, str]]()
        for each in existing:
            group, _, version = str(each.get("apiVersion")).rpartition("/")
            resource = self.server.registry.by_kind(group, str(each.get("kind")), version)
            if resource is not None:
                _put(store, resource, each)
                self._complete.add((resource.key, *identity(each)))

    def _register_webhooks(self, schedulers: Sequence[str]) -> None:
        """Add the webhook configurations, and show the webhooks what is there."""
        store = self.server.store
        hooks = configurations(
            UrlBase("https://muster"),
            b"",
            scheduler_names=schedulers,
            legacy_apis=self._legacy,
            own_namespace=self._state.home,
        )
        store.revision = max(store.revision, _newest(self._state))
        for registered, hook in zip((kinds.MUTATING, kinds.VALIDATING), hooks, strict=True):
            store.put((registered.group, registered.plural), hook)
        for kind in self._view.kinds:
            items = self._of_namespaces(kind) if kind.namespaced else self._state.of(kind)
            self._view.cache(kind).replace(items, str(store.revision))

    def _stored(self) -> Iterator[tuple[Kind[Any], Sequence[Any]]]:
        """Return what the server is to hold: who applies files reads nothing of nodes, or of other namespaces, from it."""
        for kind, items in self._state.objects.items():
            if kind not in _OF_NODES:
                yield kind, self._of_namespaces(kind) if kind.namespaced else items

    def _of_namespaces(self, kind: Kind[Any]) -> list[Any]:
        return [each for namespace in sorted(self._namespaces - {""}) for each in self._state.of(kind, namespace)]

    def _show_stored(self, event: StoreEvent) -> None:
        """Show the webhooks what is stored, at once."""
        kind = next((each for each in self._view.kinds if (each.group, each.plural) == event.key), None)
        if kind is None:
            return
        item = msgspec.convert(event.object, kind.struct)
        cache = self._view.cache(kind)
        cache.drop(item) if event.type == "DELETED" else cache.put(item)


class _InProcess:
    """Hands what is for the webhooks to their code."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def call(
        self, url: str, ca_bundle: bytes, body: bytes, *, within: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Answer a review."""
        del ca_bundle
        target = urlsplit(url)
        async with asyncio.timeout(within):
            status, headers, answer = await self._admission.handle(target.path, dict(parse_qsl(target.query)), body)
        return status, {name.lower(): value for name, value in headers.items()}, answer


def _put(store: Store, place: Kind[Any] | Resource, obj: Json) -> None:
    """Store an object at the version that it has: the ledger knows objects by theirs."""
    before = store.revision
    version = obj["metadata"].get("resourceVersion")
    store.revision = versions.number(version) - 1 if version else before
    store.put((place.group, place.plural), {**obj, "apiVersion": place.api_version, "kind": _kind(place)})
    store.revision = max(before, store.revision)


def _kind(place: Kind[Any] | Resource) -> str:
    return place.name if isinstance(place, Kind) else place.kind


def _newest(state: ClusterObjects) -> int:
    """Return a version that is newer than all that the state speaks of."""
    seen = (each for ledger in state.of(kinds.QUOTALEDGERS) for each in ledger.data.observed.values())
    return max((versions.number(each) for each in seen), default=0) + 1


def rules_of(state: ClusterObjects) -> tuple[OwnerRule, ...]:
    """Return the owner rules of a cluster."""
    book = OwnerRules()
    # With a mistake in them, the rules of a webhook server stay as they were; at its start, the default ones hold.
    with contextlib.suppress(RulesError):
        book.learn(state.of(kinds.CONFIGMAPS))
    return book.rules


def stand_ins(manifests: Iterable[Manifest], existing: Iterable[Json]) -> Iterator[Json]:
    """Return a CRD without a schema for each operator's kind of which neither the files nor ``existing`` have one."""
    found = list(manifests)
    known = {str((each.get("metadata") or {}).get("name")) for each in (*existing, *(one.body for one in found))}
    wanted = {(each.api_version, each.kind) for each in found}
    for workload in OPERATORS:
        kind = workload.kind
        if (kind.api_version, kind.name) in wanted and str(kind) not in known:
            schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
            version = {"name": kind.version, "served": True, "storage": True, "schema": schema}
            called = {"plural": kind.plural, "kind": kind.name, "singular": kind.name.lower()}
            called |= {"listKind": f"{kind.name}List"}
            spec = {"group": kind.group, "scope": "Namespaced", "names": called, "versions": [version]}
            yield {
                "apiVersion": kinds.CRDS.api_version,
                "kind": kinds.CRDS.name,
                "metadata": {"name": str(kind), "uid": str(kind), "labels": {STAND_IN: "true"}},
                "spec": spec,
            }


def _warnings(headers: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(headers.get("warning", "")))
