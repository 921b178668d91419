"""The end of other groups, so that one can start: which have to end, found by supposing it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from muster.model.text import listed
from muster.whatif import trials
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.trials import Remedy
from scheduler.model.snapshot import GroupKey

_ROUNDS: Final = 8
"""Times that those that run end, and others start in between."""
_PRUNED: Final = 6  # groups; so few are tried one by one for whether each of them matters
SINGLES: Final = 100
"""Groups whose end is supposed one by one, those of the same queue first, where not just the oldest is enough."""


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
        line += between
        found = _prefix(cluster, wanted, line)
        if not found.more:
            return found
    return found


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


def single(cluster: WhatIfCluster, wanted: GroupKey, known: WaitChain) -> GroupKey | None:
    """Return a group whose end alone is enough, whenever it began; None where that is none of those tried.

    ``known`` is what `wait_chain` found. Also tried are groups that were admitted and have nothing on nodes yet.
    """
    if len(known.groups) == 1:
        return known.groups[0]
    for key in islice(others(cluster, wanted), SINGLES):
        with cluster.assuming():
            cluster.end([key])
            if cluster.run_until_idle([wanted]).started:
                return key
    return None


def others(cluster: WhatIfCluster, wanted: GroupKey) -> list[GroupKey]:
    """Return the groups that aren't over, but for one: those of its queue first, then those that run, the oldest first."""
    queue = cluster.queue_of(wanted)
    found = [key for key in (*cluster.running(), *cluster.waiting()) if key != wanted]
    return sorted(found, key=lambda key: cluster.queue_of(key) != queue)


def remedies(cluster: WhatIfCluster, wanted: GroupKey) -> Iterable[Remedy]:
    """Return which groups have to end: one alone, where one is enough, else those that began first."""
    chain = wait_chain(cluster, wanted)
    alone = single(cluster, wanted, chain)
    if alone is not None:
        yield _remedy(cluster, WaitChain((alone,)))
    elif chain.groups:
        yield _remedy(cluster, chain)


def tried(cluster: WhatIfCluster, wanted: GroupKey) -> str:
    """Say what was tried, for who is told that nothing helps."""
    count = len(others(cluster, wanted))
    if not count:
        return ""
    one = (
        "the end of the other PodGroup"
        if count == 1
        else f"the end of each of {count} other PodGroups and of all that run"
    )
    return one if count <= SINGLES else f"the end of each of {SINGLES} other PodGroups (of {count}) and of all that run"


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
    return trials.shown(cluster.holds(key)) or "its pods on nodes"
