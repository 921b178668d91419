"""Why a PodGroup waits, as a value: where it stands, what limits it, who is ahead, what it needs, what would change that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from muster.cli import output
from muster.ledger.report import Standing, report
from muster.model import grouping, kinds
from muster.model.objects import PodGroup, Queue
from muster.model.text import counted
from muster.whatif import remedies
from muster.whatif.cluster import WhatIfCluster, view_of
from muster.whatif.cluster_view import PODGROUPS, State
from muster.whatif.remedies import Change, QuotaShortage
from scheduler.model.obstacle import Stage
from scheduler.model.plan import Plan, QueueShare
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey, Job

_NAMED: Final = 5
"""Groups ahead that are named."""

_STAGES: Final[Mapping[Stage, str]] = {
    Stage.QUEUE: "its queue",
    Stage.QUOTA: "the quota of its namespace",
    Stage.ENQUEUE: "room in the cluster, to be let in",
    Stage.GANG: "its own pods",
    Stage.NODES: "nodes",
    Stage.BIND: "its pods to start",
}


class Answer(Struct, frozen=True):
    """What is known of a group. Without a record it doesn't wait.

    Attributes:
        needs: what it asks for, a sentence.
        called: its name for people.
        held: whether it waits for its user to resume its Job.
        ahead: the groups of its queue that have their turn before it: (name, what people call it).
        changes: what would let it start, each by itself.
        quotas: where its namespace's quotas stand.
    """

    key: GroupKey
    group: PodGroup
    taken: datetime
    record: Record | None = None
    needs: str = ""
    ahead: tuple[tuple[str, str], ...] = ()
    changes: tuple[Change, ...] = ()
    queue: Queue | None = None
    share: QueueShare | None = None
    quotas: tuple[Standing, ...] = ()
    called: str = ""
    held: bool = False

    def data(self) -> dict[str, Any]:
        """Write it for programs."""
        if self.record is None:
            status = self.group.status
            return {"podGroup": str(self.key), "phase": status.phase or "Pending", "running": status.running}
        told = self.record.data() | {"needs": self.needs, "ahead": [name for name, _ in self.ahead]}
        return told | {"changes": [each.data | {"text": each.text} for each in self.changes]}


def find(state: State, namespace: str, name: str) -> GroupKey | None:
    """Return the PodGroup of that name, of whichever API group."""
    found = (kind for kind in PODGROUPS if state.find(kind, name, namespace) is not None)
    return next((GroupKey(kind.group, namespace, name) for kind in found), _made_for(state, namespace, name))


def _made_for(state: State, namespace: str, name: str) -> GroupKey | None:
    """Return the group that Muster made for a workload of that name, also if written ``job/train``."""
    kind, _, owner = name.rpartition("/")
    for each in state.of(kinds.PODGROUPS, namespace):
        owners = each.metadata.owner_references or ()
        if grouping.is_generated(each.name) and any(
            one.name == owner and kind.lower() in {"", one.kind.lower()} for one in owners
        ):
            return GroupKey(kinds.PODGROUPS.group, namespace, each.name)
    return None


def ask(scene: WhatIfCluster, key: GroupKey) -> Answer:
    """Find out why a group waits."""
    group = scene.group(key)
    assert group is not None, "it was found just now"
    plan = scene.decide()
    record = plan.records.get(key)
    if record is None:
        return Answer(key, group, scene.state.taken, called=scene.called(key))
    (per_resource, lack), job = _quotas(scene.state, key), scene.job(key)
    return Answer(
        key,
        group,
        scene.state.taken,
        record,
        needs=needs(job),
        ahead=tuple((str(each), scene.called(each)) for each in _ahead(plan, record)),
        changes=tuple(remedies.changes(scene, key, record, lack)),
        queue=scene.state.find(kinds.QUEUES, record.queue),
        share=plan.queues.get(record.queue),
        quotas=per_resource,
        called=scene.called(key),
        held=bool(job.held),
    )


def needs(job: Job) -> str:
    """Say what a group asks for."""
    requests: dict[str, int] = {}
    for task in job.tasks:
        requests[remedies.shown(task.kind.request)] = requests.get(remedies.shown(task.kind.request), 0) + 1
    for each in job.coming:
        text = remedies.shown(each.kind.request)
        requests[text] = requests.get(text, 0) + each.count
    pods = [f"{counted(count, 'pod')}{f' of {text}' if text else ''}" for text, count in requests.items()]
    least = [f"at least {job.min_member} of them at once"] if job.min_member > 1 else []
    stated = [f"minResources {remedies.shown(job.stated)}"] if job.stated else []
    return "; ".join([" and ".join(pods) or "pods that aren't known yet", *least, *stated])


def _ahead(plan: Plan, record: Record) -> Iterator[GroupKey]:
    others = [each for each in plan.records.values() if each.queue == record.queue and each.ahead < record.ahead]
    waiting = [each for each in others if each.stage is not Stage.BIND]
    return (each.key for each in sorted(waiting, key=lambda each: each.ahead))


def _quotas(state: State, key: GroupKey) -> tuple[tuple[Standing, ...], QuotaShortage]:
    """Return where the namespace's quotas stand, and what they lack for a group that holds nothing."""
    table = state.ledger(key.namespace)
    if table is None:
        return (), QuotaShortage()
    view = view_of(state, key.namespace)
    short = next((lacks for each, lacks in table.outside(view).items() if each.name == key.name), ())
    return report(key.namespace, "", "", table, view).quotas, QuotaShortage(short, table.holders(view, short))


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────


