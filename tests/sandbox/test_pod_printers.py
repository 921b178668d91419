"""What pods print, cell by cell, against what a real 1.36 server printed of the same pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from muster.sandbox.core.builtins import BUILTIN
from muster.sandbox.core.registry import Registry
from muster.sandbox.printers import tables

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CREATED = "2026-11-21T11:58:20Z"
PODS = Registry(BUILTIN).find("", "v1", "pods")


def row(one: dict[str, Any]) -> dict[str, Any]:
    assert PODS is not None
    (only,) = tables.table(PODS, [one], {}, "", NOW)["rows"]
    found: dict[str, Any] = only
    return found


def cells(one: dict[str, Any]) -> list[Any]:
    found: list[Any] = row(one)["cells"]
    return found


ENDED = {"lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-21T11:00:00Z"}}}
WELL = {"terminated": {"exitCode": 0, "reason": "Completed"}}


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    spec = {
        "containers": [{"name": "a"}, {"name": "b"}],
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        "readinessGates": [{"conditionType": "x.y/z"}, {"conditionType": "x.y/w"}],
    }
    return {"metadata": {"name": "x", "creationTimestamp": CREATED, **metadata}, "spec": spec, "status": status}


def statuses(first: dict[str, Any], second: dict[str, Any], *, ready: bool = False) -> list[dict[str, Any]]:
    return [{"name": "a", "restartCount": 0, "state": first}, {"name": "b", "ready": ready, "state": second}]


@pytest.mark.parametrize(
    ("status", "ready", "state", "restarts"),
    [
        ({"phase": "Pending"}, "0/3", "Pending", "0"),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, **ENDED}
                ],
            },
            "0/3",
            "Init:CrashLoopBackOff",
            "2 (60m ago)",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                    {"name": "s", "started": True, "ready": True, "restartCount": 1, "state": {"running": {}}, **ENDED},
                ],
                "containerStatuses": [
                    {"name": "a", "ready": True, "restartCount": 3, "state": {"running": {}}},
                    {"name": "b", "state": {"waiting": {"reason": "ErrImagePull"}}},
                ],
            },
            "2/3",
            "ErrImagePull",
            "4 (60m ago)",
        ),
        ({"phase": "Succeeded", "containerStatuses": statuses(WELL, WELL)}, "0/3", "Completed", "0"),
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "containerStatuses": statuses({"terminated": {"exitCode": 3}}, WELL),
            },
            "0/3",
            "ExitCode:3",
            "0",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "0/3", "Evicted", "0"),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": statuses(WELL, {"running": {}}, ready=True),
            },
            "1/3",
            "Running",
            "0",
        ),
        (
            {"phase": "Running", "containerStatuses": statuses(WELL, {"running": {}}, ready=True)},
            "1/3",
            "NotReady",
            "0",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2, "signal": 9}}}],
            },
            "0/3",
            "Init:Signal:9",
            "0",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                    {"name": "s", "started": False, "state": {"waiting": {"reason": "PodInitializing"}}},
                ],
            },
            "0/3",
            "Init:1/2",
            "0",
        ),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "0/3",
            "SchedulingGated",
            "0",
        ),
    ],
)
def test_a_pod_prints_its_state_as_the_real_server_does(
    status: dict[str, Any], ready: str, state: str, restarts: str
) -> None:
    assert cells(pod(status))[:5] == ["x", ready, state, restarts, "100s"]


def test_a_deleted_pod_is_terminating_until_it_has_ended() -> None:
    deleted = {"deletionTimestamp": CREATED}
    assert cells(pod({"phase": "Running"}, **deleted))[2] == "Terminating"
    assert cells(pod({"phase": "Failed"}, **deleted))[2] == "Failed"
    assert cells(pod({"phase": "Running", "reason": "NodeLost"}, **deleted))[2] == "Unknown"


def test_wide_columns_of_a_pod_say_none_where_nothing_is_known() -> None:
    assert cells(pod({}))[5:] == ["<none>", "<none>", "<none>", "0/2"]
    status = {
        "podIPs": [{"ip": "10.1.2.3"}],
        "nominatedNodeName": "n2",
        "conditions": [{"type": "x.y/z", "status": "True"}],
    }
    assert cells(pod(status))[5:] == ["10.1.2.3", "<none>", "n2", "1/2"]


def test_an_ended_pod_s_row_carries_a_condition() -> None:
    ended, running = row(pod({"phase": "Succeeded"})), row(pod({"phase": "Running"}))
    assert ended["conditions"][0]["type"] == "Completed"
    assert "conditions" not in running
