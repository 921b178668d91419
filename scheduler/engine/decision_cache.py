"""The memory of `scheduler.engine.cycle.decide` from cycle to cycle. With an empty one it decides the same, only slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler.engine.lifecycle import PhaseFacts
from scheduler.engine.policy import Policy
from scheduler.engine.session_cache import SPARE, SessionCache
from scheduler.model.plan import GroupStatus, QueueShare
from scheduler.model.snapshot import JobInfo, QueueInfo
from scheduler.model.vectors import Vector


class QuietStatus(NamedTuple):
    """The status of a group that only runs, under a policy whose plugins found it ready or not."""

    info: JobInfo
    policy: Policy
    ready: bool
    status: GroupStatus


class SettledStatus(NamedTuple):
    """The status that these facts led to, and that changed nothing."""

    info: JobInfo
    facts: PhaseFacts
    status: GroupStatus


class CachedShare(NamedTuple):
    """What a queue's amounts come to for those who read of it: resource names, allocated, deserved."""

    info: QueueInfo
    amounts: tuple[tuple[str, ...], Vector, Vector | None]
    share: QueueShare


class DecisionCache:
    """Belongs to whoever decides again and again.

    Each entry holds the value of the snapshot that it is about, and is found by its identity: a value that changed is
    another one.

    Attributes:
        sessions: the part that sessions use.
    """

    def __init__(self) -> None:
        self.sessions = SessionCache()
        self._quiet: dict[int, QuietStatus] = {}
        self._settled: dict[int, SettledStatus] = {}
        self._shares: dict[str, CachedShare] = {}

    def successor(self) -> DecisionCache:
        """Return one for another thread, which shares what holds of other snapshots, too."""
        made = DecisionCache()
        made.sessions = self.sessions.successor()
        return made

    def quiet(self, info: JobInfo, policy: Policy, *, ready: bool) -> GroupStatus | None:
        """Return the status of a group to which nothing happens."""
        known = self._quiet.get(id(info))
        return known.status if known is not None and known.policy is policy and known.ready is ready else None

    def remember_quiet(self, info: JobInfo, policy: Policy, *, ready: bool, status: GroupStatus) -> None:
        """Remember it."""
        self._quiet[id(info)] = QuietStatus(info, policy, ready, status)

    def settled(self, info: JobInfo, facts: PhaseFacts) -> GroupStatus | None:
        """Return the status that the same facts led to."""
        known = self._settled.get(id(info))
        return known.status if known is not None and known.facts == facts else None

    def remember_settled(self, info: JobInfo, facts: PhaseFacts, status: GroupStatus) -> None:
        """Remember it."""
        self._settled[id(info)] = SettledStatus(info, facts, status)

    def share(self, info: QueueInfo, amounts: tuple[tuple[str, ...], Vector, Vector | None]) -> QueueShare | None:
        """Return what the same amounts of a queue came to."""
        known = self._shares.get(info.name)
        return known.share if known is not None and known.info is info and known.amounts == amounts else None

    def remember_share(
        self, info: QueueInfo, amounts: tuple[tuple[str, ...], Vector, Vector | None], share: QueueShare
    ) -> None:
        """Remember it."""
        self._shares[info.name] = CachedShare(info, amounts, share)

    def prune(self, jobs: Sequence[JobInfo], queues: Mapping[str, QueueInfo]) -> None:
        """Forget what is gone, once it is much."""
        self.sessions.prune((job.task_counts for job in jobs), len(jobs))
        if max(len(self._quiet), len(self._settled)) > 2 * len(jobs) + SPARE:
            there = {id(job) for job in jobs}
            self._quiet = {key: each for key, each in self._quiet.items() if key in there}
            self._settled = {key: each for key, each in self._settled.items() if key in there}
        if len(self._shares) > 2 * len(queues) + SPARE:
            self._shares = {name: each for name, each in self._shares.items() if name in queues}
