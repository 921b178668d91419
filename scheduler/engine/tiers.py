"""Combines the answers of plugins by tier: the plugins to ask, the result of a vote, the victims that they agree on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from scheduler.engine.plugin import POINTS, Permit, Plugin, Vote, defines
from scheduler.engine.states import JobState
from scheduler.model.obstacle import Obstacle
from scheduler.model.snapshot import Task

_KNOWN: Final[dict[tuple[type[Plugin], frozenset[str], bool], tuple[str, ...]]] = {}


def points(plugin: type[Plugin], enabled: frozenset[str], *, isolated: bool) -> tuple[str, ...]:
    """Return the extension points of a plugin that are on; worked out once, since a session is opened for each cycle."""
    key = (plugin, enabled, isolated)
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = tuple(
            point for point in POINTS if point in enabled and _has(plugin, point, isolated=isolated)
        )
    return known


def _has(plugin: type[Plugin], point: str, *, isolated: bool) -> bool:
    """Whether a plugin has an extension point; a user's that refuses nodes is named even where it gives no reasons."""
    return defines(plugin, point) or (isolated and point == "objections" and defines(plugin, "feasible"))


def victims(
    tiers: list[list[Callable[..., Sequence[Task] | None]]],
    preemptor: Task,
    candidates: Sequence[Task],
    besides: Collection[str] = frozenset(),
) -> list[Task]:
    """Take the first tier whose plugins agree on somebody to whom no guard of any tier objects.

    ``besides``: uids of candidates that need no plugin's choice; guards may object to them, too.
    """
    guards = [method for tier in tiers for method in tier if plugin_of(method).guards]
    for tier in tiers:
        answers = [method(preemptor, candidates) for method in tier if not plugin_of(method).guards]
        agreed = [{task.uid for task in answer} for answer in answers if answer is not None]
        if answers and not agreed:
            continue
        chosen = [task for task in candidates if task.uid in besides or all(task.uid in each for each in agreed)]
        if spared := _unguarded(guards, preemptor, chosen):
            return spared
    return _unguarded(guards, preemptor, [task for task in candidates if task.uid in besides])


def _unguarded(
    guards: Sequence[Callable[..., Sequence[Task] | None]], preemptor: Task, chosen: Sequence[Task]
) -> list[Task]:
    """Return those of the chosen to whom no guard objects.

    A guard counts whom it lets go, so that one whom a later guard keeps would take the turn of another. Whom the last of several
    keeps stays in any case, since all whom it counted go; the others are asked again without them.
    """
    left = list(chosen)
    while left:
        passed, kept = left, list[set[str]]()
        for method in guards:
            answer = method(preemptor, passed) if passed else None
            if answer is not None and len(answer) < len(passed):
                kept.append({task.uid for task in passed} - {task.uid for task in answer})
                passed = list(answer)
        if len(kept) < 2:
            return passed
        left = [task for task in left if task.uid not in kept[-1]]
    return left


def plugin_of(method: Callable[..., object]) -> Plugin:
    """Return the plugin whose method this is."""
    plugin: Plugin = getattr(method, "__self__")  # noqa: B009 - a callable needn't have one, that of a plugin has
    return plugin


def vote(tiers: list[list[Callable[..., Vote]]], job: JobState) -> Obstacle | None:
    """Return what speaks against a job: in a tier a rejection wins at once; the first tier with a permit decides."""
    for tier in tiers:
        against, permitted = list[Obstacle](), False
        for method in tier:
            given = method(job)
            if isinstance(given, Obstacle):
                against.append(given)
            elif isinstance(given, Permit):
                permitted = True
        if against:
            # What more nodes wouldn't help is told first: nobody is to make nodes in vain.
            return min(against, key=lambda vote: vote.nodes)
        if permitted:
            return None
    return None
