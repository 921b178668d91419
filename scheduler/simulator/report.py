"""The result of a simulation, as values: for tables, for programs, and for plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from muster.model.objects import PodGroup
from scheduler.model.vectors import PODS
from scheduler.simulator.engine import Simulation
from scheduler.simulator.gangs import SimulatedGang
from scheduler.simulator.measures import Refusal
from scheduler.simulator.state import queue_json

Line = tuple[tuple[float, float], ...]
"""Beginnings of steps of time, in seconds, with the mean in each."""


class WaitingTimes(Struct, frozen=True):
    """How long groups waited until their minimum had nodes, in seconds, and how many these are."""

    started: int
    p50: float
    p95: float
    most: float

    @classmethod
    def of(cls, waits: Iterable[float]) -> WaitingTimes:
        """Sum up some waiting times."""
        line = sorted(waits)
        if not line:
            return cls(0, 0.0, 0.0, 0.0)
        return cls(len(line), _percentile(line, 50), _percentile(line, 95), line[-1])

    def json(self) -> dict[str, Any]:
        """Write it for programs."""
        return {"started": self.started, "p50": _round(self.p50), "p95": _round(self.p95), "max": _round(self.most)}


class QueueReport(Struct, frozen=True):
    """One queue.

    Attributes:
        arrived, waiting, refused: groups that came, those of them that never started, creations that were refused.
        used: the mean of its share: the largest part of any resource of the cluster that its pods took.
        held, deserved: the means of its share and of what it deserved, over the time when any group waited; deserved is
            None where no plugin divides the cluster.
        preempted, reclaimed, undone: pods that had to go: for others of the queue, for other queues, and for their own gang.
    """

    arrived: int
    waiting: int
    refused: int
    waits: WaitingTimes
    used: float
    held: float
    deserved: float | None
    preempted: int
    reclaimed: int
    undone: int

    def json(self) -> dict[str, Any]:
        """Write it for programs."""
        return {
            "arrived": self.arrived,
            "waiting": self.waiting,
            "refused": self.refused,
            "wait": self.waits.json(),
            "share": _part(self.used),
            "whileGroupsWait": {"share": _part(self.held), "deserved": _part(self.deserved)},
            "evicted": {"preempted": self.preempted, "reclaimed": self.reclaimed, "undone": self.undone},
        }


class UnstartedGroup(Struct, frozen=True):
    """A group that never started: how long it has waited, and why."""

    name: str
    queue: str
    waited: float
    why: str


class GroupLifetime(Struct, frozen=True):
    """A group over time: when it came, started and ended; None where it didn't."""

    name: str
    queue: str
    arrived: float
    started: float | None
    over: float | None


class SimulationReport(Struct, frozen=True):
    """All of it; ``seconds`` of cluster time.

    Attributes:
        contended: for which part of the time some group waited.
        state: the cluster at the end, in the form of ``muster simulate --cycles``.
        history: for plots: by resource, the part of the cluster in use; by queue, its share.
    """

    seconds: float
    cycles: int
    queues: Mapping[str, QueueReport]
    waits: WaitingTimes
    ended: int
    utilisation: Mapping[str, float]
    contended: float
    refusals: tuple[Refusal, ...]
    late: tuple[UnstartedGroup, ...]
    state: Mapping[str, Any]
    bars: tuple[GroupLifetime, ...]
    resources: Mapping[str, Line]
    shares: Mapping[str, Line]

    @property
    def arrived(self) -> int:
        """How many groups came."""
        return sum(queue.arrived for queue in self.queues.values())

    def json(self) -> dict[str, Any]:
        """Write it for programs: the state at the end, and with it what happened on the way."""
        return {
            **self.state,
            "report": {
                "clusterSeconds": _round(self.seconds),
                "arrived": self.arrived,
                "ended": self.ended,
                "wait": self.waits.json(),
                "utilisation": {name: _part(part) for name, part in self.utilisation.items()},
                "groupsWait": _part(self.contended),
                "queues": {name: queue.json() for name, queue in self.queues.items()},
                "refusals": [
                    {"at": _round(each.at), "object": each.subject, "queue": each.queue, "message": each.text}
                    for each in self.refusals
                ],
                "neverStarted": [
                    {"podGroup": each.name, "queue": each.queue, "waited": _round(each.waited), "why": each.why}
                    for each in self.late
                ],
            },
        }


