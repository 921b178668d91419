"""A cluster in which one may suppose things, look what the scheduler would decide, and go back. Pure.

Deciding is the scheduler's own; between two decisions happens what would: pods are bound, those of Jobs that were let
in are created, those that were evicted are gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from muster.ledger import wording
from muster.ledger.reservations import COMPLETED, Shortage
from muster.model import grouping, kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Meta, Node, Pod, PodGroup, Queue
from muster.whatif import outcomes, shortages
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects, ObjectChanges, with_objects
from muster.whatif.effort import Effort
from muster.whatif.grouped_objects import GroupedObjects, Members, group_name_of
from muster.whatif.outcomes import RunOutcome, RunProgress, is_stuck
from muster.whatif.policies import without_reservations
from muster.whatif.satisfied_groups import SatisfiedGroups
from muster.whatif.supposed_pods import as_placed, awaiting_claims, missing_of_job
from muster.whatif.undo import Undoable
from scheduler.engine import satisfied
from scheduler.engine.cycle import decide
from scheduler.engine.decision_cache import DecisionCache
from scheduler.engine.policy import Policy
from scheduler.leader.backoff import RequeueTimers
from scheduler.model.plan import Bind, Eviction, Plan
from scheduler.model.snapshot import GroupKey, JobInfo, Phase, RequeueState, Snapshot
from scheduler.state.aggregated_pods import GroupName
from scheduler.state.apply import apply_plan, carry_over
from scheduler.state.cluster import Cluster
from scheduler.state.handlers import handlers

CYCLES: Final = 12
"""Decisions in a row after which a group that hasn't started is taken not to; each admits or binds something."""

_LATER: Final = timedelta(seconds=10)
"""A group whose pods nobody knows of yet is left alone for its first seconds; here nothing more will come."""

_TOO_LONG: Final = timedelta(days=1)
"""More than a group without nodes may keep others waiting, and more than it then has to wait for its next turn."""

_SUPPOSED: Final = frozenset(
    {*PODGROUPS, kinds.PODS, kinds.JOBS, kinds.QUOTALEDGERS, kinds.DEPLOYMENTS, kinds.STATEFULSETS, kinds.CONFIGMAPS}
)
"""Kinds of objects that may be supposed to be there: for others, a cluster is made anew."""


