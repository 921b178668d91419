"""Division of one resource among weighted demands, in whole steps, nothing lost to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Demand(NamedTuple):
    """One demand: its weight, the most it may and wants to have, and what it gets in any case."""

    weight: int
    most: int
    floor: int = 0


def fill(amount: int, demands: Sequence[Demand]) -> list[int]:
    """Return each demand its part of ``amount``: by weight, but at least its floor and at most its most.

    Claims that weights alone would put beyond a bound are settled at it and leave, those on the side that matters
    more first; the others share what is left again. Steps that weights can't divide go one each to the first in order.
    """
    wishes = [max(demand.most, demand.floor) for demand in demands]
    if sum(wishes) <= amount and all(demand.weight > 0 for demand in demands):
        return wishes  # Nobody stands in anybody's way, which is nearly always so.
    parts = [0] * len(demands)
    left, open_ = amount, list(range(len(demands)))
    while open_:
        # Offers and bounds are compared times the sum of the weights, so that nothing is rounded before the end.
        weights = sum(demands[index].weight for index in open_) or 1
        offers = {index: max(left, 0) * demands[index].weight for index in open_}
        bound = {index: _clamp(offers[index], demands[index], weights) for index in open_}
        excess = sum(bound[index] - offers[index] for index in open_)
        if excess > 0:
            settled = [index for index in open_ if bound[index] > offers[index]]
        elif excess < 0:
            settled = [index for index in open_ if bound[index] < offers[index]]
        else:
            settled = open_
        for index in settled:
            parts[index] = bound[index] // weights
            left -= parts[index]
        if settled is open_:
            break
        open_ = [index for index in open_ if index not in set(settled)]
    return _remainder(parts, left, demands, open_)


def _clamp(offer: int, demand: Demand, times: int) -> int:
    return max(min(offer, demand.most * times), demand.floor * times)


def _remainder(parts: list[int], left: int, demands: Sequence[Demand], open_: list[int]) -> list[int]:
    """Hand out the steps that the last division by weight left over: fewer than there are demands."""
    for index in open_:
        if left > 0 and parts[index] < demands[index].most and demands[index].weight:
            parts[index] += 1
            left -= 1
    return parts