def of(simulation: Simulation, end: float) -> SimulationReport:
    """Sum up a simulation that has run for ``end`` seconds."""
    measures, plan = simulation.measures, simulation.look()
    gangs = [gang for gang in simulation.lifecycle.history if gang.counted and gang.key is not None]
    contended = measures.waited.mean
    queues = {}
    by_queue: dict[str, list[SimulatedGang]] = {name: [] for name in measures.shares}
    for gang in gangs:
        by_queue.setdefault(gang.queue, []).append(gang)
    refused: dict[str, int] = {}
    for refusal in measures.refusals:
        refused[refusal.queue] = refused.get(refusal.queue, 0) + 1
    divided = any(share.deserved is not None for share in plan.queues.values())
    for name, mine in by_queue.items():
        series, held, due = measures.shares.get(name), measures.held.get(name), measures.deserved.get(name)
        queues[name] = QueueReport(
            arrived=len(mine),
            waiting=sum(gang.started is None for gang in mine),
            refused=refused.get(name, 0),
            waits=WaitingTimes.of(_wait(gang) for gang in mine if gang.started is not None),
            used=series.mean if series is not None else 0.0,
            held=held.mean / contended if held is not None and contended else 0.0,
            deserved=due.mean / contended if due is not None and contended and divided else None,
            preempted=measures.preempted[name],
            reclaimed=measures.reclaimed[name],
            undone=measures.undone[name],
        )
    return SimulationReport(
        seconds=end,
        cycles=simulation.cycles,
        queues=queues,
        waits=WaitingTimes.of(_wait(gang) for gang in gangs if gang.started is not None),
        ended=sum(gang.over is not None for gang in gangs),
        utilisation={name: series.mean for name, series in sorted(measures.resources.items()) if name != PODS},
        contended=contended,
        refusals=tuple(measures.refusals),
        late=tuple(_late(simulation, gang, end) for gang in simulation.lifecycle.history if _never(gang)),
        state=_state(simulation),
        bars=tuple(GroupLifetime(gang.name, gang.queue, gang.arrived, gang.started, gang.over) for gang in gangs),
        resources={name: series.history() for name, series in sorted(measures.resources.items()) if name != PODS},
        shares={name: series.history() for name, series in measures.shares.items()},
    )


def _wait(gang: SimulatedGang) -> float:
    return (gang.started or 0.0) - gang.arrived


def _never(gang: SimulatedGang) -> bool:
    """Whether a group waits to the end, or its pods name one that there isn't."""
    return gang.counted and gang.started is None and bool(gang.home[1])


def _late(simulation: Simulation, gang: SimulatedGang, end: float) -> UnstartedGroup:
    why = f"there is no PodGroup {gang.name}, which its pods name; add it to the files"
    if gang.key is not None:
        record = simulation.look().records.get(gang.key)
        why = record.message if record is not None else ""
    return UnstartedGroup(gang.name, gang.queue, end - gang.arrived, why)


def _state(simulation: Simulation) -> dict[str, Any]:
    """Write the cluster at the end as one decision on it is written."""
    plan, lifecycle = simulation.look(), simulation.lifecycle
    there = [(gang, group) for gang in lifecycle.gangs.values() if (group := simulation.group(gang)) is not None]
    pipelined: dict[str, dict[str, str]] = {}
    for bind in plan.pipelined:
        pipelined.setdefault(str(bind.group), {})[str(bind.task)] = bind.node
    return {
        "cycles": simulation.cycles,
        "binds": {
            f"{pod.namespace}/{pod.name}": pod.spec.node_name
            for gang, _ in there
            for pod in gang.pods.values()
            if pod.spec.node_name
        },
        "evicted": list(lifecycle.leavers),
        "pipelined": pipelined,
        "podgroups": {gang.name: _group(group) for gang, group in there},
        "queues": {name: queue_json(share) for name, share in plan.queues.items()},
        "tasks": {gang.name: _tasks(gang) for gang, _ in there},
    }


def _group(group: PodGroup) -> dict[str, Any]:
    conditions = group.status.conditions or ()
    return {
        "phase": group.status.phase or "Pending",
        "conditions": [msgspec.to_builtins(each) for each in conditions],
        "reason": next((each.reason for each in conditions if each.status == "True"), ""),
    }


def _tasks(gang: SimulatedGang) -> dict[str, int]:
    running = len(gang.running)
    failed = sum(pod.status.phase == "Failed" for pod in gang.ended.values())
    succeeded = len(gang.ended) - failed
    counts = {"Pending": len(gang.pods) - running, "Running": running, "Succeeded": succeeded, "Failed": failed}
    return {status: count for status, count in counts.items() if count}


def _percentile(line: list[float], part: int) -> float:
    """Return the smallest value that so many of a hundred don't exceed."""
    return line[max(-(-len(line) * part // 100), 1) - 1]


def _round(seconds: float) -> float:
    return round(seconds, 3)


def _part(part: float | None) -> float | None:
    return round(part, 6) if part is not None else None
