"""The reason why pods that have to be close together find no place: which domain comes nearest, and what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.model.text import counted
from scheduler.engine import network_domains
from scheduler.engine.session import Session
from scheduler.engine.states import JobState
from scheduler.model import vectors
from scheduler.model.network_topology import SubGroupKey, TopologyConstraint
from scheduler.model.obstacle import Obstacle, Reason, Stage
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Matrix, Vector
from scheduler.topology.tiers import Tier


class _Needed(NamedTuple):
    """Pods that have to be together: how many of them need a place, and whose they are."""

    constraint: TopologyConstraint
    pods: int
    key: SubGroupKey | None
    whose: str


def sentence(session: Session, job: JobState, kind: TaskClass, count: int) -> str:
    """Say which domain of the network comes nearest to holding ``count`` pods; empty where a job's pods may be anywhere."""
    needed = _needed(session, job, count)
    if needed is None:
        return ""
    tiers = _with_domains(session, needed.constraint)
    if not tiers:
        return f"{needed.whose} have to be close together: {_no_tier(session, needed.constraint)}"
    return _nearest(session, job, kind, needed, tiers[-1])


def crowded(session: Session, job: JobState) -> Obstacle | None:
    """Object to admitting a job whose pods have to be together while no domain has idle what it lacks; None where one has."""
    topology, wanted, axes = job.info.topology, job.lacking(), session.axes
    if topology is None or not topology.required:
        return None
    tiers = _with_domains(session, topology)
    if not tiers:
        words = f"its pods have to be close together: {_no_tier(session, topology)}"
        return Obstacle(Reason.NOT_ENOUGH_RESOURCES, words, Stage.ENQUEUE)
    asked = [place for place in axes.shared if wanted[place]]
    idle = np.where(session.snapshot.table.serving[:, None], session.idle.clip(min=0), 0)
    sums, tier = _sums(tiers[0], idle), tiers[0]
    for tier in tiers:
        sums = _sums(tier, idle)
        if (sums[:, asked] >= [wanted[place] for place in asked]).all(axis=1).any():
            return None
    best = min(range(len(sums)), key=lambda each: (_worst(wanted, sums[each].tolist(), asked)[0], tier.names[each]))
    place = _worst(wanted, sums[best].tolist(), asked)[1]
    need, has, all_ = (
        _alone(session, place, int(each)) for each in (wanted[place], sums[best][place], idle[:, place].sum())
    )
    pods = counted(max(job.info.min_member - job.ready, 1), "pod")
    words = f"no {tier.word} has {need} free for {pods}: the best, {tier.names[best]}, has {has}; {all_} are free in the cluster"
    return Obstacle(Reason.NOT_ENOUGH_RESOURCES, words, Stage.ENQUEUE, nodes=True)


def _sums(tier: Tier, amounts: Matrix) -> Matrix:
    """Add up amounts by domain, [domains, resources]."""
    sums = np.zeros((len(tier.names) + 1, amounts.shape[1]), dtype=np.int64)
    np.add.at(sums, tier.places, amounts)
    found: Matrix = sums[:-1]
    return found


def _worst(wanted: Vector, has: Sequence[int], asked: Sequence[int]) -> tuple[float, int]:
    """Return which part of a resource is short where the largest part is, and which resource that is."""
    return max(((wanted[place] - has[place]) / wanted[place], place) for place in asked)


def _needed(session: Session, job: JobState, count: int) -> _Needed | None:
    topology = job.info.topology
    if topology is not None and topology.required and _with_domains(session, topology):
        room = _rooms(session, job, topology, count)
        if not room:
            return _Needed(topology, count, None, "its pods")
    for key in dict.fromkeys(task.subgroup for task in (*job.waiting, *job.unplaced)):
        policy = job.info.subgroups[key[0]] if key is not None else None
        if policy is not None and policy.topology is not None and policy.topology.required:
            lacks = max(policy.size - job.in_subgroup(key, pipelined=True), 1)
            return _Needed(policy.topology, lacks, key, f"the pods of each subgroup {policy.name!r}")
    return _Needed(topology, count, None, "its pods") if topology is not None and topology.required else None


