"""Rows as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.ledger.rows import RESOURCEQUOTA, MalformedLedgerError, Row, RowState, bounded, check
from muster.model.amounts import NANO, Resources

names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "limits.cpu", "hugepages-2Mi"]),
    st.integers(0, (2**63 - 1) * NANO),
).map(Resources)


@given(
    kind=st.sampled_from(["PodGroup", "Job", "Pod", RESOURCEQUOTA]),
    name=names,
    uid=names,
    held=amounts,
    origin=st.one_of(st.just((RowState.NEW, 0)), st.tuples(st.just(RowState.FROM), st.integers(1, 2**63))),
)
def test_a_row_reads_back_as_it_was_written(
    kind: str, name: str, uid: str, held: Resources, origin: tuple[RowState, int]
) -> None:
    row = Row(kind, "" if kind == RESOURCEQUOTA else "scheduling.volcano.sh", name, uid, held, *origin)
    assert Row.parse(str(row)) == row


def test_a_row_reads_well() -> None:
    row = Row("PodGroup", "scheduling.volcano.sh", "train", "6f0c", Resources.parse({"memory": "4Gi", "cpu": "6"}))
    assert str(row) == "PodGroup scheduling.volcano.sh/train 6f0c cpu=6,memory=4Gi new"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it isn't of the form"),
        ("PodGroup g/a u cpu=1", "it isn't of the form"),
        ("PodGroup g/a u cpu=1 new plain extra", "it isn't of the form"),
        ("PodGroup g/a u cpu=1 new extra", "'extra' says nothing of scopes"),
        ("PodGroup g/a  cpu=1 new", "it isn't of the form"),
        ("PodGroup ga u cpu=1 new", "it isn't of the form"),
        ("Service g/a u cpu=1 new", "it isn't of the form"),
        ("PodGroup g/ u cpu=1 new", "it has no name"),
        ("PodGroup g/a u cpu new", "'cpu' is not one resource and its amount"),
        ("PodGroup g/a u cpu=1,cpu=2 new", "'cpu=2' is not one resource and its amount"),
        ("PodGroup g/a u cpu=-1 new", "negative"),
        ("PodGroup g/a u cpu=NaN new", "is not a quantity"),
        ("PodGroup g/a u cpu=1e19 new", "more than Kubernetes can count"),
        ("PodGroup g/a u requests.cpu=1 new", "it names a resource in a quota's spelling"),
        ("PodGroup g/a u cpu=1 from", "'from' is not a state"),
        ("PodGroup g/a u cpu=1 new:7", "'new:7' is not a state"),
        ("PodGroup g/a u cpu=1 from:07", "is not a positive integer"),
        ("PodGroup g/a u cpu=1 gone", "'gone' is not a state"),
        ("Job g/a u cpu=1 seen:7", "a Job is never seen"),
        ("Pods /a - cpu=1 seen:7", "'seen:7' is not a state of a Pods"),
        ("Pods /a - cpu=1 new", "a Pods is never new"),
        ("ResourceQuota /a u cpu=1 unreserved:7", "a ResourceQuota is never unreserved"),
    ],
)
def test_a_row_that_is_none_is_refused_and_says_why(text: str, why: str) -> None:
    with pytest.raises(MalformedLedgerError, match=why):
        Row.parse(text)


def test_a_sum_beyond_what_a_quantity_can_say_is_cut_and_still_exceeds_every_limit() -> None:
    most = Resources.parse({"memory": str(2**63 - 1)})
    assert bounded(most + most) == most


@pytest.mark.parametrize(
    "row", [Row("PodGroup", "g", "a b", "u", Resources({})), Row("Pod", "", "a", "u,", Resources({"a b": 1}))]
)
def test_a_row_that_nobody_could_read_is_not_written(row: Row) -> None:
    with pytest.raises(MalformedLedgerError):
        check(row, str(row))


def test_a_row_whose_text_says_something_else_is_not_written() -> None:
    row = Row("Pod", "", "a", "u", Resources({"cpu": NANO}))
    check(row, str(row))
    with pytest.raises(MalformedLedgerError, match="could not be read back"):
        check(Row("Pod", "", "a", "u", Resources({"cpu": 2 * NANO})), str(row))
    check(Row("Pod", "", "a", "u", Resources({"cpu": 2**99})), str(Row("Pod", "", "a", "u", Resources({"cpu": 2**99}))))
