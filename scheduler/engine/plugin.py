"""The base class of plugins: each method that a plugin defines is an extension point.

A plugin object lives for one cycle, as the session does, which is empty afterwards. It is given its arguments and the
session, reads the session as it likes, and changes nothing there. Which of its points are asked is up to the
configuration (the ``enable*`` flag of each).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from scheduler.engine.arguments import BuiltinArguments
from scheduler.engine.states import JobState, QueueState
from scheduler.engine.view import SessionView
from scheduler.model.node_table import NodeTable
from scheduler.model.obstacle import Obstacle
from scheduler.model.snapshot import Task, TaskClass
from scheduler.model.vectors import Floats, Mask, Matrix, Rows, Vector

if TYPE_CHECKING:
    from scheduler.engine.plugin_arguments import ArgumentsType

Key = Any
"""A value that sorts; the smaller comes first. That of a job may change only by its own turns; a queue's is asked for again
before its turn, and may grow by those of others."""


class Reach(Enum):
    """How far `Plugin.feasible` and `Plugin.score` of a node look, for one class of tasks."""

    IDLE = 0
    """At the node's row of the table and at what is idle there: a row can be rated for placements to come."""
    NODE = 1
    """Also at which pods are there (host ports): asked again about nodes that changed."""
    CLUSTER = 2
    """Also at other nodes: asked again about all nodes after each change."""


class Permit:
    """A vote for. Its one value is `PERMIT`; None abstains, an `Obstacle` rejects."""


PERMIT: Final = Permit()
Vote = Permit | Obstacle | None


class Nodes:
    """Some rows of the node table: what plugins are asked about.

    Attributes:
        rows: the nodes' places in the table; one may occur more than once, with different amounts idle.
        idle: what is idle there, [len(rows), resources].
        later: whether what is asked is how it will be once the pods that are leaving are gone.
        ahead: how many more pods of the class are there by then, [len(rows)]; None for none. ``idle`` counts them.
    """

    __slots__ = ("_parts", "ahead", "idle", "later", "rows", "table")

    def __init__(
        self, table: NodeTable, rows: Rows, idle: Matrix, *, later: bool = False, ahead: Rows | None = None
    ) -> None:
        self.table, self.ahead = table, ahead
        self.later = later
        self.rows = rows
        self.idle = idle
        self._parts: dict[int, Floats] = {}

    def used_part(self, wanted: Vector, place: int) -> Floats:
        """Return which part of the resource at a place is used once ``wanted`` is there, too: [len(rows)], 1 is all of it."""
        # All who rate a class ask the same, so it is worked out once; one resource at a time, since numpy takes several
        # times as long for many rows of three.
        part = self._parts.get(place)
        if part is None:
            amounts, inverses = self.table.columns[place]
            if self.rows is not self.table.every:
                amounts, inverses = amounts.take(self.rows), inverses.take(self.rows)
            part = self._parts[place] = amounts - self.idle[:, place]
            part += float(wanted[place])
            part *= inverses
        return part

    def __len__(self) -> int:
        """How many rows these are."""
        return len(self.rows)


