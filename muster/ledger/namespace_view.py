"""A view of one namespace that is told of each change, and the memory of what is gone. Pure: an `Observer` feeds it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import reduce
from typing import Final

from msgspec.structs import replace

from muster.ledger.reservations import all_limited
from muster.ledger.view import (
    QUOTA_SOURCE,
    LedgerView,
    ObjectMemory,
    ObservedGroup,
    ObservedPod,
    ObservedQuota,
    source,
)
from muster.model import scopes
from muster.model.amounts import NOTHING, Resources

_REMEMBERED: Final = 10_000


class Tombstones:
    """The memory of objects that are gone.

    Bounded: what is forgotten costs a row its early end, and it ends by expiry instead.
    """

    def __init__(self) -> None:
        self._gone: dict[str, OrderedDict[str, tuple[str, int]]] = {}

    def add(self, uid: str, place: str, revision: int) -> None:
        """Remember that an object was there at ``revision`` and no longer is."""
        # By source, so that pods, of which there are most, don't make us forget groups.
        gone = self._gone.setdefault(place, OrderedDict())
        gone[uid] = place, revision
        if len(gone) > _REMEMBERED:
            gone.popitem(last=False)

    def last_seen(self, uid: str) -> tuple[str, int]:
        """Return where and at which revision it was last there."""
        return next((gone[uid] for gone in self._gone.values() if uid in gone), ("", 0))


class NamespaceView:
    """A `LedgerView` that is told of each change, with its sums kept up to date.

    ``revisions`` and ``memory`` belong to whoever feeds the view and may be shared by many.
    """

    def __init__(self, revisions: Mapping[str, int], memory: ObjectMemory) -> None:
        self._revisions = revisions
        self._memory = memory
        self._groups: dict[str, ObservedGroup] = {}
        self._called: dict[str, dict[str, ObservedGroup]] = {}
        self._standing: dict[str, set[str]] = {}
        self._born: dict[str, deque[tuple[int, str]]] = {}
        self._quotas: dict[str, ObservedQuota] = {}
        self._pods: dict[str, ObservedPod] = {}
        self._leaving: set[str] = set()
        self._usage: dict[str, Resources] = {}
        self._scope_sets: frozenset[str] = frozenset()
        self._limited: frozenset[str] = frozenset()
        self._waiting: set[str] = set()
        self._total = NOTHING
        self._used = NOTHING
        self._excess = NOTHING

    @property
    def empty(self) -> bool:
        """Whether it shows nothing."""
        return not (self._groups or self._quotas or self._pods)

    @property
    def revisions(self) -> Mapping[str, int]:
        """Source to revision, as its owner keeps it."""
        return self._revisions

    @property
    def total(self) -> Resources:
        """What all groups hold."""
        return self._total

    @property
    def used(self) -> Resources:
        """What all pods take."""
        return self._used

    @property
    def excess(self) -> Resources:
        """What pods take beyond what their groups hold."""
        return self._excess

    def usage(self, name: str) -> Resources:
        """What the pods of a name take."""
        return self._usage.get(name, NOTHING)

    def beyond(self, name: str) -> Resources:
        """What the pods of a name take beyond what groups of that name hold."""
        usage = self._usage.get(name)
        if usage is None:
            return NOTHING
        return reduce(Resources.__sub__, (self._counted(each.amounts) for each in self.called(name)), usage).positive()

    @property
    def quotas(self) -> Mapping[str, ObservedQuota]:
        """Every quota, by name."""
        return self._quotas

    def groups(self) -> Iterable[ObservedGroup]:
        """Every group."""
        return self._groups.values()

    def waiting(self) -> Collection[ObservedGroup]:
        """Return the groups that wait for their minimum, the oldest first."""
        return sorted((self._groups[uid] for uid in self._waiting), key=lambda each: each.age) if self._waiting else ()

    def group(self, uid: str) -> ObservedGroup | None:
        """Return the group of that uid, if it is shown."""
        return self._groups.get(uid)

    def pod(self, uid: str) -> ObservedPod | None:
        """Return the pod or claim of that uid, if it is shown."""
        return self._pods.get(uid)

    def pods(self) -> Iterable[ObservedPod]:
        """Every pod and claim."""
        return self._pods.values()

    def leaving(self) -> Iterable[ObservedPod]:
        """Every pod that is being deleted."""
        return map(self._pods.__getitem__, self._leaving)

    def called(self, name: str) -> Iterable[ObservedGroup]:
        """Return the groups of that name, of any API group."""
        return self._called.get(name, {}).values()

    def standing_for(self, native: str) -> str:
        """Name the group in which the pods of a PodGroup of Kubernetes' own are, by the uid of that; empty where no group says so."""
        return min((self._groups[uid].name for uid in self._standing.get(native, ())), default="")

    def revision_of(self, uid: str) -> int:
        """Return the resourceVersion of the group, pod or quota; zero when none of that uid is shown."""
        shown = self._groups.get(uid) or self._pods.get(uid)
        quota = next((each for each in self._quotas.values() if each.uid == uid), None) if shown is None else None
        return shown.revision if shown else quota.revision if quota else 0

    def delivered(self, uid: str) -> bool:
        """Tell whether it is shown, or gone: last seen at a revision that this view is past, and not there now.

        The comparison matters where the memory is of another view than this one, which may be ahead of it.
        """
        if self.revision_of(uid):
            return True
        place, revision = self._memory.last_seen(uid)
        return 0 < revision <= self._revisions.get(place, 0)

    def born_after(self, revisions: Mapping[str, int]) -> Iterator[ObservedGroup]:
        """Return the groups that certainly didn't exist yet at ``revisions``."""
        for place, floor in revisions.items():
            for absent_at, uid in reversed(self._born.get(place, ())):
                if absent_at < floor:
                    break
                if uid in self._groups:
                    yield self._groups[uid]

    def follow(self, resources: Collection[str]) -> None:
        """Count from now on what quotas with these resources limit, too, and in their scopes."""
        limited, scope_sets = all_limited(resources), scopes.scope_sets(resources)
        if self._limited >= limited and self._scope_sets >= scope_sets:
            return
        self._limited |= limited
        self._scope_sets |= scope_sets
        pods, groups = list(self._pods.values()), list(self._groups.values())
        self._pods, self._groups, self._usage = {}, {}, {}
        self._total = self._used = self._excess = NOTHING
        for pod in pods:
            self.put_pod(pod)
        for shown in groups:
            self._show(shown)

    def _counted(self, amounts: Resources) -> Resources:
        """Return what is limited of some amounts."""
        nano = amounts.nano
        return Resources({name: nano[name] for name in self._limited if name in nano})

    def _in_scopes(self, amounts: Resources, scope_facts: str) -> Resources:
        return (
            scopes.in_scopes(scopes.unscoped(amounts), scope_facts, self._scope_sets) if self._scope_sets else amounts
        )

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, shown: ObservedGroup) -> None:
        """Show a new or changed group."""
        if shown.uid not in self._groups:
            births = self._born.setdefault(source(shown.group), deque(maxlen=_REMEMBERED))
            births.append((shown.absent_at, shown.uid))
        self._show(shown)

    def _show(self, shown: ObservedGroup) -> None:
        if shown.scope_facts and self._scope_sets:
            amounts, wanted = (self._in_scopes(each, shown.scope_facts) for each in (shown.amounts, shown.wanted))
            shown = replace(shown, amounts=amounts, wanted=wanted)
        known = self._groups.get(shown.uid)
        self._total = self._total + self._counted(shown.amounts) - (self._counted(known.amounts) if known else NOTHING)
        before = self.beyond(shown.name)
        self._groups[shown.uid] = shown
        self._stand(known, shown)
        (self._waiting.add if shown.wanted else self._waiting.discard)(shown.uid)
        self._called.setdefault(shown.name, {})[shown.uid] = shown
        self._recount(shown.name, before)

    def drop(self, uid: str) -> None:
        """Show that a group is gone."""
        shown = self._groups.pop(uid)
        self._stand(shown, None)
        self._waiting.discard(uid)
        self._total = (self._total - self._counted(shown.amounts)).positive()
        before, namesakes = self.beyond(shown.name), self._called[shown.name]
        del namesakes[uid]
        if not namesakes:
            del self._called[shown.name]
        self._recount(shown.name, before)

    def _stand(self, before: ObservedGroup | None, after: ObservedGroup | None) -> None:
        if before is not None and before.native:
            self._standing[before.native].discard(before.uid)
            if not self._standing[before.native]:
                del self._standing[before.native]
        if after is not None and after.native:
            self._standing.setdefault(after.native, set()).add(after.uid)

    def put_pod(self, pod: ObservedPod) -> None:
        """Show a new or changed pod or claim."""
        if pod.scope_facts and self._scope_sets:
            pod = replace(pod, amounts=self._in_scopes(pod.amounts, pod.scope_facts))
        known = self._pods.get(pod.uid)
        if known is None or (known.group, known.amounts) != (pod.group, pod.amounts):
            if known is not None:
                self._take(known.group, NOTHING - self._counted(known.amounts))
            self._take(pod.group, self._counted(pod.amounts))
        self._pods[pod.uid] = pod
        if pod.gone_by:
            self._leaving.add(pod.uid)

    def drop_pod(self, uid: str) -> None:
        """Show that a pod or a claim is gone."""
        pod = self._pods.pop(uid, None)
        self._leaving.discard(uid)
        if pod is not None:
            self._take(pod.group, NOTHING - self._counted(pod.amounts))

    def put_quota(self, quota: ObservedQuota) -> None:
        """Show a new or changed quota."""
        known = self._quotas.get(quota.name)
        self._quotas[quota.name] = quota
        if known is None or known.hard is not quota.hard:
            self.follow(quota.hard.nano.keys())

    def drop_quota(self, name: str) -> None:
        """Show that a quota is gone."""
        self._quotas.pop(name, None)

    def _take(self, name: str, amounts: Resources) -> None:
        if not amounts:
            return
        before, usage = self.beyond(name), (self.usage(name) + amounts).positive()
        self._used = (self._used + amounts).positive()
        if usage:
            self._usage[name] = usage
        else:
            self._usage.pop(name, None)
        self._recount(name, before)

    def _recount(self, name: str, before: Resources) -> None:
        after = self.beyond(name)
        if after != before:
            self._excess = (self._excess + after - before).positive()


class CacheMemory:
    """What the caches remember of an object, dead or alive, for a view that isn't theirs."""

    def __init__(self, view: LedgerView, tombstones: Tombstones) -> None:
        self._view = view
        self._tombstones = tombstones

    def last_seen(self, uid: str) -> tuple[str, int]:
        """Return where and at which revision it was last there."""
        shown = self._view.group(uid)
        if shown is not None:
            return source(shown.group), shown.revision
        pod = self._view.pod(uid)
        if pod is not None:
            return pod.place, pod.revision
        quota = next((each for each in self._view.quotas.values() if each.uid == uid), None)
        return (QUOTA_SOURCE, quota.revision) if quota else self._tombstones.last_seen(uid)
