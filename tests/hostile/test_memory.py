"""What hostile objects cost the scheduler: so much for each byte while they are there, and nothing once they are gone."""

from __future__ import annotations

import gc
import random
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import hostile_fields
import msgspec
import pytest
from hostile import Tenant
from msgspec.structs import replace

from muster.kube import decoding
from muster.kube.decoding import Unreadable
from muster.kube.subscription import DerivedState
from muster.model import kinds, names
from muster.model.kinds import Kind
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.leader.events import ObjectChanged
from scheduler.leader.state import SchedulerState
from scheduler.state.informers import Informers

pytestmark = pytest.mark.soak

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRITTEN: tuple[Kind[Any], ...] = (
    *(kinds.PODS, kinds.PODGROUPS, kinds.JOBS, kinds.DEPLOYMENTS),
    *(kinds.CLAIMS, kinds.DISRUPTIONBUDGETS, kinds.RESOURCECLAIMS),
)
FOR_A_BYTE = 4
"""Bytes of memory for each byte of JSON, all species together: 2.5 were measured. Lists of small parts take up to eight, long texts one."""
LEFT = 2 * 1024 * 1024
"""Bytes that may stay behind after all is gone: what is remembered of kinds of pods, as far as that is bounded."""


class Scheduler:
    """The scheduler's caches and its decisions, without a cluster."""

    def __init__(self) -> None:
        self.informers = Informers(legacy_apis=False)
        self.state = SchedulerState({names.SCHEDULER_NAME})
        self.informers.feed(self._tell, DerivedState())
        self.policy, self.remembered = config.parse(config.DEFAULT), DecisionCache()
        self.events = 0
        self.put(kinds.QUEUES, b'{"metadata":{"name":"default"}}')
        for number in range(4):
            allocatable = '{"allocatable":{"cpu":"32","memory":"256Gi","pods":"1000"}}'
            self.put(kinds.NODES, b'{"metadata":{"name":"node-%d"},"status":%s}' % (number, allocatable.encode()))

    def _tell(self, kind: Kind[Any], item: Any, gone: bool) -> None:  # noqa: FBT001 - as a cache tells
        self.state.handle(ObjectChanged(kind, item, gone))

    def put(self, kind: Kind[Any], body: bytes, namespace: str = "") -> bool:
        self.events += 1
        item = decoding.item(kind, msgspec.Raw(body))
        if isinstance(item, Unreadable):
            return False
        number = str(self.events)
        meta = replace(item.metadata, namespace=namespace, uid=f"u-{number}", resource_version=number)
        self.informers.cache(kind).put(replace(item, metadata=meta))
        return True

    def cycle(self) -> None:
        decide(self.state.cluster.snapshot(), self.policy, NOW, self.remembered)

    def clear(self) -> None:
        for kind in WRITTEN:
            cache = self.informers.cache(kind)
            for item in tuple(cache.items()):
                self.events += 1
                cache.drop(replace(item, metadata=replace(item.metadata, resource_version=str(self.events))))


def written(scheduler: Scheduler, seed: str) -> int:
    """Put what a tenant makes of every species, and return how many bytes of JSON that were."""
    kinds_of = {kind.path("open"): kind for kind in WRITTEN}
    tenant, total = Tenant("open", random.Random(seed)), 0
    for species in hostile_fields.SPECIES:
        for request in species(tenant):
            kind = kinds_of.get(request.path)
            if request.method == "POST" and kind is not None and scheduler.put(kind, request.body, "open"):
                total += len(request.body)
    return total


def traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_hostile_objects_cost_memory_by_their_length_and_leave_none_behind():
    scheduler = Scheduler()
    scheduler.cycle()
    left = []
    tracemalloc.start()
    try:
        for number in range(3):
            before = traced()
            length = written(scheduler, f"memory {number}")
            scheduler.cycle()
            assert traced() - before < FOR_A_BYTE * length
            scheduler.clear()
            scheduler.cycle()
            left.append(traced())
    finally:
        tracemalloc.stop()
    # What the first time leaves are tables that grow once.
    assert left[-1] - left[0] < LEFT
