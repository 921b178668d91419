"""Keys that nobody reads, and which one was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model import keys, names
from muster.model.objects import Meta

SOME = st.text("abc", max_size=6)


def told(key: str, *, ours: bool = True, label: bool = False, value: str = "x") -> list[str]:
    meta = Meta(labels={key: value}) if label else Meta(annotations={key: value})
    return keys.warnings(meta, ours=ours)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("scheduling.k8s.io/group-min-members", "scheduling.k8s.io/group-min-member"),
        ("scheduling.volcano.sh/group-min-members", "scheduling.volcano.sh/group-min-member"),
        ("scheduling.k8s.io/group-nmae", "scheduling.k8s.io/group-name"),
        ("scheduling.volcano.sh/queue", "scheduling.volcano.sh/queue-name"),
        ("volcano.sh/queue", "volcano.sh/queue-name"),
        ("volcano.sh/queue_name", "volcano.sh/queue-name"),
        ("volcano.sh/group-min-member", "scheduling.k8s.io/group-min-member"),
        ("scheduling.k8s.io/queue-name", "scheduling.volcano.sh/queue-name"),
        ("muster.sh/dealy", "muster.sh/delay"),
        ("muster.sh/qouta-policy", "muster.sh/quota-policy"),
        ("sandbox.muster.sh/run-second", "sandbox.muster.sh/run-seconds"),
    ],
)
def test_a_misspelt_key_is_told_with_the_one_that_was_meant(key: str, meant: str) -> None:
    assert told(key) == [f"unknown annotation {key}: did you mean {meant}?"]
    assert told(key, label=True) == [f"unknown label {key}: did you mean {meant}?"]
    assert all(len(each) <= 120 for each in told(key))


@pytest.mark.parametrize(
    "key",
    [
        *sorted(keys.KNOWN),
        *sorted(keys.OF_OTHERS),
        "scheduling.k8s.io/something-else",
        "volcano.sh/anything",
        "example.com/group-nmae",
        "kueue.x-k8s.io/queue-name",
        "group-nmae",
    ],
)
def test_what_is_known_or_may_be_anothers_is_not_told_of(key: str) -> None:
    assert told(key) == []


def test_every_key_that_muster_reads_or_writes_is_known() -> None:
    texts = [
        each
        for value in vars(names).values()
        if isinstance(value, str | tuple)
        for each in ([value] if isinstance(value, str) else value)
    ]
    mine = {each for each in texts if isinstance(each, str) and each.startswith((keys.OURS, *keys.SHARED))}
    assert mine - keys.KNOWN == {names.QUEUE_FINALIZER}


def test_under_our_own_prefix_each_unknown_key_is_told_even_where_none_is_near() -> None:
    assert told("muster.sh/gpu", ours=False) == [
        "unknown annotation muster.sh/gpu: the nearest that Muster knows is muster.sh/group"
    ]
    (far,) = told("muster.sh/pretty-please")
    assert far.startswith("unknown annotation muster.sh/pretty-please: the nearest that Muster knows is muster.sh/")


def test_other_prefixes_are_looked_at_on_objects_of_ours_only() -> None:
    assert told("scheduling.k8s.io/group-nmae", ours=False) == []
    assert told("muster.sh/dealy", ours=False) != []


def test_what_was_there_before_is_no_news_and_a_new_value_is() -> None:
    before, other = Meta(annotations={"muster.sh/dealy": "off"}), Meta(annotations={"muster.sh/dealy": "on"})
    assert keys.warnings(before, before, ours=True) == []
    assert len(keys.warnings(other, before, ours=True)) == 1


def test_of_many_unknown_keys_a_few_are_told() -> None:
    many = Meta(annotations={f"muster.sh/key-{number}": "x" for number in range(5000)})
    assert len(keys.warnings(many, ours=True)) == 4


@given(one=SOME, other=SOME, third=SOME)
def test_the_distance_is_one(one: str, other: str, third: str) -> None:
    between = keys.edit_distance(one, other)
    assert between == keys.edit_distance(other, one)
    assert (between == 0) == (one == other)
    assert abs(len(one) - len(other)) <= between <= max(len(one), len(other))
    assert between <= keys.edit_distance(one, third) + keys.edit_distance(third, other)


@pytest.mark.parametrize(("one", "other", "apart"), [("kitten", "sitting", 3), ("", "abc", 3), ("flaw", "lawn", 2)])
def test_the_distance_of_some_words(one: str, other: str, apart: int) -> None:
    assert keys.edit_distance(one, other) == apart


def test_every_key_that_muster_writes_itself_is_known():
    own = {value for value in vars(names).values() if isinstance(value, str) and value.startswith("muster.sh/")}
    assert own - {names.QUEUE_FINALIZER} <= keys.KNOWN
