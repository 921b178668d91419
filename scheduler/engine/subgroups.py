"""The subgroups of a job, in the order in which they are placed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.engine.states import JobState
from scheduler.model.network_topology import SubGroupKey
from scheduler.model.snapshot import Task

Chunk = tuple[SubGroupKey | None, Sequence[Task]]
"""Tasks of a subgroup, or in none, that are placed together."""
Begun = tuple[SubGroupKey, Sequence[Task]]
"""Tasks of a subgroup that starts by them."""
_ANYWHERE: Final = float("inf")


def chunks(job: JobState, *, whole: bool) -> tuple[list[Begun], list[Chunk]]:
    """Return what of a job waits: the subgroups that start, those first that its minimum needs, and the other tasks one by one.

    Of a subgroup as many go together as start together, or all of its ``whole``. A subgroup too few pods of which exist isn't among them.

    Of several those come first for which there are the fewest places: those whose pods have to be closest, those of which pods run already, and
    those of which the most wait.
    """
    line: dict[SubGroupKey | None, list[Task]] = {}
    for task in job.waiting:
        line.setdefault(task.subgroup, []).append(task)
    begun, single = list[Begun](), list[Chunk]()
    for key, tasks in line.items():
        lacks = _lacks(job, key) if key is not None else 0
        if lacks > len(tasks):
            continue
        if key is not None and lacks:
            first = len(tasks) if whole else lacks
            begun.append((key, tasks[:first]))
            lacks = first
        single += [(key, [task]) for task in tasks[lacks:]]
    needed = set(_needed(job, begun))

    def urgency(each: Begun) -> tuple[bool, float, bool, int]:
        topology = job.info.subgroups[each[0][0]].topology
        distance = _ANYWHERE if topology is None or not topology.required else topology.reach
        return each[0] not in needed, distance, not job.in_subgroup(each[0], pipelined=True), -len(line[each[0]])

    return sorted(begun, key=urgency), single


def _lacks(job: JobState, key: SubGroupKey) -> int:
    return max(job.info.subgroups[key[0]].size - job.in_subgroup(key, pipelined=True), 0)


def _needed(job: JobState, begun: Sequence[Begun]) -> Iterator[SubGroupKey]:
    """Return the subgroups that make up what each policy requires: those first that lack the least."""
    for place, policy in enumerate(job.info.subgroups):
        due = policy.minimum - job.complete_subgroups(place, pipelined=True)
        mine = sorted((len(tasks), at) for at, (key, tasks) in enumerate(begun) if key[0] == place)
        yield from (begun[at][0] for _, at in mine[: max(due, 0)])


def completed_by(job: JobState, key: SubGroupKey, tasks: Sequence[Task]) -> bool:
    """Whether a subgroup has as many tasks as start together once these are placed."""
    return _lacks(job, key) <= len(tasks)
