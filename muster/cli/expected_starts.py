"""Expected starts for who looks at a cluster for a while: played by a process of their own (`muster.visibility.plays`), for tenants by the visibility API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from muster.cli import visible
from muster.cli.overviews import Seen
from muster.kube import errors
from muster.visibility import plays
from muster.whatif.overview import Overview
from muster.whatif.run_times import RunHistory
from muster.whatif.start_forecast import StartForecast

INTERVAL: Final = 30.0
"""Seconds from the end of one forecast to the beginning of the next, at least."""
SECONDS: Final = 15.0
"""How long futures are played: what isn't reached by then is said to start later."""
LIMIT: Final = 120.0
"""Seconds that a forecast may take."""
_MEMORY: Final = 2 << 30
_PAUSE: Final = 600.0  # seconds after one that took too long
_TRIES: Final = 60
_SOON: Final = 1.0
"""How often the visibility API is asked until it has played, and seconds in between."""


class ExpectedStart(Struct, frozen=True, rename={"from_": "from"}):
    """When a group will start: half of the plays before ``at``, 80 % of the cases between ``from_`` and ``to``; None where it can't be told.

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


Ask = Callable[[], Awaitable[dict[str, Any]]]
"""Asks the visibility API when the groups of a namespace start."""


class Forecasts:
    """Plays readings one after the other, and remembers meanwhile how long what ended ran. Where a reading isn't of the whole cluster, it asks."""

    def __init__(self, schedulers: Sequence[str], ask: Ask | None = None) -> None:
        self._schedulers = tuple(schedulers)
        self._ask = ask
        self._history = RunHistory()

    async def play(self, seen: Seen, limit: float = LIMIT) -> Starts:
        """Return when the groups of a reading start that wait."""
        if seen.policy is None:
            return await self._asked()
        self._history.learn(seen.state)
        try:
            found = await plays.play(
                seen.state, seen.policy, self._schedulers, self._history, seconds=SECONDS, limit=limit, memory=_MEMORY
            )
        except plays.NoForecastError as error:
            return Starts(missing=f"no expected starts: {error}")
        taken = seen.state.taken
        return Starts(taken, {f"{each.key.namespace}/{each.key.name}": _told(each, taken) for each in found})

    async def _asked(self) -> Starts:
        """Ask the API, again where it is the first to be asked and has yet to play."""
        if self._ask is None:
            return Starts(missing="no expected starts: they need the whole cluster, and nodes may not be listed")
        told: dict[str, Any] = {}
        for attempt in range(_TRIES):
            try:
                told = await self._ask()
            except errors.KubeError as error:
                return Starts(
                    missing=f"no expected starts: nodes may not be listed, and the visibility API doesn't tell them: {error}"
                )
            if told["forecast"]["state"] != "pending" or attempt == _TRIES - 1:
                break
            await asyncio.sleep(_SOON)
        about = told["forecast"]
        if "taken" not in about:
            return Starts(missing=str(about["message"]))
        taken = datetime.fromisoformat(about["taken"])
        names = ((each["metadata"], visible.start_forecast(each["status"])) for each in told["items"])
        return Starts(taken, {f"{meta['namespace']}/{meta['name']}": _told(one, taken) for meta, one in names})


def _told(one: StartForecast, taken: datetime) -> ExpectedStart:
    return ExpectedStart(one.text(taken), one.brief(taken), one.middle, one.early, one.late, one.after, one.arrivals)


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
