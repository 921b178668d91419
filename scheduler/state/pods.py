"""The pods of a cluster, and what is counted of them: tasks, members of groups, sums per node, answers to terms.

`scheduler.state.cluster` tells it what happens; a change costs what it touches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import structs

from muster.model import grouping
from muster.model.amounts import NOTHING
from muster.model.objects import Pod
from scheduler.model import affinity, constraints
from scheduler.model.affinity import CountingRule
from scheduler.model.snapshot import Task, TaskClass, TaskStatus, seconds
from scheduler.model.tasks import TaskCounts
from scheduler.state import conversion
from scheduler.state.aggregated_pods import AggregatedPod, AggregatedPods, GroupName
from scheduler.state.blame import about
from scheduler.state.members import AssumedPod, IndexedPod, PodChange
from scheduler.state.peer_index import PeerIndex
from scheduler.state.task_classes import TaskClasses
from scheduler.state.term_budget import TOO_COSTLY, TermBudget
from scheduler.state.usage import NodeUsage

_OVER: Final = frozenset({"Succeeded", "Failed"})


class PodIndex:
    """All pods, ours or not. ``touch`` is told which group's pods changed."""

    def __init__(self, ours: Collection[str], peers: PeerIndex, touch: Callable[[GroupName], None]) -> None:
        self._ours = ours
        self._peers = peers
        self._terms = TermBudget(peers)
        self._touch = touch
        self.usage = NodeUsage()
        self._aggregated = AggregatedPods(self.usage, touch)
        self.classes = TaskClasses()
        self._pods: dict[str, IndexedPod] = {}
        self._members: dict[GroupName, dict[str, IndexedPod]] = {}
        self._with_host_ports: dict[str, IndexedPod] = {}
        self._assumed: dict[str, AssumedPod] = {}
        self._under_way: Counter[GroupName | None] = Counter()
        self._evicting: set[str] = set()
        self._spared: set[str] = set()

    def update(self, pod: Pod) -> PodChange:
        """Learn of a new or changed pod."""
        last = bool(pod.spec.node_name) and self._take_back(pod.metadata.uid)
        if self._renew(pod):
            return PodChange.CHANGE
        return PodChange.ARRIVED if last else PodChange.NONE

    def by_group(self, pods: Iterable[Pod]) -> dict[GroupName | None, list[Pod]]:
        """Gather pods by the group that they are in."""
        by_group: dict[GroupName | None, list[Pod]] = {}
        for pod in pods:
            by_group.setdefault(self._group_name(pod), []).append(pod)
        return by_group

    def aggregate(self, by_group: Mapping[GroupName | None, Iterable[Pod]]) -> None:
        """Learn of many pods. New ones that only take something of their nodes are counted, until somebody asks for them."""
        self._aggregated.take(
            [each for group_name, pods in by_group.items() for each in self._counted(group_name, pods)]
        )

    def _counted(self, group_name: GroupName | None, pods: Iterable[Pod]) -> Iterator[AggregatedPod]:
        last, kind = None, None
        for pod in pods:
            uid, spec = pod.metadata.uid, pod.spec
            new = uid not in self._pods and uid not in self._aggregated
            shape = constraints.shape_of(spec) if new and conversion.stays(pod) else None
            if shape is None or shape != last:
                # Most pods of a group are like the one before.
                last, kind = shape, self.classes.plain(spec) if shape is not None else None
            if kind is None:
                self.update(pod)
            else:
                yield AggregatedPod(pod, kind, group_name)

    def aggregated_counts(self, group_name: GroupName) -> TaskCounts | None:
        """Return what the pods of a group come to where all of them are but counted."""
        return (
            self._aggregated.counts(group_name)
            if self._aggregated.of(group_name) and group_name not in self._members
            else None
        )

    def aggregated_of_groups(self) -> Mapping[TaskClass, Mapping[str, int]]:
        """Return how many pods of groups that are but counted each node has, by class."""
        return self._aggregated.of_groups()

    def controllers(self, group_name: GroupName) -> Counter[str]:
        """Tell how many pods of a group that haven't ended each controller has, by its uid."""
        found = [each.task.controller for each in self._members.get(group_name, {}).values() if each.alive]
        return Counter([*found, *(conversion.controller_uid(each.pod) for each in self._aggregated.of(group_name))])

    def expand_group(self, group_name: GroupName) -> None:
        """Look at each pod of a group from now on."""
        for each in list(self._aggregated.of(group_name)):
            self._expand(each.pod.metadata.uid)

    def _expand(self, uid: str) -> None:
        counted = self._aggregated.drop(uid)
        if counted is not None:
            self._learn(counted.pod)

    def drop(self, uid: str) -> PodChange:
        """Learn that a pod is gone."""
        self._aggregated.drop(uid)
        self._take_back(uid)
        self._forget(uid)
        self._evicting.discard(uid)
        self._spared.discard(uid)
        self._terms.forget(uid)
        return PodChange.CHANGE

    def members(self, group_name: GroupName) -> list[IndexedPod]:
        """Return the pods of a group, by uid."""
        self.expand_group(group_name)
        return [member for _, member in sorted(self._members.get(group_name, {}).items())]

    def waits(self, uid: str) -> bool:
        """Whether a pod is there and waits for a node."""
        member = self._pods.get(uid)
        return member is not None and member.task.status is TaskStatus.PENDING

    def assume(self, uid: str, node: str) -> bool:
        """Count a pod as bound while its binding is on the way; tell whether it had no node."""
        member = self._pods.get(uid)
        if member is None or member.task.node:
            return False
        self._assumed[uid] = AssumedPod(node, member.group_name)
        self._under_way[member.group_name] += 1
        self._again(uid)
        return True

    def get(self, uid: str) -> Pod | None:
        """Return the pod of that uid, if there is one."""
        member = self._pods.get(uid)
        return member.pod if member is not None else None

    def under_way(self) -> tuple[Mapping[str, str], Collection[str], Collection[str]]:
        """Return the pods whose binding is on the way, each with its node, those being evicted, and those spared that."""
        return {uid: each.node for uid, each in self._assumed.items()}, self._evicting, self._spared

    def give_up(self, uid: str) -> None:
        """Take back an assumption."""
        if uid in self._assumed:
            self._take_back(uid)
            self._again(uid)

    def evicting(self, uid: str) -> None:
        """Count a pod as leaving while its eviction is on the way."""
        self._expand(uid)
        if uid in self._pods:
            self._evicting.add(uid)
            self._again(uid)

    def spare(self, uid: str) -> None:
        """Take that back: it can't be evicted now, nor is it to be tried before `unspare`."""
        self._evicting.discard(uid)
        self._expand(uid)
        if uid in self._pods:
            self._spared.add(uid)
            self._again(uid)

    def unspare(self, uid: str) -> None:
        """Let a pod be evicted again."""
        self._spared.discard(uid)
        self._again(uid)

    def _again(self, uid: str) -> None:
        if uid in self._pods:
            self._renew(self._pods[uid].pod)

    def reclassify(self) -> None:
        """Read those pods anew that are asked about otherwise than before."""
        for uid in self._terms.decide(self._aggregated.label_sets):
            self._read_anew(uid)
        if self._peers.has_queries and (self._aggregated.unmatched or self._peers.has_new_queries):
            self._aggregated.unmatched = False
            for each in [each.pod.metadata for each in self._aggregated.pods()]:
                if self._peers.queries_match(each.namespace, each.labels or {}):
                    self._expand(each.uid)
        for uid in sorted(self._peers.renew()):
            self._read_anew(uid)

    def _read_anew(self, uid: str) -> None:
        member = self._pods[uid]
        with about("", "pods", member.pod.namespace, member.pod.name):
            self._relearn(member, member.pod)

    def _renew(self, pod: Pod) -> bool:
        """Take the new version of a pod; most only tell how far it is, and what it asks for needn't be read again."""
        old = self._pods.get(pod.metadata.uid)
        if old is None:
            self._aggregated.drop(pod.metadata.uid)
            self._learn(pod)
            return True
        if not conversion.same_requirements(old.pod, pod) or self._matters(old.pod) != self._matters(pod):
            self._relearn(old, pod)
            return True
        status, node, may_go = self._status(pod), self._node_of(pod), self._may_be_evicted(pod)
        began = seconds(pod.status.start_time)
        task = structs.replace(old.task, status=status, node=node, preemptable=may_go, started=began)
        member = IndexedPod(pod, task, old.group_name)
        self._pods[task.uid] = member
        if old.group_name is not None:
            self._members[old.group_name][task.uid] = member
        if _is_confirmed(old.task, task):
            # It is counted where it is already.
            if old.group_name is not None:
                self._touch(old.group_name)
            return False
        if task == old.task:
            return old.group_name is not None and self._starts_otherwise(old, pod)
        self._settle(old, -1)
        self._settle(member, 1)
        return True

    def _starts_otherwise(self, old: IndexedPod, pod: Pod) -> bool:
        """Have a group looked at again where one of its pods can't start now, or can again."""
        before, now = old.pod.status, pod.status
        same = before.container_statuses == now.container_statuses
        if (same and before.init_container_statuses == now.init_container_statuses) or old.group_name is None:
            return False
        self._touch(old.group_name)
        return True

    def _take_back(self, uid: str) -> bool:
        """End an assumption; tell whether it was the last one about its group."""
        assumption = self._assumed.pop(uid, None)
        if assumption is None:
            return False
        self._under_way[assumption.group_name] -= 1
        if self._under_way[assumption.group_name]:
            return False
        del self._under_way[assumption.group_name]
        return True

    def _node_of(self, pod: Pod) -> str:
        assumption = self._assumed.get(pod.metadata.uid)
        return pod.spec.node_name or (assumption.node if assumption is not None else "")

    def _status(self, pod: Pod) -> TaskStatus:
        uid = pod.metadata.uid
        return conversion.pod_status(pod, assumed=uid in self._assumed, evicting=uid in self._evicting)

    def _may_be_evicted(self, pod: Pod) -> bool:
        return pod.metadata.uid not in self._spared and conversion.preemptable(pod)

    def _settle(self, member: IndexedPod, sign: int) -> None:
        """Count a pod where it is (1), or no longer (-1)."""
        _, task, group_name = member
        if group_name is not None:
            self._touch(group_name)
        if not member.uses:
            return
        (self.usage.take if sign > 0 else self.usage.give_back)(task)
        self._count_for_peers(task, sign, self._peers)
        if not task.task_class.constraints.ports:
            return
        if sign > 0:
            self._with_host_ports[task.uid] = member
        else:
            self._with_host_ports.pop(task.uid, None)

    def _relearn(self, old: IndexedPod, pod: Pod) -> None:
        """Read a pod anew, without forgetting in between what only this pod asks."""
        namespace, pod_terms = pod.namespace, old.task.task_class.constraints.pod_terms
        self._terms.hold(namespace, pod_terms)
        self._forget(pod.metadata.uid)
        self._learn(pod)
        self._terms.release(namespace, pod_terms)

    def _learn(self, pod: Pod) -> None:
        # All pods of a cluster come by here when a worker starts, and when somebody asks a question.
        meta, spec = pod.metadata, pod.spec
        uid, namespace = meta.uid, meta.namespace
        task = Task(
            uid=uid,
            namespace=namespace,
            name=meta.name,
            task_class=self._class_of(pod, ended=pod.status.phase in _OVER),
            status=self._status(pod),
            node=spec.node_name or self._node_of(pod),
            priority=spec.priority or conversion.SYSTEM_CLASSES.get(spec.priority_class_name, 0),
            created=seconds(meta.creation_timestamp),
            role=conversion.role_of(meta),
            controller=conversion.controller_uid(pod),
            preemptable=self._may_be_evicted(pod),
            never_preempts=spec.preemption_policy == "Never",
            started=seconds(pod.status.start_time),
        )
        member = IndexedPod(pod, task, self._group_name(pod))
        self._pods[uid] = member
        if member.group_name is not None:
            self._members.setdefault(member.group_name, {})[uid] = member
        self._settle(member, 1)

    def _matters(self, pod: Pod) -> bool:
        """Whether a pod is ours to place, or takes something of a node."""
        return bool(pod.spec.node_name) or pod.spec.scheduler_name in self._ours

    def _group_name(self, pod: Pod) -> GroupName | None:
        named = grouping.group_of(pod.metadata) if pod.spec.scheduler_name in self._ours else ""
        return (pod.namespace, named) if named else None

    def _forget(self, uid: str) -> None:
        member = self._pods.pop(uid, None)
        if member is None:
            return
        if member.group_name is not None:
            _take_out(self._members, member.group_name, uid)
        self._settle(member, -1)
        if member.task.status not in conversion.ENDED:
            pod_terms = member.task.task_class.constraints.pod_terms
            self._peers.leave(uid, member.pod.namespace, member.pod.metadata.labels)
            self._terms.release(member.pod.namespace, pod_terms)

    def _count_for_peers(self, task: Task, sign: int, peers: PeerIndex) -> None:
        """Count a pod for those who ask about its like; a pod that is being deleted isn't spread any more."""
        keys, leaving = task.task_class.constraints.counted_as, task.status is TaskStatus.RELEASING
        if not keys:
            return
        if leaving:
            keys = tuple(key for key in keys if getattr(key, "purpose", None) is not CountingRule.SPREAD)
        peers.count(keys, task.node, sign, leaving=leaving)

    def _class_of(self, pod: Pod, *, ended: bool) -> TaskClass:
        if not self._matters(pod):
            # What it asks for, and of whom, is another scheduler's business until it is on a node.
            return self.classes.of(NOTHING, constraints.NONE)
        kind = self.classes.of_pod(pod.metadata, pod.spec)
        if ended:
            return kind
        pod_terms, meta = kind.constraints.pod_terms, pod.metadata
        if pod_terms is not affinity.NO_TERMS and not self._terms.take(
            meta.uid, meta.namespace, pod_terms, bound=bool(pod.spec.node_name)
        ):
            kind = self.classes.of(kind.request, kind.constraints.without_terms(TOO_COSTLY))
        peers = self._peers.join(meta.uid, meta.namespace, meta.labels)
        return self.classes.of(kind.request, kind.constraints.among(peers)) if peers else kind

    def ports(self, nodes: Collection[str], *, later: bool = False) -> dict[str, tuple[constraints.Port, ...]]:
        """Return the host ports taken on some nodes, once for each pod that has one; ``later``: once leaving pods are gone."""
        taken: dict[str, tuple[constraints.Port, ...]] = {}
        for member in self._with_host_ports.values():
            node, ports = member.task.node, member.task.task_class.constraints.ports
            if node in nodes and not (later and member.task.status is TaskStatus.RELEASING):
                taken[node] = tuple(sorted((*taken.get(node, ()), *ports)))
        return taken

    def validate(self) -> None:
        """Recount from the pods alone what is kept by increments.

        Raises:
            AssertionError: they disagree.
        """
        recount, peers = NodeUsage(), PeerIndex()
        AggregatedPods(recount, lambda _: None).take(self._aggregated.pods())
        for member in self._pods.values():
            if member.uses:
                recount.take(member.task)
                self._count_for_peers(member.task, 1, peers)
        shown, shown_again = self._peers.counts(), peers.counts()
        assert shown.present == shown_again.present, "the pods that terms ask about don't match the pods"
        assert shown.leaving == shown_again.leaving, "those of them that leave don't match the pods"
        self.usage.compare(recount)


def _take_out(by_group: dict[GroupName, dict[str, IndexedPod]], group_name: GroupName, uid: str) -> None:
    """Take one out, and the place itself when it is empty: groups come and go for as long as a worker leads."""
    by_group[group_name].pop(uid)
    if not by_group[group_name]:
        del by_group[group_name]


def _is_confirmed(old: Task, new: Task) -> bool:
    """Whether all that happened to a task is that its binding, which was on the way, arrived."""
    return (
        (old.status, new.status) == (TaskStatus.BINDING, TaskStatus.BOUND)
        and old.node == new.node
        and old.preemptable == new.preemptable
    )
