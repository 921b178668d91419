"""Label and field selectors."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sandbox.codec import selectors
from muster.sandbox.core.builtins import BUILTIN
from muster.sandbox.core.status import StatusError

PODS = next(each for each in BUILTIN if each.plural == "pods")
CONFIGMAPS = next(each for each in BUILTIN if each.plural == "configmaps")


def matches(text, **labels):
    return selectors.matches_labels(selectors.parse_labels(text), labels)


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("a notin (b)", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a=", {"a": ""}, True),
        ("a>5", {"a": "6"}, True),
        ("a>5", {"a": "x"}, False),
        ("a lt 5", {"a": "4"}, True),
        ("a=b,c", {"a": "b"}, False),
        ("in=b", {"in": "b"}, True),
        ("", {}, True),
    ],
)
def test_a_label_selector_takes_what_it_says(text, labels, expected):
    assert matches(text, **labels) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a,", "found '', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
    ],
)
def test_a_malformed_label_selector_is_refused_in_the_real_servers_words(text, message):
    with pytest.raises(StatusError) as refusal:
        selectors.parse_labels(text)
    assert (refusal.value.code, refusal.value.message) == (400, message)


keys = st.sampled_from(["a", "b", "example.com/c"])
values = st.sampled_from(["", "x", "y-z", "1"])


@given(
    st.lists(st.tuples(keys, st.sampled_from(["=", "!=", "in", "notin", "exists", "!"]), st.lists(values, min_size=1))),
    st.dictionaries(keys, values),
)
def test_a_written_selector_means_what_its_terms_mean(terms, labels):
    written, expected = [], True
    for key, operator, choices in terms:
        value = labels.get(key)
        if operator in {"in", "notin"}:
            written.append(f"{key} {operator} ({','.join(choices)})")
            expected &= (value in choices) == (operator == "in")
        elif operator in {"=", "!="}:
            written.append(f"{key}{operator}{choices[0]}")
            expected &= (value == choices[0]) == (operator == "=")
        else:
            written.append(key if operator == "exists" else f"!{key}")
            expected &= (value is not None) == (operator == "exists")
    assert matches(",".join(written), **labels) is expected


@given(st.text(alphabet="ab=!(),<> in\t\\", max_size=12))
def test_any_text_is_a_selector_or_refused(text):
    for parse in (selectors.parse_labels, selectors.parse_fields):
        with contextlib.suppress(StatusError):  # any other exception fails
            parse(text)


def field_matches(text, obj):
    matcher = selectors.matcher(PODS, "", text)
    return matcher is None or matcher({"metadata": {}, "kind": "Pod", **obj})


def test_field_selectors_compare_with_equal_and_unequal():
    bound = {"spec": {"nodeName": "n,1"}}
    assert field_matches(r"spec.nodeName=n\,1", bound)
    assert field_matches("spec.nodeName==", {"spec": {}})
    assert not field_matches("spec.nodeName!=", {"spec": {}})
    assert field_matches("status.phase!=Running,spec.hostNetwork=false", bound)


@pytest.mark.parametrize(
    ("resource", "text", "message"),
    [
        (PODS, "spec.queue=x", "field label not supported: spec.queue"),
        (CONFIGMAPS, "data.a=b", '"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        (PODS, "spec.queue", "invalid selector: 'spec.queue'; can't understand 'spec.queue'"),
        (PODS, r"metadata.name=\x", r"invalid field selector: invalid escape sequence: \x"),
    ],
)
def test_a_wrong_field_selector_is_refused_in_the_real_servers_words(resource, text, message):
    with pytest.raises(StatusError) as refusal:
        selectors.matcher(resource, "", text)
    assert (refusal.value.code, refusal.value.message) == (400, message)


def test_no_selector_object_selects_nothing_and_an_empty_one_everything():
    assert selectors.from_object(None) is None
    assert selectors.from_object({}) == ()
    expressions = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}
    requirements = selectors.from_object(expressions)
    assert selectors.matches_labels(requirements, {"a": "b"})
    assert not selectors.matches_labels(requirements, {"a": "b", "c": "d"})
