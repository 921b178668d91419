"""The record of a group that doesn't run: the facts behind the sentence in its condition.

A value, the same whether it comes from the worker, a simulation, or a dump of a cluster: `scheduler.model.plan.Plan.records`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct

from muster.model.text import counted, listed
from scheduler.model.obstacle import Limit, Reason, Stage
from scheduler.model.snapshot import GroupKey


class KeptNodes(NamedTuple):
    """How many nodes are kept for another group, and that group: its name, and what people know it by."""

    nodes: int
    group: str
    title: str


class NodeReport(Struct, frozen=True):
    """How the nodes look to the pods of one class.

    Attributes:
        total: how many nodes there are.
        refusals: what excludes nodes, and of how many it is the first reason.
        fitting: nodes with room for one pod at least.
        room: pods that fit, ``needed``: pods that have to.
        nearest: what is missing where the least is; empty when a pod fits somewhere.
        kept: nodes that are kept for another group, which waited for long.
    """

    total: int
    refusals: tuple[tuple[str, int], ...]
    fitting: int
    room: int
    needed: int
    nearest: str = ""
    kept: KeptNodes | None = None

    def sentences(self) -> Iterator[str]:
        """Put it into words."""
        for words, count in self.refusals:
            yield f"{count} of {counted(self.total, 'node')} {'is' if count == 1 else 'are'} {words}"
        if self.fitting:
            fits = "has" if self.fitting == 1 else "have"
            pods = f"{self.room} of {counted(self.needed, 'pod')}"
            if self.room >= self.needed:
                pods = "its pod" if self.needed == 1 else f"each of {self.needed} pods by itself"
            yield f"{self.fitting} of {counted(self.total, 'node')} {fits} room: for {pods}"
        else:
            yield f"none of {counted(self.total, 'node')} has room for one of its pods"
        if self.nearest:
            yield self.nearest
        if self.kept is not None:
            kept = f"{counted(self.kept.nodes, 'node')} {'is' if self.kept.nodes == 1 else 'are'} kept"
            yield f"{kept} for {self.kept.title}, which waits for longer"


class EvictionOutlook(Struct, frozen=True):
    """Whom an action could evict for a group, and why nobody goes.

    Attributes:
        action: its name.
        sources: whose pods it may take, as the end of "pods of".
        barred: why it takes nobody, whoever there is, a sentence; empty where it looks for somebody.
        kept: why pods stay, and how many for each reason; each pod counts once.
        unknown: some of them are only counted (`Snapshot.satisfied`), and taken to be all that their group needs.
    """

    action: str
    sources: str
    barred: str = ""
    kept: tuple[tuple[str, int], ...] = ()
    unknown: bool = False

    def sentence(self) -> str:
        """Put it into words."""
        if self.barred:
            return f"{self.action} takes no pod for it: {self.barred}"
        total = sum(count for _, count in self.kept)
        parts = [f"{count} {'is' if count == 1 else 'are'} {words}" for words, count in self.kept]
        return f"{self.action} takes no pod for it: of {counted(total, 'pod')} of {self.sources} {listed(parts)}"

    def data(self) -> dict[str, Any]:
        """Write it for programs."""
        return {"action": self.action, "barred": self.barred, "kept": dict(self.kept)}


class Record(Struct, frozen=True):
    """Why a group doesn't run.

    ``ahead``: how many groups of its queue that don't run, either, have their turn before it. ``limit`` and ``nodes``
    are None where they aren't what it waits for.
    """

    key: GroupKey
    queue: str
    stage: Stage
    reason: Reason | None
    message: str
    ahead: int
    limit: Limit | None = None
    nodes: NodeReport | None = None

    @property
    def tells_what_lacks(self) -> bool:
        """Whether it is about nodes or a limit, and not about a turn that comes by itself."""
        return self.limit is not None or self.nodes is not None

    def data(self) -> dict[str, Any]:
        """Write it for programs: JSON values, amounts as Kubernetes writes them. Fields that don't apply are left out."""
        written: dict[str, Any] = {
            "podGroup": str(self.key),
            "queue": self.queue,
            "stage": self.stage.value,
            "reason": self.reason.value if self.reason is not None else "",
            "message": self.message,
            "groupsAhead": self.ahead,
        }
        if self.limit is not None:
            written["limit"] = {
                "kind": self.limit.kind,
                "name": self.limit.name,
                "short": self.limit.short.quantities(),
            }
        if self.nodes is not None:
            written["nodes"] = {
                "total": self.nodes.total,
                "refusals": dict(self.nodes.refusals),
                "fitting": self.nodes.fitting,
                "room": self.nodes.room,
                "needed": self.nodes.needed,
                "nearest": self.nodes.nearest,
                "kept": {"nodes": kept.nodes, "podGroup": kept.group} if (kept := self.nodes.kept) else None,
            }
        return written

    def lines(self) -> Iterator[str]:
        """Write it for people, a fact a line."""
        stages = [stage.value for stage in Stage]
        place = stages.index(self.stage.value) + 1
        yield f"PodGroup {self.key} waits at stage {place} of {len(stages)}: {self.stage.value} ({' > '.join(stages)})"
        yield self.message
        if self.limit is not None:
            what = f"{self.limit.kind} {self.limit.name}".strip()
            yield f"limit: {what}" + (f", short by {self.limit.short}" if self.limit.short else "")
        yield f"ahead of it: {counted(self.ahead, 'group') if self.ahead else 'no group'} of queue {self.queue}"
        if self.nodes is not None:
            yield from (f"nodes: {sentence}" for sentence in self.nodes.sentences())
