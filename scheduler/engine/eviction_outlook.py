"""The reason why nobody is evicted for a group that waits: what bars the actions that evict, and what keeps each pod that they could take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from muster.model.text import listed
from scheduler.engine import kept_places, placement, tiers
from scheduler.engine.eviction import EvictionRules
from scheduler.engine.eviction_rules import EvictionArguments, ReclaimArguments, preemption, reclamation
from scheduler.engine.preemptors import growing_jobs, starving_jobs
from scheduler.engine.session import Session
from scheduler.engine.states import JobState, QueueState
from scheduler.model import vectors
from scheduler.model.records import EvictionOutlook
from scheduler.model.snapshot import OCCUPYING, GroupKey, Task, TaskStatus

_RUNS: Final = frozenset({TaskStatus.RUNNING, TaskStatus.BOUND})
_AT_MINIMUM: Final = "in PodGroups that have no more than their minimum"
_GUARDED: Final[Mapping[str, str]] = {
    "gang": _AT_MINIMUM,
    "conformance": "critical for the cluster",
    "proportion": "in queues that have no more than they deserve",
    "capacity": "in queues that have no more than they deserve",
}
"""What it means that a plugin keeps a pod."""


def find(session: Session, key: GroupKey) -> Iterator[EvictionOutlook]:
    """Return the outlook of each action that evicts and would do so for a group; the session's actions are done.

    None where it waits for something else, as its turn, its pods or its quota, and none of an action that has nobody to take.
    """
    job = next((each for each in session.jobs if each.info.key == key), None)
    queue = session.queue_of(job) if job is not None else None
    if job is None or queue is None or job.pipelined:
        return
    starves = job in starving_jobs(session, {queue.name})
    grows = not starves and job in growing_jobs(session, {queue.name})
    others = any(any(each.allocated) for each in session.queues.values() if each is not queue)
    for action in session.policy.actions if starves or grows else ():
        arguments, found = session.policy.arguments.get(action.name), None
        if action.name == "reclaim" and isinstance(arguments, ReclaimArguments) and others:
            found = _Reclaim(session, queue, job, arguments).outlook()
        elif action.name == "preempt" and isinstance(arguments, EvictionArguments) and queue.allocated != job.allocated:
            found = _Preempt(session, queue, job, arguments).outlook(grows=grows)
        if found is not None and (found.barred or found.kept):
            yield found


class _Outlook:
    """What one action could do for a job."""

    action: str
    point: str

    def __init__(self, session: Session, queue: QueueState, job: JobState, rules: EvictionRules) -> None:
        self.session, self.queue, self.job, self.rules = session, queue, job, rules
        self.task = self._next_task()
        self.unknown = False

    def _next_task(self) -> Task:
        """Return the first task that wants a place, or one that stands for it."""
        waiting = [*self.job.waiting, *self.job.unplaced]
        return waiting[0] if waiting else next(kept_places.stand_ins(self.session, self.job))

    def barred(self) -> str:
        """Say why nobody may be evicted for it, whoever there is; empty where somebody may be."""
        if self.task.never_preempts:
            return "its pods have preemptionPolicy Never"
        if self.job.info.disruption.never_preempts:
            return "its PodGroup has preemptionPolicy Never"
        if self.queue.info.max_groups and not self.job.started:
            full = placement.crowded(self.queue, self.queue.started)
            return full.message if full is not None else ""
        return ""

    def kept(self, words_of: Callable[[Task], str]) -> tuple[tuple[str, int], ...]:
        """Count the pods of other jobs that it may take from by why they stay."""
        found, known = Counter[str](), dict[object, str]()
        for source in self.rules.sources(self.queue):
            for job in self.session.allocations.jobs_of(source.name):
                if job is self.job:
                    continue
                if not job.info.tasks and job.info.task_counts.occupying:
                    # Who looks at them only where one may go is told that they were asked for.
                    self.unknown = True
                    found[_AT_MINIMUM] += sum(job.info.task_counts.occupying.values())
                for task in job.info.tasks:
                    if task.status in OCCUPYING:
                        found[self._kept_by(job, task, known, words_of)] += 1
        return tuple((words, count) for words, count in found.most_common() if count)

    def _kept_by(self, job: JobState, task: Task, known: dict[object, str], words_of: Callable[[Task], str]) -> str:
        """Say what keeps a pod; of pods alike once."""
        if task.uid in self.session.allocations.leaving:
            return "leaving for others"
        if task.status not in _RUNS:
            return "not running yet"
        if not task.preemptable:
            return "not to be evicted (volcano.sh/preemptable, or an eviction that was refused just now)"
        if words := words_of(task):
            return words
        alike = (id(job), task.task_class, task.role, task.priority)
        if alike not in known:
            known[alike] = self._asked(task)
        return known[alike]

    def _asked(self, task: Task) -> str:
        if self.rules.choose(self.task, [task]):
            return "free to go, which does not make room for its minimum"
        for method in self.session.extensions.methods(self.point):
            plugin = tiers.plugin_of(method)
            answer: Sequence[Task] | None = method(self.task, [task]) if plugin.guards else None
            if answer is not None and not answer:
                named = _GUARDED.get(plugin.name, f"kept by the plugin {plugin.name}")
                return self._budget_of(task) if plugin.name == "pdb" else named
        return "not less important than it"

    def _budget_of(self, task: Task) -> str:
        peers = task.task_class.constraints.peers
        found = [each.name for each in self.session.snapshot.budgets if each.peers in peers]
        return f"protected by {'PodDisruptionBudget' if len(found) == 1 else 'PodDisruptionBudgets'} {listed(found)}"


class _Preempt(_Outlook):
    action, point = "preempt", "preemptable"

    def __init__(self, session: Session, queue: QueueState, job: JobState, arguments: EvictionArguments) -> None:
        super().__init__(session, queue, job, preemption(session, arguments))

    def outlook(self, *, grows: bool) -> EvictionOutlook:
        sources = f"queue {self.queue.name}"
        barred = "it has its minimum" if grows else self.barred()
        kept = () if barred else self.kept(lambda _: "")
        return EvictionOutlook(self.action, sources, barred, kept, self.unknown)


class _Reclaim(_Outlook):
    action, point = "reclaim", "reclaimable"

    def __init__(self, session: Session, queue: QueueState, job: JobState, arguments: ReclaimArguments) -> None:
        super().__init__(session, queue, job, reclamation(session, arguments))
        self._arguments = arguments

    def outlook(self) -> EvictionOutlook:
        barred = self.barred() or self._beyond_share()
        kept = () if barred else (*self.kept(self._not_permitted), *self._not_reclaimable())
        return EvictionOutlook(self.action, "other queues", barred, kept, self.unknown)

    def _not_reclaimable(self) -> Iterator[tuple[str, int]]:
        others = (each for each in self.session.queues.values() if each is not self.queue and not each.info.reclaimable)
        jobs = (job for each in others for job in self.session.allocations.jobs_of(each.name))
        if count := sum(sum(job.info.task_counts.occupying.values()) for job in jobs):
            yield "in queues with reclaimable: false", count

    def _beyond_share(self) -> str:
        session, queue = self.session, self.queue
        if not session.extensions.overused(queue) and self.rules.eligible(queue, self.task):
            return ""
        deserved = session.deserved(queue)
        if deserved is None:
            return f"queue {queue.name} may not take from others"
        axes, amounts = session.axes, session.vector(self.task.task_class)
        wanted, beyond = axes.resources(amounts), vectors.short(vectors.add(queue.allocated, amounts), deserved)
        named = [name for name in axes.resources(beyond) if name in wanted and name != "pods"]
        has, due = (axes.resources(each).only(named) for each in (queue.allocated, deserved))
        return (
            f"queue {queue.name} deserves {due or 'nothing'} and has {has or 'nothing'}, so that a pod of"
            f" {wanted.only(named)} is not due to it"
        )

    def _not_permitted(self, task: Task) -> str:
        if self.rules.permits(task):
            return ""
        if task.bare and not self._arguments.bare_pods:
            return "bare: nobody makes them again, and barePods of reclaim isn't set"
        return f"running for less than {self._arguments.least_run:g} s"
