"""Objects held to a schema: what is stored, and what is wrong, is what kube-apiserver 1.36.3 said of the same object."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox.codec.patching import merge_patch
from muster.sandbox.schema import check_schema, default, prune, unknown_fields, validate

RECORDED = json.loads((Path(__file__).parent / "data" / "schema.json").read_text())
SCHEMA = RECORDED["schema"]
BASE = {"apiVersion": "t.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}


def taken_in(spec):
    return default(SCHEMA, prune(SCHEMA, {**BASE, "spec": spec}))


def by_field(causes):
    # The real server's order is that of Go's maps: random.
    return sorted((cause["field"], cause["reason"], cause["message"]) for cause in causes)


@pytest.mark.parametrize("case", RECORDED["creates"], ids=[json.dumps(case["spec"]) for case in RECORDED["creates"]])
def test_a_new_object_is_judged_as_by_the_real_server(case):
    causes = [cause.json() for cause in validate(SCHEMA, taken_in(case["spec"]))]
    assert by_field(causes) == by_field(case.get("causes", []))
    if "stored" in case:
        assert taken_in(case["spec"])["spec"] == case["stored"]
    assert unknown_fields(SCHEMA, {**BASE, "spec": case["spec"]}) == case["unknown"]


@pytest.mark.parametrize("case", RECORDED["updates"], ids=[json.dumps(case["patch"]) for case in RECORDED["updates"]])
def test_a_change_is_judged_as_by_the_real_server(case):
    old = taken_in(RECORDED["old"])
    new = taken_in(merge_patch(old["spec"], case["patch"]))
    causes = [cause.json() for cause in validate(SCHEMA, new, old)]
    assert by_field(causes) == by_field(case.get("causes", []))


def test_the_recorded_schema_itself_is_good():
    assert check_schema(SCHEMA, "s") == []


def test_what_was_wrong_before_and_does_not_change_is_let_pass():
    old = taken_in({"req": "r", "i": -1, "e": "C", "cel": {"a": 9}})
    new = taken_in({"req": "other", "i": -1, "e": "C", "cel": {"a": 9}})
    assert [cause.field for cause in validate(SCHEMA, new)] == ["spec.e", "spec.i", "<nil>"]
    assert validate(SCHEMA, new, old) == []


def test_nothing_given_is_changed():
    obj = {**BASE, "spec": {"req": "r", "unk": 1, "deep": [{"q": None, "u": 2}], "nn": None}}
    before = copy.deepcopy(obj)
    prune(SCHEMA, obj)
    default(SCHEMA, obj)
    validate(SCHEMA, obj)
    assert obj == before


# ── for any object ───────────────────────────────────────────────────────────────────────────────────────────────

PLAIN = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["n"],
            "properties": {
                "n": {"type": "integer", "minimum": 0, "maximum": 9},
                "e": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "l": {
                    "type": "array",
                    "maxItems": 3,
                    "items": {"type": "object", "properties": {"k": {"type": "boolean", "default": True}}},
                },
                "m": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "either": {"x-kubernetes-int-or-string": True},
                "o": {
                    "type": "object",
                    "default": {"p": 1},
                    "properties": {"p": {"type": "integer"}, "q": {"type": "string", "default": "z"}},
                },
            },
            "x-kubernetes-validations": [{"rule": "self.n < 9 || self.e == 'b'"}],
        }
    },
}


def valid(schema):
    """Generate what a schema allows."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return st.dictionaries(st.text(max_size=2), st.integers())
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0, 5) | st.text(max_size=2)
    match schema["type"]:
        case "integer":
            return st.integers(schema.get("minimum", -5), schema.get("maximum", 8) - 1)
        case "boolean":
            return st.booleans()
        case "string":
            return st.sampled_from(schema["enum"]) if "enum" in schema else st.text(max_size=schema.get("maxLength", 3))
        case "array":
            return st.lists(valid(schema["items"]), max_size=schema.get("maxItems", 3))
    if "additionalProperties" in schema:
        return st.dictionaries(st.text(max_size=2), valid(schema["additionalProperties"]), max_size=3)
    needed = schema.get("required", [])
    fields = {name: valid(each) for name, each in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: each for name, each in fields.items() if name in needed},
        optional={name: each for name, each in fields.items() if name not in needed},
    )


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from(["", "a", "b", "xyz"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["n", "e", "l", "m", "k", "o", "p", "q", "free", "either", "zz"]), inner)
    ),
    max_leaves=12,
)


