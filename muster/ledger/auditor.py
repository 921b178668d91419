"""The leader's auditor: reads each namespace that has a ledger, again and again, and tells of what exceeds a quota.

One namespace at a time, each within five minutes, with at most a fiftieth of a processor: it paces itself by what it
measured. A finding that no allowed class explains is told only when a second list, one deadline later, shows it too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, field

from muster.kube import errors
from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.ledger.audit import AuditBound, AuditedNamespace, Excess, ExcessClass, Limit, audit, describe
from muster.ledger.conversion import limits_of, observed_group, observed_quota
from muster.ledger.metrics import AuditMetrics
from muster.ledger.observer import Observer
from muster.ledger.rows import MalformedLedgerError
from muster.ledger.store import Store
from muster.ledger.view import ObservedGroup
from muster.model import grouping, kinds
from muster.model.kinds import Kind
from muster.model.objects import PodGroup, QuotaLedger, ResourceQuota

T = TypeVar("T")

log = logging.getLogger(__name__)

ROUND: Final = 240.0
"""Seconds in which every namespace is audited once, where the processor's share suffices."""
SHARE: Final = 0.02
"""The part of one core that it may take."""
CONFIRM: Final = 45.0
"""Seconds between the two lists that must agree: what was under way at the first has come or never will."""

_LOOK: Final = 5.0  # seconds after which it looks for namespaces that are new


class _Audited(Struct):
    """What is remembered of one namespace."""

    due: float
    audited: float
    bounds: Mapping[Limit, AuditBound] = field(default_factory=dict)
    suspected: dict[Limit, float] = field(default_factory=dict)
    found: Counter[ExcessClass] = field(default_factory=Counter)
    told: frozenset[tuple[Limit, ExcessClass]] = frozenset()