def lines(answer: Answer, width: int, now: datetime) -> Iterator[str]:
    """Write an answer on one screen; ``width`` is where lines are broken."""
    if answer.record is None:
        yield from output.hanging(_doesnt_wait(answer), width)
        return
    record = answer.record
    stages = list(Stage)
    yield from output.hanging(f"PodGroup {answer.called} waits for {_STAGES[record.stage]}", width)
    yield "  " + " > ".join(f"[{each.value}]" if each is record.stage else each.value for each in stages)
    yield ""
    yield from output.facts(_facts(answer, record), width)
    yield ""
    if answer.changes:
        yield "What would let it start, each by itself:"
        yield from output.bullets([each.text for each in answer.changes], width)
    else:
        yield from output.wrapped(_unchanged(record, held=answer.held), width)
    yield ""
    yield "Sources:"
    yield from output.facts(_sources(answer, now), width, indent="  ")


def _doesnt_wait(answer: Answer) -> str:
    status, least = answer.group.status, answer.group.spec.min_member
    if status.phase == "Completed":
        return f"PodGroup {answer.called} doesn't wait: it is Completed"
    running = f"{counted(status.running, 'pod')} {'runs' if status.running == 1 else 'run'}"
    return (
        f"PodGroup {answer.called} doesn't wait: it is {status.phase or 'Pending'}, {running}, its minimum is {least}"
    )


def _facts(answer: Answer, record: Record) -> Iterator[tuple[str, str]]:
    yield "why", record.message
    if record.limit is not None and record.limit.short:
        what = f"{record.limit.kind} {record.limit.name}" if record.limit.name else f"the {record.limit.kind}"
        yield "limit", f"{what}, short by {remedies.shown(record.limit.short)}"
    yield "needs", answer.needs
    yield "ahead", _line(answer, record)
    for sentence in record.nodes.sentences() if record.nodes is not None else ():
        yield "nodes", sentence


def _line(answer: Answer, record: Record) -> str:
    if not answer.ahead:
        return f"nobody in queue {record.queue}"
    more = len(answer.ahead) - _NAMED
    named = ", ".join(called for _, called in answer.ahead[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{counted(len(answer.ahead), 'PodGroup')} of queue {record.queue}: {named}"


def _unchanged(record: Record, *, held: bool) -> str:
    if record.stage is Stage.GANG:
        return (
            "It goes on once its Job is resumed."
            if held
            else "It goes on once its missing pods exist and may be scheduled."
        )
    if record.reason is None:
        return "Nothing has to change: it goes on by itself."
    if record.stage is Stage.QUEUE and record.limit is None:
        return "No change of its queue alone lets it start: a queue of that name, open, with room for more PodGroups, was tried."
    return (
        "No single change lets it start: more nodes like those there are, the end of other PodGroups, and a wider queue were"
        " tried, as far as each has to do with it. What is said under why comes first."
    )


def _sources(answer: Answer, now: datetime) -> Iterator[tuple[str, str]]:
    for condition in answer.group.status.conditions or ():
        if condition.status == "True" and condition.type == "Unschedulable":
            since = output.age(condition.last_transition_time, now)
            yield "condition", f"{condition.type} for {since}: {condition.reason}: {condition.message}"
    yield "queue", _queue(answer)
    for each in answer.quotas:
        other = f", {each.other} used by other pods" if each.other != "0" else ""
        yield "ledger", f"quota {each.quota}: {each.reserved} of {each.hard} {each.resource} reserved{other}"
    yield "scheduler", f"its own rules, asked anew about the cluster as it was at {answer.taken:%Y-%m-%d %H:%M:%S} UTC"


def _queue(answer: Answer) -> str:
    assert answer.record is not None, "only who waits has sources"
    if answer.queue is None:
        return f"{answer.record.queue} doesn't exist"
    spec = answer.queue.spec
    parts = [answer.queue.status.state or "Open", f"weight {spec.weight}"]
    if spec.capability:
        parts.append("capability " + ", ".join(f"{amount} {name}" for name, amount in spec.capability.items()))
    if answer.share is not None:
        parts.append(f"its pods have {remedies.shown(answer.share.allocated) or 'nothing yet'}")
    return f"{answer.record.queue}: {', '.join(parts)}"
