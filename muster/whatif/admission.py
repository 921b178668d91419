"""The answer of `muster admit`: whether each object of some files would be admitted, and when what starts would start."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model import grouping, kinds, names
from muster.model.amounts import QuantityError, Resources
from muster.model.kinds import Kind
from muster.model.manifests import Manifest
from muster.model.objects import (
    Container,
    HyperNode,
    Meta,
    Pod,
    PodGroup,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from muster.whatif import endings, evictions, made_objects, network, remedies
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import KINDS, PODGROUPS, ClusterObjects, with_objects
from muster.whatif.dry_run import AdmissionDryRun, rules_of, stand_ins
from muster.whatif.effort import EffortSpentError
from muster.whatif.quotas import QuotaShortage
from muster.whatif.trials import Remedy
from muster.whatif.verdicts import AdmissionVerdict, DryRunResult
from scheduler.engine.policy import Policy
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey
from scheduler.state import conversion

Json = dict[str, Any]
DryRun = Callable[[Sequence[Manifest]], Awaitable[tuple[list[DryRunResult], list[Json]]]]
"""Tries objects, and gives the answers and what the ledgers hold then."""

# What a file may bring along for what it wants to run.
_FURNITURE: Final = frozenset(
    {"HyperNode", "Namespace", "Queue", "ResourceQuota", "PriorityClass", "ServiceAccount", "ConfigMap", "Secret"}
)
_APART: Final = timedelta(milliseconds=1)
"""Objects of a file come one after the other; a cluster notes whole seconds, and draws lots within one."""

_NOT_NOW: Final = (
    "not now; which other PodGroups have to end first was not found out in the time that an answer may take"
)

_STATES: Final[Mapping[Any, Kind[Any]]] = {(kind.api_version, kind.name): kind for kind in KINDS}


class MalformedObjectError(ValueError):
    """An object isn't what its kind has; the text says where, as far as that is known."""


class PredictedStart(Struct, frozen=True):
    """When a group of the files would start.

    ``kind`` is ``now``, ``soon`` (after others gave way), ``after`` (the end of others), ``never`` (as the cluster is), ``running`` or ``ended`` (what exists
    already) or ``unknown``; ``pods``: how many of its pods are known; ``supposed``: these are made up of its minResources; ``evicts``: pods that leave for it.
    """

    key: GroupKey
    label: str
    kind: str
    pods: int = 0
    supposed: bool = False
    after: tuple[GroupKey, ...] = ()
    evicts: tuple[str, ...] = ()
    text: str = ""
    record: Record | None = None
    changes: tuple[Remedy, ...] = ()


class AdmissionForecast(Struct, frozen=True):
    """All of it; ``after`` is the cluster with the objects in it, and with pods that are supposed of them."""

    verdicts: tuple[AdmissionVerdict, ...]
    starts: tuple[PredictedStart, ...]
    after: ClusterObjects | None = None

    # A short one: asyncio.run writes one of what its coroutine gave, whether somebody reads it or not.
    def __repr__(self) -> str:
        return f"Finding({len(self.verdicts)} verdicts)"

    @property
    def status(self) -> int:
        """The exit status: 0 admitted, 1 refused, 2 can't tell."""
        outcomes = {each.outcome for each in self.verdicts}
        return 1 if "refused" in outcomes else 2 if "undecided" in outcomes else 0


