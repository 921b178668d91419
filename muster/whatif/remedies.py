"""Remedies for a group that waits: found by supposing a change and asking the scheduler. Pure.

Nothing here is guessed: each answer was tried in a `WhatIfCluster`, where the group then started, or went on to wait for what
the answer says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from math import ceil
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from muster.model import kinds
from muster.model.amounts import NANO, NOTHING, QuantityError, Resources
from muster.model.objects import Meta, Node, NodeStatus, Queue
from muster.model.text import counted
from muster.whatif import adjustments, endings, evictions, missing_actions, missing_pods, quotas, trials, wider_domains
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.quotas import QuotaShortage
from muster.whatif.trials import Remedy, shown
from scheduler.model.obstacle import Reason, Stage
from scheduler.model.records import Record
from scheduler.model.snapshot import READY, GroupKey, JobInfo
from scheduler.state import conversion

_SHAPES: Final = 3  # kinds of nodes that are tried, the most frequent first
_MOST_NODES: Final = 64
"""Nodes that are added at most, unless the group itself has more pods."""
_WEIGHTS: Final = 65535
_NO_QUEUE: Final = frozenset({Reason.QUEUE_CLOSED, Reason.QUEUE_NOT_FOUND})
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def changes(cluster: WhatIfCluster, key: GroupKey, record: Record, shortage: QuotaShortage) -> Iterator[Remedy]:
    """Return what would let a waiting group start, or one more pod of a group that runs, each by itself."""
    if record.stage is Stage.QUOTA:
        yield from quotas.remedies(cluster, record, shortage)
        return
    with cluster.assuming():
        outcome = cluster.run_until_idle([key])
        gave_way, evicted = outcome.gave_way - {key}, outcome.evicted(key)
        data: dict[str, Any] = {"podGroups": sorted(map(str, gave_way))}
        if outcome.started:
            if gave_way:
                yield Remedy(f"time: {endings.giving_way(map(cluster.title, gave_way))}", {"kind": "time", **data})
            elif evicted:
                text = f"time: the scheduler evicts {evictions.written(cluster, evicted)}, and starts it once they are gone"
                yield Remedy(text, {"kind": "time", "evicts": sorted(str(each.task) for each in evicted), **data})
            elif outcome.later:
                yield Remedy(
                    "time: the scheduler tries it again by itself, and starts it then", {"kind": "time", **data}
                )
            return
        # What would help is asked once all else has come to rest: before that, it may only not have had its turn.
        settled = at_rest(cluster, record)
        # Of those that went back meanwhile, most never were in its way.
        until = bool(gave_way) and (settled.limit, settled.nodes) != (record.limit, record.nodes)
        for each in _at_rest(cluster, cluster.job(key), settled):
            text = f"{each.text}, {endings.gone_back(map(cluster.title, gave_way))}" if until else each.text
            yield Remedy(text, {**each.data, "after": data} if until else each.data)


def at_rest(cluster: WhatIfCluster, before: Record) -> Record:
    """Return what a group waits for now; of one that only waits for its next attempt, what it waited for ``before``."""
    record = cluster.decide(growing=[before.key]).records.get(before.key)
    return record if record is not None and record.tells_what_lacks else before


def _at_rest(cluster: WhatIfCluster, job: JobInfo, record: Record) -> Iterator[Remedy]:
    if record.stage is Stage.BIND:
        return
    if record.reason is Reason.NOT_ENOUGH_TASKS or record.stage is Stage.GANG:
        yield from missing_pods.remedies(cluster, job, record)
        return
    found = adjustments.queue(cluster, record.queue, partial(trials.outcome, cluster, record))
    yield from (Remedy(text, data) for text, data in found)
    if record.reason in _NO_QUEUE:
        return
    yield from _wider_queue(cluster, job.key, record)
    if record.reason is not Reason.NOT_ENOUGH_QUOTA:
        # No node helps where a queue is used up.
        yield from wider_domains.remedies(cluster, job)
        yield from _more_nodes(cluster, job, record)
    yield from endings.remedies(cluster, record)
    yield from missing_actions.remedies(cluster, record)


def tried(cluster: WhatIfCluster, record: Record) -> str:
    """Say what was tried of a group for which nothing helps, a sentence; empty where there is nothing to try."""
    if (
        record.stage in {Stage.BIND, Stage.QUOTA}
        or record.reason is Reason.NOT_ENOUGH_TASKS
        or record.stage is Stage.GANG
    ):
        return ""
    kinds_ = ["a queue of that name, open, with a larger maxPodGroups"]
    if record.reason not in _NO_QUEUE:
        kinds_ = ["another capability or weight of its queue, or a larger maxPodGroups"]
        if record.reason is not Reason.NOT_ENOUGH_QUOTA:
            kinds_.append("more nodes like those there are, also with other labels and without taints")
        kinds_ += filter(None, [endings.tried(cluster, record)])
        kinds_ += filter(None, [missing_actions.tried(cluster)])
    return "; ".join(kinds_)


# ── a wider queue ────────────────────────────────────────────────────────────────────────────────────────────────


def _wider_queue(cluster: WhatIfCluster, wanted: GroupKey, record: Record) -> Iterator[Remedy]:
    limit = record.limit if record.limit is not None and record.limit.kind == "queue" else None
    name = limit.name if limit is not None else record.queue
    queue = cluster.state.find(kinds.QUEUES, name) or Queue(metadata=Meta(name=name))
    yield from _more_capability(cluster, queue, record, limit.short if limit is not None else NOTHING)
    yield from _more_weight(cluster, wanted, queue)


def _more_capability(cluster: WhatIfCluster, queue: Queue, record: Record, short: Resources) -> Iterator[Remedy]:
    try:
        has = Resources.parse(queue.spec.capability)
    except QuantityError:
        return
    if not has:
        return
    needed = (has + short).only([each for each in has if short[each]])
    if needed:
        larger = _with(queue, capability={**(queue.spec.capability or {}), **needed.quantities()})
        then = trials.outcome(cluster, record, partial(cluster.queue, larger))
        if then is not None:
            text = f"a capability of {shown(needed)} for queue {queue.name}, instead of {shown(has.only(needed))}{then}"
            data = {"kind": "capability", "queue": queue.name, "capability": needed.quantities()}
            yield Remedy(text, data | {"enough": not then})
            return
    then = trials.outcome(cluster, record, partial(cluster.queue, _with(queue, capability=None)))
    if then is not None:
        text = f"no capability for queue {queue.name}, instead of {shown(has)}{then}"
        yield Remedy(text, {"kind": "capability", "queue": queue.name, "capability": None, "enough": not then})


def _more_weight(cluster: WhatIfCluster, wanted: GroupKey, queue: Queue) -> Iterator[Remedy]:
    """Try larger and larger weights, if the largest helps; the capability and what the queue deserves by its own word stay."""
    weight = queue.spec.weight
    if not trials.helps(cluster, wanted, partial(cluster.queue, _with(queue, weight=_WEIGHTS))):
        return
    while weight < _WEIGHTS:
        weight = min(weight * 4, _WEIGHTS)
        if trials.helps(cluster, wanted, partial(cluster.queue, _with(queue, weight=weight))):
            text = f"a weight of {weight} for queue {queue.name}, instead of {queue.spec.weight}"
            yield Remedy(text, {"kind": "weight", "queue": queue.name, "weight": weight})
            return


def _with(queue: Queue, **spec: Any) -> Queue:
    return replace(queue, spec=replace(queue.spec, **spec))


# ── more nodes ───────────────────────────────────────────────────────────────────────────────────────────────────


def _more_nodes(cluster: WhatIfCluster, job: JobInfo, record: Record) -> Iterator[Remedy]:
    requests, shapes = missing(job), _shapes(cluster) or adjustments.cordoned(cluster)[:1]
    classes = [*(each.task_class for each in job.pending), *(each.task_class for each in job.expected_pods)]
    shapes_do = False
    if not requests:
        return
    for count in dict.fromkeys((_guess(requests, record), len(requests))):
        free = _together(requests[:count])
        like = next((each for each in shapes if _more_help(cluster, job.key, [_with_free(each, free)])), None)
        if like is not None:
            text = f"1 more node with {_roomy(requests[:count])}"
            text += "" if like is shapes[0] else f", with the labels and taints of {like.name}"
            yield Remedy(text, {"kind": "node", "free": free.quantities(), "like": like.name})
            shapes_do = True
            break
    for like in shapes:
        number = _enough(cluster, job.key, like, requests)
        if number:
            has = Resources.parse(like.status.allocatable).only(["cpu", "memory", *_together(requests)])
            text = f"{counted(number, 'more node')} like {like.name} ({shown(has)})"
            yield Remedy(text, {"kind": "nodes", "count": number, "like": like.name})
            shapes_do = True
            break
    whole = adjustments.FreeAmounts(_together(requests), _roomy(requests))
    constraints = [each.constraints for each in classes]
    # Where nodes as they are would do, no others are needed.
    found = adjustments.nodes(
        cluster, () if shapes_do else shapes, constraints, whole, partial(trials.helps, cluster, job.key)
    )
    yield from (Remedy(text, data) for text, data in found)


def _roomy(requests: Sequence[Resources]) -> str:
    free = _together(requests)
    return f"{shown(free.only(set(free) - {'pods'})) or 'room'} free for {counted(len(requests), 'pod')}"


def missing(job: JobInfo) -> list[Resources]:
    """Return the requests of the pods that a group's minimum still waits for; of a group without pods, its minResources as one."""
    there = sum(job.counts.get(status, 0) for status in READY)
    requests = [task.task_class.request for task in job.pending]
    requests += [each.task_class.request for each in job.expected_pods for _ in range(each.count)]
    return requests[: max(job.min_member - there, 1)] or ([job.min_resources] if job.min_resources else [])


