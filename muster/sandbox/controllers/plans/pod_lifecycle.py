"""The life of a pod on a simulated node: from its status and the time to its next status. Pure.

    bound ──> ContainerCreating ──1 s──> Running ──its seconds──> Succeeded | Failed
                                            ^  │ restartPolicy
                     CrashLoopBackOff <─────┴──┘
    deleted ──1 s, or its grace if that is shorter──> Failed, and gone

Times in a status have whole seconds, so that is the step of a simulated life. Images are not pulled, probes are not
run: a container is ready when it runs. All containers of a pod run and end together; init containers are done at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from muster.model import names
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.pods import controller_of
from muster.sandbox.controllers.plans.times import read, stamp
from muster.sandbox.core.store import Object

START_SECONDS: Final = 1.0
STOP_SECONDS: Final = 1.0
JOB_SECONDS: Final = 5.0
"""How long a Job's pod runs when it doesn't say."""

_FIRST_PAUSE: Final = 10.0
_LONGEST_PAUSE: Final = 300.0
_TERMINATED: Final = 143
"""Exit code of a container that obeyed SIGTERM."""

Json = dict[str, Any]


class Step(Struct, frozen=True):
    """What happens next to a pod: a new status now, or (``wake``, in seconds) later; ``remove`` it for good."""

    status: Json | None = None
    wake: float | None = None
    remove: bool = False


def step(pod: Object, now: datetime, *, host_ip: str, pod_ip: str) -> Step:
    """Decide about a pod that a node has admitted."""
    if p.leaving(pod):
        return _leave(pod, now)
    if p.ended(pod):
        return Step()
    states = _states(pod)
    if not states:
        return Step(status=_creating(pod, now, host_ip), wake=START_SECONDS)
    deadline = _deadline(pod)
    if deadline is not None and deadline <= now:
        return Step(status=_overdue(pod, now))
    due = _due(pod, states)
    if due is None or due > now:
        moments = [moment for moment in (due, deadline) if moment is not None]
        return Step(wake=(min(moments) - now).total_seconds() if moments else None)
    if "running" in states[0]:
        return Step(status=_exited(pod, now))
    return Step(status=_running(pod, now, host_ip, pod_ip))


def rejected(pod: Object, now: datetime, reason: str, message: str) -> Json:
    """Return the status of a pod that its node doesn't take in."""
    return {
        **(pod.get("status") or {}),
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": stamp(now),
    }


def wrong_annotation(pod: Object) -> str:
    """Say what is wrong with the annotations that direct a pod's life; empty when nothing is."""
    annotations = pod["metadata"].get("annotations") or {}
    seconds, code = annotations.get(names.RUN_SECONDS, "0"), annotations.get(names.EXIT_CODE, "0")
    if _number(seconds) is None:
        return f'annotation {names.RUN_SECONDS}: "{seconds}" is not a number of seconds; write it like 30 or 0.5'
    if not (code.isdecimal() and int(code) <= 255):
        return f'annotation {names.EXIT_CODE}: "{code}" is not an exit code; it is a number from 0 to 255'
    return ""


# ── when ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _states(pod: Object) -> list[Json]:
    return [each["state"] for each in (pod.get("status") or {}).get("containerStatuses") or ()]


def _due(pod: Object, states: list[Json]) -> datetime | None:
    """When the containers change next; None when they stay as they are."""
    if "running" in states[0]:
        seconds = _run_seconds(pod)
        return None if seconds is None else read(states[0]["running"]["startedAt"]) + timedelta(seconds=seconds)
    if states[0].get("waiting", {}).get("reason") == "CrashLoopBackOff":
        first = pod["status"]["containerStatuses"][0]
        ended_at = read(first["lastState"]["terminated"]["finishedAt"])
        return ended_at + timedelta(seconds=_crash_pause(first["restartCount"]))
    return read(pod["status"]["startTime"]) + timedelta(seconds=START_SECONDS)


def _run_seconds(pod: Object) -> float | None:
    owner = controller_of(pod)
    default = JOB_SECONDS if owner is not None and owner["kind"] == "Job" else None
    text = (pod["metadata"].get("annotations") or {}).get(names.RUN_SECONDS)
    return default if text is None else _number(text)


def _number(text: str) -> float | None:
    digits = text.replace(".", "", 1)
    return float(text) if digits.isdecimal() and len(text) <= 12 else None


def _exit_code(pod: Object) -> int:
    code = (pod["metadata"].get("annotations") or {}).get(names.EXIT_CODE, "0")
    return int(code) if code.isdecimal() and int(code) <= 255 else 0


def _crash_pause(restarts: int) -> float:
    """The first restart comes at once, the next after 10 s, 20 s, … 5 min."""
    return 0.0 if restarts == 0 else min(_FIRST_PAUSE * 2.0 ** min(restarts - 1, 16), _LONGEST_PAUSE)


def _deadline(pod: Object) -> datetime | None:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    start = (pod.get("status") or {}).get("startTime")
    return None if seconds is None or start is None else read(start) + timedelta(seconds=seconds)


def _leave(pod: Object, now: datetime) -> Step:
    metadata = pod["metadata"]
    grace = metadata.get("deletionGracePeriodSeconds") or 0
    if grace == 0:
        return Step()  # the API server takes it out by itself, once its finalizers are gone
    if p.ended(pod):
        return Step(remove=True)
    asked = read(metadata["deletionTimestamp"]) - timedelta(seconds=grace)
    wait = (asked + timedelta(seconds=min(STOP_SECONDS, grace)) - now).total_seconds()
    return Step(wake=wait) if wait > 0 else Step(status=_stopped(pod, now), remove=True)


