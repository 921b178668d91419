"""The wire form of reviews."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muster.model.objects import Meta, Pod, PodGroup
from webhooks import review
from webhooks.patch import PatchRecorder, annotating
from webhooks.review import FieldError, ReviewError
from webhooks.verdict import Allowed, Denied, Patched, Problem, busy, failed, judge


@pytest.fixture
def request_(review_of: Any, podgroup: Any) -> Any:
    return review.parse(review_of(podgroup(minMember=3)))


def test_a_review_is_read_with_its_object_left_raw_until_asked_for(request_: Any) -> None:
    assert (request_.uid, request_.operation, request_.namespace) == ("6f0c5b4e", "CREATE", "dev")
    assert request_.user_info.username == "alice"
    assert request_.new(PodGroup).spec.min_member == 3
    assert review.subject(request_) == "podgroups.scheduling.volcano.sh dev/gang"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is not an AdmissionReview: Input data was truncated"),
        (b"{", "the body is not an AdmissionReview: Input data was truncated"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "Admi', "the body is not an AdmissionReview: Input data"),
        (b"\xff\xfe", "the body is not an AdmissionReview: JSON is malformed"),
        (b"[]", "the body is not an AdmissionReview: Expected `object`, got `array`"),
        (b"null", "the body is not an AdmissionReview: Expected `object`, got `null`"),
        (b"{}", "expected an AdmissionReview of admission.k8s.io/v1, not no kind of no apiVersion"),
        (
            b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "1"}}',
            "the body is not an AdmissionReview: Object missing required field `operation`",
        ),
        (
            b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}',
            "expected an AdmissionReview of admission.k8s.io/v1, not AdmissionReview of admission.k8s.io/v1beta1",
        ),
        (
            b'{"apiVersion": "admission.k8s.io/v1", "kind": "PodGroup"}',
            "expected an AdmissionReview of admission.k8s.io/v1, not PodGroup of admission.k8s.io/v1",
        ),
        (
            b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
            "the AdmissionReview has no request with a uid",
        ),
        (
            b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "", "operation": ""}}',
            "the AdmissionReview has no request with a uid",
        ),
        (b'{"request": ' * 100_000, "the body is not an AdmissionReview: "),
        (b'{"request": {"object": ' + b"[" * 1_000_000, "the body is not an AdmissionReview: Input data was truncated"),
    ],
)
def test_what_is_no_review_is_named_in_one_bounded_line(body: bytes, text: str) -> None:
    with pytest.raises(ReviewError) as error:
        review.parse(body)
    assert str(error.value).startswith(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@given(st.binary())
def test_no_bytes_break_the_parser(body: bytes) -> None:
    with pytest.raises(ReviewError):
        review.parse(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_no_object_under_review_breaks_the_reading_of_it(value: Any) -> None:
    request = {"uid": "1", "operation": "CREATE", "object": value}
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    parsed = review.parse(json.dumps(whole).encode())
    try:
        parsed.new(PodGroup)
    except FieldError as error:
        assert "\n" not in str(error)  # noqa: PT017 - one of two outcomes, both of which are right


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except FieldError as error:
        return error.path, str(error)
    except ReviewError as error:
        return str(error)


pods = st.fixed_dictionaries(
    {"metadata": json_values, "spec": json_values} | {"apiVersion": st.just("v1"), "kind": st.sampled_from(["Pod", 1])}
) | st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"name": st.text()}, optional={"labels": json_values})})


@given(json_values | pods, json_values | pods, st.sampled_from([Pod, PodGroup]))
def test_objects_that_are_read_with_the_review_are_as_those_that_are_read_after_it(
    new: Any, old: Any, struct: type
) -> None:
    request = {"uid": "1", "operation": "UPDATE", "object": new, "oldObject": old}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
    after, together = review.parse(body), review.parse(body, struct)
    assert outcome(lambda: together.new(struct)) == outcome(lambda: after.new(struct))
    assert outcome(lambda: together.old(struct)) == outcome(lambda: after.old(struct))


@given(st.binary())
def test_no_bytes_break_the_reading_in_one_pass(body: bytes) -> None:
    with pytest.raises(ReviewError):
        review.parse(body, Pod)


@pytest.mark.parametrize("depth", [200, 100_000])
@pytest.mark.parametrize("reads", [None, PodGroup])
def test_an_object_is_read_however_deep_it_is_nested(review_of: Any, podgroup: Any, depth: int, reads: Any) -> None:
    body = review_of(podgroup(minMember=3) | {"extra": "DEEP"})
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    assert review.parse(body.replace(b'"DEEP"', deep), reads).new(PodGroup).spec.min_member == 3


def test_a_field_of_another_type_is_named(review_of: Any, podgroup: Any) -> None:
    request = review.parse(review_of(podgroup(minMember="three")))
    with pytest.raises(FieldError, match="Expected int, got str") as error:
        request.new(PodGroup)
    assert error.value.path == "spec.minMember"


def answer(request: Any, verdict: Any) -> Any:
    whole = json.loads(review.render(request, verdict))
    assert (whole.pop("kind"), whole.pop("apiVersion")) == ("AdmissionReview", "admission.k8s.io/v1")
    assert list(whole) == ["response"]
    return whole["response"]


def test_a_plain_yes_says_no_more(request_: Any) -> None:
    assert answer(request_, Allowed()) == {"uid": "6f0c5b4e", "allowed": True}


def test_warnings_are_single_lines_of_at_most_120_characters(request_: Any) -> None:
    response = answer(request_, Allowed(("two\nlines", "x" * 121, "ä" * 120), {"reserved": "2 cpu"}))
    assert response["warnings"] == ["two lines", "x" * 117 + "...", "ä" * 120]
    assert response["auditAnnotations"] == {"reserved": "2 cpu"}


def test_a_patch_is_base64_json(request_: Any) -> None:
    operations = ({"op": "add", "path": "/spec/queue", "value": "ä"},)
    response = answer(request_, Patched(operations))
    assert (response["allowed"], response["patchType"]) == (True, "JSONPatch")
    assert json.loads(base64.b64decode(response["patch"])) == list(operations)


def test_a_rule_is_refused_as_forbidden_and_without_details_that_would_hide_the_message(request_: Any) -> None:
    verdict = judge([Problem("queue is closed"), Problem("is wrong", "spec.minMember")], ["by the way"])
    assert answer(request_, verdict) == {
        "uid": "6f0c5b4e",
        "allowed": False,
        "status": {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": 403,
            "reason": "Forbidden",
            "message": "queue is closed; spec.minMember: is wrong",
        },
        "warnings": ["by the way"],
    }


def test_a_malformed_object_is_invalid_with_causes_that_kubectl_prints(request_: Any) -> None:
    status = answer(request_, judge([Problem("is wrong", "spec.minMember")]))["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["details"] == {
        "name": "gang",
        "group": "scheduling.volcano.sh",
        "kind": "PodGroup",
        "causes": [{"reason": "FieldValueInvalid", "field": "spec.minMember", "message": "is wrong"}],
    }


def test_busy_makes_kubectl_try_again_by_itself(request_: Any) -> None:
    status = answer(request_, busy("later"))["status"]
    assert (status["code"], status["details"]["retryAfterSeconds"]) == (429, 1)


def test_our_own_failure_is_a_denial_that_keeps_the_uid(request_: Any) -> None:
    response = answer(request_, failed("broken"))
    assert (response["uid"], response["status"]["code"]) == ("6f0c5b4e", 500)
    assert isinstance(failed("broken"), Denied)


# ── patches ──────────────────────────────────────────────────────────────────────────────────────────────────────

documents = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), documents, max_size=4)


def put(document: Any, path: list[str], value: Any) -> None:
    """Set a member the plain way."""
    for name in path[:-1]:
        if document.get(name) is None:
            document[name] = {}
        document = document[name]
    document[path[-1]] = value


def reachable(document: Any, path: list[str]) -> bool:
    """Whether everything on the way is an object, or not there."""
    for name in path[:-1]:
        document = document.get(name)
        if not isinstance(document, dict):
            return document is None
    return True


paths = st.lists(st.text(max_size=2), min_size=1, max_size=4)


@given(objects, st.lists(st.tuples(paths, documents), max_size=4))
def test_a_recorded_patch_gives_the_intended_document(document: Any, changes: Any) -> None:
    intended, recorder = copy.deepcopy(document), PatchRecorder(json.dumps(document).encode())
    for path, value in changes:
        if reachable(intended, path):
            put(intended, path, copy.deepcopy(value))
            recorder.set(*path, value=value)
    assert jsonpatch.apply_patch(document, copy.deepcopy(list(recorder.operations))) == intended


@given(objects, paths, documents)
def test_a_change_that_is_recorded_again_is_none(document: Any, path: list[str], value: Any) -> None:
    assume(reachable(document, path))
    put(document, path, value)
    recorder = PatchRecorder(json.dumps(document).encode())
    recorder.set(*path, value=value)
    assert recorder.operations == ()


noted = st.none() | st.dictionaries(st.sampled_from(["a/b~c", "b", ""]), st.text(max_size=2), max_size=3)


@given(noted, st.sampled_from(["a/b~c", "b"]), st.text(max_size=2))
def test_an_annotation_of_metadata_that_were_read_is_set_as_one_of_a_document(had: Any, key: str, value: str) -> None:
    document: Any = {"metadata": {} if had is None else {"annotations": had}}
    recorder = PatchRecorder(json.dumps(document).encode())
    recorder.set("metadata", "annotations", key, value=value)
    assert annotating(Meta(annotations=had), key, value) == recorder.operations


def test_an_annotation_replaces_an_explicit_null() -> None:
    operations = annotating(Meta(annotations=None), "a", "1")
    patched = jsonpatch.apply_patch({"metadata": {"annotations": None}}, list(operations))
    assert patched == {"metadata": {"annotations": {"a": "1"}}}


def test_awkward_names_are_escaped() -> None:
    recorder = PatchRecorder(b'{"metadata": {"annotations": {}}}')
    recorder.set("metadata", "annotations", "a/b~c", value="1")
    assert recorder.operations == ({"op": "add", "path": "/metadata/annotations/a~1b~0c", "value": "1"},)


def test_an_explicit_null_on_the_way_is_replaced() -> None:
    recorder = PatchRecorder(b'{"metadata": {"annotations": null}}')
    recorder.set("metadata", "annotations", "a", value="1")
    patched = jsonpatch.apply_patch({"metadata": {"annotations": None}}, list(recorder.operations))
    assert patched == {"metadata": {"annotations": {"a": "1"}}}


def test_a_true_is_not_a_one() -> None:
    recorder = PatchRecorder(b'{"spec": {"suspend": 1}}')
    recorder.set("spec", "suspend", value=True)
    assert recorder.operations == ({"op": "replace", "path": "/spec/suspend", "value": True},)
