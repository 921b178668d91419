"""What it costs to decode pods that are kept, with and without collections, and to collect while they are: `kept_objects.py [PODS]`."""

from __future__ import annotations

import gc
import sys
import time

import calibration
import msgspec

from muster.model.objects import Pod

_MAIN = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "x", "controller": True}
_METADATA = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}}
POD = {
    "metadata": _METADATA | {"annotations": {"scheduling.k8s.io/group-name": "g"}, "ownerReferences": [_OWNER]},
    "spec": {
        "schedulerName": "muster",
        "nodeName": "n1",
        "containers": [_MAIN],
        "tolerations": [{"operator": "Exists"}],
    },
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


def main(count: int) -> None:
    """Print processor time."""
    calibration.tell()
    written, decoder = msgspec.json.encode(POD), msgspec.json.Decoder(Pod)
    begun = time.process_time()
    kept = [decoder.decode(written) for _ in range(count)]
    decoded = (time.process_time() - begun) / count * 1e6
    begun = time.process_time()
    gc.collect()
    print(
        f"{decoded:.1f} us to decode and keep a pod; a full collection beside {len(kept):,}: {(time.process_time() - begun) * 1e3:.0f} ms"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
