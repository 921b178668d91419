"""URL paths to what they mean."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from msgspec import Struct

from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.core.status import no_such_method, no_such_page, no_such_path, unsupported

_NOT_HERE: Final = frozenset({
    "attach", "ephemeralcontainers", "exec", "portforward", "proxy", "token", "approval", "resize",
})  # fmt: skip
"""Subresources that the real server has and this one doesn't."""

_OF_NAMESPACES: Final = frozenset({"status", "finalize"})


class Target(Struct, frozen=True):
    """What a path is about. Without a name: a collection, of one namespace or (empty) of all."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str, registry: Registry) -> Target | None:
    """Return what a path is about; None when it isn't that of a resource.

    Raises:
        StatusError: 404 when nothing is there, 501 when the real server has something there.
    """
    parts = (unquote(path) if "%" in path else path).strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2 and parts[1] == "v1":
        group, version, rest = "", "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if rest[0] == "watch":
        raise unsupported("watching by path (use ?watch=true)")
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in _OF_NAMESPACES and len(rest) == 3):
        namespace, rest = rest[1], rest[2:]
    return _target(group, version, namespace, rest, registry)


def _target(group: str, version: str, namespace: str, rest: list[str], registry: Registry) -> Target:
    resource = registry.find(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        if len(rest) > 2 and rest[2] in _NOT_HERE and resource is not None:
            raise unsupported(f"{resource.plural}/{rest[2]}")
        builtin = any((each.group, each.version, each.custom) == (group, version, False) for each in registry.all())
        raise no_such_path() if builtin else no_such_page()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if name and resource.namespaced and not namespace:
        raise no_such_path()
    if subresource and subresource not in resource.subresources:
        raise unsupported(f"{resource.plural}/{subresource}") if subresource in _NOT_HERE else no_such_path()
    return Target(resource, namespace, name, subresource)


def check_method(target: Target, method: str) -> None:
    """Refuse a method that the path doesn't have (405)."""
    resource = target.resource
    if target.subresource:
        allowed = _SUBRESOURCE_METHODS.get(target.subresource, frozenset({"GET", "PUT", "PATCH"}))
    elif target.name:
        allowed = frozenset({"GET", "PUT", "PATCH", "DELETE"}) if "get" in resource.verbs else frozenset()
    elif "list" not in resource.verbs:
        allowed = frozenset({"POST"})
    elif resource.key == ("", "namespaces"):
        allowed = frozenset({"GET", "POST"})
    elif resource.namespaced and not target.namespace:
        allowed = frozenset({"GET"})
    else:
        allowed = frozenset({"GET", "POST", "DELETE"})
    if method not in allowed:
        raise no_such_method()


_SUBRESOURCE_METHODS: Final = {
    "binding": frozenset({"POST"}),
    "eviction": frozenset({"POST"}),
    "log": frozenset({"GET"}),
    "finalize": frozenset({"PUT"}),
}
