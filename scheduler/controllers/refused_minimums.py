"""Minimums that the quota refused: stated by their groups as soon as there is room.

Such a group has no ``spec.minResources``, and holds nothing; its annotation `names.WANTED_RESOURCES` says what it waits
for. So what groups state, summed over a namespace, is reserved, whoever adds it up and whenever.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from muster.kube import errors, transport
from muster.kube.cache import ObjectChange
from muster.kube.client import Client
from muster.kube.workqueue import WorkQueue
from muster.ledger import wording
from muster.ledger.reservations import waits_for_quota
from muster.ledger.rows import Key
from muster.model import names
from muster.model.kinds import Kind, ObjectKey
from muster.model.objects import PodGroup
from scheduler.model.snapshot import Phase
from scheduler.state import conversion
from scheduler.state.informers import Informers

_ROOM: Final = frozenset({"", wording.unreserved(())})


class RefusedMinimums:
    """Follows the groups that wait for their minimum, and has them state it once the ledger has room; it decides again then."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._informers = informers
        self._waiting: dict[str, set[ObjectKey]] = {}
        self._reasons: dict[str, Mapping[Key, str]] = {}
        self._work: WorkQueue[ObjectKey] = WorkQueue("refused minimum", self._reconcile)
        for kind, cache in informers.groups.items():
            cache.subscribe(partial(self._on_group, kind))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    def observe(self, namespace: str, reasons: Mapping[Key, str]) -> None:
        """Take over which groups of a namespace hold nothing, and why."""
        self._reasons[namespace] = reasons
        for ref in self._waiting.get(namespace, ()):
            if self._has_room(ref):
                self._work.add(ref)

    def _on_group(self, kind: Kind[PodGroup], change: ObjectChange[PodGroup]) -> None:
        group = change.new or change.old
        assert group is not None, "a change is of something"
        ref = ObjectKey(kind, group.namespace, group.name)
        if change.new is not None and _waits(group):
            # `observe` is told of the namespace next: whether there is room has to be known first.
            self._waiting.setdefault(ref.namespace, set()).add(ref)
        elif (refs := self._waiting.get(ref.namespace)) is not None:
            refs.discard(ref)
            if not refs:
                del self._waiting[ref.namespace]

    def _has_room(self, ref: ObjectKey) -> bool:
        return self._reasons.get(ref.namespace, {}).get((ref.kind.group, ref.name), "") in _ROOM

    async def _reconcile(self, ref: ObjectKey) -> None:
        group = self._informers.cache(ref.kind).get(ref.name, ref.namespace)
        if group is None or not _waits(group) or not self._has_room(ref):
            return
        try:
            await self._client.patch(
                ref.kind, ref.name, _change(group), ref.namespace, content_type=transport.JSON_PATCH
            )
        except (errors.NotFoundError, errors.InvalidError):
            return  # Gone, or what it waits for has just changed: its watch will show that.


def _change(group: PodGroup) -> list[dict[str, Any]]:
    """Write a JSON patch that has a group state what it waits for, if it still waits for that.

    The version isn't tested, since its status may be written at the same time. The ledger agrees to this as to any growth.
    """
    wanted = waits_for_quota(group)
    assert wanted is not None, "it waits"
    annotation = f"/metadata/annotations/{names.WANTED_RESOURCES.replace('/', '~1')}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": group.metadata.uid},
        {"op": "test", "path": annotation, "value": group.metadata.annotation(names.WANTED_RESOURCES)},
        {"op": "remove", "path": annotation},
        {"op": "add", "path": "/spec/minResources", "value": wanted.quantities()},
    ]


def _waits(group: PodGroup) -> bool:
    return waits_for_quota(group) is not None and conversion.phase_of(group) is not Phase.COMPLETED
