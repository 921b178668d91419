"""Expected starts for who looks at a cluster for a while, played by a process of their own (`muster.visibility.plays`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.cli.overviews import Seen
from muster.visibility import plays
from muster.whatif.overview import Overview
from muster.whatif.run_times import RunHistory

INTERVAL: Final = 30.0
"""Seconds from the end of one forecast to the beginning of the next, at least."""
SECONDS: Final = 15.0
"""How long futures are played: what isn't reached by then is said to start later."""
LIMIT: Final = 120.0
"""Seconds that a forecast may take."""
_MEMORY: Final = 2 << 30
_PAUSE: Final = 600.0  # seconds after one that took too long


class ExpectedStart(Struct, frozen=True, rename={"from_": "from"}):
    """When a group will start: half of the plays before ``at``, eight of ten between ``from_`` and ``to``; None where it can't be told.

    ``text`` is a sentence, ``brief`` the same in a column. ``arrivals``: whether others arrive in the plays; if not, it holds only if nothing does.
    """

    text: str
    brief: str = ""
    at: datetime | None = None
    from_: datetime | None = None
    to: datetime | None = None
    after: datetime | None = None
    arrivals: bool = False


class Starts(Struct, frozen=True):
    """Expected starts by namespace/name, as of the reading ``taken``; ``missing``: why there are none, a sentence."""

    taken: datetime | None = None
    groups: dict[str, ExpectedStart] = {}
    missing: str = ""


class Forecasts:
    """Plays readings one after the other, and remembers meanwhile how long what ended ran."""

    def __init__(self, schedulers: Sequence[str]) -> None:
        self._schedulers = tuple(schedulers)
        self._history = RunHistory()

    async def play(self, seen: Seen, limit: float = LIMIT) -> Starts:
        """Return when the groups of a reading start that wait."""
        if seen.policy is None:
            return Starts(missing="no expected starts: they need the whole cluster, and nodes may not be listed")
        self._history.learn(seen.state)
        try:
            found = await plays.play(
                seen.state, seen.policy, self._schedulers, self._history, seconds=SECONDS, limit=limit, memory=_MEMORY
            )
        except plays.NoForecastError as error:
            return Starts(missing=f"no expected starts: {error}")
        taken = seen.state.taken
        told = {
            f"{each.key.namespace}/{each.key.name}": ExpectedStart(
                each.text(taken), each.brief(taken), each.middle, each.early, each.late, each.after, each.arrivals
            )
            for each in found
        }
        return Starts(taken, told)


def pause(found: Starts) -> float:
    """Return the seconds to wait until the next forecast."""
    return _PAUSE if found.missing else INTERVAL


async def keep_playing(
    latest: Callable[[], Seen],
    play: Callable[[Seen], Awaitable[Starts]],
    told: Callable[[Starts], None],
    pause: Callable[[Starts], float] = pause,
) -> None:
    """Play the latest reading again and again until it is cancelled; what comes of it goes to ``told``."""
    while True:
        found = await play(latest())
        told(found)
        await asyncio.sleep(pause(found))


class ToldStarts:
    """Overviews with expected starts: `run` plays what was told last, again and again until it is cancelled; what is told next has what came of it."""

    def __init__(self, play: Callable[[Seen], Awaitable[Starts]], pause: Callable[[Starts], float] = pause) -> None:
        self._play = play
        self._pause = pause
        self._starts = Starts()
        self._seen: Seen | None = None
        self._read = asyncio.Event()

    def tell(self, seen: Seen) -> Overview:
        """Return an overview with the starts that are known."""
        self._seen = seen
        self._read.set()
        return with_starts(seen.overview, self._starts)

    async def run(self) -> None:
        """Play."""
        await self._read.wait()
        await keep_playing(self._latest, self._play, self._learn, self._pause)

    def _latest(self) -> Seen:
        assert self._seen is not None, "something was told"
        return self._seen

    def _learn(self, found: Starts) -> None:
        self._starts = found


def with_starts(overview: Overview, starts: Starts) -> Overview:
    """Return an overview in which groups that wait have their expected starts."""
    known = starts.groups
    groups = tuple(
        replace(each, expected=known[name].brief)
        if each.waits and (name := f"{each.namespace}/{each.name}") in known
        else each
        for each in overview.groups
    )
    missing = (*overview.missing, *([starts.missing] if starts.missing else []))
    return replace(overview, groups=groups, missing=missing)
