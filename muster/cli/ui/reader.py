"""Reads a cluster again and again while the page is served, and answers the questions that the page has about it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import click
import msgspec

from muster.cli.connect import explained
from muster.cli.expected_starts import Starts
from muster.cli.overviews import Seen
from muster.cli.ui.history import History
from muster.kube import errors
from muster.model.objects import Event
from muster.whatif import group_life

_REST: Final = 4
"""Times as long as a reading took it rests at least: whoever looks takes a fifth of what the API server has to give, at most."""

Read = Callable[[], Awaitable[Seen]]
ReadEvents = Callable[[str, str], Awaitable[Sequence[Event]]]
"""Reads the events of a PodGroup, by namespace and name."""


class UnknownError(Exception):
    """What was asked about isn't there."""


class Reader:
    """Keeps the last reading, and what came before as `History`. `run` goes on until it is cancelled."""

    def __init__(self, read: Read, events: ReadEvents, interval: float) -> None:
        self._read = read
        self._events = events
        self._interval = interval
        self._seen: Seen | None = None
        self._encoded = b"null"
        self._history = History()
        self._number = 0
        self._trouble = ""
        self._starts = Starts()
        self._asked = asyncio.Event()

    @property
    def seen(self) -> Seen:
        """The last reading."""
        assert self._seen is not None, "`start` has read once"
        return self._seen

    async def start(self) -> None:
        """Read for the first time.

        Raises:
            KubeError: the cluster can't be read.
            ClickException: the configuration can't be used, or Muster isn't installed.
        """
        seen = await self._read()
        if seen is self._seen:
            return  # a dump stays as it is
        self._encoded = await asyncio.to_thread(msgspec.json.encode, seen.overview)
        self._history.add(seen.overview)
        self._seen = seen
        self._number += 1

    async def run(self) -> None:
        """Read again and again; what goes wrong is told on the page, which shows the reading before."""
        clock = asyncio.get_running_loop().time
        took = 0.0
        while True:
            self._asked.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), max(self._interval, took * _REST))
            began = clock()
            try:
                await self.start()
                self._trouble = ""
            except click.ClickException as error:
                self._trouble = error.format_message()
                self._number += 1
            except (errors.KubeError, OSError) as error:
                self._trouble = explained(error)
                self._number += 1
            took = clock() - began

    def tell_starts(self, found: Starts) -> None:
        """Tell of expected starts; what was told of groups before is forgotten."""
        self._starts = found
        self._number += 1

    def read_now(self) -> None:
        """Read as soon as possible."""
        self._asked.set()

    def news(self, known: str) -> bytes | None:
        """Return the overview as JSON; None where the page has the reading of that number, ``known``, already."""
        if known == str(self._number):
            return None
        whole = self.seen.policy is not None
        head = {"number": self._number, "trouble": self._trouble, "whatIf": whole, "starts": self._starts}
        return msgspec.json.encode(head)[:-1] + b',"overview":' + self._encoded + b"}"

    def history(self, queue: str, resource: str) -> dict[str, Any]:
        """Return the history of a queue."""
        return self._history.of(queue, resource)

    async def life(self, namespace: str, name: str) -> group_life.GroupLife:
        """Return what is known of a group's life.

        Raises:
            UnknownError: there is no such group.
            KubeError: its events can't be read, for another reason than a missing permission.
        """
        state = self.seen.state
        group = group_life.find(state, namespace, name)
        if group is None:
            raise UnknownError(f"there is no PodGroup {namespace}/{name}, or not any more")
        try:
            events, missing = await self._events(namespace, name), ""
        except errors.ForbiddenError:
            events, missing = (), f"no events: those of namespace {namespace} may not be listed"
        return group_life.of(state, group, events, missing)
