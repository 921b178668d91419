"""What tenants may write, at the border."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.ledger.reservations import JOB, POD, PODGROUP, ReservationRequest
from muster.ledger.rows import Row
from muster.ledger.table import Table
from muster.ledger.tally import Totals
from muster.model import grouping, names, scopes, tenant_texts
from muster.model.amounts import Resources
from muster.model.objects import Meta, ResourceQuotaSpec, ScopeRequirement, ScopeSelector

LONG = "a" * 500_000
HOSTILE = ("a b", "a/b/c", "a,b", "a=b", "a@b", "a\nb", "-", "", " ", "/", "é", "a/", "/a", "A/b", "x" * 64, LONG)
"""No names of resources."""

hostile = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=40),
    st.text(alphabet="a1 /,=@-\n:|+.", max_size=12),
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True),
)


@pytest.mark.parametrize(
    "name", ["cpu", "nvidia.com/gpu", "hugepages-2Mi", "requests.nvidia.com/gpu", "count/pods", "A_b.c"]
)
def test_resources_have_qualified_names(name: str) -> None:
    assert tenant_texts.resource_fault(name) == ""


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_name_of_a_resource_is_refused_in_few_words(name: str) -> None:
    fault = tenant_texts.resource_fault(name)
    assert fault.endswith("can't be the name of a resource: write it like cpu or nvidia.com/gpu")
    assert len(fault) < 200
    assert "\n" not in fault


@pytest.mark.parametrize("text", ["a b", "a/b", "A", "a_b", ".a", "a.", "-", LONG])
def test_an_annotation_that_names_what_cant_exist_is_named_and_counts_as_absent(text: str) -> None:
    for key in (*names.GROUP_NAME_KEYS, *names.QUEUE_NAME_KEYS, names.JOB_GROUP):
        ((found, fault),) = tenant_texts.faults({key: text})
        assert (found, len(fault) < 200) == (key, True)
    meta = Meta(uid="u", annotations=dict.fromkeys((*names.GROUP_NAME_KEYS, *names.QUEUE_NAME_KEYS), text))
    assert (grouping.group_of(meta), grouping.queue_name(meta)) == ("", names.DEFAULT_QUEUE)
    assert grouping.noted_group(Meta(annotations={names.JOB_GROUP: text})) == ""


def test_a_name_that_muster_wrote_beside_one_that_cant_exist_counts() -> None:
    assert grouping.group_of(Meta(annotations=dict(zip(names.GROUP_NAME_KEYS, ("a b", "gang"), strict=True)))) == "gang"


@pytest.mark.parametrize("uid", ["a b", "a/b", "A", "", LONG, "\ud800"])
def test_owners_of_any_uid_have_groups_of_their_own_with_names_that_can_exist(uid: str) -> None:
    name = grouping.generated_name(uid)
    assert tenant_texts.is_subdomain(name)
    assert grouping.is_generated(name)
    assert name == grouping.generated_name(uid) != grouping.generated_name(uid + "x")


@pytest.mark.parametrize(
    "text", ["plain,plain", "class=a,class=b", ",".join(f"class={n}" for n in range(2)), "plain," * 200 + "plain"]
)
def test_traits_that_say_a_thing_twice_or_are_long_put_nothing_into_a_scope(text: str) -> None:
    assert tenant_texts.traits(text) == ""
    assert [key for key, _ in tenant_texts.faults({names.POD_TRAITS: text})] == [names.POD_TRAITS]
    assert not list(tenant_texts.faults({names.POD_TRAITS: "best-effort,class=high"}))


@pytest.mark.parametrize("written", ['{"a b": "1"}', '{"": "1"}', '{"cpu": "1", "x=y,z": "2"}'])
def test_the_minimum_in_an_annotation_with_a_name_that_is_none_is_ignored_and_named(written: str) -> None:
    amounts, warning = grouping.min_resources(Meta(annotations={names.GROUP_MIN_RESOURCES: written}))
    assert amounts is None
    assert "can't be the name of a resource" in warning


def test_the_minimum_in_an_annotation_is_bounded() -> None:
    many = ",".join(f'"r{n}": "1"' for n in range(tenant_texts.MOST_RESOURCES + 1))
    for written in (f"{{{many}}}", '{"cpu": "' + "1" * tenant_texts.LONGEST_LIST + '"}'):
        amounts, warning = grouping.min_resources(Meta(annotations={names.GROUP_MIN_RESOURCES: written}))
        assert (amounts, len(warning) < 250) == (None, True)


def test_values_of_a_quota_that_no_class_has_are_not_syntax() -> None:
    def of(operator: str, *values: str) -> str:
        required = ScopeRequirement(scope_name="PriorityClass", operator=operator, values=values)
        return scopes.scope_set(ResourceQuotaSpec(scope_selector=ScopeSelector(match_expressions=(required,))))

    assert of("In", "high", "a b", "x|y", "p+q", LONG) == "PriorityClass:In:high"
    assert not scopes.matches(of("In", "a b"), "plain")
    assert not scopes.matches(of("In", "a b"), "class=high")
    assert scopes.matches(of("NotIn", "a b"), "plain")
    assert scopes.matches(of("NotIn", "a b"), "class=high")


@given(
    kind=st.sampled_from([PODGROUP, JOB, POD]),
    group=hostile,
    name=hostile,
    uid=hostile,
    resources=st.dictionaries(st.one_of(hostile, st.just("cpu")), st.integers(0, 2**80), max_size=4),
    facts=st.tuples(*[st.one_of(hostile, st.sampled_from(["plain", "terminating", "class=high"]))] * 2),
    revision=st.sampled_from(["", "7"]),
)
@example(kind=PODGROUP, group="g", name="a", uid="u", resources={"a b": 5}, facts=("", ""), revision="")
@example(kind=PODGROUP, group="g", name="a", uid="u", resources={"cpu": 5}, facts=("plain", "a b"), revision="7")
def test_what_is_reserved_can_be_read_back_or_is_refused_by_name(
    kind: str, group: str, name: str, uid: str, resources: dict[str, int], facts: tuple[str, str], revision: str
) -> None:
    hard = Resources({"cpu": 2**100, "cpu@Terminating": 2**100, **resources})
    table = Table("2026-01-01T00:00:00Z", {"pods": 1}, {"q": Totals("uid", hard)})
    previous = Resources({}) if revision else None
    request, refusal = _requested("ns", kind, group, name, uid, Resources(resources), revision, previous, *facts)
    assert len(refusal) < 300
    assert "\n" not in refusal
    after, _ = table.reserve([request] if request else [])
    assert [Row.parse(str(row)) for row in after.rows] == list(after.rows)


def _requested(*about: Any) -> tuple[ReservationRequest | None, str]:
    try:
        return ReservationRequest(*about), ""
    except tenant_texts.InvalidTextError as error:
        return None, str(error)


def test_long_texts_are_refused_and_not_remembered() -> None:
    remembered = [kept.cache_info().currsize for kept in (tenant_texts._is_subdomain, tenant_texts._is_resource)]
    for number in range(3):
        text = f"{number}{LONG}"
        assert not tenant_texts.is_subdomain(text)
        assert not tenant_texts.is_resource(text)
        assert list(tenant_texts.faults({names.GROUP_NAME: text}))
    assert [
        kept.cache_info().currsize for kept in (tenant_texts._is_subdomain, tenant_texts._is_resource)
    ] == remembered
