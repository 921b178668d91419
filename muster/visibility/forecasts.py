"""Expected starts of groups, played while tenants ask for them: at most every half minute, one process at a time, and each answer has its age.

Nobody waits for a play of the cluster: who asks first is told that there is none yet. What would become of objects that aren't there yet has to be played for them
alone, so few may wait for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from msgspec import Struct

from muster.visibility import plays
from muster.visibility.plays import NoForecastError
from muster.visibility.questions import TooManyQuestionsError
from muster.whatif.cluster_view import ClusterObjects
from muster.whatif.run_times import RunHistory
from muster.whatif.start_forecast import StartForecast
from scheduler.engine.policy import Policy

INTERVAL: Final = 30.0
"""Seconds from the beginning of one play to the beginning of the next, at least."""
ASKED: Final = 600.0
"""Seconds after the last question for which the cluster is played: longer, and an idle program would use a fifth of a processor."""
PAUSE: Final = 300.0
"""Seconds after one that came to nothing."""
REST: Final = 2
"""Times as long as a play took the process rests at least."""
_SUPPOSED: Final = 4
"""Plays of what tenants would like admitted that wait, all together; of one namespace it is one."""
_LONGEST: Final = 30.0  # seconds that such a play may take
_SOON: Final = 1.0  # seconds until another look whether the cluster is known

log = logging.getLogger(__name__)


class Plays(Protocol):
    """Plays a state in a process of its own, as `plays.play` does."""

    def __call__(
        self, state: ClusterObjects, policy: Policy, schedulers: Sequence[str], history: RunHistory, *, seconds: float = plays.SECONDS,
        limit: float,
    ) -> Awaitable[list[StartForecast]]:  # fmt: skip
        """Return when each waiting group will start."""
        ...


class StartsKnown(Struct, frozen=True):
    """What is known of starts.

    Attributes:
        found: the forecasts of the last play; None before there was one.
        taken: of which moment they are.
        trouble: why there is none newer, a sentence; empty where there will be.
    """

    found: Sequence[StartForecast] | None = None
    taken: datetime | None = None
    trouble: str = ""


class StartForecasts:
    """Has the cluster's future played while somebody asks. `run` goes on until it is cancelled."""

    def __init__(
        self, state: Callable[[], ClusterObjects | None], now: Callable[[], datetime], policy: Policy,
        schedulers: Sequence[str], play: Plays = plays.play,
    ) -> None:  # fmt: skip
        self._now = now
        self._state = state
        self._policy = policy
        self._schedulers = tuple(schedulers)
        self._play = play
        self._history = RunHistory()
        self._wanted = asyncio.Event()
        self._last = float("-inf")
        self._known = StartsKnown()
        self._one_at_a_time = asyncio.Lock()
        self._supposing: Counter[str] = Counter()

    def adopt(self, policy: Policy) -> None:
        """Play by another policy from the next play on."""
        self._policy = policy

    def known(self) -> StartsKnown:
        """Return what is known now, and have it kept up to date for a while."""
        self._last = asyncio.get_running_loop().time()
        self._wanted.set()
        return self._known

    def about(self, known: StartsKnown) -> dict[str, Any]:
        """Return what is to be said of what is known: its age, and why there is none or none newer."""
        said: dict[str, Any] = {"state": "failed" if known.trouble else "pending" if known.taken is None else "ready"}
        if known.taken is not None:
            age = (self._now() - known.taken).total_seconds()
            said |= {"taken": f"{known.taken:%Y-%m-%dT%H:%M:%SZ}", "ageSeconds": max(round(age), 0)}
        if known.trouble:
            said["message"] = f"no {'newer ' if known.taken is not None else ''}forecast: {known.trouble}"
        elif known.taken is None:
            said["message"] = "no forecast yet: the cluster's future is played now, ask again in some seconds"
        return said

    async def run(self) -> None:
        """Play again and again while somebody asks, and note meanwhile how long what ended ran."""
        clock = asyncio.get_running_loop().time
        while True:
            began, pause = clock(), INTERVAL
            asked = began - self._last < ASKED
            state = self._state()
            if state is not None:
                self._history.learn(state)
                if asked:
                    await self._renew(state)
                    pause = PAUSE if self._known.trouble else max(INTERVAL, (REST + 1) * (clock() - began))
            if asked:
                await asyncio.sleep(max(began + pause - clock(), 0.0) if state is not None else _SOON)
            else:
                self._wanted.clear()
                with contextlib.suppress(TimeoutError):
                    # Not wait_for, which forgets a cancellation that comes together with what it waits for.
                    async with asyncio.timeout(pause):
                        await self._wanted.wait()

    async def _renew(self, state: ClusterObjects) -> None:
        try:
            async with self._one_at_a_time:
                found = await self._play(
                    state,
                    self._policy,
                    self._schedulers,
                    self._history,
                    seconds=plays.enough_for(state),
                    limit=plays.LIMIT,
                )
        except (NoForecastError, OSError) as error:
            log.warning("no expected starts: %s", error)
            self._known = StartsKnown(self._known.found, self._known.taken, str(error))
        else:
            self._known = StartsKnown(found, state.taken)

    async def suppose(self, tenant: str, state: ClusterObjects) -> list[StartForecast]:
        """Play a state that somebody of a namespace supposes.

        Raises:
            TooManyQuestionsError: another one of the namespace is played, or several wait.
            NoForecastError: it takes too long, or can't be simulated.
        """
        if self._supposing[tenant]:
            raise TooManyQuestionsError("what this namespace would like admitted is played already")
        if self._supposing.total() >= _SUPPOSED:
            raise TooManyQuestionsError(f"{_SUPPOSED} plays wait already")
        self._supposing[tenant] += 1
        try:
            async with self._one_at_a_time:
                return await self._play(state, self._policy, self._schedulers, self._history, limit=_LONGEST)
        finally:
            del self._supposing[tenant]


def told(one: StartForecast, namespace: str) -> dict[str, Any]:
    """Return a start for a tenant: times, and of those of which nobody says how long they run the namespace's own by name."""
    own = [each for each in one.unknown if each.partition(" ")[2].startswith(f"{namespace}/")]
    return one.data() | ({"unknown": own, "unknownOthers": len(own) < len(one.unknown)} if one.unknown else {})
