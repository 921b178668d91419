"""Questions, answered one after the other in a thread: the loop goes on with watches, discovery and refusals meanwhile.

How many wait is bounded, for all and for one namespace, so that a tenant who asks in a loop keeps others waiting for a few answers
at most.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import ClusterObjects
from scheduler.engine.policy import Policy
from scheduler.model.plan import Plan

T = TypeVar("T")

WAITING: Final = 64
"""Questions that wait or are answered, all together."""
WAITING_PER_TENANT: Final = 8
"""The same, of one namespace."""
HANGS: Final = 60.0
"""Seconds after which an answer won't come any more: a liveness probe fails then."""


class TooManyQuestionsError(Exception):
    """Too many wait already; the text says whose."""


class NotKnownYetError(Exception):
    """The cluster isn't known yet; the text says what is missing."""


class Asked:
    """A cluster that is asked, and what the scheduler would decide on it, found out once for all questions."""

    def __init__(self, state: ClusterObjects, policy: Policy, schedulers: Sequence[str]) -> None:
        self.state = state
        self.policy = policy
        self.schedulers = tuple(schedulers)
        self.cluster = WhatIfCluster(state, policy, schedulers)
        self._plan: Plan | None = None

    def plan(self) -> Plan:
        """Return what the scheduler would decide now."""
        self._plan = self._plan or self.cluster.decide()
        return self._plan


class Questions:
    """Answers on a state that is as new as `state` returns it."""

    def __init__(
        self,
        state: Callable[[], ClusterObjects | None],
        policy: Policy,
        schedulers: Sequence[str],
        missing: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._state = state
        self._missing = missing
        self._policy = policy
        self._schedulers = tuple(schedulers)
        self._waiting: Counter[str] = Counter()
        self._thread = ThreadPoolExecutor(1, "questions")
        self._asked: Asked | None = None
        self._began: float | None = None

    def adopt(self, policy: Policy) -> None:
        """Answer by another policy from the next question on."""
        self._policy = policy

    def close(self) -> None:
        """Answer nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def not_alive(self) -> list[str]:
        """Say whether an answer takes so long that it won't come."""
        began = self._began
        if began is None or time.monotonic() - began < HANGS:
            return []
        return [f"a question is being answered for more than {HANGS:.0f} seconds"]

    async def ask(self, tenant: str, question: Callable[[Asked], T]) -> T:
        """Return the answer to a question of a namespace; empty for one about the cluster.

        Raises:
            TooManyQuestionsError: too many wait.
            NotKnownYetError: the caches aren't full yet.
        """
        if self._waiting[tenant] >= WAITING_PER_TENANT:
            raise TooManyQuestionsError(f"{WAITING_PER_TENANT} questions of this namespace wait already")
        if self._waiting.total() >= WAITING:
            raise TooManyQuestionsError(f"{WAITING} questions wait already")
        state = self._state()
        if state is None:
            raise NotKnownYetError("; ".join(self._missing()))
        self._waiting[tenant] += 1
        answering = asyncio.get_running_loop().run_in_executor(
            self._thread, self._answer, state, self._policy, question
        )
        # Counted until it is answered, whether the one who asked still waits or not.
        answering.add_done_callback(lambda _: self._answered(tenant))
        return await asyncio.shield(answering)

    def _answered(self, tenant: str) -> None:
        self._waiting[tenant] -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]

    def _answer(self, state: ClusterObjects, policy: Policy, question: Callable[[Asked], T]) -> T:
        """Answer in the thread. What is supposed for an answer is taken back by who supposes it."""
        self._began = time.monotonic()
        try:
            asked = self._asked
            if asked is None or asked.state is not state or asked.policy is not policy:
                # Not both in memory at once.
                self._asked = None
                asked = Asked(state, policy, self._schedulers)
            answer = question(asked)
            self._asked = asked
        finally:
            self._began = None
        return answer
