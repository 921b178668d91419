"""Labels namespaces for webhooks, which choose them by labels only.

Where PodGroups reserve of a quota, admission asks the ledger for pods, too; where an annotation says that groups reserve
late, they are marked so; where one names a queue, groups that name none are put into it.
"""

from __future__ import annotations

from muster.kube import errors
from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.workqueue import WorkQueue
from muster.ledger.reservations import foreseen_minimum
from muster.model import kinds, names
from muster.model.objects import Meta, Namespace, PodGroup, ResourceQuota
from scheduler.state.informers import Informers

_POLICIES = (names.POLICY_QUEUE, names.POLICY_REJECT)


class NamespaceLabelController:
    """Labels a namespace that has a ResourceQuota and a PodGroup with minResources with ``mode``; with none, leaves it.

    Whatever its label says already stays: ``guaranteed``, ``off``, or what we don't know. The annotation of the quota
    policy is made a label of the same name, and a label says that an annotation names a queue: webhooks see to that when it is
    written, and this where they weren't there.
    """

    def __init__(self, client: Client, informers: Informers, mode: str) -> None:
        self._client = client
        self._mode = mode
        self._informers = informers
        self._work: WorkQueue[str] = WorkQueue("labels of namespace", self._reconcile)
        informers.cache(kinds.RESOURCEQUOTAS).subscribe(self._on_change)
        for cache in informers.groups.values():
            cache.subscribe(self._on_change)
        informers.cache(kinds.NAMESPACES).subscribe(self._on_namespace)

    async def run(self) -> None:
        """Work until cancelled."""
        for namespace in self._informers.cache(kinds.NAMESPACES).items():
            self._work.add(namespace.name)
        await self._work.run()

    def _on_change(self, change: ObjectChange[PodGroup] | ObjectChange[ResourceQuota]) -> None:
        if change.new is not None:
            self._work.add(change.new.namespace)

    def _on_namespace(self, change: ObjectChange[Namespace]) -> None:
        if change.new is not None and (_policy_differs(change.new.metadata) or _queue_unsaid(change.new.metadata)):
            self._work.add(change.new.name)

    async def _reconcile(self, name: str) -> None:
        namespace = self._informers.cache(kinds.NAMESPACES).get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        labels: dict[str, str] = {}
        if self._mode and not namespace.metadata.label(names.QUOTA_MODE) and self._reserves(name):
            # Until every API server has seen the label, pods slip in: the leader looks once more, and then closes this.
            labels |= {names.QUOTA_MODE: self._mode, names.QUOTA_WINDOW: names.WINDOW_OPEN}
        if _policy_differs(namespace.metadata):
            labels[names.QUOTA_POLICY] = namespace.metadata.annotation(names.QUOTA_POLICY)
        if _queue_unsaid(namespace.metadata):
            labels[names.NAMES_QUEUE] = "true"
        if not labels:
            return
        # With the version: its owner may be saying "off" at this moment.
        meta = {"resourceVersion": namespace.metadata.resource_version, "labels": labels}
        try:
            await self._client.patch(kinds.NAMESPACES, name, {"metadata": meta})
        except errors.NotFoundError:
            return

    def _reserves(self, namespace: str) -> bool:
        quotas = self._informers.cache(kinds.RESOURCEQUOTAS).by_namespace(namespace)
        if not any(quota.spec.hard for quota in quotas):
            return False
        return any(
            foreseen_minimum(group)
            for cache in self._informers.groups.values()
            for group in cache.by_namespace(namespace)
        )


def _policy_differs(meta: Meta) -> bool:
    """Whether the annotation says a policy that the label doesn't; other texts mean nothing."""
    said = meta.annotation(names.QUOTA_POLICY)
    return said in _POLICIES and said != meta.label(names.QUOTA_POLICY)


def _queue_unsaid(meta: Meta) -> bool:
    """Whether an annotation names a queue and the label doesn't say so."""
    return bool(meta.annotation(*names.QUEUE_NAME_KEYS)) and meta.label(names.NAMES_QUEUE) != "true"
