"""How much memory the worker's view of a cluster takes after many watch events.

Run: python benchmarks/scheduler_memory.py [EVENTS]
Groups of ten pods come, are placed by `decide`, run, end and go, a thousand pods at a time, through the worker's caches; a
line is printed each time another tenth of the events has passed. The figure is the memory of the whole process.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import calibration
import msgspec

from muster.kube.subscription import DerivedState
from muster.model import kinds, names
from muster.model.kinds import Kind
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.leader.events import ObjectChanged
from scheduler.leader.state import SchedulerState
from scheduler.state.informers import Informers

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SIZE = 10
AT_ONCE = 100


class Stream:
    """Watch events, one after the other."""

    def __init__(self) -> None:
        self.informers = Informers(legacy_apis=False)
        self.state = SchedulerState({names.SCHEDULER_NAME})
        self.cluster = self.state.cluster
        self.informers.feed(self._tell, DerivedState())
        self.events = 0

    def _tell(self, kind: Kind[Any], item: Any, gone: bool) -> None:  # noqa: FBT001 - as a cache tells
        self.state.handle(ObjectChanged(kind, item, gone))

    def put(self, kind: Any, **body: Any) -> None:
        self.events += 1
        body["metadata"]["resourceVersion"] = str(self.events)
        # From text, as it comes: nothing is shared between two events.
        self.informers.cache(kind).put(msgspec.json.decode(msgspec.json.encode(body), type=kind.struct))

    def take(self, kind: Any, name: str, namespace: str) -> None:
        self.events += 1
        found = self.informers.cache(kind).get(name, namespace)
        assert found is not None
        self.informers.cache(kind).drop(found)


def generation(stream: Stream, number: int) -> None:
    policy = config.parse(config.DEFAULT)
    groups = [f"g{number}-{each}" for each in range(AT_ONCE)]
    for group in groups:
        meta = {"name": group, "namespace": "ns", "uid": group}
        stream.put(kinds.PODGROUPS, metadata=meta, spec={"minMember": SIZE}, status={"phase": "Inqueue"})
        for pod in range(SIZE):
            stream.put(kinds.PODS, **pod_of(group, pod, "", "Pending"))
    plan = decide(stream.cluster.snapshot(), policy, NOW)
    assert len(plan.binds) == AT_ONCE * SIZE
    for bind in plan.binds:
        stream.cluster.assume(bind.task.uid, bind.node)
    for phase in ("Pending", "Running", "Succeeded"):
        for bind in plan.binds:
            group, _, which = bind.task.name.rpartition("-")
            stream.put(kinds.PODS, **pod_of(group, int(which), bind.node, phase))
        decide(stream.cluster.snapshot(), policy, NOW)
    for group in groups:
        for pod in range(SIZE):
            stream.take(kinds.PODS, f"{group}-{pod}", "ns")
        stream.take(kinds.PODGROUPS, group, "ns")


def pod_of(group: str, number: int, node: str, phase: str) -> dict[str, Any]:
    name = f"{group}-{number}"
    requests = {"cpu": f"{100 + number}m", "memory": "64Mi"}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": {names.GROUP_NAME: group}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        },
        "status": {"phase": phase},
    }


def main() -> None:
    calibration.tell()
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    stream = Stream()
    stream.put(kinds.QUEUES, metadata={"name": "default"})
    for number in range(100):
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "256"}
        stream.put(kinds.NODES, metadata={"name": f"node-{number}"}, status={"allocatable": amounts})
    begun, number, shown = time.monotonic(), 0, 0
    while stream.events < wanted:
        generation(stream, number)
        number += 1
        if stream.events * 10 // wanted > shown:
            shown = stream.events * 10 // wanted
            gc.collect()
            status = Path("/proc/self/status").read_text()
            now = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024
            print(f"{stream.events:9} events, {now:.1f} MiB, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
