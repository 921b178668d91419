"""The scheduler's configuration as `muster up` stores it: the ConfigMap that an installation has, for those who ask what it decides."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from muster.kube import errors
from muster.kube.client import Client
from muster.model import kinds, names
from scheduler.configuration import config

_NAME, _KEY = names.SCHEDULER_CONFIGMAP
_BY = {names.MANAGED_BY: "muster-up"}

log = logging.getLogger(__name__)


class StoredConfiguration:
    """The ConfigMap of what runs here. One that somebody else keeps stays as it is, and so does one that may not be written."""

    def __init__(self, client: Client, file: Path | None) -> None:
        self._client = client
        self._file = file
        self._stored = False
        self._storing: set[asyncio.Task[None]] = set()

    async def store(self) -> None:
        """Store what the file says now, or the built-in configuration where there is none."""
        try:
            text = self._file.read_text(encoding="utf-8") if self._file is not None else config.DEFAULT
            found = await self._client.find(kinds.CONFIGMAPS, _NAME, names.SYSTEM_NAMESPACE)
            if found is not None and found.metadata.label(names.MANAGED_BY) != _BY[names.MANAGED_BY]:
                return
            body = {"metadata": {"name": _NAME, "labels": _BY}, "data": {_KEY: text}}
            if found is None:
                await self._client.create(kinds.CONFIGMAPS, body, names.SYSTEM_NAMESPACE)
            else:
                await self._client.patch(kinds.CONFIGMAPS, _NAME, {"data": body["data"]}, names.SYSTEM_NAMESPACE)
            self._stored = True
        except (errors.KubeError, OSError, UnicodeDecodeError) as error:
            log.warning("the configuration isn't stored, so `muster podgroup why` assumes the built-in one: %s", error)

    def changed(self) -> None:
        """Store it again, in a while."""
        task = asyncio.ensure_future(self.store())
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def remove(self) -> None:
        """Delete what was stored."""
        if self._stored:
            try:
                with contextlib.suppress(errors.NotFoundError):
                    await self._client.delete(kinds.CONFIGMAPS, _NAME, names.SYSTEM_NAMESPACE)
            except errors.KubeError as error:
                log.warning("ConfigMap %s/%s stays: %s", names.SYSTEM_NAMESPACE, _NAME, error)
