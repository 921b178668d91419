"""What is held back when the window of a namespace closes, on values."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.ledger import closing
from muster.ledger.namespace_view import NamespaceView, Tombstones
from muster.ledger.reservations import JOB
from muster.ledger.rows import Row
from muster.ledger.table import Table
from muster.ledger.view import POD_SOURCE, QUOTA_SOURCE, ObservedGroup, ObservedPod, ObservedQuota, source
from muster.model.amounts import NOTHING, Resources
from muster.model.names import VOLCANO_GROUP

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HARD = 10


def cpu(amount: int) -> Resources:
    return Resources.parse({"cpu": str(amount)}) if amount else NOTHING


def view_of(groups: dict[str, int], pods: list[tuple[str, int]], at: int = 100) -> NamespaceView:
    """Groups by name, the oldest first; pods as (group, cpu)."""
    view = NamespaceView({source(VOLCANO_GROUP): at, QUOTA_SOURCE: at, POD_SOURCE: at}, Tombstones())
    view.put_quota(ObservedQuota("team", "u-team", 5, cpu(HARD)))
    for place, (name, amount) in enumerate(groups.items()):
        view.put(ObservedGroup(VOLCANO_GROUP, name, f"u-{name}", 10 + place, cpu(amount)))
    for number, (group, amount) in enumerate(pods):
        view.put_pod(ObservedPod(f"p-{number}", group, 50, cpu(amount)))
    return view


def unreserved(table: Table) -> set[str]:
    return {uid.removeprefix("u-") for uid in table.unreserved}


def test_the_newest_group_that_no_longer_fits_holds_nothing() -> None:
    groups = {"old": 4, "new": 6}
    table = Table().seed(view_of(groups, []), NOW)
    held = closing.hold_back(table, view_of(groups, [("", 3)], 101), ())
    assert held is not None
    assert unreserved(held) == {"new"}
    assert not held.overcommitted()


def test_a_group_whose_pods_are_all_there_and_wait_is_held_back_too() -> None:
    table = Table().seed(view_of({"gang": 6}, []), NOW)
    view = view_of({"gang": 6}, [("", 5), ("gang", 6)], 101)
    held = closing.hold_back(table, view, ())
    assert held is not None
    assert unreserved(held) == {"gang"}
    assert unreserved(held.fold(view)) == {"gang"}
    assert unreserved(held.fold(view_of({"gang": 6}, [("", 4), ("gang", 6)], 102))) == set()


def test_where_everything_fits_nothing_changes() -> None:
    table = Table().seed(view_of({"gang": 6}, []), NOW)
    view = view_of({"gang": 6}, [("", 4)], 101)
    assert closing.hold_back(table, view, ()) == table.fold(view)


def test_an_older_view_decides_nothing() -> None:
    assert closing.hold_back(Table().seed(view_of({}, []), NOW), view_of({}, [], 99), ()) is None


def test_a_group_that_has_yet_to_appear_is_waited_for_where_too_much_is_taken() -> None:
    table = Table().seed(view_of({}, []), NOW)
    coming = replace(table, rows=(Row(JOB, VOLCANO_GROUP, "gang", "u-job", cpu(6)),))
    fits, over = (closing.hold_back(coming, view_of({}, [("", plain)], 101), ()) for plain in (4, 5))
    assert fits is not None
    assert over is not None
    assert closing.settled(fits)
    assert not closing.settled(over)


NAMES = ("a", "b", "c", "d")


@given(
    st.dictionaries(st.sampled_from(NAMES), st.integers(1, 8), max_size=4),
    st.lists(st.tuples(st.sampled_from(("", *NAMES)), st.integers(1, 4)), max_size=6),
    st.sets(st.sampled_from(NAMES)),
)
def test_who_may_start_fits_beside_all_that_is_there(
    groups: dict[str, int], pods: list[tuple[str, int]], started: set[str]
) -> None:
    table = Table().seed(view_of(groups, []), NOW)
    view = view_of(groups, pods, 101)
    held = closing.hold_back(table, view, started)
    assert held is not None
    used = {name: sum(amount for group, amount in pods if group == name) for name in ("", *NAMES)}
    left = unreserved(held)

    def total(without: set[str]) -> int:
        return sum(max(groups.get(name, 0) if name not in without else 0, used[name]) for name in used)

    assert not left & started
    kept = set(groups) - left - started
    # Either all that may start fits, or nothing that hasn't started may.
    assert total(left) <= HARD or not kept
    # Nobody is held back without need: not where everything fitted.
    assert bool(left) <= (total(set()) > HARD)
    assert unreserved(held.fold(view)) == left
