"""What holds after every cycle, whatever was decided: checked on the plan alone, from the snapshot it was made of."""

from __future__ import annotations

from collections import Counter

from muster.model.amounts import Resources
from scheduler.engine.policy import Policy
from scheduler.model.plan import Plan
from scheduler.model.snapshot import READY, JobInfo, Snapshot, TaskStatus


def hold(snapshot: Snapshot, policy: Policy, plan: Plan) -> None:
    """Fail where a plan overfills a node, binds a gang in part, or takes a queue beyond its capability."""
    plugins = {each.plugin.name for tier in policy.tiers for each in tier}
    _fits_on_nodes(snapshot, plan)
    if "gang" in plugins:
        _whole_gangs(snapshot, plan)
    if plugins & {"proportion", "capacity"}:
        _within_capability(snapshot, plan)
    pending = {task.uid for job in snapshot.jobs for task in job.tasks if task.status is TaskStatus.PENDING}
    bound = [bind.task.uid for bind in plan.binds]
    assert len(bound) == len(set(bound)), "a pod is bound twice"
    assert set(bound) <= pending, "a pod is bound that doesn't wait"


def _fits_on_nodes(snapshot: Snapshot, plan: Plan) -> None:
    idle = dict(zip(snapshot.table.names, snapshot.idle.tolist(), strict=True))
    for bind in plan.binds:
        for place, amount in enumerate(bind.task.task_class.vector(snapshot.axes)):
            idle[bind.node][place] -= amount
            assert amount == 0 or idle[bind.node][place] >= 0, f"{bind.node} is overfilled by {bind.task}"


def _whole_gangs(snapshot: Snapshot, plan: Plan) -> None:
    bound = Counter(bind.group for bind in plan.binds)
    leaving = Counter(eviction.group for eviction in plan.evictions)
    for job in snapshot.jobs:
        there = sum(task.status in READY for task in job.tasks)
        assert bound[job.key] == 0 or there + bound[job.key] >= job.min_member, f"{job.key} is bound in part"
        whole = there - leaving[job.key] == 0 or there < job.min_member
        assert leaving[job.key] == 0 or whole or there - leaving[job.key] >= job.min_member, f"{job.key} is broken"


def _within_capability(snapshot: Snapshot, plan: Plan) -> None:
    jobs = {job.key: job for job in snapshot.jobs}
    more: dict[str, list[Resources]] = {}
    for bind in plan.binds:
        more.setdefault(jobs[bind.group].queue, []).append(bind.task.task_class.request)
    # A queue has what is meant to stay: pods that leave don't count, be it since before or by this plan.
    leaving: dict[str, list[Resources]] = {}
    for each in plan.evictions:
        leaving.setdefault(jobs[each.group].queue, []).append(each.task.task_class.request)
    for name, requests in more.items():
        limit = snapshot.queues[name].capability
        for resource in limit or ():
            used = sum(_used(job, resource) for job in snapshot.jobs if job.queue == name)
            used += sum(request[resource] for request in requests)
            used -= sum(request[resource] for request in leaving.get(name, ()))
            asked = any(request[resource] for request in requests)
            assert not asked or used <= limit[resource], f"queue {name} is beyond its capability of {resource}"


def _used(job: JobInfo, resource: str) -> int:
    return sum(kind.request[resource] * count for kind, count in job.task_counts.occupying.items())
