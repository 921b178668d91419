"""What built-in kinds print, cell by cell, against what a real 1.36 server printed of the same objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.durations import human_duration
from muster.sandbox.core.builtins import BUILTIN
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.printers import tables

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
            obj(addressType="IPv4"),
            ["x", CREATED],
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
    assert human_duration(duration.total_seconds()) == text


@given(st.floats(min_value=-1, max_value=1e10))
def test_a_duration_is_short_whatever_it_is(seconds: float) -> None:
    assert 2 <= len(human_duration(seconds)) <= 7
