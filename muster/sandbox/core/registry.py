"""The resources that the server serves: built-in ones and those of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Column(Struct, frozen=True):
    """One printed column. ``priority`` above 0: only in wide output. ``json_path`` is a CRD's, as it is written there."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    json_path: str = ""


class Resource(Struct, frozen=True, eq=False):
    """One resource in one version. Two versions of a kind are two of these with the same `key`.

    Attributes:
        subresources: their names, for example ``{"status", "scale"}``.
        schema: a CRD's openAPIV3Schema for this version.
        storage: whether this is the version in which objects are stored.
        selectable: field paths beyond metadata.name and metadata.namespace by which lists can be selected.
        stored_as: key in the store when it isn't (group, plural): events live in one place under two groups.
        crd: name of the CustomResourceDefinition that declares it, else empty.
        scale: paths of a CRD's scale subresource (specReplicasPath, statusReplicasPath, labelSelectorPath).
    """

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    columns: tuple[Column, ...] = ()
    schema: dict[str, Any] | None = None
    served: bool = True
    storage: bool = True
    selectable: tuple[str, ...] = ()
    stored_as: tuple[str, str] | None = None
    crd: str = ""
    list_kind: str = ""
    scale: dict[str, str] | None = None
    deprecation: str = ""
    """Text of the Warning header when this version is deprecated."""

    @property
    def key(self) -> tuple[str, str]:
        """Where its objects are in the store."""
        return self.stored_as or (self.group, self.plural)

    @property
    def api_version(self) -> str:
        """``group/version``, or ``version`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``plural.group``, or ``plural`` for the core group: what error messages call it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """``Kind.group``, or ``Kind`` for the core group: what messages about invalid objects call it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def listing(self) -> str:
        """Kind of its lists."""
        return self.list_kind or f"{self.kind}List"

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition declares it."""
        return bool(self.crd)


class Registry:
    """The resources, found by path or kind. Changes whenever a CustomResourceDefinition does."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        # What was found since the last change: each write asks several times.
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self._by_key: dict[tuple[str, str], Resource] = {}
        self.changes = 0
        """Counts additions and removals: what caches of discovery documents compare."""
        for resource in resources:
            self.add(resource)

    def all(self) -> list[Resource]:
        """Return all served resources in the order of their addition."""
        return [resource for resource in self._by_path.values() if resource.served]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the served resource, or None."""
        resource = self._by_path.get((group, version, plural))
        return resource if resource is not None and resource.served else None

    def by_kind(self, group: str, kind: str, version: str = "") -> Resource | None:
        """Return the resource of a kind: in ``version``, or in its storage version, or in any served one."""
        known = self._by_kind.get((group, kind, version))
        if known is not None:
            return known
        found = [r for r in self._by_path.values() if r.group == group and r.kind == kind]
        resource = next((r for r in found if r.version == version and r.served), None) if version else _stored(found)
        if resource is not None:
            self._by_kind[group, kind, version] = resource
        return resource

    def by_key(self, key: tuple[str, str]) -> Resource | None:
        """Return the resource in whose form objects under ``key`` are stored."""
        known = self._by_key.get(key)
        if known is None:
            known = _stored([r for r in self._by_path.values() if (r.group, r.plural) == key])
            if known is not None:
                self._by_key[key] = known
        return known

    def add(self, resource: Resource) -> None:
        """Serve a resource, in place of the same one in the same version."""
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._changed()

    def remove(self, group: str, plural: str) -> None:
        """Serve a resource no longer, in any version."""
        gone = [path for path in self._by_path if (path[0], path[2]) == (group, plural)]
        for path in gone:
            del self._by_path[path]
        if gone:
            self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._by_kind.clear()
        self._by_key.clear()


def _stored(versions: list[Resource]) -> Resource | None:
    return next((each for each in versions if each.storage), versions[0] if versions else None)
