"""Tells what was decided: in the log when it is news, in numbers each time, and to who asks how things stand."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from muster.telemetry.bounded import first
from scheduler.leader.metrics import SchedulerMetrics
from scheduler.model.obstacle import Stage
from scheduler.model.plan import GroupStatus, Plan, QueueShare
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey, TaskStatus

MAX_SHOWN: Final = 200
"""Groups and queues that the state shows."""
MAX_REFUSALS_LOGGED: Final = 20
"""Groups of which the log says in one cycle why they wait; of the others it says how many, and of each at DEBUG."""

log = logging.getLogger("muster.scheduler")


class _WaitingGroup(Struct):
    """A group that doesn't run: at which stage, since when in seconds, and of which stages the log has a refusal."""

    key: GroupKey
    stage: Stage
    since: float
    reported: tuple[Stage, ...] = ()


class CycleReport:
    """What was told already isn't told again until it has changed. One for each leadership."""

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._metrics = metrics
        self._waiting: dict[str, _WaitingGroup] = {}
        # Of the last plan no more than this: its tasks are as many as there are pods.
        self._queues: Mapping[str, QueueShare] = {}
        self._records: Mapping[GroupKey, Record] = {}
        self._reserved_for = ""
        self._network_faults: tuple[str, ...] = ()

    def report(self, plan: Plan, now: float, seconds: float) -> None:
        """Report a cycle that took so many ``seconds``; ``now`` is in seconds of the epoch."""
        self._queues, self._records = plan.queues, plan.records
        self._reserved_for = str(plan.reserved_nodes.key) if plan.reserved_nodes is not None else ""
        metrics = self._metrics
        metrics.binds.inc(len(plan.binds))
        metrics.evictions.inc(len(plan.evictions))
        metrics.faults.report(plan.faults)
        metrics.waiting.set(sum(counts.get(TaskStatus.PENDING, 0) for counts in plan.tasks.values()))
        metrics.queues.observe(plan.queues)
        metrics.queue_waits.count_evictions(plan)
        for fault in plan.network_faults:
            if fault not in self._network_faults:
                log.warning("%s", fault)
        self._network_faults = plan.network_faults
        if log.isEnabledFor(logging.DEBUG):
            _log_decisions(plan, round(seconds * 1000, 2))
        self._follow(plan, now)

    def refused(self, key: GroupKey, uid: str, title: str, reason: str) -> None:
        """Report that the ledger refused a group its minimum; ``title``: what people know it by."""
        wait = self._waiting.get(uid)
        if wait is not None and Stage.QUOTA not in wait.reported:
            wait.reported += (Stage.QUOTA,)
            _log_refusal(logging.INFO, (key, uid, title), Stage.QUOTA, reason)

    def close(self) -> None:
        """Show nothing that another leader may change from now on."""
        self._metrics.queues.observe({})
        self._metrics.queue_waits.observe(())
        self._metrics.waiting.set(0)
        for stage in Stage:
            self._metrics.groups.labels(stage.value).set(0)
            self._metrics.longest.labels(stage.value).set(0)

    def state(self) -> dict[str, Any]:
        """Return what the last cycle decided, for a person who looks for a fault; bounded."""
        return {
            "queues": first(({"queue": name, **_share(share)} for name, share in self._queues.items()), MAX_SHOWN),
            "waiting": first((record.data() for record in self._records.values()), MAX_SHOWN),
            "keptNodesFor": self._reserved_for,
            "networkFaults": list(self._network_faults),
        }

    def _follow(self, plan: Plan, now: float) -> None:
        """Follow each group that doesn't run from stage to stage."""
        before, self._waiting = self._waiting, {}
        counts, longest = dict.fromkeys(Stage, 0), dict.fromkeys(Stage, 0.0)
        news: list[tuple[GroupStatus, Record]] = []
        for key, record in plan.records.items():
            status = plan.groups[key]
            uid = status.uid
            wait = self._enter_stage(uid, before.pop(uid, None), record, now)
            if record.reason is not None and record.stage not in wait.reported:
                wait.reported += (record.stage,)
                news.append((status, record))
            counts[wait.stage] += 1
            longest[wait.stage] = max(longest[wait.stage], now - wait.since)
        _log_refusals(news)
        for uid, wait in before.items():
            left = plan.groups.get(wait.key)
            if left is not None and left.uid == uid:
                self._left_stage(wait, now)
        self._metrics.queue_waits.observe(
            (record.queue, key, now - self._waiting[plan.groups[key].uid].since)
            for key, record in plan.records.items()
            if record.stage is not Stage.BIND
        )
        for stage in Stage:
            self._metrics.groups.labels(stage.value).set(counts[stage])
            self._metrics.longest.labels(stage.value).set(longest[stage])

    def _enter_stage(self, uid: str, known: _WaitingGroup | None, record: Record, now: float) -> _WaitingGroup:
        wait = known
        if wait is None or wait.stage is not record.stage:
            if known is not None:
                self._left_stage(known, now)
            wait = _WaitingGroup(record.key, record.stage, now, known.reported if known is not None else ())
        self._waiting[uid] = wait
        return wait

    def _left_stage(self, wait: _WaitingGroup, now: float) -> None:
        self._metrics.waited.labels(wait.stage.value).observe(now - wait.since)


def _log_refusals(news: Sequence[tuple[GroupStatus, Record]]) -> None:
    for place, (status, record) in enumerate(news if log.isEnabledFor(logging.DEBUG) else news[:MAX_REFUSALS_LOGGED]):
        level = logging.INFO if place < MAX_REFUSALS_LOGGED else logging.DEBUG
        _log_refusal(level, (record.key, status.uid, status.title), record.stage, record.message)
    if len(news) > MAX_REFUSALS_LOGGED:
        text = "%d more PodGroups wait since this cycle; their conditions say why, or `muster podgroup why NAME`"
        log.info(text, len(news) - MAX_REFUSALS_LOGGED, extra={"verdict": "waiting"})


def _log_refusal(level: int, group: tuple[GroupKey, str, str], stage: Stage, reason: str) -> None:
    key, uid, title = group
    about = {"uid": uid, "object": f"podgroups.{key.group} {key}", "verdict": "waiting", "stage": stage.value}
    log.log(level, "%s waits: %s", title, reason, extra=about)


def _log_decisions(plan: Plan, milliseconds: float) -> None:
    cycle = {"ms": milliseconds}
    for bind in plan.binds:
        about = {"uid": bind.task.uid, "object": f"pods {bind.task}", "verdict": "bind", **cycle}
        log.debug("goes to node %s", bind.node, extra=about)
    for eviction in plan.evictions:
        about = {"uid": eviction.task.uid, "object": f"pods {eviction.task}", "verdict": "evict", **cycle}
        log.debug("leaves for %s", eviction.title, extra=about)
    for status in plan.statuses:
        if status.phase is not status.before:
            group = f"podgroups.{status.key.group} {status.key}"
            about = {"uid": status.uid, "object": group, "verdict": status.phase.value, **cycle}
            log.debug("%s was %s", status.title, status.before.value, extra=about)


def _share(share: QueueShare) -> dict[str, Any]:
    return {
        "allocated": share.allocated.quantities(),
        "deserved": share.deserved.quantities() if share.deserved is not None else None,
        "share": share.share,
    }
