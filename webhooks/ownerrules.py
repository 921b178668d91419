"""Keeps the policies' owner rules equal to the ConfigMap; the PodGroup controller uses the same rules."""

from __future__ import annotations

import logging
from collections.abc import Callable

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.reflector import Reflector
from muster.model import kinds
from muster.model.grouping import OwnerRule
from muster.model.objects import ConfigMap
from muster.model.rules import OwnerRules, RulesError

log = logging.getLogger("muster.webhooks")


class OwnerRulesWatcher:
    """Watches the ConfigMaps of Muster's namespace; ``changed`` is told the rules whenever they are others."""

    def __init__(self, client: Client, namespace: str, changed: Callable[[tuple[OwnerRule, ...]], None]) -> None:
        self._book = OwnerRules()
        self._changed = changed
        self._cache: ObjectCache[ConfigMap] = ObjectCache()
        self._cache.subscribe(self._on_change)
        self._reflector = Reflector(client, kinds.CONFIGMAPS, self._cache, namespace=namespace)

    async def run(self) -> None:
        """Watch, until cancelled."""
        await self._reflector.run()

    async def synced(self) -> None:
        """Wait until the first list has been seen."""
        await self._reflector.wait_synced()

    def _on_change(self, _: ObjectChange[ConfigMap]) -> None:
        before = self._book.rules
        try:
            self._book.learn(self._cache.items())
        except RulesError as error:
            # The scheduler, of which there is one, tells it in an event, too.
            log.warning("the owner rules stay as they were: %s", error)
        if self._book.rules != before:
            self._changed(self._book.rules)
