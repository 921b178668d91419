"""Feeds the ledger's views from caches, and makes one from quorum reads where a cache may be behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client, Listing
from muster.kube.timeline import Timeline, WentBackError
from muster.ledger.conversion import limits_of, observed_group, observed_quota, pod_of
from muster.ledger.followed_views import FollowedViews
from muster.ledger.namespace_view import CacheMemory, NamespaceView
from muster.ledger.view import (
    CLAIM_SOURCE,
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
from muster.model.objects import Namespace, Object, Pod, PodGroup, ResourceClaim, ResourceQuota

T = TypeVar("T", bound=Object)
S = TypeVar("S")

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
        claims: the cache of all ResourceClaims.
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
        claims: ObjectCache[ResourceClaim],
        timeline: Timeline | None = None,
        schedulers: Collection[str] | None = None,
    ) -> None:
        self.timeline = timeline or Timeline()
        self._restores = 0
        self._sources = [
            str(kind) for kind in (*groups, RESOURCEQUOTAS, kinds.PODS, kinds.RESOURCECLAIMS, QUOTALEDGERS)
        ]
        self._groups = dict(groups)
        self._pods = pods
        self._followed = FollowedViews(self._groups, quotas, pods, claims, schedulers)

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
        return not set(observed) <= {source(kind.group) for kind in self._groups} | {
            QUOTA_SOURCE,
            POD_SOURCE,
            CLAIM_SOURCE,
        }

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Have ``changed`` called with the namespace of each group or quota that came, changed or went.

        It may note that, no more: amid a new list the views are not yet at one revision.
        """
        self._followed.subscribe(changed)

    def namespaces(self) -> Iterable[str]:
        """Return the namespaces that have a quota."""
        self._catch_up()
        return self._followed.with_quotas()

    def unknown(self, namespace: str) -> str:
        """Return the first pod or PodGroup of a namespace of which nobody knows what it takes; empty where there is none."""
        if pods := self._pods.unknown(namespace):
            return f"Pod {pods[0]}"
        unknown = [name for cache in self._groups.values() for name in cache.unknown(namespace)]
        return f"PodGroup {unknown[0]}" if unknown else ""

    def view(self, namespace: str) -> LedgerView:
        """Return what the caches show. It goes on changing: to be used at once, not across an await."""
        self._catch_up()
        return self._followed.view(namespace)

    async def quorum(self, client: Client, namespace: str, observed: Mapping[str, int]) -> LedgerView:
        """Return a view that is no older than this call, nor than ``observed``, by reading all groups, pods and quotas.

        Where the caches show all that was read, the view is theirs: it knows when each group came, and its revisions
        are such as other caches reach too. To be used at once, not across an await.

        Raises:
            KubeError: one of the lists failed.
            WentBackError: the API server shows an older state than the caches did before this call.
        """
        self._followed.count_pods(namespace)
        self._catch_up()
        before = dict(self._followed.revisions)
        quotas, pods, claims, groups = await asyncio.gather(
            client.list(RESOURCEQUOTAS, namespace),
            client.list(kinds.PODS, namespace),
            _claims(client, namespace),
            asyncio.gather(*(client.list(kind, namespace) for kind in self._groups)),
        )
        listings = dict(zip(self._groups, groups, strict=True))
        revisions = {source(kind.group): versions.number(each.resource_version) for kind, each in listings.items()}
        revisions |= {
            QUOTA_SOURCE: versions.number(quotas.resource_version),
            POD_SOURCE: versions.number(pods.resource_version),
        }
        if claims.resource_version:
            revisions[CLAIM_SOURCE] = versions.number(claims.resource_version)
        listed = [_place(source(kind.group), group) for kind, each in listings.items() for group in each.items]
        listed += [_place(QUOTA_SOURCE, quota) for quota in quotas.items] + [
            _place(POD_SOURCE, pod) for pod in pods.items
        ]
        listed += [_place(CLAIM_SOURCE, claim) for claim in claims.items]
        # What can't be read keeps the last state that could, in the caches as below: any state of it will do.
        unreadable = [
            *quotas.unreadable,
            *pods.unreadable,
            *claims.unreadable,
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
        view = NamespaceView(revisions, CacheMemory(known, self._followed.tombstones))
        for kind, listing in listings.items():
            self._put_listed(view, known, kind, listing)
        for quota in quotas.items:
            view.put_quota(observed_quota(quota))
        for pod in pods.items:
            view.put_pod(self._followed.observed_pod(pod))
        for claim in claims.items:
            view.put_pod(self._followed.observed_claim(claim, view.pod(pod_of(claim)), view))
        return view

    def observed_pod(self, pod: Pod) -> ObservedPod:
        """Return a pod as the views show it."""
        return self._followed.observed_pod(pod)

    async def claims(self, client: Client, namespace: str, pods: Iterable[ObservedPod]) -> Iterable[ObservedPod]:
        """Read the claims of a namespace, as the views show them; ``pods``: those there.

        Raises:
            KubeError: the list failed.
        """
        of = {each.uid: each for each in pods}
        listed = (await _claims(client, namespace)).items
        return [self._followed.observed_claim(claim, of.get(pod_of(claim))) for claim in listed]

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
            if place in {POD_SOURCE, CLAIM_SOURCE} and namespace not in self._followed.counted:
                continue
            if 0 < at <= self._followed.revisions.get(place, 0) and not (
                known.revision_of(uid) >= at or self._followed.tombstones.last_seen(uid)[1]
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

        end = self._followed.subscribe(note)
        try:
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                while not self._shows(self.view(namespace), revisions, listed):
                    moved.clear()
                    await moved.wait()
        except TimeoutError:
            return False
        finally:
            end()
        return True

    def _shows(self, view: LedgerView, revisions: Mapping[str, int], listed: Sequence[_Place]) -> bool:
        """Whether the caches are past the lists, as far as this namespace goes: nothing older, nothing left over."""
        there = {uid for _, uid, _ in listed}
        held = [(source(each.group), each.uid, each.revision) for each in view.groups()]
        held += [(QUOTA_SOURCE, each.uid, each.revision) for each in view.quotas.values()]
        held += [(each.place, each.uid, each.revision) for each in view.pods()]
        return (
            revisions.keys() <= view.revisions.keys()
            and all(view.revision_of(uid) >= at or self._followed.tombstones.last_seen(uid)[1] for _, uid, at in listed)
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
        absent_at = self._followed.revisions.get(source(kind.group), 0)
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
        return replace(shown, absent_at=0) if self._followed.tombstones.last_seen(shown.uid)[1] else shown

    def _catch_up(self) -> None:
        if self._restores != self.timeline.restores and self.settled():
            # What was seen before the restore says nothing of what is there now.
            self._restores = self.timeline.restores
            self._followed.begin_anew()
        self._followed.catch_up()


_Place = tuple[str, str, int]
"""The source that shows an object, its uid and its resourceVersion."""


async def _claims(client: Client, namespace: str) -> Listing[ResourceClaim]:
    """List claims; before Kubernetes 1.34 there are none, at no revision."""
    try:
        return await client.list(kinds.RESOURCECLAIMS, namespace)
    except errors.NotFoundError:
        return Listing((), "")


def _place(place: str, item: PodGroup | ResourceQuota | Pod | ResourceClaim) -> _Place:
    return place, item.metadata.uid, versions.number(item.metadata.resource_version)