@given(valid(PLAIN["properties"]["spec"]))
def test_what_the_schema_allows_is_valid_and_nothing_of_it_is_unknown(spec):
    obj = {**BASE, "spec": spec}
    assert unknown_fields(PLAIN, obj) == []
    assert prune(PLAIN, obj) == obj
    assert validate(PLAIN, default(PLAIN, obj)) == []


@given(anything)
def test_a_second_time_changes_nothing(spec):
    once = default(PLAIN, prune(PLAIN, {**BASE, "spec": spec}))
    assert prune(PLAIN, once) is once
    assert default(PLAIN, once) is once
    assert unknown_fields(PLAIN, once) == []


@given(anything)
def test_any_object_is_judged_and_none_breaks_the_judge(spec):
    obj = default(PLAIN, {**BASE, "spec": spec})
    causes = validate(PLAIN, obj)
    assert validate(PLAIN, obj, obj) == []
    assert all(cause.field and cause.message for cause in causes)


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────────────────────


def judged(spec):
    schema = {"type": "object", "properties": {"spec": spec}}
    return [str(cause) for cause in check_schema(schema, "s")]


A = {"a": {"type": "integer"}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"properties": A}, "s.properties[spec].type: Required value: must not be empty for specified object fields"),
        (
            {"type": "foo"},
            's.properties[spec].type: Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string"',
        ),
        ({"type": "array"}, "s.properties[spec].items: Required value: must be specified"),
        (
            {"type": "string", "$ref": "#/x"},
            "s.properties[spec].$ref: Forbidden: $ref is not supported",
        ),
        (
            {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
            "s.properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            {"type": "object", "properties": A, "additionalProperties": {"type": "string"}},
            "s.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "object", "properties": A, "anyOf": [{"type": "object"}]},
            "s.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}},
            's.properties[spec].properties[a].default: Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            {"type": "object", "default": {"q": 1}, "properties": A},
            's.properties[spec].default: Invalid value: {"q":1}: must not have unknown fields',
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
            "s.properties[spec].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            "s.properties[spec].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            {"type": "string", "format": "email"},
            's.properties[spec].format: Invalid value: "email": not supported by the Muster sandbox; use a real control plane (kube-apiserver), see docs/sandbox.md',
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused(spec, message):
    assert judged(spec) == [message]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"rule": " "}, ".rule: Required value: rule is not specified"),
        ({"rule": "self.a > 1", "fieldPath": ".b"}, '.fieldPath: Invalid value: ".b": must be a valid path'),
        (
            {"rule": "self.a > 1", "reason": "Foo"},
            '.reason: Unsupported value: "Foo": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"',
        ),
        ({"rule": "self.a > 1", "message": "a\nb"}, r'.message: Invalid value: "a\nb": must not contain line breaks'),
        (
            {"rule": "self.a > 1", "optionalOldSelf": True},
            ".optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ],
)
def test_a_rule_that_says_nothing_is_refused(rule, message):
    assert judged({"type": "object", "properties": A, "x-kubernetes-validations": [rule]}) == [
        f"s.properties[spec].x-kubernetes-validations[0]{message}"
    ]


@pytest.mark.parametrize(
    ("rule", "detail"),
    [
        ({"rule": "self.a"}, "cel expression must evaluate to a bool"),
        (
            {"rule": "self.b > 1"},
            "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 1\n | ....^",
        ),
        ({"rule": "self.a > 1", "messageExpression": "self.a"}, "messageExpression must evaluate to a string"),
    ],
)
def test_a_rule_that_does_not_compile_is_refused(rule, detail):
    (text,) = judged({"type": "object", "properties": A, "x-kubernetes-validations": [rule]})
    assert text.endswith(f'"OptionalOldSelf":null}}: {detail}')


def test_a_rule_can_not_compare_what_has_no_identity():
    item = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    (text,) = judged({"type": "object", "properties": {"l": {"type": "array", "items": item}}})
    assert text.endswith(
        "oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec].properties[l]"
    )


def test_a_transition_rule_follows_the_elements_of_a_list_with_keys():
    element = {
        "type": "object",
        "required": ["k"],
        "properties": {
            "k": {"type": "string"},
            "v": {
                "type": "integer",
                "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "grows only"}],
            },
        },
    }
    spec = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": element}
    schema = {"type": "object", "properties": {"spec": spec}}
    assert check_schema(schema, "s") == []
    old = {**BASE, "spec": [{"k": "a", "v": 2}, {"k": "b", "v": 2}]}
    new = {**BASE, "spec": [{"k": "c", "v": 0}, {"k": "b", "v": 1}, {"k": "a", "v": 3}]}
    assert [str(cause) for cause in validate(schema, new, old)] == ["spec[1].v: Invalid value: 1: grows only"]