# ── what the status is then ──────────────────────────────────────────────────────────────────────────────────────


def _creating(pod: Object, now: datetime, host_ip: str) -> Json:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    containers = [_container(each, waiting) for each in pod["spec"]["containers"]]
    not_ready = _not_ready(pod)
    return {
        **_base(pod, now, host_ip),
        "phase": "Pending",
        "conditions": _conditions(pod, now, Initialized=True, Ready=not_ready, ContainersReady=not_ready),
        "containerStatuses": containers,
    }


def _running(pod: Object, now: datetime, host_ip: str, pod_ip: str) -> Json:
    state = {"running": {"startedAt": stamp(now)}}
    containers = [
        {
            **old,
            "state": state,
            "ready": True,
            "started": True,
            "containerID": f"sandbox://{pod['metadata']['uid']}/{old['name']}",
            "restartCount": old["restartCount"] + bool(old["lastState"]),
        }
        for old in pod["status"]["containerStatuses"]
    ]
    ip = pod["status"].get("podIP") or pod_ip
    return {
        **_base(pod, now, host_ip),
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": _conditions(
            pod,
            now,
            PodReadyToStartContainers=True,
            Initialized=True,
            Ready=_gates(pod),
            ContainersReady=True,
        ),
        "containerStatuses": containers,
    }


def _exited(pod: Object, now: datetime) -> Json:
    code, policy = _exit_code(pod), pod["spec"].get("restartPolicy", "Always")
    if policy == "Never" or (policy == "OnFailure" and code == 0):
        return _over(pod, now, code, "Succeeded" if code == 0 else "Failed")
    containers = [
        {
            **old,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": _back_off(pod, old)}},
            "lastState": _terminated(old, code, now),
            "ready": False,
            "started": False,
        }
        for old in pod["status"]["containerStatuses"]
    ]
    not_ready = _not_ready(pod)
    conditions = _conditions(pod, now, Ready=not_ready, ContainersReady=not_ready)
    return {**pod["status"], "conditions": conditions, "containerStatuses": containers}


def _back_off(pod: Object, container: Json) -> str:
    pause = round(_crash_pause(container["restartCount"]))
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    return f"back-off {pause}s restarting failed container={container['name']} pod={name}_{namespace}"


def _stopped(pod: Object, now: datetime) -> Json | None:
    status = pod.get("status") or {}
    if not _states(pod):
        return {**status, "phase": "Failed"}
    return _over(pod, now, _TERMINATED, "Failed")


def _overdue(pod: Object, now: datetime) -> Json:
    return {
        **_over(pod, now, 137, "Failed"),
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
    }


def _over(pod: Object, now: datetime, code: int, phase: str) -> Json:
    containers = [
        {**old, "state": _terminated(old, code, now), "ready": False, "started": False}
        if "running" in old["state"]
        else old
        for old in pod["status"]["containerStatuses"]
    ]
    why = (False, "PodCompleted" if phase == "Succeeded" else "PodFailed", "")
    conditions = _conditions(pod, now, PodReadyToStartContainers=False, Ready=why, ContainersReady=why)
    return {**pod["status"], "phase": phase, "conditions": conditions, "containerStatuses": containers}


def _terminated(container: Json, code: int, now: datetime) -> Json:
    started = container["state"].get("running", {}).get("startedAt", stamp(now))
    reason = "Completed" if code == 0 else "Error"
    ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": stamp(now)}
    return {"terminated": ended | ({"containerID": container["containerID"]} if "containerID" in container else {})}


def _base(pod: Object, now: datetime, host_ip: str) -> Json:
    status = pod.get("status") or {}
    base = {
        **status,
        "startTime": status.get("startTime") or stamp(now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
    }
    init = [_done(each, now) for each in pod["spec"].get("initContainers") or ()]
    return base | ({"initContainerStatuses": init} if init and "initContainerStatuses" not in status else {})


def _container(spec: Json, state: Json) -> Json:
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": "",
        "state": state,
        "lastState": {},
        "ready": False,
        "started": False,
        "restartCount": 0,
    }


def _done(spec: Json, now: datetime) -> Json:
    """An init container after its work; a sidecar at it."""
    at = stamp(now)
    if spec.get("restartPolicy") == "Always":
        return {**_container(spec, {"running": {"startedAt": at}}), "ready": True, "started": True}
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
    return {**_container(spec, {"terminated": ended}), "ready": True}


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────────────────

Standing = bool | tuple[bool, str, str]


def _not_ready(pod: Object) -> Standing:
    containers = " ".join(each["name"] for each in pod["spec"]["containers"])
    return False, "ContainersNotReady", f"containers with unready status: [{containers}]"


def _gates(pod: Object) -> Standing:
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    closed = [gate for gate in gates if not p.holds(pod, gate)]
    if not closed:
        return True
    missing = ", ".join(f'corresponding condition of pod readiness gate "{gate}" does not exist.' for gate in closed)
    return False, "ReadinessGatesNotReady", missing


def _conditions(pod: Object, now: datetime, **standings: Standing) -> list[Json]:
    """Return the pod's conditions with these in place; a time only changes with its status."""
    old: Iterable[Json] = (pod.get("status") or {}).get("conditions") or ()
    result = {each["type"]: each for each in old}
    for kind, standing in standings.items():
        holds, reason, message = standing if isinstance(standing, tuple) else (standing, "", "")
        status = "True" if holds else "False"
        before = result.get(kind)
        since = before["lastTransitionTime"] if before and before["status"] == status else stamp(now)
        new = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        result[kind] = new | {name: text for name, text in (("reason", reason), ("message", message)) if text}
    return list(result.values())
