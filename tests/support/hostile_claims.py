"""Claims of devices that a tenant writes so that the scheduler thinks for hours, and one of another tenant beside them.

    python hostile_claims.py CYCLES

decides that often, one cycle after the other with the same memory, and prints in which the other tenant's pod was placed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from muster.model import names
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.model.plan import Plan
from scheduler.simulator import state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES, DEVICES = 16, 8
DRIVER = "devices.example.com"
DEVICE_API = "resource.k8s.io/v1"
Json = dict[str, Any]
CLASS: Json = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}


def numbers(length: int) -> str:
    """Return a list of an expression."""
    return "[" + ",".join(str(each % 10) for each in range(length)) + "]"


def costly() -> Iterator[str]:
    """Return expressions that an API server stores, each of which takes as long as it may for a device."""
    for number in range(40):
        yield f"{numbers(1000)}.exists(x,'{'a' * 3000}'.matches('(a|aa)+x{number}'))"
        yield f"{numbers(240)}.exists(x,{numbers(200)}.exists(y,x+y=={1000 + number}))"
        yield f"{numbers(200)}.map(x,{numbers(200)}.map(y,{numbers(900)}.size())).size()=={number}"
        yield f"{numbers(900)}.exists(x,'a'.matches('{'(b|c|d)' * 300}'+string(x)+'{number}'))"
        yield f"{numbers(2500)}.exists(x,x=={1000 + number})"


def made(kind: str, name: str, namespace: str, spec: Json, api: str = "v1", **more: Any) -> Json:
    meta: Json = {"name": name, "uid": f"{namespace}-{name}"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": {**meta, **more.pop("meta", {})}, "spec": spec, **more}


def cluster() -> Iterator[Json]:
    """Return nodes with devices, and their class."""
    for number in range(NODES):
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "100"}
        yield made("Node", f"n{number}", "", {}, status={"allocatable": amounts})
        yield made("ResourceSlice", f"n{number}", "", offered(f"n{number}"), DEVICE_API)
    yield made("DeviceClass", "gpu", "", CLASS, DEVICE_API)


def offered(node: str) -> Json:
    """Return the spec of the slice of a node."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"d{each}", "attributes": {"a": {"int": each}}} for each in range(DEVICES)]
    return {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}


def waiting(namespace: str, name: str, devices: Json) -> Iterator[Json]:
    """Return a group of one pod with a claim."""
    yield made(
        "PodGroup", name, namespace, {"minMember": 1}, names.VOLCANO_GROUP + "/v1beta1", status={"phase": "Inqueue"}
    )
    yield made("ResourceClaim", name, namespace, {"devices": devices}, DEVICE_API)
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "resourceClaims": [{"name": "c", "resourceClaimName": name}],
    }
    meta = {"annotations": {names.GROUP_NAME: name}}
    yield made("Pod", f"{name}-0", namespace, spec, meta=meta, status={"phase": "Pending"})


def exactly(name: str, *expressions: str, **more: Any) -> Json:
    """Return a request."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"name": name, "exactly": {"deviceClassName": "gpu", "selectors": selectors, **more}}


def hostile(namespace: str) -> Iterator[Json]:
    """Return what one tenant makes: expressions that take long, and claims with thousands of ways to be met."""
    for number, expression in enumerate(costly()):
        yield from waiting(namespace, f"a{number}", {"requests": [exactly("r", expression)]})
    for number in range(40):
        requests = [exactly(f"r{each}", f"{number} == {number}") for each in range(DEVICES - 2)]
        rule = {"matchAttribute": f"{DRIVER}/a", "requests": ["r0", f"r{DEVICES - 3}"]}
        yield from waiting(namespace, f"b{number}", {"requests": requests, "constraints": [rule]})


def decisions(cycles: int) -> Iterator[Plan]:
    """Decide; the other tenant's name is the last, so its turn is after all others of the queue."""
    honest = waiting("victim", "zz", {"requests": [exactly("r", f"device.attributes['{DRIVER}'].a >= 0")]})
    objects = [*cluster(), *(each for space in ("evil", "worse") for each in hostile(space)), *honest]
    loaded, policy, memory = state.load(objects, [names.SCHEDULER_NAME]), config.parse(config.DEFAULT), DecisionCache()
    for _ in range(cycles):
        yield decide(loaded.snapshot(), policy, NOW, memory)


def main() -> None:
    for number, plan in enumerate(decisions(int(sys.argv[1])), 1):
        if any(bind.task.name == "zz-0" for bind in plan.binds):
            sys.stdout.write(f"placed in cycle {number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
