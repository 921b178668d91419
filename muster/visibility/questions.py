"""Questions, answered one after the other in a thread: the loop goes on with watches, discovery and refusals meanwhile.

How many wait is bounded, for all and for one namespace, and namespaces take turns: a tenant who asks in a loop keeps another one waiting
for one answer. While questions come, another thread prepares the next state of the cluster, so that nobody's answer waits for it;
but what isn't found is looked for in the next one, for it may just have been applied.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from muster.kube.garbage import uncollected
from muster.whatif import network
from muster.whatif.cluster import WhatIfCluster
from muster.whatif.cluster_view import ClusterObjects
from muster.whatif.effort import Effort
from scheduler.engine.policy import Policy
from scheduler.model.plan import Plan

T = TypeVar("T")

WAITING: Final = 64
"""Questions that wait or are answered, all together."""
WAITING_PER_TENANT: Final = 8
"""The same, of one namespace."""
HANGS: Final = 60.0
"""Seconds after which an answer won't come any more: a liveness probe fails then."""
EFFORT: Final = 5.0
"""Seconds of a processor that the trials of an answer may take: all others wait for it."""
RENEWED: Final = 1.0
"""Seconds between two looks for a newer state: on a cluster that changes all the time, to prepare one costs more than most answers."""
OLD: Final = 2.0
"""Seconds after which a state that changed is answered on no more: a question waits for the next one."""
_KEPT: Final = 1024
"""Answers on one state that are given again to who asks the same; a program that asks in a loop costs an answer a second then."""
WARM: Final = 5.0
"""Seconds after the last question for which states are prepared. Longer, and one who asks each minute has a busy cluster's states
prepared each second, which takes a fifth of a processor; who asks again later waits for one state."""


class TooManyQuestionsError(Exception):
    """Too many wait already; the text says whose."""


class NotKnownYetError(Exception):
    """The cluster isn't known yet; the text says what is missing."""


class Asked:
    """A cluster that is asked, and what the scheduler would decide on it, found out once for all questions.

    Attributes:
        state: of the cluster, as it was read.
        cluster: made of that state, with what the scheduler writes of the network.
        answers: those that were given on it, by what was asked.
    """

    def __init__(
        self, state: ClusterObjects, policy: Policy, schedulers: Sequence[str], before: Asked | None = None
    ) -> None:
        self.state = state
        self.policy = policy
        self.schedulers = tuple(schedulers)
        effort = Effort(time.thread_time)
        self.cluster = WhatIfCluster(network.with_tiers(state, (), policy), policy, schedulers, effort)
        if before is not None:
            self.cluster.cache = before.cluster.cache.successor()
        self.answers: dict[Hashable, Any] = {}
        self._plan: Plan | None = None

    def plan(self) -> Plan:
        """Return what the scheduler would decide now."""
        self._plan = self._plan or self.cluster.decide()
        return self._plan


