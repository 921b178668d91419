"""Questions, answered one after the other in a thread: the loop goes on with watches, discovery and refusals meanwhile.

How many wait is bounded, for all and for one namespace, and namespaces take turns: a tenant who asks in a loop keeps another one waiting
for one answer.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

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
        self._lines: OrderedDict[str, deque[tuple[Callable[[Asked], Any], asyncio.Future[Any]]]] = OrderedDict()
        self._answering = False
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
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[tenant] += 1
        self._lines.setdefault(tenant, deque()).append((question, answer))
        self._begin_next()
        return await answer

    def _begin_next(self) -> None:
        """Have the next question answered: namespaces take turns, so who asks much waits for oneself."""
        while self._lines and not self._answering:
            tenant, line = self._lines.popitem(last=False)
            question, answer = line.popleft()
            if line:
                self._lines[tenant] = line
            if answer.done():
                self._count_down(tenant)  # Whoever asked has gone.
                continue
            state = self._state()
            assert state is not None, "caches that were full stay so"
            self._answering = True
            loop = asyncio.get_running_loop()
            told = loop.run_in_executor(self._thread, self._answer, state, self._policy, question)
            told.add_done_callback(partial(self._answered, tenant, answer))

    def _answered(self, tenant: str, answer: asyncio.Future[Any], told: asyncio.Future[Any]) -> None:
        self._answering = False
        self._count_down(tenant)
        error = None if told.cancelled() else told.exception()
        if told.cancelled():
            answer.cancel()
        elif not answer.done():
            answer.set_exception(error) if error is not None else answer.set_result(told.result())
        self._begin_next()

    def _count_down(self, tenant: str) -> None:
        self._waiting[tenant] -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]

    def _answer(self, state: ClusterObjects, policy: Policy, question: Callable[[Asked], T]) -> T:
        """Answer in the thread. What is supposed for an answer is taken back by who supposes it."""
        self._began = time.monotonic()
        # What is made for an answer is gone with it; looking for garbage among all pods takes longer than most answers.
        gc.disable()
        try:
            asked = self._asked
            if asked is None or asked.state is not state or asked.policy is not policy:
                # Not both in memory at once.
                self._asked = None
                asked = Asked(state, policy, self._schedulers)
            answer = question(asked)
            self._asked = asked
        finally:
            gc.enable()
            self._began = None
        return answer
