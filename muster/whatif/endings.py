"""The end of other groups, so that one can start: which have to end, found by supposing it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from muster.model import kinds
from muster.model.amounts import NOTHING, Resources
from muster.model.text import counted, listed
from muster.whatif import trials
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.trials import Remedy
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey, TaskClass
from scheduler.state import conversion

_ROUNDS: Final = 8
"""Times that those that run end, and others start in between."""
_PRUNED: Final = 6  # groups; so few are tried one by one for whether each of them matters
_MOST: Final = 100
_FEWEST: Final = 4
_EFFORT: Final = 40_000
"""Groups whose end is supposed one by one: at most, at least, and times the pods of the cluster."""


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

    Those that wait now and go first start in between, and are counted only where the end of those that run isn't enough; and so on.
    """
    line = [key for key in cluster.running() if key != wanted]
    found = _prefix(cluster, wanted, line)
    for _ in range(_ROUNDS if found.more else 0):
        with cluster.assuming():
            cluster.end(line)
            first = cluster.run_until_idle(key for key in cluster.waiting() if key != wanted).started
        between = [key for key in cluster.waiting() if key in first and key not in line]
        if not between:
            return found
        few, line = len(line), line + between
        found = _prefix(cluster, wanted, line, few)
        if not found.more:
            return found
    return found


def _prefix(cluster: WhatIfCluster, wanted: GroupKey, line: Sequence[GroupKey], few: int = 0) -> WaitChain:
    """Return how much of a line has to end; ``few`` of it are known not to be enough."""

    def enough(ends: Sequence[GroupKey]) -> bool:
        with cluster.assuming():
            cluster.end(ends)
            return bool(cluster.run_until_idle([wanted]).started)

    # Most often a few are enough, and of many it takes long to suppose the end: so from one up, and then in between.
    known, step = few, 1
    while True:
        count = min(known + step, len(line))
        if count <= few:
            return WaitChain(more=True)
        if enough(line[:count]):
            break
        few, step = count, step * 2
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


def single(cluster: WhatIfCluster, record: Record, known: WaitChain) -> GroupKey | None:
    """Return a group whose end alone is enough, whenever it began; None where that is none of the `candidates`.

    ``known`` is what `wait_chain` found.
    """
    if len(known.groups) == 1:
        return known.groups[0]
    for key in candidates(cluster, record):
        with cluster.assuming():
            cluster.end([key])
            if cluster.run_until_idle([record.key]).started:
                return key
    return None


def candidates(cluster: WhatIfCluster, record: Record) -> list[GroupKey]:
    """Return the groups whose end alone may be enough: those of its queue first, then those that run, the oldest first.

    Of what runs, those that hold at least what the cluster is short of; and those that were admitted or are ahead, which may
    hold others up. Few in a large cluster, where each trial takes long.
    """
    short = record.limit.short if record.limit is not None and record.limit.kind == "cluster" else NOTHING
    holds = {job.key: job.task_counts.occupying for job in cluster.snapshot().jobs} if short else {}
    running = [key for key in cluster.running() if _covers(holds.get(key, {}), short)]
    found = [key for key in (*running, *cluster.waiting()) if key != record.key]
    queue = cluster.queue_of(record.key)
    most = max(_FEWEST, min(_MOST, _EFFORT // max(len(cluster.state.of(kinds.PODS)), 1)))
    return sorted(found, key=lambda key: cluster.queue_of(key) != queue)[:most]


def _covers(holds: Mapping[TaskClass, int], short: Resources) -> bool:
    has = Resources.total(kind.request * count for kind, count in holds.items()) if short else NOTHING
    return not (short - has).positive()


def remedies(cluster: WhatIfCluster, record: Record) -> Iterable[Remedy]:
    """Return which groups have to end: one alone, where one is enough, else those that began first."""
    chain = wait_chain(cluster, record.key)
    alone = single(cluster, record, chain)
    if alone is not None:
        yield _remedy(cluster, WaitChain((alone,)))
    elif chain.groups:
        yield _remedy(cluster, chain)


def tried(cluster: WhatIfCluster, record: Record) -> str:
    """Say what was tried, for who is told that nothing helps; empty where there is no other group."""
    if not any(key != record.key for key in (*cluster.running(), *cluster.waiting())):
        return ""
    count = len(candidates(cluster, record))
    alone = f"the end of one other PodGroup ({count} that may do)" if count else ""
    return " and ".join(filter(None, [alone, "the end of all that run"]))


def _remedy(cluster: WhatIfCluster, ends: WaitChain) -> Remedy:
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
    job = cluster.job(key)
    there = (each for each in job.tasks if each.node and each.status not in conversion.ENDED)
    has = Resources.total(
        (each.task_class.request for each in there)
        if job.tasks
        else (kind.request * count for kind, count in job.task_counts.occupying.items())
    )
    users = {each.uid for each in job.tasks} | (
        {job.shared_claims.group.uid} if job.shared_claims is not None else set()
    )
    devices = cluster.cluster.devices.held(users)
    texts = [trials.shown(has), counted(len(devices), "device") if devices else ""]
    return " and ".join(filter(None, texts)) or "its pods on nodes"
