"""Protobuf bodies: those that kubectl 1.36 was seen to send, and those that nobody should."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox.codec import protobuf
from muster.sandbox.codec.protomessages import MESSAGES, ROOTS
from muster.sandbox.core.status import StatusError


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


META = {"name": "x", "namespace": "n1"}


@pytest.mark.parametrize(
    ("command", "recorded", "expected"),
    [
        (
            "create ns n1",
            "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhoKEgoCbjESABoAIgAqADIAOABCABIAGgIKABoAIgA=",
            {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "n1"}},
        ),
        (
            "create quota q --hard=cpu=1,pods=3 --scopes=BestEffort",
            (
                "azhzAAoTCgJ2MRINUmVzb3VyY2VRdW90YRI+ChMKAXESABoCbjEiACoAMgA4AEIAEiUKCgoDY3B1EgMKATEKCwoEcG9kcxIDCgEzEgpCZXN0"
                "RWZmb3J0GgAaACIA"
            ),
            {
                "kind": "ResourceQuota",
                "apiVersion": "v1",
                "metadata": {"name": "q", "namespace": "n1"},
                "spec": {"hard": {"cpu": "1", "pods": "3"}, "scopes": ["BestEffort"]},
            },
        ),
        (
            "create job j --image=busybox -- sh -c 'echo a'",
            (
                "azhzAAoPCghiYXRjaC92MRIDSm9iEooBChMKAWoSABoCbjEiACoAMgA4AEIAEmkyZwoQCgASABoAIgAqADIAOABCABJTEjAKAWoSB2J1c3li"
                "b3gaAnNoGgItYxoGZWNobyBhKgBCAGoAcgCAAQCIAQCQAQCiAQAaBU5ldmVyMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAaCCAAKAAwADoA"
                "GgAiAA=="
            ),
            {
                "kind": "Job",
                "apiVersion": "batch/v1",
                "metadata": {"name": "j", "namespace": "n1"},
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [{"name": "j", "image": "busybox", "command": ["sh", "-c", "echo a"]}],
                            "restartPolicy": "Never",
                        }
                    }
                },
            },
        ),
        (
            "create pdb p --selector=a=b --min-available=50%",
            (
                "azhzAAogCglwb2xpY3kvdjESE1BvZERpc3J1cHRpb25CdWRnZXQSOAoTCgFwEgAaAm4xIgAqADIAOABCABIVCgkIARAAGgM1MCUSCAoGCgFh"
                "EgFiGgoIABgAIAAoADAAGgAiAA=="
            ),
            {
                "kind": "PodDisruptionBudget",
                "apiVersion": "policy/v1",
                "metadata": {"name": "p", "namespace": "n1"},
                "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
            },
        ),
        (
            "create service clusterip sv --tcp=80:8080",
            (
                "azhzAAoNCgJ2MRIHU2VydmljZRJoCh8KAnN2EgAaAm4xIgAqADIAOABCAFoJCgNhcHASAnN2EkEKGwoHODAtODA4MBIDVENQGFAiBwgAEJA/"
                "GgAoABIJCgNhcHASAnN2GgAiCUNsdXN0ZXJJUDoAQgBSAFoAYABoABoCCgAaACIA"
            ),
            {
                "kind": "Service",
                "apiVersion": "v1",
                "metadata": {"name": "sv", "namespace": "n1", "labels": {"app": "sv"}},
                "spec": {
                    "ports": [{"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                    "selector": {"app": "sv"},
                    "type": "ClusterIP",
                },
            },
        ),
        (
            "create token x --duration=1h --audience=a",
            (
                "azhzAAooChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESDFRva2VuUmVxdWVzdBIgChAKABIAGgAiACoAMgA4AEIAEgYKAWEgkBwaBAoAEgAa"
                "ACIA"
            ),
            {
                "kind": "TokenRequest",
                "apiVersion": "authentication.k8s.io/v1",
                "spec": {"audiences": ["a"], "expirationSeconds": 3600},
            },
        ),
        (
            "auth can-i get pods",
            (
                "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSNwoQCgASABoAIgAqADIAOABCABIZChcK"
                "Am4xEgNnZXQaACIAKgRwb2RzMgA6ABoICAASABoAIAAaACIA"
            ),
            {
                "kind": "SelfSubjectAccessReview",
                "apiVersion": "authorization.k8s.io/v1",
                "spec": {"resourceAttributes": {"namespace": "n1", "verb": "get", "resource": "pods"}},
            },
        ),
    ],
)
def test_a_body_of_kubectl_says_what_the_command_said(command: str, recorded: str, expected: dict[str, Any]) -> None:
    assert protobuf.decode(base64.b64decode(recorded)) == expected


def test_an_unset_value_and_a_set_zero_are_told_apart() -> None:
    raw = field(2, field(1, 0) + field(5, 0) + field(10, 0) + field(9, ""))
    read = protobuf.decode(body("batch/v1", "Job", raw))
    assert read["spec"] == {
        "parallelism": 0,
        "manualSelector": False,
        "suspend": False,
        "completionMode": "",
        "template": {},
    }


def test_an_empty_selector_is_kept_since_it_selects_everything() -> None:
    read = protobuf.decode(body("policy/v1", "PodDisruptionBudget", field(2, field(2, b""))))
    assert read["spec"] == {"selector": {}}


def test_bytes_become_base64_and_inlined_messages_join_their_parent() -> None:
    secret = field(2, field(1, "k") + field(2, b"\xff\x00"))
    assert protobuf.decode(body("v1", "Secret", secret))["data"] == {"k": "/wA="}
    volume = field(1, "v") + field(2, field(19, field(1, field(1, "cm"))))
    pod = protobuf.decode(body("v1", "Pod", field(2, field(1, volume))))
    assert pod["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "cm"}}]


def test_times_are_written_as_json_has_them() -> None:
    lease = field(2, field(1, "me") + field(3, field(1, 1_700_000_000) + field(2, 5_000)))
    spec = protobuf.decode(body("coordination.k8s.io/v1", "Lease", lease))["spec"]
    assert spec == {"holderIdentity": "me", "acquireTime": "2023-11-14T22:13:20.000005Z"}


def test_negative_numbers_survive() -> None:
    read = protobuf.decode(body("scheduling.k8s.io/v1", "PriorityClass", field(2, -10)))
    assert read["value"] == -10


def test_a_status_is_read_over() -> None:
    read = protobuf.decode(body("batch/v1", "Job", field(3, field(4, 7))))
    assert "status" not in read


def test_a_kind_that_is_not_read_is_refused_with_the_remedy() -> None:
    with pytest.raises(StatusError) as refused:
        protobuf.decode(body("storage.k8s.io/v1", "StorageClass", b""))
    assert refused.value.code == 415
    assert refused.value.message == (
        "kind 'StorageClass' of apiVersion 'storage.k8s.io/v1' can't be read as protobuf here: send it as JSON"
    )


def test_a_set_field_that_is_not_read_is_refused_and_not_dropped() -> None:
    host_aliases = field(23, field(1, "10.0.0.1"))
    with pytest.raises(StatusError) as refused:
        protobuf.decode(body("v1", "Pod", field(2, host_aliases)))
    assert refused.value.code == 415
    assert "field 23 of PodSpec" in refused.value.message


def test_an_unset_field_that_is_not_read_does_no_harm() -> None:
    assert protobuf.decode(body("v1", "Namespace", field(2, b"") + field(99, 0) + field(98, b""))) == {
        "kind": "Namespace",
        "apiVersion": "v1",
    }


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{}",
        b"k8s\0\x0a",
        b"k8s\0\x0a\x05ab",
        b"k8s\0" + b"\xff" * 12,
        b"k8s\0\x0d\x01\x02\x03\x04",
        body("v1", "Namespace", field(1, 5)),
        body("v1", "Namespace", field(1, field(1, b"\xff\xfe"))),
        body("batch/v1", "Job", field(2, field(1, b"x"))),
    ],
)
def test_a_broken_body_is_a_bad_request(broken: bytes) -> None:
    with pytest.raises(StatusError) as refused:
        protobuf.decode(broken)
    assert refused.value.code == 400


@given(
    kind=st.sampled_from([(version, kind) for version, kinds in ROOTS.items() for kind in sorted(kinds)]),
    raw=st.binary(),
)
def test_any_bytes_are_either_read_or_refused(kind: tuple[str, str], raw: bytes) -> None:
    try:
        read = protobuf.decode(body(*kind, raw))
        answer = (read["apiVersion"], read["kind"])
    except StatusError as refused:
        answer = ("refused", str(refused.code))
    assert answer in {kind, ("refused", "400"), ("refused", "415")}


def test_the_table_of_messages_refers_only_to_itself() -> None:
    known = MESSAGES.keys() | {"s", "i", "b", "y", "-", "Time", "MicroTime", "Quantity", "IntOrString"}
    for message, text in MESSAGES.items():
        rows = [row.split(" ") for row in text.split(", ")]
        assert len({number for number, _, _ in rows}) == len(rows), message
        assert {kind.strip("[]{}?!") for _, _, kind in rows} <= known, message
    assert {kind for kinds in ROOTS.values() for kind in kinds} <= MESSAGES.keys()
