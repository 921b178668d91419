"""Discovery documents, against what a real server of the same resources answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.openapi import discovery

ASKED_BY_KUBECTL = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    "pod",
    short_names=("po",),
    categories=("all",),
    subresources=frozenset({"status", "eviction", "binding", "log"}),
)
JOBS = Resource("batch", "v1", "jobs", "Job", "job", categories=("all",), subresources=frozenset({"status"}))
QUEUES = Resource("b.example.com", "v1beta1", "queues", "Queue", "queue", namespaced=False, crd="queues.b.example.com")
NEWER_QUEUES = Resource("b.example.com", "v1", "queues", "Queue", "queue", namespaced=False, crd="queues.b.example.com")
CARTS = Resource("a.example.com", "v1alpha1", "carts", "Cart", "cart", crd="carts.a.example.com")


@pytest.fixture
def registry() -> Registry:
    return Registry((PODS, JOBS, QUEUES, NEWER_QUEUES, CARTS))


def read(registry: Registry, path: str, accept: str = "application/json") -> Any:
    response = discovery.answer(path, accept, registry)
    return None if response is None else msgspec.json.decode(response.body)


def test_the_aggregated_form_is_named_in_the_content_type(registry: Registry) -> None:
    response = discovery.answer("/apis", ASKED_BY_KUBECTL, registry)
    assert response is not None
    assert response.headers["content-type"] == discovery.AGGREGATED


def test_the_core_group_has_no_name_and_stands_alone_at_api(registry: Registry) -> None:
    (group,) = read(registry, "/api", ASKED_BY_KUBECTL)["items"]
    assert group["metadata"] == {}
    assert [version["version"] for version in group["versions"]] == ["v1"]


def test_a_resource_says_all_that_kubectl_reads(registry: Registry) -> None:
    (group,) = read(registry, "/api", ASKED_BY_KUBECTL)["items"]
    (pods,) = group["versions"][0]["resources"]
    subresources = pods.pop("subresources")
    assert pods == {
        "resource": "pods",
        "responseKind": {"group": "", "version": "v1", "kind": "Pod"},
        "scope": "Namespaced",
        "singularResource": "pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert [(each["subresource"], each["responseKind"]["kind"], each["verbs"]) for each in subresources] == [
        ("binding", "Binding", ["create"]),
        ("eviction", "Eviction", ["create"]),
        ("log", "Pod", ["get"]),
        ("status", "Pod", ["get", "patch", "update"]),
    ]


def test_custom_groups_follow_the_built_in_ones_by_name(registry: Registry) -> None:
    groups = read(registry, "/apis", ASKED_BY_KUBECTL)["items"]
    assert [group["metadata"]["name"] for group in groups] == ["batch", "a.example.com", "b.example.com"]


def test_the_stable_version_is_preferred_whatever_was_registered_first(registry: Registry) -> None:
    groups = read(registry, "/apis")["groups"]
    queues = next(group for group in groups if group["name"] == "b.example.com")
    assert queues["preferredVersion"] == {"groupVersion": "b.example.com/v1", "version": "v1"}
    assert [entry["version"] for entry in queues["versions"]] == ["v1", "v1beta1"]


def test_versions_are_ordered_as_the_api_conventions_say() -> None:
    versions = ["foo1", "v1", "v10beta3", "v11alpha2", "v2", "v3beta1", "v12alpha1", "v10"]
    ordered = sorted(versions, key=discovery.version_order, reverse=True)
    assert ordered == ["v10", "v2", "v1", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1"]


@pytest.mark.parametrize("accept", ["application/json", "*/*", "", "application/json, " + discovery.AGGREGATED])
def test_clients_that_prefer_plain_json_get_the_older_form(registry: Registry, accept: str) -> None:
    assert read(registry, "/apis", accept)["kind"] == "APIGroupList"
    assert read(registry, "/api", accept)["versions"] == ["v1"]


def test_the_older_form_lists_subresources_with_the_group_of_what_they_take(registry: Registry) -> None:
    resources = read(registry, "/api/v1")["resources"]
    eviction = next(resource for resource in resources if resource["name"] == "pods/eviction")
    assert eviction == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "kind": "Eviction",
        "verbs": ["create"],
        "group": "policy",
        "version": "v1",
    }


@pytest.mark.parametrize("path", ["/apis/nowhere", "/apis/batch/v2", "/api/v2", "/apis/batch/v1/jobs", "/version"])
def test_what_is_not_served_is_not_discovered(registry: Registry, path: str) -> None:
    assert read(registry, path, ASKED_BY_KUBECTL) is None


def test_a_removed_custom_resource_is_gone_from_the_next_answer(registry: Registry) -> None:
    registry.remove("a.example.com", "carts")
    assert "a.example.com" not in {group["name"] for group in read(registry, "/apis")["groups"]}
    assert read(registry, "/apis/a.example.com/v1alpha1") is None
