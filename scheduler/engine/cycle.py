"""One scheduling cycle: a snapshot in, a plan out. Nothing else is looked at, nothing is changed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from scheduler.engine import eviction_outlook, kept_places, partial_gangs, placement, reserved_nodes
from scheduler.engine.decision_cache import DecisionCache
from scheduler.engine.outcome import PlanBuilder, differs
from scheduler.engine.policy import Policy
from scheduler.engine.session import Session
from scheduler.model.plan import Plan
from scheduler.model.records import EvictionOutlook
from scheduler.model.snapshot import GroupKey, Phase, Snapshot


def decide(
    snapshot: Snapshot,
    policy: Policy,
    now: datetime,
    cache: DecisionCache | None = None,
    *,
    records: bool = True,
    growing: Collection[GroupKey] = (),
) -> Plan:
    """Decide who gets which node, and where each group stands. The same input gives the same plan.

    ``cache``: what is remembered from cycle to cycle; None by who decides once.
    ``records``: whether somebody is going to read them; ``growing``: groups of which one is made also while they run, where
    pods beyond their minimum wait.
    """
    cache = cache if cache is not None else DecisionCache()
    # 1. and 2. Open a session and run the actions.
    session = _run(snapshot, policy, now, cache)

    # 3. What was committed for jobs that may start is bound; who stands in their way leaves; what was reserved is remembered.
    outcome = PlanBuilder(session, cache)
    binds, pipelined, evictions = outcome.binds(), outcome.pipelined(), outcome.evictions()

    # 4. Each group moves through the table of its life, and is told why it stands where it stands.
    statuses = outcome.statuses()

    # 5. All of it as values; of statuses, only those that change are to be written.
    plan = Plan(
        binds=binds,
        evictions=evictions,
        pipelined=pipelined,
        reserved_nodes=outcome.reserved(),
        partially_bound=partial_gangs.partially_bound(session),
        statuses=tuple(each for old, each in zip(snapshot.jobs, statuses, strict=True) if differs(old, each)),
        queues=outcome.shares(),
        groups={each.key: each for each in statuses},
        records=outcome.records(statuses, growing) if records else {},
        tasks=outcome.tasks(binds, pipelined, evictions),
        released=outcome.released(),
        waiting=any(job.waiting or job.unplaced for job in session.jobs)
        or any(each.phase in {Phase.PENDING, Phase.INQUEUE} for each in statuses),
        kept_places=kept_places.left(session),
        held_claims=outcome.held_claims(),
        rolled_back=outcome.rolled_back(),
        unplaced=outcome.unplaced(),
        faults=tuple(session.extensions.faults.values()),
        network_tiers=session.network_tiers,
        network_faults=session.network.faults,
        lacks_victims=session.allocations.lacks_victims,
        next_deadline=session.deadlines.next,
    )
    cache.prune(snapshot.jobs, snapshot.queues)
    session.close()
    return plan


def outlooks(
    snapshot: Snapshot, policy: Policy, now: datetime, key: GroupKey, cache: DecisionCache | None = None
) -> tuple[EvictionOutlook, ...]:
    """Say why nobody is evicted for a group that waits, after what `decide` does; nothing where it waits for something else."""
    session = _run(snapshot, policy, now, cache if cache is not None else DecisionCache())
    found = tuple(eviction_outlook.find(session, key))
    session.close()
    return found


def _run(snapshot: Snapshot, policy: Policy, now: datetime, cache: DecisionCache) -> Session:
    # 1. Open a session: plugins see the snapshot and divide the cluster.
    session = Session(snapshot, policy, now, cache.sessions)

    # 2. What earlier cycles reserved is kept first. Then each action in turn marks what it decides; what is all or nothing was
    #    committed or undone there.
    kept_places.restore(session)
    placement.place_nominated(session)
    reserved_nodes.honour(session)
    for action in policy.actions:
        action(session, policy.arguments[action.name])
    return session
