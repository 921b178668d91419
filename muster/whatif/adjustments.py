"""Changes that people can make to what exists, so that a group may start: its queue, and nodes that keep its pods off. Pure.

As in `muster.whatif.remedies`, each is tried: what is given let the group start. A suggestion is (text, the same for programs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from muster.model import kinds
from muster.model.amounts import Resources
from muster.model.objects import Meta, Node, Queue, QueueStatus, Taint
from muster.model.text import counted
from muster.whatif.cluster import WhatIfCluster
from scheduler.model.constraints import Constraints
from scheduler.state import conversion

Suggestion = tuple[str, dict[str, Any]]
Helps = Callable[[Callable[[], None]], bool]
"""Whether a group starts once something was supposed."""

Tried = Callable[[Callable[[], None]], str | None]
"""What comes of it when something is supposed: empty where the group starts, None where it waits for its queue as before, else
what it waits for then, as the end of a sentence."""

HOSTNAME: Final = "kubernetes.io/hostname"
NAMES: Final = ("0.{}.muster.sh", "zz.{}.muster.sh")
"""What nodes that aren't there are called: before and behind those that are."""


class FreeAmounts(NamedTuple):
    """What all pods that wait ask of a node together, and the same for people."""

    amounts: Resources
    text: str


_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_TRIED: Final = 3  # nodes


def queue(cluster: WhatIfCluster, name: str, tried: Tried) -> Iterator[Suggestion]:
    """Try a queue that isn't there, one that is closed, and a larger `maxPodGroups`."""
    found = cluster.state.find(kinds.QUEUES, name)
    if found is None:
        then = tried(partial(cluster.queue, Queue(metadata=Meta(name=name))))
        if then is not None:
            text = f"a queue {name}: create it with `muster queue create --name {name}`{then}"
            yield text, {"kind": "queue", "queue": name, "enough": not then}
        return
    if conversion.queue_info(found).state == "Closed":
        spec = replace(found.spec, desired_state="Open")
        then = tried(partial(cluster.queue, replace(found, spec=spec, status=QueueStatus(state="Open"))))
        if then is not None:
            text = f"queue {name} opened again: `muster queue open {name}`{then}"
            yield text, {"kind": "open", "queue": name, "enough": not then}
    elif found.spec.max_pod_groups:
        yield from _more_groups(cluster, found, found.spec.max_pod_groups, tried)


def _more_groups(cluster: WhatIfCluster, found: Queue, most: int, tried: Tried) -> Iterator[Suggestion]:
    more, all_ = 1, len(cluster.waiting()) + len(cluster.running())
    while True:
        spec = replace(found.spec, max_pod_groups=most + more)
        then = tried(partial(cluster.queue, replace(found, spec=spec)))
        if then is not None:
            text = f"a maxPodGroups of {most + more} for queue {found.name}, instead of {most}{then}"
            data = {"kind": "maxPodGroups", "queue": found.name, "maxPodGroups": most + more}
            yield text, data | {"enough": not then}
            return
        if more >= all_:
            return
        more = min(more * 2, all_)


def nodes(
    cluster: WhatIfCluster, likes: Iterable[Node], constraints: Iterable[Constraints], free: FreeAmounts, helps: Helps
) -> Iterator[Suggestion]:
    """Try nodes that take no pods now, and more of those there are with the labels, and without the taints, that matter."""
    yield from _uncordoned(cluster, helps)
    labels: dict[str, str] = {}
    for each in constraints:
        labels |= _wanted(each)
    for like in likes:
        there = like.metadata.labels or {}
        more = {key: value for key, value in labels.items() if there.get(key) != value}
        taints = [each for each in like.spec.taints or () if each.effect != "PreferNoSchedule"]
        if not (more or taints):
            continue
        bent, without = _bent(like, labels), [_taint(each) for each in taints]
        data = {"kind": "node", "like": like.name, "labels": more, "withoutTaints": without}
        if all(helps(partial(cluster.nodes, called([bent], how))) for how in NAMES):
            yield f"1 more node like {like.name}{_with(more, without)}", data
            return
        large = replace(bent, status=replace(bent.status, allocatable=free.amounts.quantities()))
        if all(helps(partial(cluster.nodes, called([large], how))) for how in NAMES):
            text = f"1 more node with {free.text}{_with(more, without)}"
            yield text, data | {"free": free.amounts.quantities()}
            return


def _taint(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def cordoned(cluster: WhatIfCluster) -> list[Node]:
    """Return the nodes that are cordoned, as they would be if they weren't."""
    return [_opened(node) for node in cluster.state.of(kinds.NODES) if node.spec.unschedulable]


def _uncordoned(cluster: WhatIfCluster, helps: Helps) -> Iterator[Suggestion]:
    free = cordoned(cluster)
    one = next((node for node in free[:_TRIED] if helps(partial(cluster.nodes, [node]))), None)
    if one is not None:
        yield (
            f"node {one.name} uncordoned: `kubectl uncordon {one.name}`",
            {"kind": "uncordon", "nodes": [one.name]},
        )
    elif len(free) > 1 and helps(partial(cluster.nodes, free)):
        text = f"the {counted(len(free), 'node')} that are cordoned, uncordoned: `kubectl uncordon`"
        yield text, {"kind": "uncordon", "nodes": [node.name for node in free]}


def _opened(node: Node) -> Node:
    taints = tuple(each for each in node.spec.taints or () if each.key != _UNSCHEDULABLE)
    return replace(node, spec=replace(node.spec, unschedulable=False, taints=taints or None))


def _wanted(constraints: Constraints) -> Mapping[str, str]:
    """Return labels that satisfy a selector and the first term of a required affinity, where labels do."""
    terms = (constraints.required.node_selector_terms or ()) if constraints.required is not None else ()
    told = (each for term in terms[:1] for each in term.match_expressions or ())
    named = {each.key: (each.values or ("true",))[0] for each in told if each.operator in {"In", "Exists"}}
    return named | dict(constraints.selector)


def _bent(like: Node, labels: Mapping[str, str]) -> Node:
    meta = replace(like.metadata, labels={**(like.metadata.labels or {}), **labels})
    return replace(like, metadata=meta, spec=replace(like.spec, taints=None))


def called(likes: Sequence[Node], how: str) -> list[Node]:
    """Return nodes like those, of names of their own."""
    return [_another(like, how.format(number)) for number, like in enumerate(likes)]


def _another(like: Node, name: str) -> Node:
    labels = {**(like.metadata.labels or {}), HOSTNAME: name}
    meta = Meta(name=name, uid=name, labels=labels)
    return Node(metadata=meta, spec=like.spec, status=replace(like.status, images=None))


def _with(labels: Mapping[str, str], without: list[str]) -> str:
    shown = ", ".join(f"{key}={value}" for key, value in labels.items())
    parts = [f"with label {shown}" if len(labels) == 1 else f"with labels {shown}"] if labels else []
    parts += [f"without {'taint' if len(without) == 1 else 'taints'} {', '.join(without)}"] if without else []
    return f", {' and '.join(parts)}"
