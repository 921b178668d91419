"""The worker's state of the cluster, updated object by object, and the snapshots made from it.

A change costs what it touches: a pod its node's sums and its group, a node the node table. Snapshots share all that
didn't change. One writer (the worker's loop); `validate` recounts everything and is run at the end of tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import astuple

from muster.ledger.reservations import reserves_late
from muster.ledger.table import Table
from muster.model import grouping, names
from muster.model.amounts import NOTHING, QuantityError
from muster.model.objects import (
    Job,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    Queue,
    ResourceQuota,
)
from scheduler.model.claims import DeviceCache, DeviceChoices
from scheduler.model.images import NodeImages
from scheduler.model.kept_places import KeptPlaces
from scheduler.model.plan import Bind
from scheduler.model.snapshot import (
    DisruptionBudget,
    GroupKey,
    JobInfo,
    Phase,
    QueueInfo,
    ReservedNodes,
    Snapshot,
    seconds,
)
from scheduler.model.storage import StorageCache, VolumeChoices
from scheduler.model.tasks import count_tasks
from scheduler.state import conversion, failing, group_facts, network
from scheduler.state.aggregated_pods import GroupName
from scheduler.state.axes import AxesChooser
from scheduler.state.batch_jobs import BatchJobs
from scheduler.state.blame import about
from scheduler.state.group_facts import LimitedNames
from scheduler.state.members import PodChange
from scheduler.state.peer_index import PeerIndex
from scheduler.state.pods import PodIndex
from scheduler.state.reservations import Reservations


class Cluster:
    """All that scheduling depends on. Each method takes the new version of an object, or the last one and ``gone``."""

    def __init__(self, scheduler_names: Collection[str]) -> None:
        # Objects that no API server has defaulted have no scheduler's name: those of a simulation.
        self._ours = frozenset(scheduler_names) | {""}
        self._peers = PeerIndex()
        self._dirty: set[GroupName] = set()
        self._pods = PodIndex(self._ours, self._peers, self._dirty.add)
        self._nominated, self._kept_places = dict[str, str](), dict[GroupKey, KeptPlaces]()
        self._reserved_nodes: ReservedNodes | None = None
        self._partially_bound: Mapping[GroupKey, float] = {}
        self._left_out = self._grown = False
        self._nodes, self._groups = dict[str, Node](), dict[GroupKey, PodGroup]()
        self._kinds, self._batch_jobs = set[str](), BatchJobs()
        self._queues, self._unreadable = dict[str, QueueInfo](), dict[str, str]()
        self._priority_classes, self._budgets = dict[str, PriorityClass](), dict[str, DisruptionBudget]()
        self._images = NodeImages()
        self.storage, self.devices, self.network = StorageCache(), DeviceCache(), network.NetworkCache()
        self._jobs, self._restated = dict[GroupKey, JobInfo](), set[GroupKey]()
        self._reservations, self._limited, self._limits_changed = Reservations(), LimitedNames(), set[str]()
        self._changes, self._axes, self._closed = 0, AxesChooser(), frozenset[str]()

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    def node(self, node: Node, *, gone: bool = False) -> None:
        """Learn of a node."""
        old = self._nodes.get(node.name)
        conversion.put(self._nodes, node, gone=gone)
        self._images.node(node, gone=gone)
        self._axes.node(old, None if gone else node)
        if gone or old is None or not conversion.same_node(old, node):
            self._pods.usage.table_changed()
            self._changes += 1

    def close_nodes(self, closed: frozenset[str]) -> None:
        """Learn on which nodes is what nobody can read: they take no more pods, until that is known."""
        if closed != self._closed:
            self._closed = closed
            self._pods.usage.table_changed()
            self._changes += 1

    def pod(self, pod: Pod, *, gone: bool = False) -> None:
        """Learn of a pod."""
        if pod.spec.node_name or gone:
            self.storage.choose(pod.metadata.uid, ())
        self.devices.pod(pod, gone=gone)
        news = self._pods.update(pod) if not gone else self._pods.drop(pod.metadata.uid)
        if news is PodChange.CHANGE or (news is PodChange.ARRIVED and self._left_out):
            self._changes += 1

    def by_group(self, pods: Iterable[Pod]) -> dict[GroupName | None, list[Pod]]:
        """Gather pods by the group that they are in."""
        return self._pods.by_group(pods)

    def aggregate(self, by_group: Mapping[GroupName | None, Iterable[Pod]]) -> None:
        """Learn of many new pods at once; of those that only take something, a job is told how many there are."""
        self._pods.aggregate(by_group)
        self._changes += 1

    def expand_group(self, key: GroupKey) -> None:
        """Make tasks of a group's aggregated pods."""
        self._pods.expand_group((key.namespace, key.name))

    def namespace(self, namespace: Namespace, *, gone: bool = False) -> None:
        """Learn of a namespace: terms of pods choose them by their labels."""
        self._peers.namespace(namespace.name, None if gone else namespace.metadata.labels)
        self._changes += 1

    def budget(self, budget: PodDisruptionBudget, *, gone: bool = False) -> None:
        """Learn of a PodDisruptionBudget."""
        name = f"{budget.namespace}/{budget.name}"
        old = self._budgets.pop(name, None)
        if not gone:
            new = self._budgets[name] = conversion.budget(budget)
            self._peers.add_queries([new.peers])
        if old is not None:
            self._peers.remove_queries([old.peers])
        self._changes += 1

    def group(self, api_group: str, group: PodGroup, *, gone: bool = False) -> None:
        """Learn of a PodGroup of an API group."""
        key = GroupKey(api_group, group.namespace, group.name)
        old = self._groups.get(key)
        alike = not gone and old is not None and conversion.same_spec(old, group)
        if alike and old is not None and conversion.same_status(old, group):
            self._groups[key] = group  # Our own write, come back.
            return
        if gone:
            self._groups.pop(key, None)
            self._jobs.pop(key, None)
        else:
            self._groups[key] = group
            self._kinds.add(api_group)
        self._reservations.observe(key, group, gone=gone)
        known = self._jobs.get(key)
        if alike and known is not None and old is not None and group_facts.holds_the_same(known, old, group):
            self._restated.add(key)
            self._changes += 1
        else:
            self._touch((group.namespace, group.name))

    def quota(self, quota: ResourceQuota, *, gone: bool = False) -> None:
        """Learn of a ResourceQuota: what it limits, groups have to reserve."""
        if self._limited.learn(quota, gone=gone):
            self._limits_changed.add(quota.namespace)
            self._changes += 1

    def unreserved(self, namespace: str, reasons: Mapping[tuple[str, str], str]) -> None:
        """Learn which groups of a namespace hold nothing of its quota: by (API group, name), the reason."""
        for name in self._reservations.observe_unreserved(namespace, reasons):
            self._touch((namespace, name))

    def late(self) -> Iterable[tuple[str, Collection[str]]]:
        """Return the namespaces with Pending groups that reserve late, and those groups' names."""
        return self._reservations.late()

    def ledger(self, namespace: str, table: Table | None) -> None:
        """Learn what is reserved in a namespace."""
        self._reservations.observe_ledger(namespace, table)

    def refused(self, key: GroupKey, reason: str) -> None:
        """Learn that the ledger refused a group its minimum, or with an empty reason that it may ask again."""
        if self._reservations.observe_refusal(key, reason):
            self._touch((key.namespace, key.name))

    def batch_job(self, job: Job, *, gone: bool = False) -> None:
        """Learn of a Job (batch/v1)."""
        ours = job.spec.template.spec.scheduler_name in self._ours
        for group_name in self._batch_jobs.update(job if ours and not gone else None, job.metadata.uid):
            self._touch(group_name)

    def queue(self, queue: Queue, *, gone: bool = False) -> None:
        """Learn of a queue. One whose amounts can't be read takes no part until they can."""
        old = self._queues.pop(queue.name, None)
        self._unreadable.pop(queue.name, None)
        self._axes.queue(queue.name, None if gone else queue)
        try:
            if not gone:
                info = conversion.queue_info(queue)
                if old is not None and astuple(old) == astuple(info):
                    self._queues[queue.name] = old
                    return  # Its counters changed, as they do with every group.
                self._queues[queue.name] = info
        except QuantityError as error:
            self._unreadable[queue.name] = str(error)
        self._changes += 1

    def priority_class(self, priority: PriorityClass, *, gone: bool = False) -> None:
        """Learn of a PriorityClass."""
        conversion.put(self._priority_classes, priority, gone=gone)
        self._changes += 1

    def assume(self, uid: str, node: str, volumes: VolumeChoices = (), devices: DeviceChoices = ()) -> None:
        """Count a pod as bound while its binding is on the way, and what is being done for its claims as done."""
        if self._pods.assume(uid, node):
            self.storage.choose(uid, volumes)
            self.devices.choose(uid, devices)
            self._changes += 1

    def takes(self, bind: Bind) -> bool:
        """Whether a pod still waits, and the node it was given is still there."""
        return bind.node in self._nodes and self._pods.waits(bind.task.uid)

    def forget(self, uid: str) -> None:
        """Take back an assumption: the binding failed."""
        self.storage.choose(uid, ())
        self.devices.choose(uid, ())
        self._pods.give_up(uid)
        self._changes += 1

    def evicting(self, uid: str) -> None:
        """Count a pod as leaving while its eviction is on the way."""
        self._pods.evicting(uid)
        self._changes += 1

    def spare(self, uid: str) -> None:
        """Take that back: it can't be evicted now, nor is it to be tried before `unspare`."""
        self._pods.spare(uid)
        self._changes += 1

    def unspare(self, uid: str) -> None:
        """Let a pod be evicted again."""
        self._pods.unspare(uid)
        self._changes += 1

    def nominate(self, nodes: Mapping[str, str], kept_places: Mapping[GroupKey, KeptPlaces] | None = None) -> None:
        """Remember which nodes are reserved for pods, by uid, and which places for pods that are yet to come; nothing else."""
        self._nominated, self._kept_places = dict(nodes), dict(kept_places or {})

    def remember(
        self, reserved: ReservedNodes | None, partially_bound: Mapping[GroupKey, float], *, left_out: bool = False
    ) -> None:
        """Remember what a cycle leaves to the next one: nodes kept for a group, and gangs that are bound in part.

        ``left_out``: it left somebody without a place, so that one looks soon at what may be evicted from now on.
        """
        self._reserved_nodes, self._partially_bound, self._left_out = reserved, dict(partially_bound), left_out

    def take_over(self, old: Cluster) -> None:
        """Learn what no object tells from the cluster that this one replaces: what its leader has under way."""
        for key, group in old._groups.items():
            known = self._groups.get(key)
            if known is not None and conversion.at_least_as_new(group, known):
                self.group(key.group, group)  # Its status counts as stored while it is being written.
        placed, leaving, spared = old._pods.under_way()
        for pod in filter(None, map(self._pods.get, {**placed, **dict.fromkeys(leaving), **dict.fromkeys(spared)})):
            uid = pod.metadata.uid
            with about("", "pods", pod.namespace, pod.name):
                if uid in placed:
                    self.assume(uid, placed[uid], old.storage.chosen(uid), old.devices.chosen(uid))
                if uid in leaving:
                    self.evicting(uid)
                if uid in spared:
                    self.spare(uid)
        self._nominated, self._kept_places, self._reserved_nodes = old._nominated, old._kept_places, old._reserved_nodes
        self._partially_bound, self._left_out = old._partially_bound, old._left_out
        self._reservations.take_over(old._reservations, self._groups.keys())
        self.close_nodes(old._closed)
        # Whoever compares this number finds that something changed.
        self._changes += old.changes + 1

    def find_group(self, key: GroupKey) -> PodGroup | None:
        """Return a PodGroup as it was last seen."""
        return self._groups.get(key)

    @property
    def changes(self) -> int:
        """How many changes there were that a cycle should look at soon. That a binding arrived can wait for the next."""
        return self._changes + self.storage.changes + self.devices.changes + self.network.changes

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> Snapshot:
        """Return the present state."""
        self._pods.reclassify()
        self._renew_jobs()
        jobs = sorted(self._jobs.values(), key=lambda job: job.order)
        if self._grown:
            # In order from now on, so that there is little to sort next time.
            self._jobs, self._grown = {job.key: job for job in jobs}, False
        usage, devices = self._pods.usage, self.devices.view()
        self._axes.devices(devices.offers.extended)
        axes = self._axes.needed(usage.axes, self._pods.classes, self._jobs.values())
        table, idle, releasing = usage.matrices(axes, self._nodes, self._closed)
        return Snapshot(
            table=table,
            idle=idle,
            releasing=releasing,
            jobs=tuple(jobs),
            queues=dict(sorted(self._queues.items())),
            priorities=conversion.priorities(self._priority_classes.values()),
            ports=self._pods.ports(self._nodes),
            ports_later=self._pods.ports(self._nodes, later=True),
            revision=str(self.changes),
            unreadable=dict(self._unreadable),
            nominated=self._nominated,
            reserved_nodes=self._reserved_nodes,
            kept_places=self._kept_places,
            partially_bound=self._partially_bound,
            ledgers=dict(self._reservations.ledgers),
            aggregated=self._pods.aggregated_of_groups(),
            peer_counts=self._peers.counts(),
            images=self._images.view(),
            storage=self.storage.view(),
            devices=devices,
            hypernodes=self.network.hypernodes,
            budgets=tuple(each for _, each in sorted(self._budgets.items())),
        )

    def _touch(self, group_name: GroupName) -> None:
        self._dirty.add(group_name)
        self._changes += 1

    def _renew_jobs(self) -> None:
        if self._limits_changed:
            self._dirty |= {(key.namespace, key.name) for key in self._groups if key.namespace in self._limits_changed}
            self._limits_changed.clear()
        for namespace, name in self._dirty:
            for kind in self._kinds:
                key = GroupKey(kind, namespace, name)
                if key in self._groups:
                    self._grown |= key not in self._jobs
                    with about(kind, "podgroups", namespace, name):
                        self._jobs[key] = self._job(key, self._groups[key])
        for key in self._restated & self._jobs.keys():
            if (key.namespace, key.name) not in self._dirty:
                group = self._groups[key]
                self._jobs[key] = self._jobs[key].restated(conversion.phase_of(group), group.status)
        self._dirty.clear()
        self._restated.clear()

    def _job(self, key: GroupKey, group: PodGroup) -> JobInfo:
        group_name = (key.namespace, key.name)
        phase = conversion.phase_of(group)  # Whether a Completed one is started again depends on each of its pods.
        aggregated = phase is not Phase.COMPLETED and not network.asks(group.spec)
        counts = self._pods.aggregated_counts(group_name) if aggregated else None
        members = self._pods.members(group_name) if counts is None else []
        tasks = network.tasks_of(group.spec, members)
        batch, status = self._batch_jobs.of(group_name), group.status
        stated, unreadable = group_facts.stated_minimum(group)
        alive = self._pods.controllers(group_name) if batch else {}
        self._pods.classes.named.update(stated or NOTHING)
        limited = self._limited.of(key.namespace)
        over = counts is None and group_facts.over(batch, members)
        return JobInfo(
            key=key,
            uid=group.metadata.uid,
            queue=group.spec.queue or names.DEFAULT_QUEUE,
            min_member=group.spec.min_member,
            min_task_member=conversion.minimum_by_role(group.spec),
            priority_class=group.spec.priority_class_name,
            min_resources=stated,
            phase=phase,
            conditions=status.conditions or (),
            counters=(status.running, status.succeeded, status.failed),
            created=seconds(group.metadata.creation_timestamp),
            owner=grouping.owner_of(group.metadata),
            tasks=tasks,
            task_counts=count_tasks(tasks) if counts is None else counts,
            expected_pods=tuple(group_facts.expected_pods(batch, alive, self._pods.classes, self._priority_classes)),
            inadmissible=unreadable or group_facts.inadmissible(batch),
            unreserved=self._reservations.reason(key),
            reserves_late=reserves_late(group.metadata),
            scope_facts=conversion.scope_facts(group),
            holding=conversion.holding(status),
            next_holding=None if counts else group_facts.next_holding(group, batch, members, limited, self.devices),
            sla=conversion.sla_of(group),
            finished=over,
            failing=failing.failing(members, batch, over=over),
            written=bool(status.phase),
            since=seconds(status.last_phase_transition_time),
            topology=network.constraint(group.spec.network_topology),
            subgroups=network.subgroups(group.spec),
            disruption=conversion.disruption(group.metadata),
            shared_claims=conversion.shared_claims(group.metadata),
        )

    def validate(self) -> None:
        """Recount from the pods alone what is kept by increments.

        Raises:
            AssertionError: they disagree.
        """
        self._pods.validate()
