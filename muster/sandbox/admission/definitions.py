"""Checks of CustomResourceDefinitions beyond `muster.sandbox.strategies.definitions`: names, columns, paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from muster.sandbox.core import syntax
from muster.sandbox.core.status import Cause, not_allowed, required, wrong
from muster.sandbox.core.store import Key, Object

Json = Mapping[str, Any]

DEFINITIONS: Final[Key] = ("apiextensions.k8s.io", "customresourcedefinitions")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SIMPLE_PATH: Final = re.compile(r"(?:\.[a-zA-Z0-9_-]+)+")


def check_definition(obj: Object) -> list[Cause]:
    """Return what is wrong with a definition that its strategy has approved."""
    spec = obj["spec"]
    return [*_names(spec["names"]), *_versions(spec["versions"]), *_preserved(spec)]


def _preserved(spec: Json) -> Iterator[Cause]:
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield wrong("spec.preserveUnknownFields", True, text)


def _names(names: Json) -> Iterator[Cause]:
    labels = [(f"spec.names.{name}", names.get(name, "")) for name in ("plural", "singular")]
    labels += [(f"spec.names.shortNames[{n}]", each) for n, each in enumerate(names.get("shortNames") or ())]
    labels += [(f"spec.names.categories[{n}]", each) for n, each in enumerate(names.get("categories") or ())]
    for path, value in labels:
        yield from (wrong(path, value, text) for text in syntax.dns_1035(value))
    for name in ("kind", "listKind"):
        prefix = "may have mixed case, but should otherwise match: "
        value = names.get(name, "")
        yield from (wrong(f"spec.names.{name}", value, prefix + text) for text in syntax.dns_1035(value.lower()))
    if names.get("kind") == names.get("listKind"):
        yield wrong("spec.names.listKind", names.get("listKind"), "kind and listKind may not be the same")


def _versions(versions: Sequence[Json]) -> Iterator[Cause]:
    if len({version["name"] for version in versions}) != len(versions):
        yield wrong("spec.versions", [version["name"] for version in versions], "must contain unique version names")
    for number, version in enumerate(versions):
        # Where there is one version, the real server speaks of the fields in which it stores it.
        path = "spec" if len(versions) == 1 else f"spec.versions[{number}]"
        schema = version["schema"]["openAPIV3Schema"]
        yield from _columns(version.get("additionalPrinterColumns") or (), f"{path}.additionalPrinterColumns")
        yield from _subresources(version.get("subresources") or {}, f"{path}.subresources")
        yield from _selectable(version.get("selectableFields") or (), schema, f"{path}.selectableFields")


def _columns(columns: Sequence[Json], path: str) -> Iterator[Cause]:
    for number, column in enumerate(columns):
        where = f"{path}[{number}]"
        if not column.get("name"):
            yield required(f"{where}.name")
        kind, form = column.get("type", ""), column.get("format", "")
        if not kind:
            yield required(f"{where}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
        elif kind not in _COLUMN_TYPES:
            yield wrong(f"{where}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}")
        if form and form not in _COLUMN_FORMATS:
            yield wrong(f"{where}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
        json_path = column.get("jsonPath", "")
        if not json_path:
            yield required(f"{where}.JSONPath")
        elif not json_path.startswith("."):
            yield wrong(f"{where}.JSONPath", json_path, "must be a simple json path starting with .")


def _subresources(subresources: Json, path: str) -> Iterator[Cause]:
    scale = subresources.get("scale")
    if scale is None:
        return
    wanted = (
        ("specReplicasPath", (".spec",)),
        ("statusReplicasPath", (".status",)),
        ("labelSelectorPath", (".status", ".spec")),
    )
    for name, roots in wanted:
        value = scale.get(name, "")
        where = f"{path}.scale.{name}"
        if not value:
            if name != "labelSelectorPath":
                yield required(where)
        elif not _SIMPLE_PATH.fullmatch(value):
            yield wrong(where, value, "must be a simple json path")
        elif not value.startswith(tuple(f"{root}." for root in roots)):
            yield wrong(where, value, f"should be a json path under {' or '.join(roots)}")


def _selectable(fields: Sequence[Json], schema: Json, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for number, each in enumerate(fields):
        where, value = f"{path}[{number}].jsonPath", each.get("jsonPath", "")
        if not value:
            yield required(where)
            continue
        known = _field(schema, value)
        if known is None:
            yield wrong(where, value, "is an invalid path: does not refer to a valid field")
        elif known.get("type") not in {"string", "boolean", "integer"}:
            yield wrong(
                where,
                value,
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            )
        elif value.startswith(".metadata"):
            yield wrong(where, value, "must not point to fields in metadata")
        if value in seen:
            yield Cause("FieldValueDuplicate", where, f'Duplicate value: "{value}"')
        seen.add(value)
    if len(fields) > 8:
        yield not_allowed(path, f"Too many: {len(fields)}: must have at most 8 items")


def _field(schema: Json, path: str) -> Json | None:
    here: Json | None = schema
    for name in path.removeprefix(".").split("."):
        here = (here or {}).get("properties", {}).get(name)
    return here
