"""Why a job that may run has no nodes: a sentence from the state at the end of a cycle."""

from __future__ import annotations

from scheduler import messages, vectors
from scheduler.messages import counted
from scheduler.plugin import Obstacle, Reason
from scheduler.session import JobState, Session
from scheduler.snapshot import TaskClass


class Explanations:
    """Explains jobs of one session. What is true of a class of tasks is worked out once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rooms: dict[TaskClass, int] = {}
        self._reasons: dict[TaskClass, str] = {}

    def of(self, job: JobState, kind: TaskClass) -> Obstacle:
        """Say what keeps the tasks of ``kind`` from a node."""
        if kind.constraints.unsupported:
            uses = ", ".join(kind.constraints.unsupported)
            text = f"its pods use {uses}, which Muster doesn't evaluate yet: they wait rather than be misplaced"
            return Obstacle(Reason.NOT_ENOUGH_RESOURCES, text)
        trouble = self._session.volumes.trouble(kind.constraints)
        if trouble:
            return Obstacle(Reason.NOT_ENOUGH_RESOURCES, trouble)
        count = max(self._session.missing(job), 1)
        axes, wanted = self._session.axes, vectors.scale(kind.vector(self._session.axes), count)
        open_ = self._session.picker.open_to(kind)
        if open_.any():
            idle = self._session.idle[open_]
            free = vectors.total(idle.clip(min=0))
            if not vectors.fits(wanted, free):
                where = (
                    "free in the cluster"
                    if open_.all()
                    else f"free on the {counted(int(open_.sum()), 'node')} that take them"
                )
                return _obstacle(messages.shortage(count, wanted, free, axes, where) + self._others(kind))
        room = self._room(kind)
        each = axes.resources(kind.vector(axes)).only(kind.request)
        asks = f"{counted(count, 'pod')} of {each} {'needs' if count == 1 else 'need'} a node"
        return _obstacle(f"{asks}; the nodes have room for {room or 'none'}{self._others(kind)}")

    def shortage(self, job: JobState, kind: TaskClass) -> Obstacle | None:
        """Say what the nodes lack for the minimum of a job; None when it isn't room that is missing."""
        return self.of(job, kind) if self._room(kind) < max(self._session.missing(job), 1) else None

    def _room(self, kind: TaskClass) -> int:
        if kind not in self._rooms:
            self._rooms[kind] = self._session.picker.room(kind)
        return self._rooms[kind]

    def _others(self, kind: TaskClass) -> str:
        if kind not in self._reasons:
            total = len(self._session.snapshot.table.nodes)
            found = [
                f"{count} {'is' if count == 1 else 'are'} {words}" for words, count in self._session.objections(kind)
            ]
            self._reasons[kind] = f" (of {counted(total, 'node')} {', '.join(found)})" if found else ""
        return self._reasons[kind]


def _obstacle(message: str) -> Obstacle:
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, message, nodes=True)
