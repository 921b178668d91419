"""The served resources, as clients ask for them: aggregated discovery v2, and the older one document per version.

kubectl prefers the aggregated form and takes it for such only by its Content-Type; generated clients read the older one.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from muster.kube import transport
from muster.kube.transport import Response
from muster.sandbox.core.registry import Registry, Resource

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_STATUS_VERBS: Final = ["get", "patch", "update"]
# What a subresource speaks, where that isn't its resource's own kind or not get, patch and update: (group, version, kind, verbs).
_SUBRESOURCES: Final[dict[str, tuple[str, str, str, list[str]]]] = {
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "scale": ("autoscaling", "v1", "Scale", _STATUS_VERBS),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
}
_OWN_KIND_VERBS: Final = {"log": ["get"], "finalize": ["update"]}
_CUSTOM_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_VERSION: Final = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES: Final = {"alpha": 0, "beta": 1, None: 2}


def answer(path: str, accept: str, registry: Registry, aggregated: Sequence[dict[str, Any]] = ()) -> Response | None:
    """Answer a discovery request for ``path``; None when it is none or names a group or version that isn't served.

    ``aggregated`` are the APIResourceLists of groups that other programs serve, which answer for them.
    """
    parts = path.strip("/").split("/")
    match parts:
        case ["api"]:
            return _root(accept, core=True, registry=registry)
        case ["apis"]:
            return _root(accept, core=False, registry=registry, aggregated=aggregated)
        case ["api", version]:
            return _json(_resource_list("", version, registry))
        case ["apis", group]:
            return _json(_api_group(group, _versions(group, registry)))
        case ["apis", group, version]:
            return _json(_resource_list(group, version, registry))
        case _:
            return None


def version_order(version: str) -> tuple[int, int, int]:
    """Sort key of versions: the most preferred is the greatest (v2 > v1 > v1beta2 > v1alpha1 > anything else)."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1, 0, 0)
    major, stage, minor = match.groups()
    return (_STAGES[stage], int(major), int(minor or 0))


def _root(accept: str, *, core: bool, registry: Registry, aggregated: Sequence[dict[str, Any]] = ()) -> Response:
    if _wants_aggregated(accept):
        body = _aggregated([group for group in _groups(registry) if (group == "") is core], registry)
        body["items"] += map(_aggregated_of_list, aggregated)
        return Response(200, msgspec.json.encode(body), {"content-type": AGGREGATED, "vary": "Accept"})
    if core:
        versions = _versions("", registry)
        body = {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []}
    else:
        groups = [_api_group(group, _versions(group, registry)) for group in _groups(registry) if group]
        groups += [_api_group(group, [version]) for group, version in map(_group_version, aggregated)]
        body = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    return Response(200, msgspec.json.encode(body), {"content-type": transport.JSON, "vary": "Accept"})


def _wants_aggregated(accept: str) -> bool:
    """Take the first form of the Accept header that is served; weights are not sent by the clients that ask for this."""
    for form in accept.split(","):
        media, *parameters = (part.strip() for part in form.split(";"))
        wanted = set(parameters)
        if {"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} <= wanted and media == transport.JSON:
            return True
        if media in {transport.JSON, "*/*", "application/*"} and not any("as=" in part for part in wanted):
            return False
    return False


def _groups(registry: Registry) -> list[str]:
    """Built-in groups in the order of their registration, then those of CustomResourceDefinitions by name.

    The order decides which group a short name means that several share.
    """
    builtin = dict.fromkeys(resource.group for resource in registry.all() if not resource.custom)
    custom = {resource.group for resource in registry.all()} - builtin.keys()
    return [*builtin, *sorted(custom)]


def _versions(group: str, registry: Registry) -> list[str]:
    versions = {resource.version for resource in registry.all() if resource.group == group}
    return sorted(versions, key=version_order, reverse=True)


def _of(group: str, version: str, registry: Registry) -> list[Resource]:
    found = (r for r in registry.all() if (r.group, r.version) == (group, version))
    return sorted(found, key=lambda resource: resource.plural)


# ── the aggregated form ──────────────────────────────────────────────────────────────────────────────────────────


def _aggregated(groups: Iterable[str], registry: Registry) -> dict[str, Any]:
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "resources": [_aggregated_resource(resource) for resource in _of(group, version, registry)],
                    "freshness": "Current",
                }
                for version in _versions(group, registry)
            ],
        }
        for group in groups
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _group_version(listed: dict[str, Any]) -> tuple[str, str]:
    group, _, version = listed["groupVersion"].partition("/")
    return group, version


