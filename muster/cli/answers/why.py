"""The answer to `muster podgroup why` for people, on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from muster.cli import output
from muster.model.text import counted, few
from muster.whatif.targets import Subject
from muster.whatif.trials import shown
from muster.whatif.why import Explanation
from scheduler.model.obstacle import Stage
from scheduler.model.records import Record

_NAMED: Final = 5
"""Groups ahead that are named."""

_STAGES: Final[Mapping[Stage, str]] = {
    Stage.QUEUE: "its queue",
    Stage.QUOTA: "the quota of its namespace",
    Stage.ENQUEUE: "cluster capacity",
    Stage.GANG: "its pods to be created",
    Stage.NODES: "nodes for its pods",
    Stage.BIND: "its pods to start",
}


def unasked(target: Subject, width: int) -> Iterator[str]:
    """Write why there is nothing to ask of what was named."""
    yield from output.hanging(f"{target.title} does not wait for Muster: {target.remark}", width)


def member(target: Subject, answer: Explanation, width: int) -> Iterator[str]:
    """Write of which group a pod is a member, before the answer for that group."""
    if target.pod is not None:
        yield from output.hanging(f"{target.title} has no node. It is a member of {answer.title}:", width)
        yield ""


def lines(answer: Explanation, width: int, now: datetime, configured: str = "", start: str = "") -> Iterator[str]:
    """Write an answer on one screen.

    ``width`` is where lines are broken, ``configured`` the scheduler's configuration, ``start`` when it starts, a sentence.
    """
    if answer.record is None:
        yield from output.hanging(_doesnt_wait(answer), width)
        return
    record = answer.record
    stages, phase = list(Stage), answer.group.status.phase or "Pending"
    what = f"{_STAGES[record.stage]} (stage {record.stage.value})"
    waiting = f"waiting for {what}"
    if answer.grows:
        running, more = answer.group.status.running, what.replace(" for its pods", "")
        runs = f"{counted(running, 'pod')} {'runs' if running == 1 else 'run'}"
        waiting = f"{runs}, {answer.grows} more {'waits' if answer.grows == 1 else 'wait'} for {more}"
    yield from output.hanging(f"{answer.title} is {phase}: {waiting}", width)
    yield "  " + " > ".join(f"[{each.value}]" if each is record.stage else each.value for each in stages)
    yield ""
    when = [("start", start)] if start else []
    yield from output.facts([*_facts(answer, record), *when], width)
    yield ""
    if answer.changes:
        yield f"Each of these changes alone would let {'one more of its pods' if answer.grows else 'it'} start:"
        yield from output.bullets([each.text for each in answer.changes], width)
    else:
        yield from output.wrapped(_unchanged(answer, record), width)
    yield ""
    yield "Sources:"
    yield from output.facts(_sources(answer, now, configured), width, indent="  ")


def _doesnt_wait(answer: Explanation) -> str:
    status, least = answer.group.status, answer.group.spec.min_member
    but = f", but {answer.failing}" if answer.failing else ""
    if status.phase == "Completed":
        return f"{answer.title} does not wait: it is Completed{but}"
    running = f"{counted(status.running, 'pod')} {'runs' if status.running == 1 else 'run'}"
    return f"{answer.title} does not wait: it is {status.phase or 'Pending'}, {running}, minMember {least}{but}"


def _facts(answer: Explanation, record: Record) -> Iterator[tuple[str, str]]:
    yield "why", record.message
    if answer.failing:
        yield "pods", answer.failing
    if record.limit is not None and record.limit.short:
        what = f"{record.limit.kind} {record.limit.name}" if record.limit.name else f"the {record.limit.kind}"
        yield "limit", f"{what}, short by {shown(record.limit.short)}"
    for sentence in answer.evictions:
        yield "evicts", sentence
    if answer.timeout:
        yield "until", answer.timeout
    if answer.share:
        yield "share", answer.share
    yield "needs", answer.needs
    if answer.makers:
        yield "pods", answer.makers
    for warning in answer.warnings:
        yield "warning", warning
    yield "ahead", _line(answer, record)
    for sentence in record.nodes.sentences() if record.nodes is not None else ():
        yield "nodes", sentence


def _line(answer: Explanation, record: Record) -> str:
    if not answer.ahead:
        return f"no PodGroup of queue {record.queue}"
    named = few([title.removeprefix("PodGroup ") for _, title in answer.ahead], _NAMED)
    return f"{counted(len(answer.ahead), 'PodGroup')} of queue {record.queue}: {named}"


def _unchanged(answer: Explanation, record: Record) -> str:
    if answer.held:
        return "It continues when its Job is resumed."
    if record.stage is Stage.GANG:
        return "It continues when its missing pods exist and may be scheduled."
    if record.reason is None:
        return "No change is needed: it continues by itself."
    what = "lets another of its pods start" if answer.grows else "lets it start"
    if not answer.tried:
        return f"No single change {what}. Resolve the reason under why first."
    return f"No single change {what}. Tried, each by itself: {answer.tried}. Resolve the reason under why first."


def _sources(answer: Explanation, now: datetime, configured: str) -> Iterator[tuple[str, str]]:
    for condition in answer.group.status.conditions or ():
        if condition.status == "True" and condition.type == "Unschedulable":
            since = output.age(condition.last_transition_time, now)
            yield "condition", f"{condition.type} for {since}: {condition.reason}: {condition.message}"
    if not answer.title.startswith("PodGroup "):
        yield "podgroup", answer.key.name
    yield "queue", _queue(answer)
    for each in answer.quotas:
        other = f", {each.other} used by other pods" if each.other != "0" else ""
        yield "ledger", f"quota {each.quota}: {each.reserved} of {each.hard} {each.resource} reserved{other}"
    if answer.autoscaling:
        yield "scaling", answer.autoscaling
    if configured:
        yield "actions", configured
    yield "scheduler", f"decided again on the cluster as of {answer.taken:%Y-%m-%d %H:%M:%S} UTC"


def _queue(answer: Explanation) -> str:
    assert answer.record is not None, "only who waits has sources"
    if answer.queue is None:
        return f"{answer.record.queue} does not exist"
    spec = answer.queue.spec
    parts = [answer.queue.status.state or "Open", f"weight {spec.weight}"]
    if spec.capability:
        parts.append("capability " + ", ".join(f"{amount} {name}" for name, amount in spec.capability.items()))
    if answer.shares is not None:
        parts.append(f"allocated {shown(answer.shares.allocated) or 'nothing'}")
    return f"{answer.record.queue}: {', '.join(parts)}"
