"""The reason why a job that may run has no nodes: sentences and counts from the state at the end of a cycle."""

from __future__ import annotations

from collections import Counter
from functools import reduce

import numpy as np
from msgspec import Struct

from muster.model.amounts import Resources, amount_text
from muster.model.text import counted
from scheduler.engine import explain_devices, explain_network, messages
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model import vectors
from scheduler.model.obstacle import Limit, Obstacle, Reason, Stage
from scheduler.model.records import KeptNodes, NodeReport
from scheduler.model.snapshot import Task, TaskClass
from scheduler.model.vectors import PODS, Mask, Vector


class _NodesOfClass(Struct, frozen=True):
    """How the nodes look to a class: which take it at all, what is free there, and for how many of it there is room."""

    open_: Mask
    free: Vector
    room: int
    refusals: tuple[tuple[str, int], ...]


class Explanations:
    """Explains jobs of one session. What is true of a class of tasks is worked out once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._looks: dict[tuple[TaskClass, bool], _NodesOfClass] = {}

    def of(self, job: JobState, kind: TaskClass) -> Obstacle:
        """Say what keeps the tasks of ``kind`` from a node."""
        if kind.constraints.unsupported:
            uses = ", ".join(kind.constraints.unsupported)
            text = f"its pods use {uses}, which Muster doesn't evaluate yet: they wait rather than be misplaced"
            return Obstacle(Reason.NOT_ENOUGH_RESOURCES, text, Stage.NODES)
        trouble = self._session.trouble(kind.constraints)
        if trouble:
            return Obstacle(Reason.NOT_ENOUGH_RESOURCES, trouble, Stage.NODES)
        look, axes = self._look(job, kind), self._session.axes
        count = self._count(job, kind)
        if kind.constraints.devices and (lack := explain_devices.shortage(self._session, kind, count, look.open_)):
            return _obstacle(lack + self._others(look.refusals))
        count, wanted = self._wanted(job, kind)
        if look.open_.any() and not vectors.fits(wanted, look.free):
            where = "free in the cluster" if look.open_.all() else f"free on {_those(int(look.open_.sum()), count)}"
            short = axes.resources(vectors.short(wanted, look.free))
            where += self._session.devices.stood_for(short)
            limit = Limit("cluster", "", short)
            return _obstacle(
                messages.shortage(count, wanted, look.free, axes, where) + self._others(look.refusals), limit
            )
        count = self._count(job, kind)
        apart = explain_network.sentence(self._session, job, kind, count) if job.info.network_bound else ""
        if apart:
            return _obstacle(apart + self._others(look.refusals))
        each = axes.resources(self._session.vector(kind)).only(kind.request)
        with_devices = explain_devices.with_claims(self._session, kind, count) if kind.constraints.devices else ""
        asks = f"{counted(count, 'pod')} of {each}{with_devices} {'needs' if count == 1 else 'need'} a node"
        if look.room >= count:
            return _obstacle(f"{asks}; {self._side_by_side(job, kind)}")
        return _obstacle(f"{asks}; the nodes have room for {look.room or 'none'}{self._others(look.refusals)}")

    def _side_by_side(self, job: JobState, kind: TaskClass) -> str:
        """Say how far its pods get, where each of them alone would find a node: they are in each other's way."""
        session, placed = self._session, 0
        with session.reservation.visible_to(job), session.statement() as trial:
            tasks = [*job.waiting, *job.unplaced]
            for task in tasks:
                row = session.picker.best(task.task_class)
                if row is not None:
                    trial.allocate(job, [task], [row])
                    placed += 1
            refusals = tuple(session.extensions.objections(kind))
        return f"placed one by one, {placed or 'none'} of {len(tasks)} {'finds' if placed == 1 else 'find'} one{self._others(refusals)}"

    def shortage(self, job: JobState, kind: TaskClass) -> Obstacle | None:
        """Say what the nodes lack for the minimum of a job; None when it isn't room that is missing."""
        return self.of(job, kind) if self._look(job, kind).room < self._count(job, kind) else None

    def nodes(self, job: JobState, kind: TaskClass) -> NodeReport:
        """Count the nodes as pods of ``kind`` see them."""
        look, session = self._look(job, kind), self._session
        with session.reservation.visible_to(job):
            fitting = int((session.picker.places(kind, session.idle[look.open_]) > 0).sum())
            nearest = "" if look.room or not look.open_.any() else self._nearest(kind, look.open_)
        holder = session.reservation.job
        kept = None
        if holder is not None and holder is not job and session.reservation.rows:
            kept = KeptNodes(len(session.reservation.rows), str(holder.info.key), holder.info.title)
        total = len(session.snapshot.table.nodes)
        return NodeReport(total, look.refusals, fitting, look.room, self._count(job, kind), nearest, kept)

    def _count(self, job: JobState, kind: TaskClass) -> int:
        """Return how many pods of a class the minimum lacks."""
        missing = max(self._session.extensions.missing(job), 1)
        others = sum(task.task_class is not kind for task in self._next(job, missing))
        return max(missing - others, 1)

    def _wanted(self, job: JobState, kind: TaskClass) -> tuple[int, Vector]:
        """Return how many pods are looked for, and what they need: all that are missing, where the same nodes take them."""
        missing = max(self._session.extensions.missing(job), 1)
        kinds = [task.task_class for task in self._next(job, missing)]
        if kind not in kinds or any(each.constraints != kind.constraints for each in set(kinds)):
            count = self._count(job, kind)
            return count, vectors.scale(self._session.vector(kind), count)
        # Those that don't exist yet are taken to be like the one that is asked about.
        many = Counter([*kinds, *([kind] * (missing - len(kinds)))])
        amounts = (vectors.scale(self._session.vector(each), times) for each, times in many.items())
        return missing, reduce(vectors.add, amounts)

    def _next(self, job: JobState, count: int) -> list[Task]:
        return [*job.waiting, *job.unplaced][:count]

    def _look(self, job: JobState, kind: TaskClass) -> _NodesOfClass:
        session = self._session
        key = (kind, job is session.reservation.job)
        known = self._looks.get(key)
        if known is None:
            with session.reservation.visible_to(job):
                open_ = session.picker.open_to(kind)
                free = vectors.total(session.idle[open_].clip(min=0))
                known = _NodesOfClass(
                    open_, free, session.picker.room(kind), tuple(session.extensions.objections(kind))
                )
            self._looks[key] = known
        return known

    def _nearest(self, kind: TaskClass, open_: Mask) -> str:
        """Say which resource the most nodes lack that have all else; where none has all else, what is missing least."""
        axes, wanted = self._session.axes, self._session.picker.row_of(kind)
        places = np.flatnonzero(wanted)
        idle = self._session.idle[open_].clip(min=0)
        has = idle[:, places] >= wanted[places]
        for index in np.argsort(has.sum(axis=0), kind="stable").tolist():
            place = int(places[index])
            others = has[:, [each for each in range(len(places)) if each != index]].all(axis=1) & ~has[:, index]
            if others.any():
                short = int((wanted[place] - idle[others, place]).min())
                rest = [axes.names[each] for each in places.tolist() if each != place and axes.names[each] != PODS]
                return _almost(int(others.sum()), rest, self._alone(place, short))
        lacks = np.maximum(wanted[places] - idle[:, places], 0)
        nearest = int((lacks / wanted[places]).max(axis=1).argmin())
        missing = np.zeros_like(wanted)
        missing[places] = lacks[nearest]
        name = self._session.snapshot.table.names[int(np.flatnonzero(open_)[nearest])]
        return f"the nearest fit is node {name}: {axes.resources(tuple(missing.tolist()))} short"

    def _alone(self, place: int, steps: int) -> Resources:
        axes = self._session.axes
        return axes.resources(tuple(steps if each == place else 0 for each in range(len(axes.names))))

    def _others(self, refusals: tuple[tuple[str, int], ...]) -> str:
        found = [f"{count} {'is' if count == 1 else 'are'} {words}" for words, count in refusals]
        total = len(self._session.snapshot.table.nodes)
        return f" (of {counted(total, 'node')} {', '.join(found)})" if found else ""


def _almost(count: int, rest: list[str], short: Resources) -> str:
    """Write ``2 nodes have the cpu, none of these the memory: 1.5Gi short``."""
    ((name, nano),) = short.nano.items()
    lacking = "a place for another pod" if name == PODS else f"the {name}: {amount_text(name, nano)} short"
    if not rest:
        return f"{counted(count, 'node')} {'lacks' if count == 1 else 'lack'} nothing but {lacking}"
    there = f"{counted(count, 'node')} {'has' if count == 1 else 'have'} the {' and the '.join(rest)}"
    return f"{there}, {'not' if count == 1 else 'none of these'} {lacking}"


def _those(nodes: int, pods: int) -> str:
    """Write ``the 1 node that takes it``."""
    return f"the {counted(nodes, 'node')} that {'takes' if nodes == 1 else 'take'} {'it' if pods == 1 else 'them'}"


def _obstacle(message: str, limit: Limit | None = None) -> Obstacle:
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, message, Stage.NODES, limit, nodes=True)
