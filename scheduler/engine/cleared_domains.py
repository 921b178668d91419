"""The choice of the domain of the network that is cleared: the one where the fewest have to leave, of those that were tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from scheduler.engine.class_scores import Scope
from scheduler.engine.session import Session
from scheduler.engine.statement import Statement
from scheduler.engine.states import priority

Cost = tuple[int, int]
"""How many leave, and the highest priority among those whose pods they are: the less the better."""
_MOST_CLEARED: Final = 8
"""So many domains of one tier that can be cleared are compared; what is emptiest already is tried first."""
_MOST_TRIED: Final = 16
_MOST_PLACED: Final = 512
"""Pods that are placed for the comparison, all domains together."""


def cost_of(session: Session, statement: Statement, start: int = 0) -> Cost:
    """Return what the evictions of a statement come to, of its operations from one on."""
    victims = statement.victims(start)
    return len(victims), max((priority(job.info, session.snapshot.priorities) for job in victims), default=0)


def fewest_first(
    scopes: Iterable[Scope | None], cost: Callable[[Scope | None], Cost | None], pods: int
) -> Iterator[Scope | None]:
    """Sort domains, tier by tier, by what clearing them costs; those come last for which nobody knows. Nodes of no tier stay where they are.

    ``cost`` tries a domain and undoes that; None where it can't be cleared. ``pods``: how many are placed each time.
    """
    for number, tier in groupby(scopes, key=_tier):
        found = iter(tier)
        yield from found if number is None else _sorted(list(found), cost, pods)


def _tier(scope: Scope | None) -> int | None:
    return scope.tier if scope is not None else None


def _sorted(
    scopes: Sequence[Scope | None], cost: Callable[[Scope | None], Cost | None], pods: int
) -> Iterator[Scope | None]:
    tries = min(len(scopes), _MOST_TRIED, _MOST_PLACED // max(pods, 1))
    found: list[tuple[Cost, int]] = []
    for at, scope in enumerate(scopes[:tries] if tries > 1 else ()):
        if (known := cost(scope)) is not None:
            found.append((known, at))
        if len(found) == _MOST_CLEARED:
            break
    first = [at for _, at in sorted(found)]
    yield from (scopes[at] for at in (*first, *(at for at in range(len(scopes)) if at not in first)))
