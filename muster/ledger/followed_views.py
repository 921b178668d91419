"""Keeps a view of each namespace up to date from caches: what fails on one object costs that object's part alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.subscription import Subscription
from muster.ledger.conversion import (
    maker_of,
    observed_claim,
    observed_group,
    observed_pod,
    observed_quota,
    pod_of,
    takes_the_same,
)
from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.view import CLAIM_SOURCE, POD_SOURCE, QUOTA_SOURCE, ObservedGroup, ObservedPod, source
from muster.model import versions
from muster.model.amounts import Resources
from muster.model.kinds import Kind
from muster.model.objects import Object, Pod, PodGroup, ResourceClaim, ResourceQuota

T = TypeVar("T", bound=Object)
S = TypeVar("S")


class FollowedViews:
    """A `NamespaceView` of each namespace that has groups or quotas; of pods and claims only where there are quotas.

    Args:
        groups: each served kind of PodGroup and the cache of it, of all namespaces.
        quotas: the cache of all ResourceQuotas.
        pods: the cache of all Pods.
        claims: the cache of all ResourceClaims.
        schedulers: the scheduler names of pods that are members of the groups they name (`grouping.member_of`).

    Attributes:
        counted: the namespaces whose pods and claims are followed.
        revisions: by source, how far the views are.
        tombstones: the memory of what is gone.
    """

    def __init__(
        self,
        groups: Mapping[Kind[PodGroup], ObjectCache[PodGroup]],
        quotas: ObjectCache[ResourceQuota],
        pods: ObjectCache[Pod],
        claims: ObjectCache[ResourceClaim],
        schedulers: Collection[str] | None,
    ) -> None:
        self._groups = groups
        self._schedulers = schedulers
        self._quotas = quotas
        self._pods = pods
        self._claims = claims
        self._claims_of: dict[str, dict[str, ResourceClaim]] = {}
        """By the uid of the pod or native group that they were made for, and their own."""
        self.counted: set[str] = set()
        self.revisions: dict[str, int] = {}
        self.tombstones = Tombstones()
        self._views: dict[str, NamespaceView] = {}
        self._changed: list[Callable[[str], None]] = []
        # The namespaces whose views an error may have left half-updated.
        self._stale: set[str] = set()
        self._group_subscriptions = {
            kind: cache.subscribe(partial(self._isolate, partial(self._group_changed, kind, cache), source(kind.group)))
            for kind, cache in self._groups.items()
        }
        self._quota_subscription = quotas.subscribe(partial(self._isolate, self._quota_changed, QUOTA_SOURCE))
        self._pod_subscription = pods.subscribe(partial(self._isolate, self._pod_changed, POD_SOURCE))
        self._claim_subscription = claims.subscribe(partial(self._isolate, self._claim_changed, CLAIM_SOURCE))
        for claim in claims.items():
            self._index(None, claim)
        self._show_all()

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Have ``changed`` called with the namespace of what came, changed or went; return what ends that."""
        self._changed.append(changed)
        return lambda: self._changed.remove(changed)

    def with_quotas(self) -> Iterable[str]:
        """Return the namespaces that have a quota."""
        return [namespace for namespace, view in self._views.items() if view.quotas]

    def view(self, namespace: str) -> NamespaceView:
        """Return the view of a namespace. It goes on changing: to be used at once, not across an await."""
        return self._views.get(namespace) or NamespaceView(self.revisions, self.tombstones)

    def observed_pod(self, pod: Pod, amounts: Resources | None = None) -> ObservedPod:
        """Return a pod as the views show it; ``amounts`` where it is known what it takes."""
        return observed_pod(pod, amounts, self._schedulers)

    def observed_claim(
        self, claim: ResourceClaim, pod: ObservedPod | None = None, live: NamespaceView | None = None
    ) -> ObservedPod:
        """Return a claim as the views show it, or as in a ``live`` one; ``pod``: that it was made for, where they may not show it."""
        view = self.view(claim.namespace)
        # A claim stays in the group of a pod that is gone before it.
        known = pod or view.pod(pod_of(claim)) or view.pod(claim.metadata.uid)
        return observed_claim(claim, known, (live or view).standing_for(maker_of(claim)))

    def catch_up(self) -> None:
        """Make anew what an error left half-updated, and take over how far the caches are."""
        for namespace in tuple(self._stale):
            self._rebuild(namespace)
        caches = {source(kind.group): cache.revision for kind, cache in self._groups.items()}
        for place, revision in (
            caches
            | {
                QUOTA_SOURCE: self._quotas.revision,
                POD_SOURCE: self._pods.revision,
                CLAIM_SOURCE: self._claims.revision,
            }
        ).items():
            if revision:
                self.revisions[place] = versions.number(revision)

    def begin_anew(self) -> None:
        """Forget what was seen, and when it came and went, and show what is there now."""
        self.tombstones = Tombstones()
        for known in (self.counted, self.revisions, self._views, self._stale):
            known.clear()
        self._show_all()

    def count_pods(self, namespace: str) -> None:
        """Follow the pods of a namespace from now on: that of each pod of the cluster costs, and few have quotas."""
        if namespace not in self.counted:
            self.counted.add(namespace)
            view = self._own(namespace)
            for pod in self._pods.by_namespace(namespace):
                if not _put(self._pod_subscription, pod, self.observed_pod, view.put_pod, None, set()):
                    self._stale.add(namespace)
            for claim in self._claims.by_namespace(namespace):
                if not _put(self._claim_subscription, claim, self.observed_claim, view.put_pod, None, set()):
                    self._stale.add(namespace)

    def _show_all(self) -> None:
        caches: tuple[ObjectCache[Any], ...] = (*self._groups.values(), self._quotas)
        for namespace in {each.namespace for cache in caches for each in cache.items()}:
            self._rebuild(namespace)

    def _isolate(self, handle: Callable[[ObjectChange[T]], None], place: str, change: ObjectChange[T]) -> None:
        """Follow a change; where that fails, the view of its namespace is made anew before it is used again."""
        item = change.new or change.old
        assert item is not None
        if change.new is None and (place not in {POD_SOURCE, CLAIM_SOURCE} or item.namespace in self.counted):
            self.tombstones.add(item.metadata.uid, place, versions.number(item.metadata.resource_version))
        if item.namespace in self._stale:
            self._tell(item.namespace)
            return
        try:
            handle(change)
        except Exception:
            self._stale.add(item.namespace)
            self._tell(item.namespace)
            raise

    def _rebuild(self, namespace: str) -> None:
        """Make the view of a namespace anew from the caches; what is quarantined keeps the last state that was followed."""
        old = self._views.pop(namespace, None) or NamespaceView(self.revisions, self.tombstones)
        lost: set[str] = set()
        while not self._show(namespace, old, view := NamespaceView(self.revisions, self.tombstones), lost):
            pass  # Each time another object is quarantined, or lost.
        self._stale.discard(namespace)
        if not view.empty:
            self._views[namespace] = view

    def _show(self, namespace: str, old: NamespaceView, view: NamespaceView, lost: set[str]) -> bool:
        """Put all objects of a namespace into a view; return whether that failed on none.

        ``lost``: the uids of which not even the last state can be put; more of them are added.
        """
        whole = True

        def observed_now(group: PodGroup) -> ObservedGroup:
            known = old.group(group.metadata.uid)
            return observed_group(kind.group, group, known.absent_at if known is not None else 0)

        for kind, groups in self._group_subscriptions.items():
            for group in self._groups[kind].by_namespace(namespace):
                whole &= _put(groups, group, observed_now, view.put, old.group(group.metadata.uid), lost)
        for quota in self._quotas.by_namespace(namespace):
            self.counted.add(namespace)
            last_quota = old.quotas.get(quota.name)
            whole &= _put(self._quota_subscription, quota, observed_quota, view.put_quota, last_quota, lost)
        for pod in self._pods.by_namespace(namespace) if namespace in self.counted else ():
            last = old.pod(pod.metadata.uid)
            whole &= _put(self._pod_subscription, pod, self.observed_pod, view.put_pod, last, lost)

        def observed(claim: ResourceClaim) -> ObservedPod:
            known = view.pod(pod_of(claim)) or old.pod(claim.metadata.uid)
            return observed_claim(claim, known, view.standing_for(maker_of(claim)))

        for claim in self._claims.by_namespace(namespace) if namespace in self.counted else ():
            last = old.pod(claim.metadata.uid)
            whole &= _put(self._claim_subscription, claim, observed, view.put_pod, last, lost)
        return whole

    def _group_changed(
        self, kind: Kind[PodGroup], cache: ObjectCache[PodGroup], change: ObjectChange[PodGroup]
    ) -> None:
        if change.new is None:
            assert change.old is not None
            gone = change.old
            view = self._own(gone.namespace)
            if (last := view.group(gone.metadata.uid)) is not None:
                view.drop(gone.metadata.uid)
                self._regroup(view, last, None)
            self._notify(gone.namespace)
            return
        view = self._own(change.new.namespace)
        known = view.group(change.new.metadata.uid)
        absent_at = known.absent_at if known else self._absent_at(source(kind.group), cache, change.new)
        shown = observed_group(kind.group, change.new, absent_at)
        view.put(shown)
        self._regroup(view, known, shown)
        self._notify(change.new.namespace)

    def _regroup(self, view: NamespaceView, before: ObservedGroup | None, after: ObservedGroup | None) -> None:
        """Count the claims of native groups with another group where that which says it stands for them has changed."""
        natives = {each.native if each is not None else "" for each in (before, after)}
        for native in natives - {""} if len(natives) > 1 else ():
            for claim in self._claims_of.get(native, {}).values():
                if view.pod(claim.metadata.uid) is not None:
                    view.put_pod(self.observed_claim(claim))

    def _absent_at(self, place: str, cache: ObjectCache[PodGroup], group: PodGroup) -> int:
        """Return a revision at which a group that the cache shows for the first time didn't exist.

        An event of a watch puts the cache at the object's own revision, and is its creation. A list puts it beyond:
        then all that is known is that the cache didn't show it before.
        """
        before = self.revisions.get(place, 0)
        if before and cache.revision == group.metadata.resource_version:
            return versions.number(cache.revision) - 1
        return before

    def _quota_changed(self, change: ObjectChange[ResourceQuota]) -> None:
        quota = change.new or change.old
        assert quota is not None
        if change.new is not None:
            view = self._own(quota.namespace)
            known = view.quotas.get(quota.name)
            # With each pod its status changes, and nothing of what it limits.
            same = known is not None and change.old is not None and change.old.spec == quota.spec
            view.put_quota(observed_quota(quota, known.hard if known is not None and same else None))
            self.count_pods(quota.namespace)
        else:
            self._own(quota.namespace).drop_quota(quota.name)
        self._notify(quota.namespace)

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        if pod.namespace not in self.counted:
            return
        if change.new is None:
            self._own(pod.namespace).drop_pod(pod.metadata.uid)
        else:
            view = self._own(pod.namespace)
            known = view.pod(pod.metadata.uid)
            same = known is not None and change.old is not None and takes_the_same(change.old, change.new)
            amounts = known.amounts if known is not None and same else None
            shown = self.observed_pod(change.new, amounts)
            view.put_pod(shown)
            for claim in self._claims_of.get(shown.uid, {}).values():
                if (there := view.pod(claim.metadata.uid)) is not None and there.group != shown.group:
                    view.put_pod(observed_claim(claim, shown))
        self._notify(pod.namespace)

    def _claim_changed(self, change: ObjectChange[ResourceClaim]) -> None:
        claim = change.new or change.old
        assert claim is not None
        self._index(change.old, change.new)
        if claim.namespace not in self.counted:
            return
        if change.new is None:
            self._own(claim.namespace).drop_pod(claim.metadata.uid)
        else:
            self._own(claim.namespace).put_pod(self.observed_claim(claim))
        self._notify(claim.namespace)

    def _index(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Note which claims were made for which pod or native group."""
        if old is not None and (uid := maker_of(old)) in self._claims_of:
            self._claims_of[uid].pop(old.metadata.uid, None)
            if not self._claims_of[uid]:
                del self._claims_of[uid]
        if new is not None and (uid := maker_of(new)):
            self._claims_of.setdefault(uid, {})[new.metadata.uid] = new

    def _own(self, namespace: str) -> NamespaceView:
        view = self._views.get(namespace)
        if view is None:
            view = self._views[namespace] = NamespaceView(self.revisions, self.tombstones)
        return view

    def _notify(self, namespace: str) -> None:
        if self._views[namespace].empty:
            del self._views[namespace]
            self.counted.discard(namespace)
        self._tell(namespace)

    def _tell(self, namespace: str) -> None:
        for changed in self._changed:
            changed(namespace)


def _put(
    subscription: Subscription[T],
    item: T,
    observe: Callable[[T], S],
    put: Callable[[S], None],
    last: S | None,
    lost: set[str],
) -> bool:
    """Put an object into a view, a quarantined one as it was last followed; return false where that fails."""
    uid = item.metadata.uid
    quarantined = (item.namespace, item.name) in subscription.failed
    try:
        if not quarantined:
            put(observe(item))
        elif last is not None and uid not in lost:
            put(last)
    except Exception as error:  # noqa: BLE001 - it is this object's
        if quarantined:
            lost.add(uid)
        else:
            subscription.fail(item, error)
        return False
    return True
