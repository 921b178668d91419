"""Remedies for a group that waits, and the time of its start: found by supposing a change and asking the scheduler. Pure.

Nothing here is guessed: each answer was tried in a `WhatIfCluster`, where the group then started, or follows from the ledger's
own arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import ceil
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.ledger.reservations import Shortage, limited
from muster.model import kinds
from muster.model.amounts import NANO, NOTHING, QuantityError, Resources, amount_text
from muster.model.objects import Meta, Node, NodeStatus, Queue
from muster.model.text import counted, listed
from muster.whatif import adjustments
from muster.whatif.cluster import WhatIfCluster
from scheduler.model.obstacle import Stage
from scheduler.model.records import Record
from scheduler.model.snapshot import READY, GroupKey, JobInfo
from scheduler.state import conversion

_PRUNED: Final = 6  # groups; so few are tried one by one for whether each of them matters
_SHAPES: Final = 3  # kinds of nodes that are tried, the most frequent first
_WEIGHTS: Final = 65535
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Remedy(Struct, frozen=True):
    """Something that would let a group start: a sentence, and the same for programs."""

    text: str
    data: dict[str, Any]


class WaitChain(Struct, frozen=True):
    """Groups that have to end before another can start.

    Attributes:
        groups: which; empty when none has to.
        more: whether even the end of all is not enough.
        needed: whether each of them matters; else they are the ones that run for the longest, down to the last.
    """

    groups: tuple[GroupKey, ...] = ()
    more: bool = False
    needed: bool = True


def wait_chain(cluster: WhatIfCluster, wanted: GroupKey) -> WaitChain:
    """Tell which groups have to end, if running ones end in the order in which they began.

    Those that wait now and go first start in between, and are counted only where the end of those that run isn't enough.
    """
    line = [key for key in cluster.running() if key != wanted]
    found = _prefix(cluster, wanted, line)
    if not found.more:
        return found
    with cluster.assuming():
        cluster.end(line)
        first = cluster.run_until_idle(key for key in cluster.waiting() if key != wanted).started
    between = [key for key in cluster.waiting() if key in first]
    return _prefix(cluster, wanted, [*line, *between]) if between else found


def _prefix(cluster: WhatIfCluster, wanted: GroupKey, line: Sequence[GroupKey]) -> WaitChain:
    def enough(ends: Sequence[GroupKey]) -> bool:
        with cluster.assuming():
            cluster.end(ends)
            return bool(cluster.run_until_idle([wanted]).started)

    # Most often a few are enough, and of many it takes long to suppose the end: so from one up, and then in between.
    few, count = 0, min(1, len(line))
    while count and not enough(line[:count]):
        if count == len(line):
            return WaitChain(more=True)
        few, count = count, min(count * 2, len(line))
    if not count:
        return WaitChain(more=True)
    while count - few > 1:
        middle = (few + count) // 2
        few, count = (few, middle) if enough(line[:middle]) else (middle, count)
    ends = list(line[:count])
    if count > _PRUNED:
        return WaitChain(tuple(ends), needed=False)
    for key in ends[:-1]:
        others = [each for each in ends if each != key]
        if enough(others):
            ends = others
    return WaitChain(tuple(ends))


class QuotaShortage(Struct, frozen=True):
    """What quotas lack for a group that holds nothing, and who holds most of that: (name, amounts), largest first."""

    short: tuple[Shortage, ...] = ()
    holders: tuple[tuple[str, Resources], ...] = ()


def changes(cluster: WhatIfCluster, key: GroupKey, record: Record, shortage: QuotaShortage) -> Iterator[Remedy]:
    """Return what would let a waiting group start, each by itself."""
    if record.stage is Stage.QUOTA:
        yield from _more_quota(shortage)
        return
    with cluster.assuming():
        started, gave_way = cluster.run_until_idle([key])
        gave_way -= {key}
        data: dict[str, Any] = {"podGroups": sorted(map(str, gave_way))}
        if started:
            if gave_way:
                yield Remedy(f"time: {giving_way(map(cluster.title, gave_way))}", {"kind": "time", **data})
            return
        # What would help is asked once all else has come to rest: before that, it may only not have had its turn.
        settled = at_rest(cluster, record)
        # Of those that went back meanwhile, most never were in its way.
        until = bool(gave_way) and (settled.limit, settled.nodes) != (record.limit, record.nodes)
        for each in _at_rest(cluster, cluster.job(key), settled):
            text = f"{each.text}, {gone_back(map(cluster.title, gave_way))}" if until else each.text
            yield Remedy(text, {**each.data, "after": data} if until else each.data)


def at_rest(cluster: WhatIfCluster, before: Record) -> Record:
    """Return what a group waits for now; of one that only waits for its next attempt, what it waited for ``before``."""
    record = cluster.decide().records.get(before.key)
    return record if record is not None and (record.limit is not None or record.nodes is not None) else before


def _at_rest(cluster: WhatIfCluster, job: JobInfo, record: Record) -> Iterator[Remedy]:
    if record.stage not in {Stage.QUEUE, Stage.ENQUEUE, Stage.NODES}:
        return
    if record.limit is not None and record.limit.kind == "queue":
        yield from _wider_queue(cluster, job.key, record.limit.name, record.limit.short)
    elif record.limit is not None or record.nodes is not None:
        yield from _more_nodes(cluster, job, record)
    elif record.stage is Stage.QUEUE:
        found = adjustments.queue(cluster, record.queue, partial(_tried, cluster, job.key, record))
        yield from (Remedy(text, data) for text, data in found)
    else:
        return
    ends = wait_chain(cluster, job.key)
    if ends.groups:
        yield _ends(cluster, ends)


def _more_quota(shortage: QuotaShortage) -> Iterator[Remedy]:
    for short in shortage.short:
        resource = short.resource
        more, most = (amount_text(resource, nano) for nano in (short.short, short.hard + short.short))
        yield Remedy(
            f"{more} {resource} more in ResourceQuota {short.quota}: {most} in all",
            {"kind": "quota", "name": short.quota, "resource": resource, "more": more},
        )
    for name, holds in shortage.holders:
        if shortage.short and all(holds[limited(each.resource)] >= each.short for each in shortage.short):
            text = f"the end of PodGroup {name}, which holds {shown(holds)} of the quota"
            yield Remedy(text, {"kind": "end", "podGroups": [name], "all": True})


# ── the end of others ────────────────────────────────────────────────────────────────────────────────────────────


def _ends(cluster: WhatIfCluster, ends: WaitChain) -> Remedy:
    data = {"kind": "end", "podGroups": [str(key) for key in ends.groups], "all": ends.needed}
    return Remedy(ending(cluster, ends), data)


def ending(cluster: WhatIfCluster, ends: WaitChain) -> str:
    """Write which groups have to end."""
    if ends.needed and len(ends.groups) == 1:
        (key,) = ends.groups
        return f"the end of {cluster.title(key)}, which holds {holding(cluster, key)}"
    if ends.needed:
        return f"the end of {named(map(cluster.title, ends.groups))}"
    last = cluster.title(ends.groups[-1])
    return f"the end of the {len(ends.groups)} PodGroups that have run longest, the last of them {last}"


def named(titles: Iterable[str]) -> str:
    """Write titles with each kind once: ``PodGroups default/a and default/b``."""
    names: dict[str, list[str]] = {}
    for title in titles:
        kind, _, name = title.partition(" ")
        names.setdefault(kind, []).append(name)
    return listed([f"{kind if len(each) == 1 else f'{kind}s'} {listed(each)}" for kind, each in names.items()])


def giving_way(titles: Iterable[str]) -> str:
    """Write which groups have to be taken back first."""
    groups = sorted(titles)
    verb, pronoun = ("was", "it returns") if len(groups) == 1 else ("were", "they return")
    return f"{named(groups)} {verb} admitted earlier and did not start; {pronoun} to Pending after a while"


def gone_back(titles: Iterable[str]) -> str:
    """Write that groups have to be taken back first, as the end of a sentence."""
    groups = sorted(titles)
    return f"once {named(groups)} (admitted earlier, not started) {'is' if len(groups) == 1 else 'are'} Pending again"


def holding(cluster: WhatIfCluster, key: GroupKey) -> str:
    """Write what a group has on nodes."""
    return shown(cluster.holds(key)) or "its pods on nodes"


def shown(amounts: Resources) -> str:
    """Write amounts in units that people use."""
    parts = ((name, amount_text(name, nano)) for name, nano in amounts.nano.items() if nano)
    return ", ".join(f"{text} {name}" for name, text in parts)


# ── a wider queue ────────────────────────────────────────────────────────────────────────────────────────────────


def _wider_queue(cluster: WhatIfCluster, wanted: GroupKey, name: str, short: Resources) -> Iterator[Remedy]:
    queue = cluster.state.find(kinds.QUEUES, name) or Queue(metadata=Meta(name=name))
    yield from _more_capability(cluster, wanted, queue, short)
    yield from _more_weight(cluster, wanted, queue)


def _more_capability(cluster: WhatIfCluster, wanted: GroupKey, queue: Queue, short: Resources) -> Iterator[Remedy]:
    try:
        has = Resources.parse(queue.spec.capability)
    except QuantityError:
        return
    needed = (has + short).only([each for each in has if short[each]])
    if not needed:
        return
    larger = _with(queue, capability={**(queue.spec.capability or {}), **needed.quantities()})
    with cluster.assuming():
        cluster.queue(larger)
        enough = bool(cluster.run_until_idle([wanted]).started)
        then = None if enough else cluster.decide().records.get(wanted)
    if not enough and (then is None or then.reason is None or then.stage is Stage.QUEUE):
        return
    text = f"a capability of {shown(needed)} for queue {queue.name}, instead of {shown(has.only(needed))}"
    if then is not None:
        text += f"; then it waits for: {then.message}"
    data = {"kind": "capability", "queue": queue.name, "capability": needed.quantities()}
    yield Remedy(text, data | {"enough": enough})


def _more_weight(cluster: WhatIfCluster, wanted: GroupKey, queue: Queue) -> Iterator[Remedy]:
    """Try larger and larger weights; the capability and what the queue deserves by its own word stay."""
    weight = queue.spec.weight
    while weight < _WEIGHTS:
        weight = min(weight * 4, _WEIGHTS)
        larger = _with(queue, weight=weight)
        if _helps(cluster, wanted, partial(cluster.queue, larger)):
            text = f"a weight of {weight} for queue {queue.name}, instead of {queue.spec.weight}"
            yield Remedy(text, {"kind": "weight", "queue": queue.name, "weight": weight})
            return


def _with(queue: Queue, **spec: Any) -> Queue:
    return replace(queue, spec=replace(queue.spec, **spec))


def _tried(cluster: WhatIfCluster, wanted: GroupKey, before: Record, suppose: Callable[[], None]) -> str | None:
    """Tell what comes of supposing something about a queue, as `adjusting.Tried`."""
    with cluster.assuming():
        suppose()
        if cluster.run_until_idle([wanted]).started:
            return ""
        then = cluster.decide().records.get(wanted)
    if then is None or (then.stage is Stage.QUEUE and then.message == before.message) or then.reason is None:
        return None
    return f"; then it waits for: {then.message}"


def _helps(cluster: WhatIfCluster, wanted: GroupKey, suppose: Callable[[], None]) -> bool:
    with cluster.assuming():
        suppose()
        return bool(cluster.run_until_idle([wanted]).started)


# ── more nodes ───────────────────────────────────────────────────────────────────────────────────────────────────


def _more_nodes(cluster: WhatIfCluster, job: JobInfo, record: Record) -> Iterator[Remedy]:
    requests, shapes = missing(job), _shapes(cluster) or adjustments.cordoned(cluster)[:1]
    classes = [*(each.task_class for each in job.pending), *(each.task_class for each in job.expected_pods)]
    shapes_do = False
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
    whole = adjustments.Free(_together(requests), _roomy(requests))
    constraints = [each.constraints for each in classes]
    # Where nodes as they are would do, no others are needed.
    found = adjustments.nodes(
        cluster, () if shapes_do else shapes, constraints, whole, partial(_helps, cluster, job.key)
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
    return count


def _with_free(like: Node, free: Resources) -> Node:
    return replace(like, status=NodeStatus(allocatable=free.quantities()))


def _more_help(cluster: WhatIfCluster, wanted: GroupKey, likes: Sequence[Node]) -> bool:
    """Tell whether nodes more of these kinds help, whatever they are called: among equal nodes, names decide."""
    return all(
        _helps(cluster, wanted, partial(cluster.nodes, adjustments.called(likes, how))) for how in adjustments.NAMES
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

    # No pod needs more than a node of its own.
    few, count = 0, min(max(ceil(asked[name] / has[name]) for name in asked), len(requests))
    while not helps(count):
        if count == len(requests):
            return 0
        few, count = count, min(count * 2, len(requests))
    while count - few > 1:
        middle = (few + count) // 2
        few, count = (few, middle) if helps(middle) else (middle, count)
    return count