class Plugin:
    """The base of all plugins. A method that isn't overridden is an extension point that the plugin doesn't have."""

    name: ClassVar[str]
    arguments_type: ClassVar[ArgumentsType] = BuiltinArguments
    node_local: ClassVar[bool] = True
    """Whether `feasible` and `score` of a node look at its row and at what is idle there only; `reach` says it by class."""

    by_amount: ClassVar[bool] = False
    """Whether `allocatable` goes by what the queue has and by the task's class only, and doesn't change its mind as the
    queue gets more: then it is asked about many tasks of a class at once."""

    divides: ClassVar[bool] = False
    """Whether `allocatable` speaks of the queue's share, which backfill goes beyond, and of nothing else."""

    about_room: ClassVar[bool] = False
    """Whether its `enqueueable` votes on room in the cluster: a job for which nodes are reserved is admitted without it."""

    guards: ClassVar[bool] = False
    """Whether its choice of victims is a protection that holds in all tiers, not only in its own."""

    def __init__(self, arguments: Any, session: SessionView) -> None:
        self.arguments = arguments
        self.session = session

    def queue_key(self, queue: QueueState) -> Key:
        """Order queues."""
        raise NotImplementedError

    def victim_queue_key(self, queue: QueueState, preemptor: QueueState) -> Key:
        """Order the queues that a queue takes from; between equals the last by `queue_key` gives first."""
        raise NotImplementedError

    def job_key(self, job: JobState) -> Key:
        """Order the jobs of a queue."""
        raise NotImplementedError

    def task_key(self, task: Task) -> Key:
        """Order the tasks of a job."""
        raise NotImplementedError

    def enqueueable(self, job: JobState) -> Vote:
        """Vote on a Pending job's becoming Inqueue."""
        raise NotImplementedError

    def enqueued(self, job: JobState) -> None:
        """Learn that a job became Inqueue in this cycle."""
        raise NotImplementedError

    def valid(self, job: JobState) -> Obstacle | None:
        """Object to placing any task of a job."""
        raise NotImplementedError

    def ready(self, job: JobState) -> bool:
        """Whether enough tasks are placed for the job to start."""
        raise NotImplementedError

    def missing(self, job: JobState) -> int:
        """Tell how many more tasks a job needs at least before it can be ready, so that hopeless attempts are spared."""
        raise NotImplementedError

    def pipelined(self, job: JobState) -> Vote:
        """Vote on whether enough tasks are placed, or have a place reserved, for the job to hold them."""
        raise NotImplementedError

    def deserved(self, queue: QueueState) -> Vector:
        """Tell what a queue deserves, for those who look on."""
        raise NotImplementedError

    def overused(self, queue: QueueState) -> bool:
        """Whether a queue has had all it may have."""
        raise NotImplementedError

    def allocatable(self, queue: QueueState, task: Task) -> Obstacle | None:
        """Object to a queue's taking one more task."""
        raise NotImplementedError

    def starving(self, job: JobState) -> bool:
        """Whether a job lacks so much that others may be evicted for it."""
        raise NotImplementedError

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        """Whether a queue may take what other queues use, to place a task."""
        raise NotImplementedError

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task] | None:
        """Choose which of the candidates may be evicted for the preemptor, for the action preempt.

        Candidates come with the one to be evicted first first; all that are chosen may be evicted together. None
        abstains.
        """
        raise NotImplementedError

    def reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task] | None:
        """Choose which of the candidates may be evicted for the preemptor, for the action reclaim; as `preemptable`."""
        raise NotImplementedError

    def reach(self, kind: TaskClass) -> Reach:
        """Tell how far `feasible` and `score` look for a class; override it where that differs between classes."""
        del kind
        return Reach.IDLE if self.node_local else Reach.CLUSTER

    def feasible(self, kind: TaskClass, nodes: Nodes) -> Mask:
        """Tell which nodes a task of this class may run on, apart from how much it asks for."""
        raise NotImplementedError

    def objections(self, kind: TaskClass, nodes: Nodes) -> Iterable[tuple[str, Mask]]:
        """Tell why nodes aren't feasible: what to say of a node, and of which nodes it is true."""
        raise NotImplementedError

    def score(self, kind: TaskClass, nodes: Nodes) -> Floats:
        """Rate the nodes; the highest sum over all plugins wins."""
        raise NotImplementedError


FLAGS: Final[Mapping[str, str]] = {
    "queue_key": "enableQueueOrder",
    "victim_queue_key": "enableQueueOrder",
    "job_key": "enableJobOrder",
    "task_key": "enableTaskOrder",
    "enqueueable": "enableJobEnqueued",
    "enqueued": "enableJobEnqueued",
    "ready": "enableJobReady",
    "missing": "enableJobReady",
    "pipelined": "enableJobPipelined",
    "overused": "enabledOverused",
    "allocatable": "enabledAllocatable",
    "starving": "enableJobStarving",
    "preemptive": "enablePreemptive",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "feasible": "enablePredicate",
    "objections": "enablePredicate",
    "score": "enableNodeOrder",
}
"""The flag that turns an extension point off. A point without one is always on."""

POINTS: Final = (*FLAGS, "valid", "deserved")


def defines(plugin: type[Plugin], point: str) -> bool:
    """Whether a plugin has an extension point."""
    return getattr(plugin, point) is not getattr(Plugin, point)