async def find_out(
    state: ClusterObjects,
    manifests: Sequence[Manifest],
    existing: Sequence[Json],
    policy: Policy,
    schedulers: Sequence[str],
    definitions: Sequence[Json],
    *,
    trying: bool = True,
    cluster: WhatIfCluster | None = None,
) -> AdmissionForecast:
    """Try all objects together, then ask the scheduler; ``existing`` are those of them that exist, ``definitions`` the CRDs.

    ``trying``: also which changes would let start what would not, which takes most of the time. ``cluster``: one that was made of
    the state, where it is there already: the objects are supposed in it, which is much quicker than to make another one.

    Raises:
        MalformedObjectError: of a kind whose schema nobody has, one isn't what that kind has.
    """

    async def try_out(some: Sequence[Manifest]) -> tuple[list[DryRunResult], list[Json]]:
        dry_run = AdmissionDryRun(
            state,
            schedulers,
            delay=policy.enqueues,
            existing=existing,
            namespaces={each.namespace for each in some},
            definitions=(*definitions, *stand_ins(some, existing)),
        )
        return await dry_run.apply(some), dry_run.ledgers()

    try:
        hypernodes = tuple(_hypernodes(manifests))
        state = network.with_tiers(state, hypernodes, policy) if cluster is None or hypernodes else state
        answers, ledgers = await try_out(manifests)
        verdicts = tuple([await _judged(each, manifests, try_out) for each in answers])
        stored = [
            (each.manifest, body) for each in answers if (body := each.stored or made_objects.native(each.manifest))
        ]
        after, wanted = made_objects.with_stored(state, stored, ledgers, schedulers, rules_of(state))
        after, supposed = _peopled(after, [key for key, _ in wanted if key.group])
        if cluster is None:
            starts = tuple(_starts(WhatIfCluster(after, policy, schedulers), supposed, wanted, trying=trying))
        else:
            with cluster.supposing(after) as made:
                starts = tuple(_starts(made, supposed, wanted, trying=trying))
    except msgspec.ValidationError as error:
        raise MalformedObjectError(f"an object isn't what its kind has: {error}") from error
    return AdmissionForecast(verdicts, starts, after)


def _hypernodes(manifests: Iterable[Manifest]) -> Iterator[HyperNode]:
    """Return the HyperNodes of the files; what is none, the server says better."""
    for each in manifests:
        if (each.api_version, each.kind) == (kinds.HYPERNODES.api_version, kinds.HYPERNODES.name):
            with contextlib.suppress(msgspec.ValidationError):
                yield msgspec.convert(each.body, HyperNode)


async def _judged(answer: DryRunResult, manifests: Sequence[Manifest], try_out: DryRun) -> AdmissionVerdict:
    """Tell, of what was refused, whether it is the others' company that is too much."""
    verdict = AdmissionVerdict(answer)
    if verdict.outcome != "refused" or answer.code != 403:
        return verdict
    own = answer.manifest
    some = [each for each in manifests if each is own or each.kind in _FURNITURE]
    if len(some) == len(manifests):
        return verdict
    again, _ = await try_out(some)
    return replace(verdict, alone=next(each.admitted for each in again if each.manifest is own))


# ── when it would start ──────────────────────────────────────────────────────────────────────────────────────────


def _starts(
    cluster: WhatIfCluster,
    supposed: Collection[GroupKey],
    wanted: Sequence[tuple[GroupKey, str]],
    *,
    trying: bool,
) -> Iterator[PredictedStart]:
    for key, label in wanted:
        if not key.group:
            text = f'its PodGroup "{key.name}" is neither in the cluster nor in the files'
            yield PredictedStart(key, label, "unknown", text=text)
    wanted = [each for each in wanted if each[0].group]
    if not wanted:
        return
    try:
        with cluster.assuming():
            outcome = cluster.run_until_idle(key for key, _ in wanted)
    except EffortSpentError:
        text = "it was not found out in the time that an answer may take"
        yield from (PredictedStart(key, label, "unknown", text=text) for key, label in wanted)
        return
    now = outcome.started
    for key, label in wanted:
        pods = len(cluster.members(key)) + sum(
            conversion.pods_wanted(job)
            for job in cluster.state.of(kinds.JOBS, key.namespace)
            if conversion.group_of_job(job) == key.name
        )
        start = PredictedStart(key, label, "now", pods, supposed=key in supposed)
        if pods == 0:
            yield _not_waiting(cluster.group(key), start, "its pods are not in the files, and it has no minResources")
        elif now.get(key):
            yield replace(
                start,
                kind="soon",
                after=tuple(sorted(now[key])),
                text=endings.giving_way(map(cluster.title, now[key])),
            )
        elif evicted := outcome.evicted(key):
            text = f"the scheduler evicts {evictions.written(cluster, evicted)}"
            yield replace(start, kind="soon", evicts=tuple(sorted(str(each.task) for each in evicted)), text=text)
        elif key in outcome.later:
            yield replace(
                start, kind="soon", text="the scheduler does not place it in its first attempt, and tries it again"
            )
        elif key in now:
            yield start
        else:
            yield _later(cluster, start, trying=trying)


