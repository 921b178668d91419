"""Tables: custom resources by their columns, and the envelope around the rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from muster.sandbox.core.registry import Column, Resource
from muster.sandbox.printers import tables

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def obj(**parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "creationTimestamp": "2026-11-21T11:58:20Z"}, **parts}


def printed(of: Resource, *objects: dict[str, Any], include: str = "") -> dict[str, Any]:
    return tables.table(of, objects, {"resourceVersion": "7"}, include, NOW)


# ── custom resources ─────────────────────────────────────────────────────────────────────────────────────────────


def custom(*columns: Column) -> Resource:
    return Resource("e.com", "v1", "carts", "Cart", "cart", columns=columns, crd="carts.e.com")


@pytest.mark.parametrize(
    ("type_", "value", "cell"),
    [
        ("string", "text", "text"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("string", {"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
        ("string", None, None),
        ("integer", 3, 3),
        ("integer", 3.7, 3),
        ("integer", "3", None),
        ("integer", True, None),
        ("number", 2.5, 2.5),
        ("boolean", False, False),
        ("boolean", "yes", None),
        ("date", "2026-11-21T11:00:00Z", "60m"),
        ("date", "soon", "<invalid>"),
        ("date", "", "<unknown>"),
        ("date", 5, None),
    ],
)
def test_a_printer_column_takes_values_of_its_type(type_: str, value: Any, cell: Any) -> None:
    of = custom(Column("C", type=type_, json_path=".spec.value"))
    (only,) = printed(of, obj(spec={"value": value}))["rows"]
    assert only["cells"] == ["x", cell]


def test_a_custom_resource_without_printer_columns_shows_its_age() -> None:
    table = printed(custom(), obj())
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
    assert table["rows"][0]["cells"] == ["x", "100s"]


def test_columns_from_the_first_unreadable_path_on_are_left_out() -> None:
    of = custom(Column("A", json_path=".a"), Column("B", json_path=".b[?("), Column("C", json_path=".c"))
    table = printed(of, obj(a="1", c="3"))
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "A"]
    assert table["rows"][0]["cells"] == ["x", "1"]


def test_priority_and_description_reach_the_client() -> None:
    of = custom(Column("A", json_path=".a", priority=1), Column("B", json_path=".b", description="What B is"))
    _, first, second = printed(of)["columnDefinitions"]
    assert (first["priority"], first["description"]) == (
        1,
        "Custom resource definition column (in JSONPath format): .a",
    )
    assert second["description"] == "What B is"


# ── the envelope ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_holds_as_much_of_its_object_as_was_asked_for() -> None:
    one = obj(spec={"a": 1})
    (default,) = printed(custom(), one)["rows"]
    (whole,) = printed(custom(), one, include="Object")["rows"]
    (nothing,) = printed(custom(), one, include="None")["rows"]
    assert default["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": one["metadata"],
    }
    assert whole["object"] == one
    assert nothing["object"] is None


def test_a_table_carries_the_list_s_version_and_continue_token() -> None:
    meta = {"resourceVersion": "9", "continue": "tok", "remainingItemCount": 0}
    assert tables.table(custom(), [], meta, "", NOW)["metadata"] == meta
    assert tables.table(custom(), [], {"resourceVersion": "9", "continue": ""}, "", NOW)["metadata"] == {
        "resourceVersion": "9"
    }


def test_later_events_of_a_watch_leave_the_definitions_out() -> None:
    table = tables.table(custom(), [obj()], {}, "", NOW, definitions=False)
    assert table["columnDefinitions"] == []
    assert len(table["rows"]) == 1