def _rooms(session: Session, job: JobState, constraint: TopologyConstraint, count: int) -> bool:
    """Whether some domain holds a job's minimum."""
    tasks = [*job.waiting, *job.unplaced]
    members = network_domains.members_of(session, job, tasks, count, None)
    return next(iter(network_domains.scopes(session, constraint, members)), None) is not None


def _with_domains(session: Session, constraint: TopologyConstraint) -> list[Tier]:
    """Return the tiers that will do and of which there is a domain: without a labelled node a level has none."""
    return [tier for tier in session.network.allowed(constraint) if tier.names]


def _no_tier(session: Session, constraint: TopologyConstraint) -> str:
    tiers = session.network.tiers
    if empty := session.network.allowed(constraint):
        return f"no node is in a {empty[-1].word}; label the nodes, or list them in HyperNodes"
    if not tiers:
        return (
            "nothing describes the network; create HyperNodes, or list node labels as the argument levels of the plugin "
            "network-topology-aware"
        )
    there = ", ".join(f"{tier.number}{f' ({tier.label})' if tier.label else ''}" for tier in tiers)
    if constraint.tier_name:
        return f"no tier is named {constraint.tier_name!r}; there {'is' if len(tiers) == 1 else 'are'} {there}"
    return f"tier {constraint.highest_tier} is below the smallest domains; there {'is' if len(tiers) == 1 else 'are'} {there}"


def _nearest(session: Session, job: JobState, kind: TaskClass, needed: _Needed, tier: Tier) -> str:
    axes, count, size = session.axes, needed.pods, len(tier.names)
    members = network_domains.members_of(session, job, (), count, needed.key)
    room = np.bincount(tier.places, weights=np.minimum(session.picker.fitting(kind), count), minlength=size + 1)[:size]
    there = sorted(set(tier.codes[list(members.rows)].tolist())) if members.rows else []
    if len(there) > 1 or (there and there[0] < 0):
        names = [tier.names[code] for code in there if code >= 0]
        return f"{needed.whose} have to be in one {tier.word}, and those that run are in {_listed(names)}"
    best = there[0] if there else min(range(size), key=lambda each: (-room[each], tier.names[each]))
    open_ = session.picker.open_to(kind)
    free = vectors.total(session.idle[open_ & tier.mask(best)].clip(min=0))
    everywhere = vectors.total(session.idle[open_].clip(min=0))
    wanted = vectors.scale(session.vector(kind), count)
    name = tier.names[best]
    short = [place for place in axes.shared if wanted[place] > free[place]]
    head = f"no {tier.word} has" if not there else f"its other pods are in {tier.word} {name}, which hasn't"
    if short:
        place = max(short, key=lambda each: (wanted[each] - free[each]) / wanted[each])
        need, has, all_ = (_alone(session, place, each[place]) for each in (wanted, free, everywhere))
        best_has = f" the best, {name}, has {has};" if not there else f" it has {has};"
        return f"{head} {need} free for {counted(count, 'pod')}:{best_has} {all_} are free in the cluster"
    if needed.key is not None and not there and room[best] >= count:
        return (
            f"{needed.whose} have room in {tier.word} {name}, but no choice of domains was found that has room for all subgroups of the "
            "minimum at once"
        )
    each = axes.resources(session.vector(kind)).only(kind.request)
    fits, total = int(room[best]), session.picker.room(kind)
    best_fits = f"the best, {name}, has room for {fits or 'none'}" if not there else f"it has room for {fits or 'none'}"
    return f"{head} room for {counted(count, 'pod')} of {each}: {best_fits}, the cluster for {total}"


def _alone(session: Session, place: int, steps: int) -> str:
    axes = session.axes
    amount = axes.resources(tuple(steps if each == place else 0 for each in range(len(axes.names))))
    return str(amount) if amount else f"0 {axes.names[place]}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)
