"""Simulated nodes: what one looks like, and what becomes of a node's objects. Nodes send no heartbeats: no Lease."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from muster.sandbox.controllers.plans.pods import holds
from muster.sandbox.controllers.plans.times import stamp
from muster.sandbox.core.store import Key, Object

NODES: Final[Key] = ("", "nodes")
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
NOT_READY: Final = "node.kubernetes.io/not-ready"

_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "simulated node is ready"),
)


def node(name: str, labels: Mapping[str, str]) -> Object:
    """Make a simulated node, without its status."""
    own = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **labels}},
        "spec": {},
    }


def status(name: str, capacity: Mapping[str, str], address: str, now: datetime) -> dict[str, Any]:
    """Return the status of a node that is ready and wholly allocatable."""
    at = stamp(now)
    return {
        "capacity": dict(capacity),
        "allocatable": dict(capacity),
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "conditions": [
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": at,
                "lastTransitionTime": at,
            }
            for kind, value, reason, message in _CONDITIONS
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": "sandbox://1",
            "kernelVersion": "simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.37.2+sandbox",
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "simulated",
            "systemUUID": "",
        },
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    }


def address(network: int, number: int) -> str:
    """Return the ``number``-th address of 10.0.0.0/8's part ``network`` (0-255), starting over at 16 million."""
    return f"10.{network + (number >> 16) % (256 - network)}.{number >> 8 & 255}.{number & 255}"


def taints(obj: Object) -> list[dict[str, Any]]:
    """Return the taints a node should have: those of its state as long as it is in it, and all others."""
    given = obj["spec"].get("taints") or ()
    states = {UNSCHEDULABLE: bool(obj["spec"].get("unschedulable")), NOT_READY: not holds(obj, "Ready")}
    kept = [taint for taint in given if states.get(taint["key"], True)]
    present = {taint["key"] for taint in kept}
    added = [key for key, applies in states.items() if applies and key not in present]
    return kept + [{"key": key, "effect": "NoSchedule"} for key in added]
