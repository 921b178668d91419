"""The URL paths of objects of kinds that API servers have, and of those that Muster reads. Pure."""

from __future__ import annotations

from typing import Any

from muster.model.kinds import Kind
from muster.model.manifests import Manifest
from muster.model.workloads import OPERATORS
from muster.sandbox.core.builtins import BUILTIN
from muster.sandbox.core.registry import Registry, Resource
from muster.whatif.cluster_view import KINDS


def path_of(manifest: Manifest) -> str:
    """Return the URL path of an object; empty for a kind that an API server without any CustomResourceDefinition hasn't."""
    group, _, version = manifest.api_version.rpartition("/")
    every: tuple[Kind[Any], ...] = (*KINDS, *(each.kind for each in OPERATORS))
    ours = next(
        (each for each in every if (each.api_version, each.name) == (manifest.api_version, manifest.kind)), None
    )
    if ours is not None:
        return ours.path(manifest.namespace if ours.namespaced else "", manifest.name)
    resource = Registry(BUILTIN).by_kind(group, manifest.kind, version)
    return f"{collection_path(resource, manifest.namespace)}/{manifest.name}" if resource is not None else ""


def collection_path(resource: Resource, namespace: str) -> str:
    """Return the URL path of a resource, in a namespace where it is in one."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/namespaces/{namespace}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
