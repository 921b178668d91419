"""The window of a namespace that Muster labels for its webhooks: pods that came before the label were asked of nobody.

It opens with the namespace's first reservation, since API servers call the webhooks for pods by a label of the namespace.
The label comes a moment later, and each API server sees it a moment after that. It is closed by one quorum read then. What
stage it is in stands in labels of the namespace, so that another leader goes on where this one ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final

from muster.kube import errors
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.ledger.reservations import foreseen_minimum
from muster.ledger.rows import Key
from muster.model import grouping, kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Namespace, Pod, PodGroup

log = logging.getLogger(__name__)

GRACE: Final = 1.0
"""Seconds from when our watch shows the label until those of other API servers do, and what they judged without it is stored."""

LABELLING: Final = 30.0
"""Seconds for which groups wait for a label; a namespace that can't be labelled doesn't stop its groups for good."""


class Window(Enum):
    """How far a namespace is on its way to a label."""

    CLOSED = "closed"
    """It is labelled and was read since, or isn't to be labelled."""
    UNLABELLED = "unlabelled"
    """It is to be labelled."""
    OPEN = "open"
    """It is labelled, and not read since."""


class QuotaWindows:
    """The windows of all namespaces, as the leader's caches show them.

    Args:
        client: over a fenced transport.
        namespaces: the cache of all Namespaces.
        pods: the cache of all Pods.
        groups: each served kind of PodGroup and the cache of it.
        mode: what namespaces are labelled with; empty: nothing is, and there are no windows.
        schedulers: the scheduler names of pods that are members of the groups they name.
    """

    def __init__(
        self,
        client: Client,
        namespaces: ObjectCache[Namespace],
        pods: ObjectCache[Pod],
        groups: Mapping[Kind[PodGroup], ObjectCache[PodGroup]],
        mode: str,
        schedulers: Collection[str],
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._pods = pods
        self._groups = groups
        self._mode = mode
        self._schedulers = schedulers
        self._unlabelled: dict[str, float] = {}
        self._labelled: dict[str, float] = {}
        self._given_up: set[str] = set()

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Have ``changed`` called with each namespace whose labels may have changed."""
        self._namespaces.subscribe(lambda change: changed((change.new or change.old or Namespace()).name))

    def window(self, namespace: str) -> Window:
        """Return how far a namespace with reservations is."""
        found = self._namespaces.get(namespace)
        if found is not None and found.metadata.label(names.QUOTA_WINDOW) == names.WINDOW_OPEN:
            return Window.OPEN
        # A namespace that no watch has shown is younger than its groups' watch.
        labelled = found is not None and bool(found.metadata.label(names.QUOTA_MODE))
        return Window.CLOSED if labelled or not self._mode else Window.UNLABELLED

    def holds(self, namespace: str) -> bool:
        """Whether groups that haven't started wait; of a namespace with a quota and with groups that reserve."""
        stage = self.window(namespace)
        if stage is Window.UNLABELLED:
            return self.unlabelled_for(namespace) < LABELLING
        self._unlabelled.pop(namespace, None)
        self._given_up.discard(namespace)
        return stage is Window.OPEN

    def unlabelled_for(self, namespace: str) -> float:
        """Return the seconds for which groups have been waiting for the label."""
        now = asyncio.get_running_loop().time()
        waited = now - self._unlabelled.setdefault(namespace, now)
        if waited >= LABELLING and namespace not in self._given_up:
            self._given_up.add(namespace)
            log.warning(
                "namespace %s can't be labelled %s=%s, so its groups start without it: webhooks aren't asked for its pods",
                namespace,
                names.QUOTA_MODE,
                self._mode,
            )
        return waited

    def grace(self, namespace: str) -> float:
        """Return the seconds until all API servers have seen the label of an open window."""
        now = asyncio.get_running_loop().time()
        return max(0.0, self._labelled.setdefault(namespace, now) + GRACE - now)

    def waiting(self, namespace: str) -> list[Key]:
        """Return the groups with a minimum that have no pods on nodes."""
        started = self.started(namespace)
        return [
            (kind.group, group.name)
            for kind, cache in self._groups.items()
            for group in cache.by_namespace(namespace)
            if foreseen_minimum(group) and group.name not in started
        ]

    def started(self, namespace: str) -> frozenset[str]:
        """Return the names of the groups that have pods on nodes."""
        return frozenset(
            grouping.member_of(pod.metadata, pod.spec.scheduler_name, self._schedulers)
            for pod in self._pods.by_namespace(namespace)
            if pod.spec.node_name
        )

    async def close(self, namespace: str) -> None:
        """Have it written that the namespace was read after its label was seen.

        Raises:
            KubeError: it wasn't written.
        """
        closed = {"metadata": {"labels": {names.QUOTA_WINDOW: None}}}
        with contextlib.suppress(errors.NotFoundError):
            await self._client.patch(kinds.NAMESPACES, namespace, closed)
        self._labelled.pop(namespace, None)