class Auditor:
    """Audits the namespaces that have a ledger. A task of the leader.

    Args:
        ledgers: the cache of all QuotaLedgers.
        quotas: the cache of all ResourceQuotas: which limits there were between two audits.
        groups: the kinds of PodGroup that are served.
        guaranteed: whether a namespace's pods can't be created while no webhook answers.
        cpu: tells the processor time that this thread has had.
    """

    def __init__(
        self,
        client: Client,
        ledgers: ObjectCache[QuotaLedger],
        quotas: ObjectCache[ResourceQuota],
        groups: Iterable[Kind[PodGroup]],
        observer: Observer,
        metrics: AuditMetrics,
        guaranteed: Callable[[str], bool],
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._client = client
        self._store = Store(client, ledgers, observer.timeline)
        self._groups = tuple(groups)
        self._observer = observer
        self._metrics = metrics
        self._guaranteed = guaranteed
        self._cpu = cpu
        self._known: dict[str, _Audited] = {}
        self._highest: dict[Limit, int] = {}
        quotas.subscribe(self._quota_changed)
        observer.timeline.subscribe(self._known.clear)

    async def run(self) -> None:
        """Audit, until cancelled."""
        try:
            while True:
                pause = await self._step()
                await asyncio.sleep(pause)
        finally:
            self._known.clear()
            self._tell_metrics()

    async def _step(self) -> float:
        """Audit the namespace that is due, if one is; return the seconds to wait before the next step."""
        loop = asyncio.get_running_loop()
        self._keep_namespaces(loop.time())
        self._tell_metrics()
        due = min(self._known, key=lambda namespace: self._known[namespace].due, default=None)
        if due is None or not self._observer.settled():
            return _LOOK
        if (wait := self._known[due].due - loop.time()) > 0:
            return min(wait, _LOOK)
        self._known[due].due = loop.time() + ROUND
        metered = _Metered(self._audit(due), self._cpu)
        try:
            await metered
        except (errors.KubeError, MalformedLedgerError) as error:
            log.info("namespace %s can't be audited now: %s", due, error)
            self._metrics.failures.inc()
        except Exception:
            # It is audited again in a round, and the others in their turn.
            log.exception("namespace %s can't be audited now: an error in Muster", due)
            self._metrics.failures.inc()
        self._metrics.cpu_seconds.inc(metered.spent)
        return metered.spent * (1 / SHARE - 1)

    def _keep_namespaces(self, now: float) -> None:
        """Take in the namespaces that have a ledger by now, spread over a round, and leave out those that have none."""
        there = self._store.namespaces()
        for namespace in self._known.keys() - there:
            del self._known[namespace]
        new = sorted(there - self._known.keys())
        for place, namespace in enumerate(new):
            self._known[namespace] = _Audited(due=now + ROUND * place / len(new), audited=now)

    async def _audit(self, namespace: str) -> None:
        listed = await self._list(namespace)
        memory = self._known.get(namespace)
        if listed is None or memory is None:
            return
        now = asyncio.get_running_loop().time()
        found, memory.bounds = audit(listed, memory.bounds, self._highest, now)
        for quota in listed.quotas:
            for resource in quota.hard:
                self._highest.pop((quota.uid, resource), None)
        memory.audited = now
        self._judge(namespace, memory, found, now)

    async def _list(self, namespace: str) -> AuditedNamespace | None:
        """Read what exists, and then what the ledger says of it; None where there is no ledger that means something."""
        quotas = (await self._client.list(kinds.RESOURCEQUOTAS, namespace)).items
        groups: list[ObservedGroup] = []
        called: dict[str, str] = {}
        for kind in self._groups:
            listing = await self._client.list(kind, namespace)
            groups += [observed_group(kind.group, group, 0) for group in listing.items]
            called |= {
                group.metadata.uid: grouping.called(group.name, grouping.owner_of(group.metadata))
                for group in listing.items
            }
        pods = (await self._client.list(kinds.PODS, namespace)).items
        shown = tuple(map(self._observer.observed_pod, pods))
        claims = tuple(await self._observer.claims(self._client, namespace, shown))
        entry = self._store.known(namespace)
        if entry is None or not entry.table.seeded_at:
            return None
        table = entry.table
        late = {shown.uid for shown in table.outside(self._observer.view(namespace))}
        return AuditedNamespace(
            tuple(groups),
            shown + claims,
            tuple(map(observed_quota, quotas)),
            called=called | {pod.metadata.uid: f"Pod {pod.name}" for pod in pods},
            unreserved=table.unreserved | late,
            counted={(each.quota, each.resource): each.hard + each.short for each in table.per_resource()},
            guaranteed=self._guaranteed(namespace),
        )

    def _judge(self, namespace: str, memory: _Audited, found: Iterable[Excess], now: float) -> None:
        """Tell of what was found; of what nothing explains, once a second list shows it too."""
        unexplained = {each.limit for each in found if each.kind is ExcessClass.UNEXPLAINED}
        memory.suspected = {limit: memory.suspected.get(limit, now) for limit in unexplained}
        sure = [
            each
            for each in found
            if each.kind is not ExcessClass.UNEXPLAINED or now - memory.suspected[each.limit] >= CONFIRM
        ]
        if len(sure) < len(tuple(found)):
            memory.due = now + CONFIRM
        for each in sure:
            if (each.limit, each.kind) not in memory.told:
                level = logging.ERROR if each.kind is ExcessClass.UNEXPLAINED else logging.WARNING
                log.log(level, "%s", describe(namespace, each))
        memory.told = frozenset((each.limit, each.kind) for each in sure)
        memory.found = Counter(each.kind for each in sure)

    def _tell_metrics(self) -> None:
        now = asyncio.get_running_loop().time()
        for kind in ExcessClass:
            self._metrics.excesses.labels(kind.value).set(sum(each.found[kind] for each in self._known.values()))
        self._metrics.oldest.set(max((now - each.audited for each in self._known.values()), default=0.0))

    def _quota_changed(self, change: ObjectChange[ResourceQuota]) -> None:
        for quota in (change.old, change.new):
            for resource, hard in (limits_of(quota).nano if quota is not None else {}).items():
                assert quota is not None
                limit = quota.metadata.uid, resource
                self._highest[limit] = max(hard, self._highest.get(limit, 0))
        if change.new is None and change.old is not None:
            for resource in limits_of(change.old):
                self._highest.pop((change.old.metadata.uid, resource), None)


class _Metered(Generic[T]):
    """A coroutine to be awaited, and the processor time of its own steps; not of what runs while it waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], cpu: Callable[[], float]) -> None:
        self._coroutine = coroutine
        self._cpu = cpu
        self.spent = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._coroutine.__await__()
        error: BaseException | None = None
        while True:
            began = self._cpu()
            try:
                waits_for = next(steps) if error is None else steps.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.spent += self._cpu() - began
            error = None
            try:
                yield waits_for
            except BaseException as raised:  # noqa: BLE001 - it goes to whom it is meant for
                error = raised
