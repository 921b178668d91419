"""Groups in a simulation: their pods, and what is remembered of them for the report."""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.amounts import Resources
from muster.model.objects import Job, Pod
from scheduler.model.snapshot import GroupKey
from scheduler.state.aggregated_pods import GroupName


class SimulatedGang(Struct, eq=False):
    """One group. Times are seconds since the beginning; those of what was there before are negative or None.

    Attributes:
        key: None as long as pods name a group that doesn't exist.
        pods: those that are alive, waiting or running, by uid.
        running: what each pod that has a node uses, by uid.
        ended: pods that succeeded or failed and are kept as long as others of the group live.
        lacking: pods that admission refused; asked again when something of the namespace ends.
        replaced: a controller makes a new pod where one is evicted.
        restarts: how many pods that failed are yet to be replaced, each after ``pause`` seconds.
        coming: how many of these are on their way.
        counted: it came in the simulation, so that its waiting is part of the report.
    """

    home: GroupName
    arrived: float
    key: GroupKey | None = None
    queue: str = ""
    minimum: int = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    running: dict[str, Resources] = field(default_factory=dict)
    ended: dict[str, Pod] = field(default_factory=dict)
    lacking: list[Pod] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    made: int = 0
    replaced: bool = False
    restarts: int = 0
    pause: float = 0.0
    coming: int = 0
    counted: bool = True
    started: float | None = None
    over: float | None = None
    evicted: int = 0
    most: int = 0

    @property
    def name(self) -> str:
        """Namespace and name."""
        return "/".join(self.home)

    @property
    def ready(self) -> bool:
        """Whether its minimum has nodes, or had."""
        succeeded = sum(pod.status.phase == "Succeeded" for pod in self.ended.values())
        return len(self.running) + succeeded >= max(self.minimum, 1)


def controlled_by(pod: Pod, uid: str) -> bool:
    """Whether the object of a uid controls a pod."""
    controller = pod.metadata.controller()
    return controller is not None and controller.uid == uid
