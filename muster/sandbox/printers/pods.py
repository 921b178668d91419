"""Printed columns of pods: the one kind whose state takes a page of rules to name."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from muster.model.durations import human_duration
from muster.sandbox.printers.workloads import NONE, Json, age, moment

_ENDED: Final = frozenset({"Succeeded", "Failed"})
ROW_CONDITIONS: Final = {
    "Succeeded": [
        {"type": "Completed", "status": "True", "reason": "Succeeded", "message": "all containers ended well"}
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "the pod failed"}],
}
"""Conditions of a table row by the pod's phase; clients may print such rows apart."""


def pod(obj: Json, now: datetime) -> list[Any]:
    """Cells of a Pod."""
    spec, status = obj.get("spec", {}), obj.get("status", {})
    inits = _init_state(obj)
    sidecars = sum(1 for container in spec.get("initContainers") or [] if _restartable(container))
    ready, reason, restarting = _main_state(obj, inits)
    addresses = status.get("podIPs") or []
    return [
        f"{ready}/{len(spec.get('containers') or []) + sidecars}",
        _deletion(obj) or reason,
        _restarts(restarting, now),
        age(obj, now),
        (addresses[0]["ip"] if addresses else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(obj),
    ]


def _deletion(obj: Json) -> str:
    if "deletionTimestamp" not in obj["metadata"]:
        return ""
    status = obj.get("status", {})
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return "" if status.get("phase") in _ENDED else "Terminating"


def _restartable(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _init_state(obj: Json) -> tuple[str, int, list[Json], list[Json]]:
    """Return why the pod still initialises (or ""), ready sidecars, the statuses looked at, and those of sidecars."""
    containers = {container["name"]: container for container in obj.get("spec", {}).get("initContainers") or []}
    statuses = obj.get("status", {}).get("initContainerStatuses") or []
    ready, seen, sidecars = 0, [], []
    for index, status in enumerate(statuses):
        seen.append(status)
        sidecar = _restartable(containers.get(status["name"], {}))
        if sidecar:
            sidecars.append(status)
        terminated = status.get("state", {}).get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and status.get("started"):
            ready += bool(status.get("ready"))
            continue
        return _initializing(status, index, len(containers)), ready, seen, sidecars
    return "", ready, seen, sidecars


def _initializing(status: Json, index: int, total: int) -> str:
    state = status.get("state", {})
    if state.get("terminated") is not None:
        return f"Init:{_exit(state['terminated'])}"
    waiting = (state.get("waiting") or {}).get("reason")
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{total}"


def _exit(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _main_state(obj: Json, inits: tuple[str, int, list[Json], list[Json]]) -> tuple[int, str, list[Json]]:
    """Return how many containers are ready, the state's name, and the statuses whose restarts count."""
    initializing, ready, seen, sidecars = inits
    if initializing and not _condition(obj, "Initialized"):
        return ready, initializing, seen
    statuses = obj.get("status", {}).get("containerStatuses") or []
    reason, error, running = initializing or _phase(obj), "", 0
    for status in reversed(statuses):
        state = status.get("state", {})
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            reason = _exit(state["terminated"])
            error = reason if state["terminated"].get("exitCode") else error
        elif status.get("ready") and state.get("running") is not None:
            running += 1
    if reason == "Completed":
        reason = _completed(running=running > 0, ready=_condition(obj, "Ready"), error=error)
    return ready + running, reason, sidecars + statuses


def _completed(*, running: bool, ready: bool, error: str) -> str:
    if running and ready:
        return "Running"
    return error or ("NotReady" if running else "Completed")


def _phase(obj: Json) -> str:
    status = obj.get("status", {})
    gated = any(
        condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        for condition in status.get("conditions") or []
    )
    return "SchedulingGated" if gated else status.get("reason") or status.get("phase", "")


def _condition(obj: Json, kind: str) -> bool:
    conditions = obj.get("status", {}).get("conditions") or []
    return any(condition["type"] == kind and condition.get("status") == "True" for condition in conditions)


def _restarts(statuses: list[Json], now: datetime) -> str:
    restarts = sum(status.get("restartCount", 0) for status in statuses)
    ends = [moment(((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt")) for status in statuses]
    last = max((end for end in ends if end is not None), default=None)
    return f"{restarts} ({human_duration((now - last).total_seconds())} ago)" if restarts and last else str(restarts)


def _gates(obj: Json) -> str:
    gates = obj.get("spec", {}).get("readinessGates") or []
    passed = sum(1 for gate in gates if _condition(obj, gate["conditionType"]))
    return f"{passed}/{len(gates)}" if gates else NONE