class WhatIfCluster(Undoable):
    """A cluster made of a state. ``now`` is the state's; ``effort`` what running it may take; ``cache`` what decisions know."""

    def __init__(
        self, state: ClusterObjects, policy: Policy, schedulers: Sequence[str], effort: Effort | None = None
    ) -> None:
        super().__init__()
        self.effort = effort or Effort()
        self.state = state
        self.schedulers = tuple(schedulers)
        self.policy = without_reservations(policy)
        self._first = self.now = state.taken + _LATER
        self.cluster = Cluster(frozenset(schedulers))
        self.cluster.devices.suppose(awaiting_claims(state))
        self._pods: dict[str, Pod] = {}
        members = self.cluster.by_group(state.of(kinds.PODS))
        self._known = GroupedObjects(state, members)
        # What came of deciding: pods that Jobs have made, where pods were placed, since when groups have places.
        self._made: defaultdict[GroupName, list[Pod]] = defaultdict(list)
        self._placed: dict[str, Bind] = {}
        self._started: dict[GroupKey, datetime] = {}
        self._removed: set[str] = set()
        self._applied: Plan | None = None
        self._satisfied = SatisfiedGroups()
        self.cache = DecisionCache()
        self._pauses = outcomes.pauses(state)
        alone = satisfied.may_set_aside(policy)
        self._feed(members, alone=alone)
        first = self.snapshot()
        # To be found again once supposed nodes are gone.
        self._table = first.table
        self.shortages: dict[GroupKey, tuple[Shortage, ...]] = {}
        self._note_shortages(first.jobs)
        if alone:
            self._satisfied = SatisfiedGroups.of(satisfied.found(first), first)
            for key in self._known.groups.keys() - self._satisfied.jobs.keys():
                self.cluster.expand_group(key)

    def _feed(self, members: Members, *, alone: bool) -> None:
        cluster = self.cluster
        cluster.close_nodes(self.state.closed_nodes)
        cluster.queue(Queue(metadata=Meta(name=names.DEFAULT_QUEUE)))
        for kind, learn in (*handlers(cluster).items(), (kinds.QUEUES, cluster.queue)):
            for each in self.state.of(kind) if kind is not kinds.PODS or not alone else ():
                learn(each)
        if alone:
            cluster.aggregate(members)
        else:
            self._pods = {pod.metadata.uid: pod for pod in self.state.of(kinds.PODS)}
        for key, group in self._known.groups.items():
            cluster.group(key.group, group)
        for ledger in self.state.of(kinds.QUOTALEDGERS):
            self._count_reserved(ledger.namespace)

    def _count_reserved(self, namespace: str) -> None:
        """Learn who holds nothing of a namespace's quota, and what is left for those who reserve late."""
        table, reasons = shortages.unreserved(self.state, namespace, self.schedulers)
        self.cluster.unreserved(namespace, reasons)
        self.cluster.ledger(namespace, table)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> Snapshot:
        """Return what the scheduler sees."""
        return replace(self.cluster.snapshot(), autoscaler=self.state.autoscaler, eviction_pauses=self._pauses)

    def decide(self, requeues: Mapping[str, RequeueState] | None = None, growing: Collection[GroupKey] = ()) -> Plan:
        """Decide once; ``requeues`` as `Snapshot` has them, ``growing`` as `decide` has it."""
        plan = decide(self.seen(requeues), self.policy, self.now, self.cache, growing=growing)
        if plan.lacks_victims and self.learn_victims():
            plan = decide(self.seen(requeues), self.policy, self.now, self.cache, growing=growing)
        return plan

    def learn_victims(self) -> bool:
        """Look at each pod of those that run, where some of them may be evicted: of many that takes long."""
        if not self._satisfied.may_lose_some(self.policy):
            return False
        for key in self._satisfied.jobs:
            self.cluster.expand_group(key)
        self._satisfied = self._satisfied.again(self.cluster.snapshot())
        return True

    def seen(self, requeues: Mapping[str, RequeueState] | None = None) -> Snapshot:
        """Return what a decision looks at: groups that are satisfied only by what they have."""
        snapshot = self.snapshot()
        jobs = tuple([job for job in snapshot.jobs if job.key not in self._satisfied.jobs])
        return replace(snapshot, jobs=jobs, satisfied=self._satisfied.by_queue, requeues=requeues or {})

    def group(self, key: GroupKey) -> PodGroup | None:
        """Return a group as the state has it."""
        return self._known.groups.get(key)

    def queue_of(self, key: GroupKey) -> str:
        """Return the name of a group's queue."""
        group = self.group(key)
        return (group.spec.queue if group is not None else "") or names.DEFAULT_QUEUE

    def made_of(self, state: ClusterObjects | None = None, policy: Policy | None = None) -> WhatIfCluster:
        """Return a cluster of its own, made of another state or with another policy."""
        return WhatIfCluster(state or self.state, policy or self.policy, self.schedulers, self.effort)

    def state_now(self) -> ClusterObjects:
        """Return the state with what came of deciding: phases, places, pods that were made or evicted."""
        found = [(key, self.cluster.find_group(key)) for key in self._known.groups]
        groups = {kind: [each for key, each in found if each and key.group == kind.group] for kind in PODGROUPS}
        made = [pod for pods in self._made.values() for pod in pods]
        pods = [as_placed(pod, self._placed.get(pod.metadata.uid)) for pod in (*self.state.of(kinds.PODS), *made)]
        objects: dict[Kind[Any], Iterable[Any]] = {kinds.PODS: pods, kinds.JOBS: self._known.jobs.values(), **groups}
        gone = {kinds.PODS: [pod for pod in pods if pod.metadata.uid in self._removed]}
        return replace(with_objects(with_objects(self.state, objects), {}, gone), taken=self.now)

    def title(self, key: GroupKey) -> str:
        """Return what people know a group by: kind and name of the workload that it was generated for, else its own."""
        group = self.group(key)
        return grouping.title(key.namespace, key.name, grouping.owner_of(group.metadata) if group is not None else "")

    def members(self, key: GroupKey) -> Sequence[Pod]:
        """Return the pods that name a group."""
        return self._known.members((key.namespace, key.name))

    def running(self) -> list[GroupKey]:
        """Return the groups that have pods on nodes, those that have had them longest first."""
        return self._known.running(self._started)

    def waiting(self) -> list[GroupKey]:
        """Return the groups that have no pods on nodes and aren't over, the oldest first."""
        return self._known.waiting(self._started, self.now)

    def job(self, key: GroupKey) -> JobInfo:
        """Return a group as the scheduler sees it."""
        return self._satisfied.jobs.get(key) or next(each for each in self.snapshot().jobs if each.key == key)

    # ── supposing ────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def supposing(self, state: ClusterObjects) -> Iterator[WhatIfCluster]:
        """Suppose in the block that more objects exist, or others of their names: much quicker than a cluster that is made anew.

        Yields: this cluster; where the state differs from its own in more than that, one that was made anew.
        """
        changes = state.changes_from(self.state)
        if changes is None or not changes.keys() <= _SUPPOSED:
            yield self.made_of(state)
            return
        with self.assuming():
            self._take(state, changes)
            yield self

    def _take(self, state: ClusterObjects, changes: ObjectChanges) -> None:
        namespaces = {new.namespace for pairs in changes.values() for _, new in pairs}
        for namespace in namespaces:
            # Once all else is as it was.
            self._on_undo(self._count_reserved, namespace)
        known, touched = self._known.changed(state, changes, lambda pod: next(iter(self.cluster.by_group([pod]))))
        for name, value in {"state": state, "_known": known, "_pauses": outcomes.pauses(state)}.items():
            self._set(name, value)
        if self._pods:
            self._set("_pods", {**self._pods, **{new.metadata.uid: new for _, new in changes.get(kinds.PODS, ())}})
        learns = {kind: learn for kind, learn in handlers(self.cluster).items() if kind in changes}
        learns |= {kind: partial(self.cluster.group, kind.group) for kind in PODGROUPS if kind in changes}
        for kind, learn in learns.items():
            for old, new in changes[kind]:
                self._learn(learn, old, new)
        for namespace in namespaces:
            self._count_reserved(namespace)
        first = self.snapshot()
        self._note_shortages([job for job in first.jobs if job.key.namespace in namespaces])
        if satisfied.may_set_aside(self.policy):
            self._set("_satisfied", self._satisfied.seen_anew(touched, first))
            for key in touched - self._satisfied.jobs.keys():
                self.cluster.expand_group(key)

    def _note_shortages(self, jobs: Collection[JobInfo]) -> None:
        """Learn which of some groups the ledgers of the state have no room for."""
        before, now = self.shortages, dict(shortages.found(self.state, jobs, self.schedulers))
        others = {key: lacks for key, lacks in before.items() if key not in {job.key for job in jobs}}
        self._set("shortages", others | now)
        for key in (before.keys() - others.keys()) | now.keys():
            self.cluster.refused(key, wording.unreserved(now[key]) if key in now else "")
            self._on_undo(self.cluster.refused, key, wording.unreserved(before[key]) if key in before else "")

    def end(self, ended: Iterable[GroupKey]) -> None:
        """Suppose that groups are over, in a while, and their pods gone."""
        self._pass_time()
        keys = frozenset(ended)
        self._disturb(keys)
        for key in keys:
            for pod in (*self.members(key), *self._made.get((key.namespace, key.name), ())):
                self._remove_pod(pod)
            for job in self._known.jobs_of((key.namespace, key.name)):
                known = self._known.jobs[job.metadata.uid]
                self.cluster.batch_job(known, gone=True)
                self._on_undo(self.cluster.batch_job, known)
            group = self._known.groups[key]
            self._show(key, replace(group, status=replace(group.status, phase=COMPLETED, running=0)))

    def _disturb(self, keys: Collection[GroupKey]) -> None:
        """Look at groups again, since something happens to them."""
        self._set("_satisfied", self._satisfied.without(keys))

    def _pass_time(self) -> None:
        """Suppose that a long time goes by."""
        self._set("now", self.now + _TOO_LONG)

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Suppose more nodes, or other versions of nodes, in a while."""
        self._pass_time()
        for node in nodes:
            known = self.state.find(kinds.NODES, node.name)
            self.cluster.node(node)
            self._on_undo(self.cluster.node, known or node, gone=known is None)

    def restate(self, key: GroupKey, **spec: Any) -> None:
        """Suppose another spec of a group, in a while."""
        self._pass_time()
        group = self.cluster.find_group(key)
        assert group is not None, f"{key} is known"
        self._show(key, replace(group, spec=replace(group.spec, **spec)))

    def pods(self, pods: Iterable[Pod]) -> None:
        """Suppose more pods, in a while."""
        self._pass_time()
        for pod in pods:
            self._add_pod(pod, (pod.namespace, grouping.group_of(pod.metadata)))

    def _add_pod(self, pod: Pod, home: GroupName) -> None:
        self._pods[pod.metadata.uid] = pod
        self.cluster.pod(pod)
        self._on_undo(self.cluster.pod, pod, gone=True)
        self._made[home].append(pod)
        self._on_undo(self._made[home].remove, pod)

    def queue(self, queue: Queue) -> None:
        """Suppose another version of a queue, in a while."""
        self._pass_time()
        old = self.state.find(kinds.QUEUES, queue.name)
        self.cluster.queue(queue)
        before = old or Queue(metadata=Meta(name=queue.name))
        self._on_undo(self.cluster.queue, before, gone=old is None and queue.name != names.DEFAULT_QUEUE)

    def run_until_idle(self, wanted: Iterable[GroupKey], *, to_rest: bool = False) -> RunOutcome:
        """Decide as often as something comes of it, and tell which of some groups get nodes for their minimum.

        It ends as soon as all of them do, unless it is to go on ``to_rest``. One that is asked about alone, and has neither pods nor
        a Job yet, starts when it is admitted: more can't be seen.

        Raises:
            EffortSpentError: it takes longer than it may.
        """
        wanted = frozenset(wanted)
        progress, timers, waited = RunProgress(wanted), RequeueTimers(), False
        for _ in range(CYCLES):
            self.effort.check()
            plan = self.decide(timers.requeues)
            timers.observe(plan, self.now.timestamp())
            alone = [key for key in wanted if len(wanted) == 1 and self._is_admitted(key, plan)]
            progress.observe(plan, alone, waited=waited)
            if progress.done and not to_rest:
                break
            if not self._perform(plan):
                # Whoever was taken back is tried again, and pods that have just started may be evicted, when time has gone by.
                if waited or not (self.now == self._first or is_stuck(plan, wanted)):
                    break
                self._pass_time()
                waited = True
        return progress.outcome()

    def _is_admitted(self, key: GroupKey, plan: Plan) -> bool:
        home = (key.namespace, key.name)
        known = self.members(key) or self._made.get(home) or self._known.jobs_of(home)
        return not known and key in plan.groups and plan.groups[key].phase is Phase.INQUEUE

    def _perform(self, plan: Plan) -> bool:
        """Take a plan as carried out, and what follows from it as done; tell whether anything did."""
        before = {status.key: self.cluster.find_group(status.key) for status in plan.statuses}
        apply_plan(self.cluster, plan)
        for key, group in before.items():
            if group is not None:
                self._on_undo(self.cluster.group, key.group, group)
        self._on_undo(carry_over, self.cluster, self._applied)
        self._set("_applied", plan)
        for bind in plan.binds:
            self._note_place(bind)
        self._disturb({eviction.group for eviction in plan.evictions})
        for eviction in plan.evictions:
            self._remove_pod(self._pod(eviction))
        made = sum(self._make_pods(uid) for uid in plan.released)
        moved = any(status.moves for status in plan.statuses)
        return bool(plan.binds or plan.evictions or made or moved)

    def reserve(self) -> None:
        """Take as stored what the ledger is about to agree to: it has room, and it is a matter of milliseconds."""
        for status in self.decide().statuses:
            group = self.cluster.find_group(status.key)
            if group is not None and status.phase is status.before and status.holding != status.held_before:
                self._show(status.key, replace(group, status=status.struct()))

    def _show(self, key: GroupKey, group: PodGroup) -> None:
        old = self.cluster.find_group(key)
        assert old is not None, f"{key} is known"
        self.cluster.group(key.group, group)
        self._on_undo(self.cluster.group, key.group, old)

    def _note_place(self, bind: Bind) -> None:
        self._placed[bind.task.uid] = bind
        self._on_undo(self._displace, bind.task.uid)
        if bind.group not in self._started:
            self._started[bind.group] = self.now
            self._on_undo(self._started.__delitem__, bind.group)

    def _pod(self, eviction: Eviction) -> Pod:
        uid, group = eviction.task.uid, eviction.group
        return self._pods.get(uid) or next(pod for pod in self.members(group) if pod.metadata.uid == uid)

    def _displace(self, uid: str) -> None:
        del self._placed[uid]
        self.cluster.forget(uid)

    def _remove_pod(self, pod: Pod) -> None:
        self.cluster.pod(pod, gone=True)
        self._removed.add(pod.metadata.uid)
        self._on_undo(self._restore_pod, pod, self._placed.get(pod.metadata.uid))

    def _restore_pod(self, pod: Pod, bind: Bind | None) -> None:
        self.cluster.pod(pod)
        self._removed.discard(pod.metadata.uid)
        if bind is not None:
            self.cluster.assume(pod.metadata.uid, bind.node, bind.volumes, bind.devices)

    def _make_pods(self, uid: str) -> int:
        """Make the pods of a Job that was admitted; tell how many."""
        jobs = self._known.jobs
        job, home = jobs[uid], group_name_of(jobs[uid])
        released = jobs[uid] = replace(job, spec=replace(job.spec, suspend=False))
        self.cluster.batch_job(released)
        self._on_undo(jobs.__setitem__, uid, job)
        self._on_undo(self.cluster.batch_job, job)
        pods = missing_of_job(released, (*self._known.members(home), *self._made.get(home, ())))
        for pod in pods:
            self._add_pod(pod, home)
        return len(pods)
