"""Keeps the owner rules as the ConfigMap states them, while running."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from muster.kube.cache import ObjectCache, ObjectChange
from muster.kube.client import Client
from muster.kube.events import EventRecorder
from muster.kube.reflector import Reflector
from muster.model import kinds
from muster.model.grouping import OwnerRule
from muster.model.objects import ConfigMap
from muster.model.rules import SOURCES, OwnerRules, RulesError

log = logging.getLogger(__name__)


class OwnerRulesController:
    """Watches the ConfigMaps of Muster's namespace. A mistake is told as an event of the ConfigMap that has it."""

    def __init__(self, client: Client, recorder: EventRecorder, namespace: str) -> None:
        self._recorder = recorder
        self._book = OwnerRules()
        self._cache: ObjectCache[ConfigMap] = ObjectCache()
        self._cache.subscribe(self._on_change)
        self._reflector = Reflector(client, kinds.CONFIGMAPS, self._cache, namespace=namespace)

    def __call__(self) -> Sequence[OwnerRule]:
        """Return the rules in force."""
        return self._book.rules

    async def run(self) -> None:
        """Watch, until cancelled."""
        await self._reflector.run()

    async def synced(self) -> None:
        """Wait until the first list has been seen."""
        await self._reflector.wait_synced()

    def _on_change(self, change: ObjectChange[ConfigMap]) -> None:
        one = change.new or change.old
        if one is None or one.name not in SOURCES:
            return
        try:
            self._book.learn(self._cache.items())
        except RulesError as error:
            text = f"the rules stay as they were: {error}"
            log.warning("%s", text)
            self._recorder.record(kinds.CONFIGMAPS, one, "InvalidRules", text, type_="Warning")