class _Question(Struct, frozen=True):
    """One that waits. ``same``: as `Questions.ask` has it; ``since``: a state before that time had no answer to it."""

    tenant: str
    ask: Callable[[Asked], Any]
    same: Hashable
    answer: asyncio.Future[Any]
    since: datetime | None = None


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
        self._lines: OrderedDict[str, deque[_Question]] = OrderedDict()
        self._missed: list[_Question] = []
        self._answering = False
        self._preparing = False
        self._answers = ThreadPoolExecutor(1, "answers")
        self._states = ThreadPoolExecutor(1, "states")
        self._asked: Asked | None = None
        # When it was the newest, and when the last question came: times of the loop.
        self._newest = self._last = -math.inf
        self._began: dict[str, float] = {}

    def adopt(self, policy: Policy) -> None:
        """Answer by another policy from the next question on."""
        self._policy = policy
        self._newest = -math.inf

    def close(self) -> None:
        """Answer nothing more."""
        for threads in (self._answers, self._states):
            threads.shutdown(wait=False, cancel_futures=True)

    def waiting(self) -> int:
        """Return how many questions wait or are answered."""
        return self._waiting.total()

    def age(self) -> float:
        """Return for how many seconds the state that is answered on may have changed; NaN before there is one."""
        return asyncio.get_running_loop().time() - self._newest if self._asked is not None else math.nan

    def not_alive(self) -> list[str]:
        """Say whether an answer takes so long that it won't come."""
        now = time.monotonic()
        return [
            f"{what} for more than {HANGS:.0f} seconds" for what, at in list(self._began.items()) if now - at >= HANGS
        ]

    async def run(self) -> None:
        """Keep a state ready for as long as questions come, until cancelled."""
        while True:
            await asyncio.sleep(RENEWED)
            if asyncio.get_running_loop().time() - self._last < WARM:
                self._prepare_next()

    async def ask(self, tenant: str, question: Callable[[Asked], T], same: Hashable = None) -> T:
        """Return the answer to a question of a namespace; empty for one about the cluster.

        ``same`` is what all questions have in common that have the same answer on a state: then it is found once.

        Raises:
            TooManyQuestionsError: too many wait.
            NotKnownYetError: the caches aren't full yet.
        """
        loop = asyncio.get_running_loop()
        if self._asked is not None and same in self._asked.answers and self.age() < OLD:
            self._last = loop.time()
            self._renew()
            known: T = self._asked.answers[same]
            return known
        if self._waiting[tenant] >= WAITING_PER_TENANT:
            raise TooManyQuestionsError(f"{WAITING_PER_TENANT} questions of this namespace wait already")
        if self._waiting.total() >= WAITING:
            raise TooManyQuestionsError(f"{WAITING} questions wait already")
        if self._state() is None:
            raise NotKnownYetError("; ".join(self._missing()))
        answer: asyncio.Future[T] = loop.create_future()
        self._last = loop.time()
        self._waiting[tenant] += 1
        self._lines.setdefault(tenant, deque()).append(_Question(tenant, question, same, answer))
        self._begin_next()
        return await answer

    # ── states ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _renew(self) -> None:
        """Have a newer state prepared, unless the one that is answered on was the newest just now."""
        # One that is too old to be answered on always is: whoever waits, waits for the next.
        if not self.age() < min(RENEWED, OLD):
            self._prepare_next()

    def _prepare_next(self) -> None:
        """Have a newer state prepared, where there is one."""
        state, asked = self._state(), self._asked
        if self._preparing or state is None:
            return
        loop = asyncio.get_running_loop()
        if asked is not None and asked.state is state and asked.policy is self._policy:
            self._newest = loop.time()
            return
        self._preparing = True
        made = loop.run_in_executor(self._states, self._prepared, state, self._policy, asked)
        made.add_done_callback(self._adopt_prepared)

    def _adopt_prepared(self, made: asyncio.Future[Asked]) -> None:
        self._preparing = False
        error = None if made.cancelled() else made.exception()
        if made.cancelled() or error is not None:
            self._fail(error)
            return
        self._asked = made.result()
        if self._asked.policy is self._policy:
            self._newest = asyncio.get_running_loop().time()
        self._ask_again()
        self._begin_next()

    def _ask_again(self) -> None:
        """Put questions that an older state had no answer to back into their lines, once there is a newer one."""
        missed, self._missed = self._missed, []
        for each in missed:
            if self._asked is None or each.since is None or self._asked.state.taken < each.since:
                self._missed.append(each)
            else:
                self._lines.setdefault(each.tenant, deque()).appendleft(each)
        if self._missed:
            self._prepare_next()

    def _fail(self, error: BaseException | None) -> None:
        """Answer all who wait that there is no state to answer on."""
        waiting = [*itertools.chain.from_iterable(self._lines.values()), *self._missed]
        self._lines, self._missed = OrderedDict(), []
        for each in waiting:
            self._count_down(each.tenant)
            if not each.answer.done():
                each.answer.set_exception(error) if error is not None else each.answer.cancel()

    def _prepared(self, state: ClusterObjects, policy: Policy, before: Asked | None) -> Asked:
        """Prepare a state, in its thread, with what most questions look at."""
        with self._working("a state is being prepared"):
            asked = Asked(state, policy, self._schedulers, before)
            asked.plan()
            return asked

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_next(self) -> None:
        """Have the next question answered: namespaces take turns, so who asks much waits for oneself."""
        if self._lines:
            self._renew()
        while self._lines and not self._answering and self._asked is not None and self.age() < OLD:
            tenant, line = self._lines.popitem(last=False)
            question = line.popleft()
            if line:
                self._lines[tenant] = line
            if question.answer.done():
                self._count_down(tenant)  # Whoever asked has gone.
                continue
            self._answering = True
            loop = asyncio.get_running_loop()
            told = loop.run_in_executor(self._answers, self._answer, self._asked, question)
            told.add_done_callback(partial(self._answered, question, self._asked.state))

    def _answered(self, question: _Question, answered_on: ClusterObjects, told: asyncio.Future[Any]) -> None:
        self._answering = False
        state, answer = self._state(), question.answer
        error = None if told.cancelled() else told.exception()
        if error is not None and self._asked is not None and self._asked.state is answered_on:
            self._asked = None  # What was supposed for that answer may still be in it.
        missed = not told.cancelled() and error is None and told.result() is None
        if missed and question.since is None and state is not None and state is not answered_on:
            # It may just have been applied: the state that there is now tells.
            self._missed.append(replace(question, since=state.taken))
            self._ask_again()
        else:
            self._count_down(question.tenant)
            if told.cancelled():
                answer.cancel()
            elif not answer.done():
                answer.set_exception(error) if error is not None else answer.set_result(told.result())
        self._begin_next()

    def _count_down(self, tenant: str) -> None:
        self._waiting[tenant] -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]

    def _answer(self, asked: Asked, question: _Question) -> Any:
        """Answer in the thread. What is supposed for an answer is taken back by who supposes it."""
        if question.same in asked.answers:
            return asked.answers[question.same]
        with self._working("a question is being answered"), asked.cluster.effort.limited(EFFORT):
            answer = question.ask(asked)
        if question.same is not None and answer is not None and len(asked.answers) < _KEPT:
            asked.answers[question.same] = answer
        return answer

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        self._began[what] = time.monotonic()
        # What is made for an answer is gone with it; looking for garbage among all pods takes longer than most answers.
        try:
            with uncollected():
                yield
        finally:
            del self._began[what]
