"""How much longer gangs with resource claims take to decide than the same gangs without: processor seconds, measured in turns.

Run: python benchmarks/devices.py [--nodes N] [--gangs N] [--size N] [--turns N] [--shared]
Each pod has a claim of its own for one of its node's eight GPUs, chosen by class, attribute and capacity in CEL. The first decision
after the devices changed evaluates these for each device, and is printed apart. With ``--shared`` each gang shares a claim for a device that
all nodes reach.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import calibration
import msgspec

sys.path.insert(0, str(Path(__file__).parent))

from scheduler_decide import World

from muster.model import kinds

DRIVER = "gpu.example.com"
SELECTOR = (
    f'device.attributes["{DRIVER}"].model == "a" && device.capacity["{DRIVER}"].memory.compareTo(quantity("30Gi")) >= 0'
)


def world(nodes: int, gangs: int, size: int, *, claims: bool) -> World:
    made = World(nodes)
    chosen = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    made.cluster.devices.device_class(_as(kinds.DEVICECLASSES, "gpu", {"selectors": chosen}))
    for number in range(nodes):
        node = f"node-{number:05}"
        devices = [
            {
                "name": f"gpu-{place}",
                "attributes": {"model": {"string": "a"}, "uuid": {"string": f"{node}-{place}"}},
                "capacity": {"memory": {"value": "40Gi"}},
            }
            for place in range(8)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        made.cluster.devices.slice(_as(kinds.RESOURCESLICES, node, spec))
    refs = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]} if claims else {}
    for number in range(gangs):
        made.gang(f"g{number:05}", size, {"cpu": "1", "memory": "1Gi"}, pod=refs)
        for pod in range(size if claims else 0):
            made.cluster.devices.claim(claim(f"g{number:05}-{pod}"))
    return made


def shared_world(nodes: int, gangs: int, size: int) -> World:
    made = World(nodes)
    chosen = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    made.cluster.devices.device_class(_as(kinds.DEVICECLASSES, "gpu", {"selectors": chosen}))
    pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"channel-{number}"} for number in range(gangs)]
    spec = {"driver": DRIVER, "allNodes": True, "pool": pool, "devices": devices}
    made.cluster.devices.slice(_as(kinds.RESOURCESLICES, "net", spec))
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}]
    for number in range(gangs):
        refs = {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"c{number}"}]}
        made.gang(f"g{number:05}", size, {"cpu": "1", "memory": "1Gi"}, pod=refs)
        meta = {"namespace": "ns", "uid": f"claim-{number}"}
        made.cluster.devices.claim(_as(kinds.RESOURCECLAIMS, f"c{number}", {"devices": {"requests": requests}}, **meta))
    return made


def claim(pod: str) -> Any:
    meta = {
        "namespace": "ns",
        "uid": f"claim-{pod}",
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": True}],
    }
    exactly = {"deviceClassName": "gpu", "count": 1, "selectors": [{"cel": {"expression": SELECTOR}}]}
    return _as(
        kinds.RESOURCECLAIMS, f"{pod}-gpu", {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}, **meta
    )


def _as(kind: Any, name: str, spec: dict[str, Any], **meta: Any) -> Any:
    return msgspec.convert({"metadata": {"name": name, **meta}, "spec": spec}, kind.struct)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 500), ("gangs", 100), ("size", 8), ("turns", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--shared", action="store_true")
    options = parser.parse_args()
    calibration.tell()
    sizes = options.nodes, options.gangs, options.size
    both = {
        False: world(*sizes, claims=False),
        True: shared_world(*sizes) if options.shared else world(*sizes, claims=True),
    }
    first = {claims: each.decide()[0] for claims, each in both.items()}
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(options.turns):
        for claims, each in both.items():
            took, plan = each.decide()
            assert len(plan.binds) == min(options.gangs * options.size, 8 * options.nodes), len(plan.binds)
            times[claims].append(took)
    without, with_claims = (statistics.median(times[claims]) for claims in (False, True))
    ratio = statistics.median(one / other for one, other in zip(times[True], times[False], strict=True))
    print(f"{options.gangs} gangs of {options.size} on {options.nodes} nodes, median of {options.turns} turns")
    print(f"without claims {1000 * without:.1f} ms, with {1000 * with_claims:.1f} ms: {ratio:.1f} times as long")
    print(f"the first decision: without {1000 * first[False]:.1f} ms, with {1000 * first[True]:.1f} ms")


if __name__ == "__main__":
    main()
