"""The JSONPath of printer columns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox.printers import jsonpath

DOCUMENT = {
    "spec": {"a.b/c": 1, "list": [10, 20, 30], "empty": None},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "weight": 3},
            {"type": "Scheduled", "status": "False", "weight": 5},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".spec.list", [[10, 20, 30]]),
        (r".spec.a\.b/c", [1]),
        (".spec['a.b/c']", [1]),
        ('.spec["a.b/c"]', [1]),
        (".spec.list[0]", [10]),
        (".spec.list[-1]", [30]),
        (".spec.list[3]", []),
        (".spec.list[*]", [10, 20, 30]),
        (".spec.list.*", [10, 20, 30]),
        (".spec.list[0:2]", [10, 20]),
        (".spec.empty", [None]),
        (".spec.missing.deeper", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Scheduled')].status", ["False"]),
        (".status.conditions[?(@.weight > 3)].type", ["Scheduled"]),
        (".status.conditions[?(@.type!='Ready')].type", ["Scheduled"]),
        (".status.conditions[?(@.weight=='3')].type", []),
        (".status.conditions[?(@.weight)].type", ["Ready", "Scheduled"]),
    ],
)
def test_a_path_finds_its_values(path: str, values: list[Any]) -> None:
    assert jsonpath.find(path, DOCUMENT) == values


@pytest.mark.parametrize("path", ["spec", ".spec[", ".a[?(b)]", ".a[?(@.b == nothing)]", ".a]"])
def test_a_path_that_cannot_be_read_is_an_error_and_not_an_empty_answer(path: str) -> None:
    with pytest.raises(jsonpath.JsonPathError, match="JSONPath"):
        jsonpath.find(path, DOCUMENT)


@given(
    st.text(max_size=40),
    st.recursive(st.none() | st.integers() | st.text(), lambda t: st.lists(t) | st.dictionaries(st.text(), t)),
)
def test_any_text_is_either_a_path_or_refused(path: str, document: Any) -> None:
    try:
        found = jsonpath.find(path, document)
    except jsonpath.JsonPathError:
        return
    assert isinstance(found, list)


@given(st.dictionaries(st.text(min_size=1), st.integers(), min_size=1))
def test_a_field_of_any_name_is_found_once_its_special_characters_are_escaped(document: dict[str, int]) -> None:
    for name, value in document.items():
        escaped = "".join(f"\\{char}" if char in ".[]\\*" else char for char in name)
        assert jsonpath.find(f".{escaped}", document) == [value]
