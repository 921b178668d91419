"""How what plugins say is put together: which of them are asked, what votes come to, whom they agree to evict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from scheduler.engine.plugin import POINTS, Permit, Plugin, Vote, defines, is_guard
from scheduler.engine.states import JobState
from scheduler.model.obstacle import Obstacle
from scheduler.model.snapshot import Task

_KNOWN: Final[dict[tuple[type[Plugin], frozenset[str], bool], tuple[str, ...]]] = {}


def points(plugin: type[Plugin], enabled: frozenset[str], *, guarded: bool) -> tuple[str, ...]:
    """Return the extension points of a plugin that are on; worked out once, since a session is opened for each cycle."""
    key = (plugin, enabled, guarded)
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = tuple(
            point for point in POINTS if point in enabled and _has(plugin, point, guarded=guarded)
        )
    return known


def _has(plugin: type[Plugin], point: str, *, guarded: bool) -> bool:
    """Whether a plugin has an extension point; a user's that refuses nodes is named even where it gives no reasons."""
    return defines(plugin, point) or (guarded and point == "objections" and defines(plugin, "feasible"))


def victims(
    tiers: list[list[Callable[..., Sequence[Task] | None]]], claimant: Task, candidates: Sequence[Task]
) -> list[Task]:
    """Take the first tier whose plugins agree on somebody to whom no guard of any tier objects."""
    guards = [ask for tier in tiers for ask in tier if is_guard(ask)]
    for tier in tiers:
        answers = [ask(claimant, candidates) for ask in tier if not is_guard(ask)]
        agreed = [{task.uid for task in answer} for answer in answers if answer is not None]
        if answers and not agreed:
            continue
        chosen = [task for task in candidates if all(task.uid in each for each in agreed)]
        for ask in guards:
            answer = ask(claimant, chosen) if chosen else None
            chosen = list(answer) if answer is not None else chosen
        if chosen:
            return chosen
    return []


def about_room(ask: Callable[..., object]) -> bool:
    """Whether an extension point belongs to a plugin that votes on room."""
    plugin = getattr(ask, "__self__", None)
    return isinstance(plugin, Plugin) and plugin.about_room


def divides(ask: Callable[..., object]) -> bool:
    """Whether it belongs to a plugin that speaks of shares."""
    plugin = getattr(ask, "__self__", None)
    return isinstance(plugin, Plugin) and plugin.divides


def by_amount(ask: Callable[..., object]) -> bool:
    """Whether it belongs to a plugin that goes by amounts alone."""
    plugin = getattr(ask, "__self__", None)
    return isinstance(plugin, Plugin) and plugin.by_amount


def vote(tiers: list[list[Callable[..., Vote]]], job: JobState) -> Obstacle | None:
    """Return what speaks against a job: in a tier a rejection wins at once; the first tier with a permit decides."""
    for tier in tiers:
        votes = [ask(job) for ask in tier]
        against = [vote for vote in votes if isinstance(vote, Obstacle)]
        if against:
            # What more nodes wouldn't help is told first: nobody is to make nodes in vain.
            return min(against, key=lambda vote: vote.nodes)
        if any(isinstance(vote, Permit) for vote in votes):
            return None
    return None
