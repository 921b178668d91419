"""Workloads as users write them, for tests of their lives; what is said of them, as users read it."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.model import kinds, names
from muster.model.objects import Job

QUICK = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit, arguments: {overcommit-factor: 1.0}}, {name: predicates}, {name: proportion}]
configurations:
- {name: enqueue, arguments: {inqueueTimeoutSeconds: 2}}
"""
"""A configuration with which nobody waits for pods longer than two seconds."""


def template(cpu: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}


def job(name: str, count: int, cpu: str = "1", seconds: int = 600, **annotations: str) -> dict[str, Any]:
    """Return a Job that runs for as long as a test may take, unless told otherwise."""
    held = {names.SUSPENDED: "true", names.GROUP_MIN_MEMBER: str(count)} | annotations
    spec = {"parallelism": count, "completions": count, "suspend": True}
    meta = {"annotations": {names.RUN_SECONDS: str(seconds)}}
    spec["template"] = {"metadata": meta, "spec": {**template(cpu), "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": held}, "spec": spec}


def held_job(name: str, count: int, cpu: str = "1", *, by_us: bool = True, **spec: Any) -> Job:
    """Return a Job, as a value, of a group of its name; it is suspended, by Muster or by its user."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"job-{name}"}
    metadata |= {"annotations": {names.SUSPENDED: "true"}} if by_us else {}
    container = {"resources": {"requests": {"cpu": cpu}}}
    template: dict[str, Any] = {"metadata": {"annotations": {names.GROUP_NAME: name}}}
    template |= {"spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **spec}}
    body = {"parallelism": count, "completions": count, "suspend": True, "template": template}
    return msgspec.convert({"metadata": metadata, "spec": body}, kinds.JOBS.struct)


def pod(name: str, group: str, cpu: str = "1") -> dict[str, Any]:
    meta = {"name": name, "annotations": {names.GROUP_NAME: group}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template(cpu)}


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def deployment(name: str, replicas: int, cpu: str = "1", **strategy: Any) -> dict[str, Any]:
    labels = {"app": name}
    annotations = {names.GROUP_MIN_MEMBER: str(replicas)}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": template(cpu)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": strategy},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def said(one: Any) -> str:
    """Return what stands in a group's way."""
    return next((each.message for each in one.status.conditions or () if each.status == "True"), "")


def reason(one: Any) -> str:
    return next((each.reason for each in one.status.conditions or () if each.status == "True"), "")


def unschedulable(one: Any) -> bool:
    found = (each for each in one.status.conditions or () if each.type == "PodScheduled")
    return any(each.status == "False" and each.reason == "Unschedulable" for each in found)
