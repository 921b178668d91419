"""Questions of the page about a cluster with changes, answered one at a time, beside the loop that serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from muster.cli.ui.reader import Reader
from muster.whatif.changes import ChangeableCluster, Changes, Effects


class Suppositions:
    """Answers them on the last reading. Nothing is written to the cluster."""

    def __init__(self, reader: Reader, schedulers: Sequence[str]) -> None:
        self._reader = reader
        self._schedulers = schedulers
        self._turn = asyncio.Lock()
        self._cluster: ChangeableCluster | None = None

    async def answer(self, body: bytes) -> Effects:
        """Return what changes come to; ``body`` is `Changes` as JSON.

        Raises:
            ValueError: they can't be understood, they change nothing that is there, or only a part of the cluster could be read.
        """
        try:
            changes = msgspec.json.decode(body, type=Changes)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the changes can't be read: {error}") from error
        async with self._turn:
            seen = self._reader.seen
            if seen.policy is None:
                raise ValueError("what if needs the whole cluster: nodes may not be listed with these permissions")
            if self._cluster is None or self._cluster.state is not seen.state:
                self._cluster = ChangeableCluster(seen.state, seen.policy, self._schedulers)
            return await asyncio.to_thread(self._cluster.effects, changes)
