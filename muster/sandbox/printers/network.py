"""Printed columns of built-in kinds of networking and storage; see `muster.sandbox.printers.workloads`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from muster.sandbox.printers.workloads import NONE, Json, age, pairs

_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_UNSET: Final = "<unset>"


def service(obj: Json, now: datetime) -> list[Any]:
    """Cells of a Service."""
    spec = obj.get("spec", {})
    return [
        spec.get("type", ""),
        next(iter(spec.get("clusterIPs") or []), NONE),
        _external_address(obj),
        ",".join(_port(port) for port in spec.get("ports") or []) or NONE,
        age(obj, now),
        pairs(spec.get("selector")),
    ]


def _external_address(obj: Json) -> str:
    spec = obj.get("spec", {})
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    found = list(spec.get("externalIPs") or [])
    if spec.get("type") == "LoadBalancer":
        ingress = obj.get("status", {}).get("loadBalancer", {}).get("ingress") or []
        found = sorted({entry.get("ip") or entry.get("hostname") or "" for entry in ingress} - {""}) + found
    return ",".join(found) or ("<pending>" if spec.get("type") == "LoadBalancer" else NONE)


def _port(port: Json) -> str:
    outside = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{outside}/{port.get('protocol', 'TCP')}"


def claim(obj: Json, now: datetime) -> list[Any]:
    """Cells of a PersistentVolumeClaim."""
    spec, status = obj.get("spec", {}), obj.get("status", {})
    bound = bool(spec.get("volumeName"))
    return [
        _phase(obj),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _access(status.get("accessModes")) if bound else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or _UNSET,
        age(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def volume(obj: Json, now: datetime) -> list[Any]:
    """Cells of a PersistentVolume."""
    spec = obj.get("spec", {})
    reference = spec.get("claimRef")
    return [
        (spec.get("capacity") or {}).get("storage", "0"),
        _access(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or _UNSET,
        obj.get("status", {}).get("reason", ""),
        age(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def _phase(obj: Json) -> str:
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else str(obj.get("status", {}).get("phase", ""))


def _access(modes: Iterable[str] | None) -> str:
    have = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in have)


def storage_class(obj: Json, now: datetime) -> list[Any]:
    """All cells of a StorageClass: its name tells whether it is the default."""
    default = (obj["metadata"].get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        obj["metadata"].get("name", "") + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        age(obj, now),
    ]


def resource_claim(obj: Json, now: datetime) -> list[Any]:
    """Cells of a ResourceClaim: how far it is."""
    status, leaving = obj.get("status") or {}, "deletionTimestamp" in obj["metadata"]
    states = ["deleted"] if leaving else []
    if status.get("allocation"):
        states += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    elif not leaving:
        states.append("pending")
    return [",".join(states), age(obj, now)]


def resource_slice(obj: Json, now: datetime) -> list[Any]:
    """Cells of a ResourceSlice: what publishes it, and where."""
    spec = obj.get("spec") or {}
    return [
        spec.get("nodeName", ""),
        spec.get("driver", ""),
        (spec.get("pool") or {}).get("name", ""),
        age(obj, now),
    ]
