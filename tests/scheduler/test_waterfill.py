"""Division by weight, on values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.plugins import proportion
from scheduler.plugins.waterfill import Demand, fill

LOTS = 10**6


@pytest.mark.parametrize(
    ("amount", "demands", "parts"),
    [
        (12, [Demand(1, LOTS), Demand(3, LOTS)], [3, 9]),
        (12, [Demand(1, 1), Demand(1, LOTS), Demand(1, LOTS)], [1, 6, 5]),
        (12, [Demand(1, LOTS), Demand(1, LOTS, floor=10)], [2, 10]),
        (10, [Demand(1, LOTS, floor=2), Demand(1, LOTS)], [5, 5]),
        (10, [Demand(1, 0, floor=4), Demand(1, LOTS)], [4, 6]),
        (2, [Demand(1, LOTS), Demand(1, LOTS), Demand(1, LOTS)], [1, 1, 0]),
        (100, [Demand(1, 10), Demand(1, 20)], [10, 20]),
        (5, [Demand(1, LOTS, floor=4), Demand(1, LOTS, floor=4)], [4, 4]),
        (0, [Demand(1, LOTS)], [0]),
        (7, [], []),
    ],
    ids=[
        "weights",
        "most",
        "floor",
        "floor below share",
        "floor above most",
        "steps",
        "more than asked",
        "too many floors",
        "nothing",
        "nobody",
    ],
)
def test_each_gets_its_weight_within_its_bounds(amount, demands, parts):
    assert fill(amount, demands) == parts


demands = st.lists(st.builds(Demand, st.integers(1, 9), st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=6)


@given(st.integers(0, 200), demands)
def test_nothing_is_lost_and_no_bound_is_broken(amount, demands):
    parts = fill(amount, demands)
    for part, claim in zip(parts, demands, strict=True):
        assert claim.floor <= part <= max(claim.most, claim.floor)
    floors, most = sum(claim.floor for claim in demands), sum(max(claim.most, claim.floor) for claim in demands)
    assert sum(parts) == max(min(amount, most), floors)


@given(st.integers(0, 200), demands)
def test_nobody_below_its_most_has_less_for_its_weight_than_another_above_its_floor(amount, demands):
    parts = fill(amount, demands)
    for mine, my in zip(parts, demands, strict=True):
        for theirs, other in zip(parts, demands, strict=True):
            if mine < my.most and theirs > other.floor:
                # One step of rounding on either side.
                assert (theirs - 1) * my.weight <= (mine + 1) * other.weight


amounts = st.one_of(st.none(), st.integers(0, 12))
queues = st.lists(st.tuples(st.integers(0, 3), amounts, amounts, st.integers(0, 9)), min_size=1, max_size=4)


class Slow(proportion._Bounds):
    """Bounds that look as though somebody had no weight."""

    weighted = property(lambda _: False, lambda *_: None)


@given(queues=queues)
@settings(max_examples=50)
def test_where_nobody_stands_in_anybodys_way_the_whole_division_comes_to_the_same(make_build, queues):
    def divided():
        build = make_build().node("a", "16")
        for number, (weight, capability, guarantee, asked) in enumerate(queues):
            limits = {"capability": {"cpu": capability}} if capability is not None else {}
            if guarantee is not None:
                limits["guarantee"] = {"resource": {"cpu": guarantee}}
            build.queue(f"q{number}", weight=weight, **limits)
            build.gang(f"g{number}", asked, asked, queue=f"q{number}")
        return build.decide().queues

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proportion, "_Bounds", Slow)
        whole = divided()
    assert divided() == whole