def _peopled(state: ClusterObjects, keys: Sequence[GroupKey]) -> tuple[ClusterObjects, frozenset[GroupKey]]:
    """Suppose pods for groups that nothing is known of but their minimum: its minResources, shared alike."""
    homes: set[tuple[str, str]] = set()
    for namespace in {key.namespace for key in keys}:
        homes |= {(namespace, grouping.group_of(pod.metadata)) for pod in state.of(kinds.PODS, namespace)}
        homes |= {(namespace, conversion.group_of_job(job)) for job in state.of(kinds.JOBS, namespace)}
    supposed, pods = set(), []
    for key in keys:
        if (key.namespace, key.name) in homes:
            continue
        kind = next(each for each in PODGROUPS if each.group == key.group)
        group = state.find(kind, key.name, key.namespace)
        assert group is not None, f"{key} is in the state"
        made = _supposed_pods(group)
        if made:
            supposed.add(key)
            pods += made
    return with_objects(state, {kinds.PODS: pods}), frozenset(supposed)


def _supposed_pods(group: PodGroup) -> list[Pod]:
    try:
        stated = conversion.min_resources(group)
    except QuantityError:
        return []
    count = max(group.spec.min_member, 1)
    if not stated:
        return []
    share = Resources({name: -(-amount // count) for name, amount in stated.nano.items() if name != "pods"})
    main = Container(name="main", resources=ResourceRequirements(requests=dict(share.quantities())))
    return [
        Pod(
            metadata=Meta(
                name=f"{group.name}-{number}",
                namespace=group.namespace,
                uid=f"{group.metadata.uid}-{number}",
                annotations={names.GROUP_NAME: group.name},
                creation_timestamp=group.metadata.creation_timestamp,
            ),
            spec=PodSpec(scheduler_name=names.SCHEDULER_NAME, containers=(main,)),
            status=PodStatus(phase="Pending"),
        )
        for number in range(count)
    ]


def _later(cluster: WhatIfCluster, start: PredictedStart, *, trying: bool) -> PredictedStart:
    key = start.key
    before = cluster.decide().records.get(key)
    if before is None:
        return _not_waiting(cluster.group(key), start, "the scheduler gives no reason")
    try:
        with cluster.assuming():
            outcome = cluster.run_until_idle([key])
            ends = endings.wait_chain(cluster, key)
            if ends.groups:
                return replace(start, kind="after", after=ends.groups, text=endings.ending(cluster, ends))
            record = remedies.at_rest(cluster, outcome.reasons.get(key, before))
            changes = tuple(remedies.changes(cluster, key, record, QuotaShortage())) if trying else ()
            return replace(start, kind="never", record=record, changes=changes)
    except EffortSpentError:
        return replace(start, kind="unknown", text=_NOT_NOW, record=before)


def _not_waiting(group: PodGroup | None, start: PredictedStart, otherwise: str) -> PredictedStart:
    """Return what the scheduler has nothing to decide about: a group that was applied before, or ``otherwise`` why it isn't known."""
    if group is not None and group.status.phase == "Completed":
        return replace(start, kind="ended")
    if group is not None and group.status.running:
        return replace(start, kind="running", pods=group.status.running)
    return replace(start, kind="unknown", text=otherwise)
