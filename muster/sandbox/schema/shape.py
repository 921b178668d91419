"""The shape of objects: fields that are added (defaults) and fields that are dropped (unknown ones, nulls)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
_OBJECT_META: Final = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"


def child(schema: Schema, name: str) -> Schema | None:
    """Return the schema of a property, declared or additional; None when there is none."""
    declared: Schema | None = schema.get("properties", {}).get(name)
    if declared is not None:
        return declared
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, dict) else None


def default(schema: Schema, obj: Any) -> Any:
    """Drop nulls where null isn't allowed and nothing is the default; fill in the defaults of absent fields."""
    if isinstance(obj, dict):
        return _default_fields(schema, obj)
    items = schema.get("items")
    if isinstance(obj, list) and isinstance(items, dict):
        filled = [default(items, _present(items, each)) for each in obj]
        return filled if any(new is not old for new, old in zip(filled, obj, strict=True)) else obj
    return obj


def _present(schema: Schema, value: Any) -> Any:
    return schema.get("default") if value is None and not schema.get("nullable") else value


def _default_fields(schema: Schema, obj: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    changed = False
    for name, value in obj.items():
        known = child(schema, name)
        if known is None:
            result[name] = value
            continue
        given = _present(known, value)
        if given is None and not known.get("nullable"):
            changed = True
            continue
        result[name] = default(known, given)
        changed = changed or result[name] is not value
    for name, known in schema.get("properties", {}).items():
        if name not in result and known.get("default") is not None:
            result[name] = default(known, known["default"])
            changed = True
    return result if changed else obj


def prune(schema: Schema, obj: dict[str, Any]) -> dict[str, Any]:
    """Drop the fields of a whole resource that its schema doesn't know."""
    pruned: dict[str, Any] = _pruned({**schema, EMBEDDED: True}, obj, root=True)
    return pruned


def _pruned(schema: Schema | None, value: Any, *, root: bool = False) -> Any:
    if isinstance(value, dict):
        kept = {
            name: _pruned_field(schema, name, each, root=root) for name, each in value.items() if _keeps(schema, name)
        }
        same = len(kept) == len(value) and all(kept[name] is value[name] for name in kept)
        return value if same else kept
    if isinstance(value, list):
        items = schema.get("items") if schema else None
        if items is None and schema is not None and schema.get(PRESERVE):
            return value
        parts = [_pruned(items, each) for each in value]
        return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value


def _keeps(schema: Schema | None, name: str) -> bool:
    if schema is None:
        return False
    if child(schema, name) is not None or schema.get(PRESERVE) or schema.get("additionalProperties") is True:
        return True
    return bool(schema.get(EMBEDDED)) and name in META_FIELDS


def _pruned_field(schema: Schema | None, name: str, value: Any, *, root: bool) -> Any:
    assert schema is not None
    if schema.get(EMBEDDED) and name in META_FIELDS:
        if name != "metadata" or root or not isinstance(value, dict) or value.keys() <= _OBJECT_META:
            return value
        return {key: each for key, each in value.items() if key in _OBJECT_META}
    known = child(schema, name)
    return value if known is None else _pruned(known, value)


def unknown_fields(schema: Schema, obj: dict[str, Any]) -> list[str]:
    """Return the paths of what `prune` would drop, sorted: ``spec.nope``, ``spec.parts[0].nope``."""
    return sorted(_unknown({**schema, EMBEDDED: True}, obj, "", root=True))


def _unknown(schema: Schema | None, value: Any, path: str, *, root: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            where = f"{path}.{name}" if path else name
            if not _keeps(schema, name):
                yield where
                continue
            assert schema is not None
            if schema.get(EMBEDDED) and name in META_FIELDS:
                if name == "metadata" and not root and isinstance(each, dict):
                    yield from (f"{where}.{key}" for key in each if key not in _OBJECT_META)
                continue
            known = child(schema, name)
            if known is not None:
                yield from _unknown(known, each, where)
    elif isinstance(value, list):
        items = schema.get("items") if schema else None
        if items is not None or schema is None or not schema.get(PRESERVE):
            for number, each in enumerate(value):
                yield from _unknown(items, each, f"{path}[{number}]")
