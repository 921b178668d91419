"""OpenAPI v3 documents: from which kubectl learns which fields there are and what the server can do.

They hold what its commands read: per kind the PATCH operation with its parameters (validation and dry run on the
server), and its schema (explain). That strategic merge patches are possible is not declared: kubectl then merges
built-in kinds by the rules it has compiled in, which are the complete ones. The OpenAPI v2 document, of which kubectl
reads the protobuf form only, is an empty one: where it is missing, a kind that nobody knows is reported as a failed
download.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from muster.kube import transport
from muster.kube.transport import Response
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.openapi import models as modelschemas

Json = dict[str, Any]

ROOT: Final = "/openapi/v3"

_V2: Final = "/openapi/v2"
_V2_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}
    for name, kind in (
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("force", "boolean"),
    )
]
_PATCHES: Final = (transport.APPLY_PATCH, transport.JSON_PATCH, transport.MERGE_PATCH)
_DONE: Final = {"200": {"description": "OK"}}


def answer(path: str, registry: Registry) -> Response | None:
    """Answer a request for an OpenAPI document; None when ``path`` names none."""
    if path == _V2:
        return Response(200, b"", {"content-type": _V2_TYPE})
    if path == ROOT:
        return _json(_root(registry))
    place = path.removeprefix(ROOT + "/")
    resources = [resource for resource in registry.all() if _place(resource) == place]
    return _json(_document(resources)) if resources and place != path else None


def _json(body: Json) -> Response:
    return Response(200, msgspec.json.encode(body), {"content-type": transport.JSON})


def _place(resource: Resource) -> str:
    return f"{'apis' if resource.group else 'api'}/{resource.api_version}"


def _root(registry: Registry) -> Json:
    # Without the hash that a real server appends to these URLs clients don't keep the documents, which is wanted:
    # CustomResourceDefinitions change while people try things out.
    places = sorted({_place(resource) for resource in registry.all()})
    return {"paths": {place: {"serverRelativeURL": f"{ROOT}/{place}"} for place in places}}


def _document(resources: list[Resource]) -> Json:
    paths: Json = {}
    schemas: dict[str, Json] = {}
    models = {modelschemas.META}
    for resource in resources:
        paths |= _paths(resource)
        model = None if resource.custom else modelschemas.model_name(resource.group, resource.version, resource.kind)
        if model is not None:
            models.add(model)
            schemas[modelschemas.component_name(model)] = {**modelschemas.schema(model), **_marked(resource)}
        else:
            schemas[_custom_name(resource)] = _custom_schema(resource)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Muster sandbox", "version": resources[0].api_version},
        "paths": paths,
        "components": {"schemas": modelschemas.components(models) | schemas},
    }


def _paths(resource: Resource) -> Json:
    scope = f"/{_place(resource)}" + ("/namespaces/{namespace}" if resource.namespaced else "")
    kind = _kind(resource)
    collection: Json = {}
    item: Json = {}
    if "create" in resource.verbs:
        collection["post"] = {**kind, "parameters": _PARAMETERS[:3], "responses": _DONE}
    if "list" in resource.verbs:
        collection["get"] = {**kind, "responses": _DONE}
    if "patch" in resource.verbs:
        item["patch"] = {**kind, "parameters": _PARAMETERS, "requestBody": _patch_bodies(), "responses": _DONE}
    paths = {f"{scope}/{resource.plural}": collection, f"{scope}/{resource.plural}/{{name}}": item}
    return {path: operations for path, operations in paths.items() if operations}


def _patch_bodies() -> Json:
    return {"content": {media: {"schema": {"type": "object"}} for media in _PATCHES}, "required": True}


def _kind(resource: Resource) -> Json:
    names = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return {"x-kubernetes-group-version-kind": names}


def _marked(resource: Resource) -> Json:
    return {key: [kind] for key, kind in _kind(resource).items()}


def _custom_name(resource: Resource) -> str:
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _custom_schema(resource: Resource) -> Json:
    """Return a CustomResourceDefinition's schema with what every object has; without one, any object."""
    declared = resource.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    of_any_kind = modelschemas.schema("V1Pod")["properties"]
    common = {field: of_any_kind[field] for field in ("apiVersion", "kind", "metadata")}
    return {**declared, **_marked(resource), "properties": {**declared.get("properties", {}), **common}}