def _together(requests: Sequence[Resources]) -> Resources:
    """Add up what pods take of a node."""
    return Resources.total(requests).maximum(Resources({"pods": len(requests) * NANO}))


def _guess(requests: Sequence[Resources], record: Record) -> int:
    """Tell how many of the pods find no place now."""
    if record.nodes is not None:
        return min(max(record.nodes.needed - record.nodes.room, 1), len(requests))
    short, count = record.limit.short if record.limit is not None else NOTHING, 0
    while count < len(requests) and (short - _together(requests[:count])).positive():
        count += 1
    return max(count, 1)


def _with_free(like: Node, free: Resources) -> Node:
    return replace(like, status=NodeStatus(allocatable=free.quantities()))


def _more_help(cluster: WhatIfCluster, wanted: GroupKey, likes: Sequence[Node]) -> bool:
    """Tell whether nodes more of these kinds help, whatever they are called: among equal nodes, names decide."""
    return all(
        trials.helps(cluster, wanted, partial(cluster.nodes, adjustments.called(likes, how)))
        for how in adjustments.NAMES
    )


def _shapes(cluster: WhatIfCluster) -> list[Node]:
    """Return a node of each of the most frequent kinds that take pods."""
    found: dict[bytes, list[Node]] = {}
    for node in cluster.state.of(kinds.NODES):
        if not node.spec.unschedulable and conversion.ready(node):
            labels = {key: value for key, value in (node.metadata.labels or {}).items() if key != adjustments.HOSTNAME}
            found.setdefault(_encode((labels, node.spec.taints, node.status.allocatable)), []).append(node)
    frequent = [nodes[0] for nodes in sorted(found.values(), key=len, reverse=True)]
    return list(islice((node for node in frequent if conversion.allocatable(node) is not None), _SHAPES))


def _enough(cluster: WhatIfCluster, wanted: GroupKey, like: Node, requests: Sequence[Resources]) -> int:
    """Return how many nodes more of a kind it takes; zero where they don't help."""
    has, asked = Resources.parse(like.status.allocatable), _together(requests)
    if any(not has[name] for name in asked):
        return 0

    def helps(count: int) -> bool:
        return _more_help(cluster, wanted, [like] * count)

    # No pod needs more than a node of its own; but groups that go first may take some of them.
    most = min(
        len(requests) + sum(len(job.pending) for job in cluster.snapshot().jobs), max(_MOST_NODES, len(requests))
    )
    few, count = 0, min(max(ceil(asked[name] / has[name]) for name in asked), len(requests))
    while not helps(count):
        if count == most:
            return 0
        few, count = count, min(count * 2, most)
    while count - few > 1:
        middle = (few + count) // 2
        few, count = (few, middle) if helps(middle) else (middle, count)
    return count
