"""Feeds the ledger's views from caches, and makes one from quorum reads where a cache may be behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client, Listing
from muster.kube.timeline import Timeline, WentBackError
from muster.ledger.conversion import limits_of, observed_group, observed_pod, observed_quota
from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.view import (
    POD_SOURCE,
    QUOTA_SOURCE,
    LedgerView,
    ObservedGroup,
    ObservedPod,
    covers,
    source,
)
from muster.model import kinds, names, versions
from muster.model.amounts import Resources
from muster.model.kinds import QUOTALEDGERS, RESOURCEQUOTAS, Kind
from muster.model.objects import Namespace, Pod, PodGroup, ResourceQuota

_CATCH_UP_SECONDS: Final = 0.5  # seconds; a watch that works is behind by milliseconds


def guaranteed_in(namespaces: ObjectCache[Namespace]) -> Callable[[str], bool]:
    """Return what tells whether a namespace is labelled so that its quota holds for pods whatever happens."""

    def guaranteed(name: str) -> bool:
        found = namespaces.get(name)
        return found is not None and found.metadata.label(names.QUOTA_MODE) == names.GUARANTEED

    return guaranteed


class Observer:
    """Keeps a `NamespaceView` of each namespace that has groups or quotas; of pods only where there are quotas.

    Args:
        groups: each served kind of PodGroup and the cache of it, of all namespaces.
        quotas: the cache of all ResourceQuotas.
        pods: the cache of all Pods.
        timeline: what tells whether the state that these caches show went back.
        schedulers: the scheduler names of pods that are members of the groups they name (`grouping.member_of`).

    Attributes:
        timeline: the same.
    """

    def __init__(
        self,
        groups: Mapping[Kind[PodGroup], ObjectCache[PodGroup]],
        quotas: ObjectCache[ResourceQuota],
        pods: ObjectCache[Pod],
        timeline: Timeline | None = None,
        schedulers: Collection[str] | None = None,
    ) -> None:
        self.timeline = timeline or Timeline()
        self._restores = 0
        self._sources = [str(kind) for kind in (*groups, RESOURCEQUOTAS, kinds.PODS, QUOTALEDGERS)]
        self._groups = dict(groups)
        self._schedulers = schedulers
        self._quotas = quotas
        self._pods = pods
        self._counted: set[str] = set()
        self._revisions: dict[str, int] = {}
        self._tombstones = Tombstones()
        self._views: dict[str, NamespaceView] = {}
        self._changed: list[Callable[[str], None]] = []
        self._show_all()
        for kind, cache in self._groups.items():
            self._follow(kind, cache)
        quotas.subscribe(self._quota_changed)
        pods.subscribe(self._pod_changed)

    @property
    def sources(self) -> int:
        """How many kinds of PodGroup are served."""
        return len(self._groups)

    def settled(self) -> bool:
        """Whether the caches show the state that the API server has; not while they are listed again after a restore."""
        return not self.timeline.relisting(self._sources)

    def sure(self) -> bool:
        """Whether it is known of each cache that nothing went back: otherwise a ledger is decided by live reads alone."""
        return self.timeline.sure(self._sources)

    def lacks(self, observed: Iterable[str]) -> bool:
        """Whether a source of ``observed`` isn't served here any more, so that no view can be as new."""
        return not set(observed) <= {source(kind.group) for kind in self._groups} | {QUOTA_SOURCE, POD_SOURCE}

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Have ``changed`` called with the namespace of each group or quota that came, changed or went.

        It may note that, no more: amid a new list the views are not yet at one revision.
        """
        self._changed.append(changed)

    def namespaces(self) -> Iterable[str]:
        """Return the namespaces that have a quota."""
        self._catch_up()
        return [namespace for namespace, view in self._views.items() if view.quotas]

    def unknown(self, namespace: str) -> str:
        """Return the first pod or PodGroup of a namespace of which nobody knows what it takes; empty where there is none."""
        if pods := self._pods.unknown(namespace):
            return f"Pod {pods[0]}"
        unknown = [name for cache in self._groups.values() for name in cache.unknown(namespace)]
        return f"PodGroup {unknown[0]}" if unknown else ""

    def view(self, namespace: str) -> LedgerView:
        """Return what the caches show. It goes on changing: to be used at once, not across an await."""
        self._catch_up()
        return self._views.get(namespace) or NamespaceView(self._revisions, self._tombstones)

    async def quorum(self, client: Client, namespace: str, observed: Mapping[str, int]) -> LedgerView:
        """Return a view that is no older than this call, nor than ``observed``, by reading all groups, pods and quotas.

        Where the caches show all that was read, the view is theirs: it knows when each group came, and its revisions
        are such as other caches reach too. To be used at once, not across an await.

        Raises:
            KubeError: one of the lists failed.
            WentBackError: the API server shows an older state than the caches did before this call.
        """
        self._count_pods(namespace)
        self._catch_up()
        before = dict(self._revisions)
        quotas, pods, groups = await asyncio.gather(
            client.list(RESOURCEQUOTAS, namespace),
            client.list(kinds.PODS, namespace),
            asyncio.gather(*(client.list(kind, namespace) for kind in self._groups)),
        )
        listings = dict(zip(self._groups, groups, strict=True))
        revisions = {source(kind.group): versions.number(each.resource_version) for kind, each in listings.items()}
        revisions |= {
            QUOTA_SOURCE: versions.number(quotas.resource_version),
            POD_SOURCE: versions.number(pods.resource_version),
        }
        listed = [_place(source(kind.group), group) for kind, each in listings.items() for group in each.items]
        listed += [_place(QUOTA_SOURCE, quota) for quota in quotas.items] + [
            _place(POD_SOURCE, pod) for pod in pods.items
        ]
        # What can't be read keeps the last state that could, in the caches as below: any state of it will do.
        unreadable = [
            *quotas.unreadable,
            *pods.unreadable,
            *(each for listing in groups for each in listing.unreadable),
        ]
        listed += [(QUOTA_SOURCE, each.about.metadata.uid, 0) for each in unreadable]
        self._compare(before, revisions)
        caught_up = await self._catches_up(namespace, revisions, listed)
        known = self.view(namespace)
        if not caught_up:
            self._contradict(namespace, known, listed)
        if caught_up and covers(known, observed):
            return known
        view = NamespaceView(revisions, _CacheMemory(known, self._tombstones))
        for kind, listing in listings.items():
            self._put_listed(view, known, kind, listing)
        for quota in quotas.items:
            view.put_quota(observed_quota(quota))
        for pod in pods.items:
            view.put_pod(self.observed_pod(pod))
        return view

    def observed_pod(self, pod: Pod, amounts: Resources | None = None) -> ObservedPod:
        """Return a pod as the views show it; ``amounts`` where it is known what it takes."""
        return observed_pod(pod, amounts, self._schedulers)

    def _compare(self, before: Mapping[str, int], revisions: Mapping[str, int]) -> None:
        """See to it that no list is older than what a cache showed before it was asked for."""
        for place, revision in revisions.items():
            if revision < before.get(place, 0):
                raise self._went_back(f"{place} are at {revision} and were at {before[place]}")

    def _contradict(self, namespace: str, known: LedgerView, listed: Sequence[_Place]) -> None:
        """See to it that the caches, where they call themselves newer than a listed object, show or remember it.

        That they don't is how a restore shows once the revisions have passed those that the caches were at.
        """
        for place, uid, at in listed:
            if place == POD_SOURCE and namespace not in self._counted:
                continue
            if 0 < at <= self._revisions.get(place, 0) and not (
                known.revision_of(uid) >= at or self._tombstones.last_seen(uid)[1]
            ):
                raise self._went_back(f"in {namespace} an object of {place} exists that no watch has told of")

    def _went_back(self, why: str) -> WentBackError:
        self.timeline.went_back(str(RESOURCEQUOTAS), why)
        return WentBackError("the cluster was restored from a backup, and is being read again")

    async def _catches_up(self, namespace: str, revisions: Mapping[str, int], listed: Sequence[_Place]) -> bool:
        """Wait a little until the caches show what was listed, or more; tell whether they do."""
        moved = asyncio.Event()

        def note(where: str) -> None:
            if where == namespace:
                moved.set()

        self._changed.append(note)
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                while not self._shows(self.view(namespace), revisions, listed):
                    moved.clear()
                    await moved.wait()
        except TimeoutError:
            return False
        finally:
            self._changed.remove(note)
        return True

    def _shows(self, view: LedgerView, revisions: Mapping[str, int], listed: Sequence[_Place]) -> bool:
        """Whether the caches are past the lists, as far as this namespace goes: nothing older, nothing left over."""
        there = {uid for _, uid, _ in listed}
        held = [(source(each.group), each.uid, each.revision) for each in view.groups()]
        held += [(QUOTA_SOURCE, each.uid, each.revision) for each in view.quotas.values()]
        held += [(POD_SOURCE, each.uid, each.revision) for each in view.pods()]
        return (
            revisions.keys() <= view.revisions.keys()
            and all(view.revision_of(uid) >= at or self._tombstones.last_seen(uid)[1] for _, uid, at in listed)
            and all(uid in there or at > revisions[place] for place, uid, at in held)
        )

    async def live_limits(self, client: Client, namespace: str) -> tuple[Resources, ...]:
        """Read what the quotas of a namespace limit from the API server.

        Raises:
            KubeError: the list failed.
        """
        return tuple(map(limits_of, (await client.list(RESOURCEQUOTAS, namespace)).items))

    def _put_listed(
        self, view: NamespaceView, known: LedgerView, kind: Kind[PodGroup], listing: Listing[PodGroup]
    ) -> None:
        absent_at = self._revisions.get(source(kind.group), 0)
        shown = [observed_group(kind.group, group, absent_at) for group in listing.items]
        for each in sorted((self._as_known(known, each) for each in shown), key=lambda each: each.absent_at):
            view.put(each)
        for unreadable in listing.unreadable:
            last = known.group(unreadable.about.metadata.uid)
            if last is not None:
                view.put(last)

    def _as_known(self, known: LedgerView, shown: ObservedGroup) -> ObservedGroup:
        """Correct when a listed group came to be, where the caches have seen it already."""
        before = known.group(shown.uid)
        if before is not None:
            return replace(shown, absent_at=before.absent_at)
        return replace(shown, absent_at=0) if self._tombstones.last_seen(shown.uid)[1] else shown

    def _show_all(self) -> None:
        for kind, cache in self._groups.items():
            for group in cache.items():
                self._own(group.namespace).put(observed_group(kind.group, group, 0))
        for quota in self._quotas.items():
            self._own(quota.namespace).put_quota(observed_quota(quota))
            self._count_pods(quota.namespace)

    def _follow(self, kind: Kind[PodGroup], cache: ObjectCache[PodGroup]) -> None:
        cache.subscribe(lambda change: self._group_changed(kind, cache, change))

    def _group_changed(
        self, kind: Kind[PodGroup], cache: ObjectCache[PodGroup], change: ObjectChange[PodGroup]
    ) -> None:
        place = source(kind.group)
        if change.new is None:
            assert change.old is not None
            gone = change.old
            self._own(gone.namespace).drop(gone.metadata.uid)
            self._tombstones.add(gone.metadata.uid, place, versions.number(gone.metadata.resource_version))
            self._notify(gone.namespace)
            return
        view = self._own(change.new.namespace)
        known = view.group(change.new.metadata.uid)
        absent_at = known.absent_at if known else self._absent_at(place, cache, change.new)
        view.put(observed_group(kind.group, change.new, absent_at))
        self._notify(change.new.namespace)

    def _absent_at(self, place: str, cache: ObjectCache[PodGroup], group: PodGroup) -> int:
        """Return a revision at which a group that the cache shows for the first time didn't exist.

        An event of a watch puts the cache at the object's own revision, and is its creation. A list puts it beyond:
        then all that is known is that the cache didn't show it before.
        """
        before = self._revisions.get(place, 0)
        if before and cache.revision == group.metadata.resource_version:
            return versions.number(cache.revision) - 1
        return before

    def _quota_changed(self, change: ObjectChange[ResourceQuota]) -> None:
        quota = change.new or change.old
        assert quota is not None
        if change.new is not None:
            self._own(quota.namespace).put_quota(observed_quota(quota))
            self._count_pods(quota.namespace)
        else:
            self._own(quota.namespace).drop_quota(quota.name)
            self._tombstones.add(quota.metadata.uid, QUOTA_SOURCE, versions.number(quota.metadata.resource_version))
        self._notify(quota.namespace)

    def _count_pods(self, namespace: str) -> None:
        """Follow the pods of a namespace from now on: that of each pod of the cluster costs, and few have quotas."""
        if namespace not in self._counted:
            self._counted.add(namespace)
            for pod in self._pods.by_namespace(namespace):
                self._own(namespace).put_pod(self.observed_pod(pod))

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        if pod.namespace not in self._counted:
            return
        if change.new is None:
            self._own(pod.namespace).drop_pod(pod.metadata.uid)
            self._tombstones.add(pod.metadata.uid, POD_SOURCE, versions.number(pod.metadata.resource_version))
        else:
            view = self._own(pod.namespace)
            known = view.pod(pod.metadata.uid)
            same = known is not None and change.old is not None and _takes_the_same(change.old, change.new)
            amounts = known.amounts if known is not None and same else None
            view.put_pod(self.observed_pod(change.new, amounts))
        self._notify(pod.namespace)

    def _own(self, namespace: str) -> NamespaceView:
        view = self._views.get(namespace)
        if view is None:
            view = self._views[namespace] = NamespaceView(self._revisions, self._tombstones)
        return view

    def _notify(self, namespace: str) -> None:
        if self._views[namespace].empty:
            del self._views[namespace]
            self._counted.discard(namespace)
        for changed in self._changed:
            changed(namespace)

    def _catch_up(self) -> None:
        if self._restores != self.timeline.restores and self.settled():
            # What was seen before the restore, and when it came and went, says nothing of what is there now.
            self._restores = self.timeline.restores
            self._tombstones = Tombstones()
            for known in (self._counted, self._revisions, self._views):
                known.clear()
            self._show_all()
        caches = {source(kind.group): cache.revision for kind, cache in self._groups.items()}
        for place, revision in (
            caches | {QUOTA_SOURCE: self._quotas.revision, POD_SOURCE: self._pods.revision}
        ).items():
            if revision:
                self._revisions[place] = versions.number(revision)


_Place = tuple[str, str, int]
"""The source that shows an object, its uid and its resourceVersion."""


def _place(place: str, item: PodGroup | ResourceQuota | Pod) -> _Place:
    return place, item.metadata.uid, versions.number(item.metadata.resource_version)


class _CacheMemory:
    """What the caches remember of an object, dead or alive, for a view that isn't theirs."""

    def __init__(self, view: LedgerView, tombstones: Tombstones) -> None:
        self._view = view
        self._tombstones = tombstones

    def last_seen(self, uid: str) -> tuple[str, int]:
        shown = self._view.group(uid)
        if shown is not None:
            return source(shown.group), shown.revision
        pod = self._view.pod(uid)
        if pod is not None:
            return POD_SOURCE, pod.revision
        quota = next((each for each in self._view.quotas.values() if each.uid == uid), None)
        return (QUOTA_SOURCE, quota.revision) if quota else self._tombstones.last_seen(uid)


def _takes_the_same(old: Pod, new: Pod) -> bool:
    # Most changes of a pod are of its conditions, and adding up what it asks for is most of the work.
    return old.metadata.uid == new.metadata.uid and (old.spec, old.status.phase) == (new.spec, new.status.phase)
