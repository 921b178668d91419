"""The sentences that tell users how much of what is short."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from muster.model.amounts import NANO, NOTHING, Resources
from muster.model.text import counted
from scheduler.model import vectors
from scheduler.model.obstacle import Limit, Obstacle, Reason, Stage
from scheduler.model.snapshot import JobInfo
from scheduler.model.vectors import Axes, Vector


class AwaitedAmounts(NamedTuple):
    """What is idle and not free: the amounts, and the groups that were admitted earlier and wait for them."""

    amounts: Vector
    holders: str


def shortage(
    count: int, wanted: Vector, free: Vector, axes: Axes, where: str, held: AwaitedAmounts | None = None
) -> str:
    """Say what ``count`` pods need and ``where`` has too little of: only the resources that are short are named."""
    missing = axes.resources(vectors.short(wanted, free))
    need = axes.resources(wanted).only(missing)
    have = axes.resources(vectors.above_zero(free)).only(missing)
    verb = "needs" if count == 1 else "need"
    more = axes.resources(held.amounts).only(missing) if held is not None else NOTHING
    if held is not None and more:
        where += f" ({more}{' more' if have else ''} {_are(more)} held for {held.holders}, admitted earlier)"
    return f"{counted(count, 'pod')} {verb} {need}; {have} {_are(have)} {where}: short by {missing}"


# Groups of a queue that are alike are told the same, cycle after cycle; writing amounts takes longer than deciding.
@lru_cache(maxsize=8192)
def obstacle(
    count: int,
    wanted: Vector,
    free: Vector,
    axes: Axes,
    where: str,
    *,
    queue: str = "",
    nodes: bool = False,
    capped: bool = False,
) -> Obstacle:
    """Object for what is short: of the queue that is named, else of the cluster, to which nodes can be added.

    Of a queue whoever asks says whether ``nodes`` would help it, and whether it is ``capped``: its capability is used
    up, which is a quota, whatever the cluster has. Else it is its share of the cluster that is too small.
    """
    grows = nodes or not queue
    reason = Reason.NOT_ENOUGH_QUOTA if capped else Reason.NOT_ENOUGH_RESOURCES
    limit = Limit("queue" if queue else "cluster", queue, axes.resources(vectors.short(wanted, free)))
    stage = Stage.QUEUE if queue else Stage.ENQUEUE
    return Obstacle(reason, shortage(count, wanted, free, axes, where), stage, limit, grows)


def queue_obstacle(
    count: int, wanted: Vector, own: Vector, within: Vector, axes: Axes, queue: str, *, guaranteed: bool
) -> Obstacle:
    """Object for what is short of a queue's capability, or, where that would do, of the cluster.

    ``own``: what is left of the capability; ``within``: of that and of the cluster, without what is ``guaranteed`` to other queues.
    """
    if not vectors.fits(wanted, own):
        return obstacle(count, wanted, own, axes, f"left of the capability of queue {queue}", queue=queue, capped=True)
    where = f"left for queue {queue} of all that the nodes have"
    if guaranteed:
        where += ", beside what is guaranteed to other queues"
    return obstacle(count, wanted, within, axes, where, queue=queue, nodes=True)


def places(pipelined: int, kept: int) -> str:
    """Say how many places others are leaving for pods; of ``kept`` ones the pods are yet to come."""
    if kept:
        return f"{'a place is' if kept == 1 else f'{kept} places are'} kept for its pods, which other pods are leaving"
    was = "has a reserved place" if pipelined == 1 else "have reserved places"
    return f"{counted(pipelined, 'pod')} {was} that other pods are leaving"


@lru_cache(maxsize=8192)
def cluster_obstacle(
    count: int, wanted: Vector, free: Vector, axes: Axes, where: str, held: AwaitedAmounts | None = None
) -> Obstacle:
    """Object for what is short of the cluster, to which nodes can be added."""
    limit = Limit("cluster", "", axes.resources(vectors.short(wanted, free)))
    text = shortage(count, wanted, free, axes, where, held)
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, text, Stage.ENQUEUE, limit, nodes=True)


def _are(amounts: Resources) -> str:
    """Choose the verb: nothing is, 1 cpu is, 4 cpu are."""
    values = list(amounts.positive().nano.values())
    return "is" if not values or values == [NANO] else "are"


def next_start(job: JobInfo) -> str:
    """Write for whom a group that was Completed is started again."""
    count = len(job.pending) or sum(each.count for each in job.expected_pods)
    return f"{counted(count, 'pod')} {'waits' if count == 1 else 'wait'} for its next start"
