"""Tables, cell by cell, against what a real 1.36 server printed of the same objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox import cells, tables
from muster.sandbox.builtins import BUILTIN
from muster.sandbox.registry import Column, Registry, Resource

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CREATED = "2026-11-21T11:58:20Z"
REGISTRY = Registry(BUILTIN)


def resource(group: str, plural: str) -> Resource:
    found = REGISTRY.find(group, "v1", plural)
    assert found is not None
    return found


def obj(name: str = "x", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": CREATED, **parts.pop("metadata", {})}
    return {"metadata": metadata, **parts}


def printed(of: Resource, *objects: dict[str, Any], include: str = "") -> dict[str, Any]:
    return tables.table(of, objects, {"resourceVersion": "7"}, include, NOW)


def row(group: str, plural: str, one: dict[str, Any]) -> list[Any]:
    table = printed(resource(group, plural), one)
    (only,) = table["rows"]
    assert len(only["cells"]) == len(table["columnDefinitions"])
    cells_of: list[Any] = only["cells"]
    return cells_of


# ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ENDED = {"lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-21T11:00:00Z"}}}
WELL = {"terminated": {"exitCode": 0, "reason": "Completed"}}


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    spec = {
        "containers": [{"name": "a"}, {"name": "b"}],
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        "readinessGates": [{"conditionType": "x.y/z"}, {"conditionType": "x.y/w"}],
    }
    return obj(metadata=metadata, spec=spec, status=status)


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
    assert row("", "pods", pod(status))[:5] == ["x", ready, state, restarts, "100s"]


def test_a_deleted_pod_is_terminating_until_it_has_ended() -> None:
    deleted = {"deletionTimestamp": CREATED}
    assert row("", "pods", pod({"phase": "Running"}, **deleted))[2] == "Terminating"
    assert row("", "pods", pod({"phase": "Failed"}, **deleted))[2] == "Failed"
    assert row("", "pods", pod({"phase": "Running", "reason": "NodeLost"}, **deleted))[2] == "Unknown"


def test_wide_columns_of_a_pod_say_none_where_nothing_is_known() -> None:
    assert row("", "pods", pod({}))[5:] == ["<none>", "<none>", "<none>", "0/2"]
    status = {
        "podIPs": [{"ip": "10.1.2.3"}],
        "nominatedNodeName": "n2",
        "conditions": [{"type": "x.y/z", "status": "True"}],
    }
    assert row("", "pods", pod(status))[5:] == ["10.1.2.3", "<none>", "n2", "1/2"]


def test_an_ended_pod_s_row_carries_a_condition() -> None:
    (ended,) = printed(resource("", "pods"), pod({"phase": "Succeeded"}))["rows"]
    (running,) = printed(resource("", "pods"), pod({"phase": "Running"}))["rows"]
    assert ended["conditions"][0]["type"] == "Completed"
    assert "conditions" not in running


# ── other kinds ──────────────────────────────────────────────────────────────────────────────────────────────────

TEMPLATE = {"metadata": {}, "spec": {"containers": [{"name": "a", "image": "b"}, {"name": "c", "image": "d"}]}}
SELECTOR = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [
        {"key": "c", "operator": "In", "values": ["z", "y"]},
        {"key": "a", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ],
}
SELECTED = "a=b,a,c in (y,z),!d"


def job(condition: str = "", **parts: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": condition, "status": "True"}] if condition else [], **parts.pop("status", {})}
    spec = {"template": TEMPLATE, "parallelism": 1, **parts.pop("spec", {})}
    return obj(spec=spec, status=status, **parts)


@pytest.mark.parametrize(
    ("group", "plural", "one", "expected"),
    [
        ("batch", "jobs", job(), ["x", "Running", "0/1", "", "100s", "a,c", "b,d", "<none>"]),
        (
            "batch",
            "jobs",
            job(
                "Complete",
                spec={"completions": 3},
                status={"succeeded": 3, "startTime": CREATED, "completionTime": "2026-11-21T11:58:50Z"},
            ),
            ["x", "Complete", "3/3", "30s", "100s", "a,c", "b,d", "<none>"],
        ),
        (
            "batch",
            "jobs",
            job("Suspended", spec={"parallelism": 3, "selector": SELECTOR}, status={"startTime": CREATED}),
            ["x", "Suspended", "0/1 of 3", "100s", "100s", "a,c", "b,d", SELECTED],
        ),
        (
            "batch",
            "jobs",
            job("Suspended", metadata={"deletionTimestamp": CREATED}),
            ["x", "Terminating", "0/1", "", "100s", "a,c", "b,d", "<none>"],
        ),
        (
            "batch",
            "cronjobs",
            obj(spec={"schedule": "* * * * *", "suspend": False, "jobTemplate": {"spec": {"template": TEMPLATE}}}),
            ["x", "* * * * *", "<none>", "False", 0, "<none>", "100s", "a,c", "b,d", "<none>"],
        ),
        (
            "apps",
            "deployments",
            obj(
                spec={"replicas": 3, "template": TEMPLATE, "selector": SELECTOR},
                status={"readyReplicas": 1, "updatedReplicas": 2},
            ),
            ["x", "1/3", 2, 0, "100s", "a,c", "b,d", SELECTED],
        ),
        (
            "apps",
            "replicasets",
            obj(spec={"replicas": 3, "template": TEMPLATE, "selector": SELECTOR}, status={"replicas": 2}),
            ["x", 3, 2, 0, "100s", "a,c", "b,d", SELECTED],
        ),
        ("apps", "statefulsets", obj(spec={"replicas": 2, "template": TEMPLATE}), ["x", "0/2", "100s", "a,c", "b,d"]),
        (
            "apps",
            "daemonsets",
            obj(spec={"template": TEMPLATE, "selector": SELECTOR}, status={"numberReady": 4}),
            ["x", 0, 0, 4, 0, 0, "<none>", "100s", "a,c", "b,d", SELECTED],
        ),
        (
            "",
            "nodes",
            obj(
                metadata={"labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "x"}},
                spec={"unschedulable": True},
                status={
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"kubeletVersion": "v1.2", "architecture": "arm", "kernelVersion": "5", "osImage": "o"},
                },
            ),
            [
                "x",
                "Ready,SchedulingDisabled",
                "control-plane,x",
                "100s",
                "v1.2",
                "10.0.0.9",
                "<none>",
                "o",
                "5 (arm)",
                "<unknown>",
            ],
        ),
        (
            "",
            "nodes",
            obj(status={"conditions": [{"type": "Ready", "status": "Unknown"}]}),
            ["x", "NotReady", "<none>", "100s", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"],
        ),
        ("", "namespaces", obj(status={"phase": "Active"}), ["x", "Active", "100s"]),
        (
            "",
            "resourcequotas",
            obj(status={"hard": {"pods": "5", "limits.cpu": "2", "cpu": "1"}, "used": {"pods": "3"}}),
            ["x", "cpu: 0/1, pods: 3/5", "limits.cpu: 0/2", "100s"],
        ),
        (
            "",
            "events",
            obj(
                involvedObject={"kind": "Pod", "name": "p", "fieldPath": "spec"},
                reason="R",
                type="Normal",
                message=" hello ",
                source={"component": "c", "host": "h"},
                firstTimestamp="2026-11-21T10:00:00Z",
                lastTimestamp="2026-11-21T11:00:00Z",
                count=7,
            ),
            ["60m", "Normal", "R", "pod/p", "spec", "c, h", "hello", "120m", 7, "x"],
        ),
        (
            "events.k8s.io",
            "events",
            obj(
                regarding={"kind": "Pod", "name": "p"},
                reason="R",
                type="Warning",
                note="m",
                reportingController="rc",
                reportingInstance="ri",
                eventTime="2026-11-20T10:00:00.000000Z",
                series={"count": 3, "lastObservedTime": "2026-11-21T11:00:00.000000Z"},
            ),
            ["60m", "Warning", "R", "pod/p", "", "rc, ri", "m", "26h", 3, "x"],
        ),
        (
            "",
            "events",
            obj(involvedObject={"kind": "Pod"}),
            ["<unknown>", "", "", "pod", "", "", "", "<unknown>", 1, "x"],
        ),
        ("", "configmaps", obj(data={"a": "1"}, binaryData={"b": "", "c": ""}), ["x", 3, "100s"]),
        ("", "secrets", obj(type="Opaque", data={"a": ""}), ["x", "Opaque", 1, "100s"]),
        ("", "serviceaccounts", obj(), ["x", "100s"]),
        (
            "",
            "services",
            obj(
                spec={
                    "type": "LoadBalancer",
                    "clusterIPs": ["10.0.0.1"],
                    "externalIPs": ["9.9.9.9"],
                    "ports": [{"port": 80, "protocol": "TCP", "nodePort": 31000}, {"port": 81, "protocol": "UDP"}],
                    "selector": {"a": "b", "c": "d"},
                }
            ),
            ["x", "LoadBalancer", "10.0.0.1", "9.9.9.9", "80:31000/TCP,81/UDP", "100s", "a=b,c=d"],
        ),
        ("coordination.k8s.io", "leases", obj(spec={"holderIdentity": "me"}), ["x", "me", "100s"]),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            obj(value=5, preemptionPolicy="Never"),
            ["x", 5, False, "100s", "Never"],
        ),
        ("policy", "poddisruptionbudgets", obj(spec={"minAvailable": "50%"}), ["x", "50%", "N/A", 0, "100s"]),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", obj(webhooks=[{}, {}]), ["x", 2, "100s"]),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            obj(
                roleRef={"kind": "Role", "name": "r"},
                subjects=[{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}],
            ),
            ["x", "Role/r", "100s", "u", "", "n/s"],
        ),
        ("apiextensions.k8s.io", "customresourcedefinitions", obj(), ["x", CREATED]),
        (
            "discovery.k8s.io",
            "endpointslices",
            obj(addressType="IPv4", endpoints=[{"addresses": [str(n)]} for n in range(5)]),
            ["x", "IPv4", "<unset>", "0,1,2 + 2 more...", "100s"],
        ),
    ],
)
def test_a_built_in_kind_prints_the_real_server_s_cells(
    group: str, plural: str, one: dict[str, Any], expected: list[Any]
) -> None:
    assert row(group, plural, one) == expected


@pytest.mark.parametrize("kind", [kind for kind in BUILTIN if "list" in kind.verbs], ids=lambda kind: kind.qualified)
def test_every_kind_has_a_name_column_that_clients_recognise(kind: Resource) -> None:
    definitions = printed(kind)["columnDefinitions"]
    assert [each["format"] for each in definitions if each["name"] == "Name"] == ["name"]


@pytest.mark.parametrize("kind", [kind for kind in BUILTIN if "list" in kind.verbs], ids=lambda kind: kind.qualified)
def test_an_object_with_nothing_but_a_name_can_be_printed(kind: Resource) -> None:
    table = printed(kind, {"metadata": {"name": "x"}})
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
    assert "x" in table["rows"][0]["cells"]


def test_a_bookmark_which_has_no_name_can_be_shown_as_a_table() -> None:
    table = printed(resource("", "pods"), {"metadata": {"resourceVersion": "5"}})
    assert table["rows"][0]["cells"][0] == ""


# ── custom resources ─────────────────────────────────────────────────────────────────────────────────────────────


def custom(*columns: Column) -> Resource:
    return Resource("e.com", "v1", "carts", "Cart", "cart", columns=columns, crd="carts.e.com")


@pytest.mark.parametrize(
    ("type_", "value", "cell"),
    [
        ("string", "text", "text"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("string", {"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
        ("string", None, None),
        ("integer", 3, 3),
        ("integer", 3.7, 3),
        ("integer", "3", None),
        ("integer", True, None),
        ("number", 2.5, 2.5),
        ("boolean", False, False),
        ("boolean", "yes", None),
        ("date", "2026-11-21T11:00:00Z", "60m"),
        ("date", "soon", "<invalid>"),
        ("date", "", "<unknown>"),
        ("date", 5, None),
    ],
)
def test_a_printer_column_takes_values_of_its_type(type_: str, value: Any, cell: Any) -> None:
    of = custom(Column("C", type=type_, json_path=".spec.value"))
    (only,) = printed(of, obj(spec={"value": value}))["rows"]
    assert only["cells"] == ["x", cell]


def test_a_custom_resource_without_printer_columns_shows_its_age() -> None:
    table = printed(custom(), obj())
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
    assert table["rows"][0]["cells"] == ["x", "100s"]


def test_columns_from_the_first_unreadable_path_on_are_left_out() -> None:
    of = custom(Column("A", json_path=".a"), Column("B", json_path=".b[?("), Column("C", json_path=".c"))
    table = printed(of, obj(a="1", c="3"))
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "A"]
    assert table["rows"][0]["cells"] == ["x", "1"]


def test_priority_and_description_reach_the_client() -> None:
    of = custom(Column("A", json_path=".a", priority=1), Column("B", json_path=".b", description="What B is"))
    _, first, second = printed(of)["columnDefinitions"]
    assert (first["priority"], first["description"]) == (
        1,
        "Custom resource definition column (in JSONPath format): .a",
    )
    assert second["description"] == "What B is"


# ── the envelope ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_holds_as_much_of_its_object_as_was_asked_for() -> None:
    one = obj(spec={"a": 1})
    (default,) = printed(custom(), one)["rows"]
    (whole,) = printed(custom(), one, include="Object")["rows"]
    (nothing,) = printed(custom(), one, include="None")["rows"]
    assert default["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": one["metadata"],
    }
    assert whole["object"] == one
    assert "object" not in nothing


def test_a_table_carries_the_list_s_version_and_continue_token() -> None:
    meta = {"resourceVersion": "9", "continue": "tok", "remainingItemCount": 0}
    assert tables.table(custom(), [], meta, "", NOW)["metadata"] == meta
    assert tables.table(custom(), [], {"resourceVersion": "9", "continue": ""}, "", NOW)["metadata"] == {
        "resourceVersion": "9"
    }


def test_later_events_of_a_watch_leave_the_definitions_out() -> None:
    table = tables.table(custom(), [obj()], {}, "", NOW, definitions=False)
    assert table["columnDefinitions"] == []
    assert len(table["rows"]) == 1


# ── durations ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=-5), "<invalid>"),
        (timedelta(seconds=-1), "0s"),
        (timedelta(0), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=2), "2m"),
        (timedelta(minutes=9, seconds=59), "9m59s"),
        (timedelta(minutes=10, seconds=30), "10m"),
        (timedelta(minutes=179), "179m"),
        (timedelta(hours=3), "3h"),
        (timedelta(hours=7, minutes=59), "7h59m"),
        (timedelta(hours=47), "47h"),
        (timedelta(hours=48), "2d"),
        (timedelta(days=2, hours=5), "2d5h"),
        (timedelta(days=8, hours=5), "8d"),
        (timedelta(days=729), "729d"),
        (timedelta(days=730), "2y"),
        (timedelta(days=2 * 365 + 30), "2y30d"),
        (timedelta(days=8 * 365 + 30), "8y"),
    ],
)
def test_a_duration_reads_as_in_kubectl(duration: timedelta, text: str) -> None:
    assert cells.span(duration.total_seconds()) == text


@given(st.floats(min_value=-1, max_value=1e10))
def test_a_duration_is_short_whatever_it_is(seconds: float) -> None:
    assert 2 <= len(cells.span(seconds)) <= 7