def _aggregated_of_list(listed: dict[str, Any]) -> dict[str, Any]:
    """Return the aggregated form of a group's APIResourceList; of a subresource alone, its resource has no verbs and no kind."""
    group, version = _group_version(listed)
    found: dict[str, dict[str, Any]] = {}
    for each in listed["resources"]:
        name, _, part = each["name"].partition("/")
        scope = "Namespaced" if each["namespaced"] else "Cluster"
        kind = {"group": group, "version": version, "kind": each["kind"]}
        resource = found.setdefault(
            name, {"resource": name, "responseKind": {}, "scope": scope, "singularResource": "", "verbs": []}
        )
        if part:
            told = {"subresource": part, "responseKind": kind, "verbs": each["verbs"]}
            resource.setdefault("subresources", []).append(told)
        else:
            resource |= {"responseKind": kind, "verbs": each["verbs"]}
    versions = [{"version": version, "resources": list(found.values()), "freshness": "Current"}]
    return {"metadata": {"name": group}, "versions": versions}


def _aggregated_resource(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
    }
    entry |= _names(resource)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": {"group": group, "version": version, "kind": kind},
                "verbs": verbs,
            }
            for name, group, version, kind, verbs in _subresources(resource)
        ]
    return entry


# ── one document per version ─────────────────────────────────────────────────────────────────────────────────────


def _api_group(group: str, versions: list[str]) -> dict[str, Any] | None:
    if not versions or not group:
        return None
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": entries,
        "preferredVersion": entries[0],
    }


def _resource_list(group: str, version: str, registry: Registry) -> dict[str, Any] | None:
    resources = _of(group, version, registry)
    if not resources:
        return None
    entries = [entry for resource in resources for entry in _listed(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": resources[0].api_version,
        "resources": entries,
    }


def _listed(resource: Resource) -> list[dict[str, Any]]:
    entry = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _verbs(resource),
    }
    if "list" in resource.verbs:
        entry["storageVersionHash"] = _storage_hash(resource)
    return [entry | _names(resource), *(_listed_subresource(resource, *row) for row in _subresources(resource))]


def _storage_hash(resource: Resource) -> str:
    """Tell apart what versions objects are stored in, in the real server's way."""
    stored = f"{resource.group}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()


def _listed_subresource(
    resource: Resource, name: str, group: str, version: str, kind: str, verbs: list[str]
) -> dict[str, Any]:
    entry = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": verbs,
    }
    same = (group, version) == (resource.group, resource.version)
    return entry if same else entry | {"group": group, "version": version}


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _names(resource: Resource) -> dict[str, Any]:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {key: value for key, value in names.items() if value}


def _verbs(resource: Resource) -> list[str]:
    """Return the verbs in the real server's order, which `kubectl api-resources -o wide` shows as it is."""
    return [verb for verb in _CUSTOM_VERBS if verb in resource.verbs] if resource.custom else sorted(resource.verbs)


def _subresources(resource: Resource) -> list[tuple[str, str, str, str, list[str]]]:
    """Return name, group, version, kind and verbs of each."""
    rows = []
    for name in sorted(resource.subresources, reverse=resource.custom):
        own = (resource.group, resource.version, resource.kind, _OWN_KIND_VERBS.get(name, _STATUS_VERBS))
        rows.append((name, *_SUBRESOURCES.get(name, own)))
    return rows


def _json(body: dict[str, Any] | None) -> Response | None:
    return None if body is None else Response(200, msgspec.json.encode(body), {"content-type": transport.JSON})
