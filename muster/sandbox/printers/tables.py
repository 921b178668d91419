"""Lists and objects as Tables: what a server answers when `kubectl get` asks for something to print.

Built-in kinds print the columns of `muster.sandbox.printers.columns`; custom resources those that their CustomResourceDefinition
declares, and their age when it declares none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from muster.sandbox.core.registry import Column, Resource
from muster.sandbox.printers import jsonpath, pods, workloads
from muster.sandbox.printers.columns import NAME, Cells, Printer, printer

Json = dict[str, Any]

_AGE: Final = Column("Age", type="date", json_path=".metadata.creationTimestamp")


def table(
    resource: Resource,
    objects: Iterable[Json],
    list_meta: Mapping[str, Any],
    include_object: str,
    now: datetime,
    *,
    definitions: bool = True,
) -> Json:
    """Return the Table of ``objects``.

    ``list_meta`` is the metadata of the list, or the resourceVersion of a single object. ``include_object`` is the
    query parameter: Object, None, or Metadata, which is also the default. The first event of a watch carries the column definitions, later ones don't.
    """
    prints = _printer(resource)
    rows = [_row(prints, resource, obj, include_object, now) for obj in objects]
    columns = [_definition(column) for column in prints.columns] if definitions else []
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {key: value for key, value in list_meta.items() if value not in {None, ""}},
        "columnDefinitions": columns,
        "rows": rows,
    }


def _row(prints: Printer, resource: Resource, obj: Json, include_object: str, now: datetime) -> Json:
    row: Json = {"cells": prints.row(obj, now)}
    if (resource.group, resource.plural) == ("", "pods"):
        conditions = pods.ROW_CONDITIONS.get(obj.get("status", {}).get("phase", ""))
        row |= {"conditions": conditions} if conditions else {}
    if include_object == "Object":
        row["object"] = obj
    else:
        row["object"] = None if include_object == "None" else partial(obj)
    return row


def partial(obj: Json) -> Json:
    """Return the PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _definition(column: Column) -> Json:
    described = column.description or (
        f"Custom resource definition column (in JSONPath format): {column.json_path}" if column.json_path else ""
    )
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": described,
        "priority": column.priority,
    }


# ── custom resources ─────────────────────────────────────────────────────────────────────────────────────────────


def _printer(resource: Resource) -> Printer:
    if not resource.custom:
        return printer(resource.group, resource.plural)
    columns = _readable(resource.columns or (_AGE,))
    return Printer((NAME, *columns), _custom_cells(columns))


def _readable(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Leave out, as the real server does, the first column whose path can't be read and all after it."""
    readable: list[Column] = []
    for column in columns:
        try:
            jsonpath.find(column.json_path, {})
        except jsonpath.JsonPathError:
            break
        readable.append(column)
    return tuple(readable)


def _custom_cells(columns: Sequence[Column]) -> Cells:
    return lambda obj, now: [_cell(column, obj, now) for column in columns]


def _cell(column: Column, obj: Json, now: datetime) -> Any:
    """Return the first value at the column's path in the column's type; None, a blank, where it has none."""
    found = jsonpath.find(column.json_path, obj)
    value = found[0] if found else None
    if value is None:
        return None
    match column.type:
        case "string":
            return _text(value)
        case "date":
            return _date(value, now)
        case "boolean":
            return value if isinstance(value, bool) else None
        case "integer" | "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value) if column.type == "integer" else value
        case _:
            return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def _date(value: Any, now: datetime) -> str | None:
    if not isinstance(value, str):
        return None
    return "<invalid>" if value and workloads.moment(value) is None else workloads.since(value, now)
