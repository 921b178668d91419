"""OpenAPI documents: what kubectl looks for in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from muster.sandbox.core import status
from muster.sandbox.core.builtins import BUILTIN
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.openapi import models, openapi

SCHEMA = {
    "type": "object",
    "description": "A cart.",
    "properties": {
        "metadata": {"type": "object"},
        "spec": {"type": "object", "required": ["wheels"], "properties": {"wheels": {"type": "integer"}}},
    },
}
CARTS = Resource("e.com", "v1", "carts", "Cart", "cart", schema=SCHEMA, crd="carts.e.com")
ANYTHING = Resource("e.com", "v1", "boxes", "Box", "box", namespaced=False, crd="boxes.e.com")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry((*BUILTIN, CARTS, ANYTHING))


def read(registry: Registry, path: str) -> Any:
    response = openapi.answer(path, registry)
    assert response is not None
    return msgspec.json.decode(response.body)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_the_root_leads_to_the_document_of_every_version_served(registry: Registry) -> None:
    paths = read(registry, "/openapi/v3")["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/e.com/v1"} <= paths.keys()
    for entry in paths.values():
        assert read(registry, entry["serverRelativeURL"])["openapi"] == "3.0.0"


@pytest.mark.parametrize("path", ["/openapi/v3/apis/nowhere/v1", "/openapi/v3/", "/openapi"])
def test_there_is_no_document_at(registry: Registry, path: str) -> None:
    assert openapi.answer(path, registry) is None


def test_the_older_document_is_an_empty_message_and_no_json(registry: Registry) -> None:
    response = openapi.answer("/openapi/v2", registry)
    assert response is not None
    assert (response.status, response.body) == (200, b"")
    assert "protobuf" in response.headers["content-type"]


def test_a_patch_says_that_the_server_validates_fields_and_can_run_dry(registry: Registry) -> None:
    for place, item, kind in (
        ("apis/e.com/v1", "/apis/e.com/v1/namespaces/{namespace}/carts/{name}", "Cart"),
        ("apis/e.com/v1", "/apis/e.com/v1/boxes/{name}", "Box"),
        ("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}", "Pod"),
    ):
        patch = read(registry, f"/openapi/v3/{place}")["paths"][item]["patch"]
        assert {each["name"] for each in patch["parameters"]} >= {"fieldValidation", "dryRun"}
        assert patch["x-kubernetes-group-version-kind"]["kind"] == kind


def test_strategic_merge_is_left_to_the_client_s_own_rules(registry: Registry) -> None:
    document = read(registry, "/openapi/v3/apis/batch/v1")
    bodies = document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]["requestBody"]["content"]
    assert "application/strategic-merge-patch+json" not in bodies


@pytest.mark.parametrize("place", ["api/v1", "apis/batch/v1", "apis/apiextensions.k8s.io/v1", "apis/e.com/v1"])
def test_every_reference_of_a_document_leads_somewhere_in_it(registry: Registry, place: str) -> None:
    document = read(registry, f"/openapi/v3/{place}")
    known = {f"{models.PREFIX}{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def test_a_custom_resource_is_explained_by_its_own_schema(registry: Registry) -> None:
    schemas = read(registry, "/openapi/v3/apis/e.com/v1")["components"]["schemas"]
    cart = schemas["com.e.v1.Cart"]
    assert cart["x-kubernetes-group-version-kind"] == [{"group": "e.com", "version": "v1", "kind": "Cart"}]
    assert cart["properties"]["spec"] == SCHEMA["properties"]["spec"]  # type: ignore[index]
    assert cart["properties"]["metadata"]["allOf"] == [{"$ref": "#/components/schemas/v1.ObjectMeta"}]
    assert schemas["com.e.v1.Box"]["x-kubernetes-preserve-unknown-fields"] is True


def test_every_built_in_kind_has_a_schema_marked_as_its_own(registry: Registry) -> None:
    for resource in BUILTIN:
        place = f"{'apis' if resource.group else 'api'}/{resource.api_version}"
        schemas = read(registry, f"/openapi/v3/{place}")["components"]["schemas"]
        wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        marked = [each for each in schemas.values() if wanted in each.get("x-kubernetes-group-version-kind", [])]
        assert len(marked) == 1, resource.qualified


def test_fields_have_their_types_and_a_text(registry: Registry) -> None:
    schemas = read(registry, "/openapi/v3/api/v1")["components"]["schemas"]
    spec = schemas["v1.PodSpec"]
    assert spec["required"] == ["containers"]
    containers = spec["properties"]["containers"]
    assert containers["type"] == "array"
    assert containers["items"]["allOf"] == [{"$ref": "#/components/schemas/v1.Container"}]
    assert spec["properties"]["nodeSelector"]["additionalProperties"] == {"type": "string"}
    assert "container" in containers["description"]
    assert schemas["v1.Probe"]["properties"]["exec"]["allOf"] == [{"$ref": "#/components/schemas/v1.ExecAction"}]


def test_events_of_two_groups_are_two_kinds() -> None:
    assert models.model_name("", "v1", "Event") == "CoreV1Event"
    assert models.model_name("events.k8s.io", "v1", "Event") == "EventsV1Event"
    assert models.model_name("e.com", "v1", "Cart") is None


def test_without_the_package_of_the_models_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(status.StatusError, match="where the Python package kubernetes isn't installed: not supported"):
        read(Registry(BUILTIN), "/openapi/v3/apis/batch/v1")
