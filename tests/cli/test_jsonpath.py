"""kubectl's templates, on values; `test_listing` compares them with kubectl's own."""

from __future__ import annotations

import pytest

from muster.cli import jsonpath
from muster.sandbox.printers.jsonpath import JsonPathError

QUEUES = {
    "items": [
        {"metadata": {"name": "a-10"}, "spec": {"weight": 10, "capability": {"cpu": "2"}}},
        {"metadata": {"name": "a-9", "labels": {"team": "x"}}, "spec": {"weight": 9, "capability": {"cpu": "1500m"}}},
        {"metadata": {"name": "b"}, "spec": {}},
    ]
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[*].metadata.name}", "a-10 a-9 b"),
        ("{.items[0].spec}", '{"capability":{"cpu":"2"},"weight":10}'),
        ("{range .items[*]}{.metadata.name}={.spec.weight}{'\\n'}{end}", "a-10=10\na-9=9\nb=\n"),
        ('{range .items[?(@.spec.weight>9)]}{@.metadata.name}{"\\t"}{end}.', "a-10\t."),
        ("{range .items[*]}{range .spec.capability.*}{@},{end};{end}", "2,;1500m,;;"),
        ("{range .nope[*]}{range .x}{.y}{end}{end}none", "none"),
        ("no braces", "no braces"),
        ('{"a}b"}', "a}b"),
        ("{.nope}", ""),
    ],
)
def test_a_template_makes_a_text(template, text):
    assert jsonpath.rendered(template, QUEUES) == text


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{.items", "unclosed action"),
        ("{range .items[*]}{.x}", "without {end}"),
        ("{.x}{end}", "without {range"),
        ("{..name}", "can't be read from"),
        ("{.items['a','b']}", "can't be read from"),
        ("{.items[?(@.a =~ 'b')]}", "can't be read"),
        ("{.items[}", "can't be read from"),
    ],
)
def test_what_can_not_be_read_is_refused_with_the_place(template, complaint):
    with pytest.raises(JsonPathError, match=complaint.replace("{", r"\{").replace("[", r"\[")):
        jsonpath.rendered(template, QUEUES)


def test_columns_show_values_as_kubectl_does():
    _, labelled, _ = QUEUES["items"]
    assert jsonpath.columns("NAME:.metadata.name,T:{.metadata.labels}") == [
        ("NAME", ".metadata.name"),
        ("T", "{.metadata.labels}"),
    ]
    assert jsonpath.cell("{.metadata.labels}", labelled) == "map[team:x]"
    assert jsonpath.cell("x", {"x": ["a", 1]}) == "[a 1]"
    assert jsonpath.cell(".nope", labelled) == "<none>"
    for wrong in ("NAME", "NAME:", ":.x", "A:.b,", "A:..b"):
        with pytest.raises(JsonPathError):
            jsonpath.columns(wrong)


@pytest.mark.parametrize(
    ("path", "order"),
    [
        (".spec.weight", "b a-9 a-10"),
        ("{.spec.capability.cpu}", "b a-9 a-10"),
        ("metadata.name", "a-10 a-9 b"),
        (".metadata.labels.team", "a-10 b a-9"),
    ],
)
def test_objects_are_sorted_by_amounts_and_by_letters(path, order):
    keys = jsonpath.sort_keys(path, QUEUES["items"])
    found = [QUEUES["items"][at]["metadata"]["name"] for at in sorted(range(3), key=keys.__getitem__)]
    assert " ".join(found) == order


def test_a_field_that_no_object_has_is_told():
    with pytest.raises(JsonPathError, match=r"no object has the field \.nope"):
        jsonpath.sort_keys(".nope", QUEUES["items"])
    assert jsonpath.sort_keys(".nope", []) == []
