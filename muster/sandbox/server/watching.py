"""Watches: the changes of one resource as lines of JSON, from a version on.

One `Watchers` serves them all: it hears of each change once and encodes each form of it once, whoever reads it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.kube.clock import Clock
from muster.kube.transport import Request
from muster.sandbox.codec import selectors
from muster.sandbox.codec.fields import empty, shape_of
from muster.sandbox.codec.selectors import Matcher
from muster.sandbox.core.paths import Target
from muster.sandbox.core.status import StatusError, bad_options, expired, not_allowed, not_one_of
from muster.sandbox.core.store import ExpiredError, Key, Object, Store, StoreEvent
from muster.sandbox.core.versions import in_version
from muster.sandbox.printers import tables
from muster.sandbox.server import responses
from muster.sandbox.server.lists import flag, integer, too_new, version

BOOKMARK_SECONDS: Final = 60.0
DEFAULT_SECONDS: Final = 1800
"""How long a watch lasts that doesn't say: the real server's minimum, and no spread, so that simulations repeat."""

BACKLOG: Final = 100_000
"""Lines that a watch may lag behind; then it ends, as the real server's does, and its client starts anew."""

_INITIAL_END: Final = "k8s.io/initial-events-end"


class _Selection(Struct, frozen=True):
    """What a watch shows of the events of its key."""

    target: Target
    matches: Matcher | None
    form: str
    include: str

    def change(self, event: StoreEvent) -> tuple[str, Object] | None:
        """Return the change as this watch sees it: an object that no longer matches is DELETED to it."""
        obj = event.object
        namespace = self.target.namespace
        if namespace and obj["metadata"].get("namespace", "") != namespace:
            return None
        if self.matches is None:
            return event.type, obj
        now = event.type != "DELETED" and self.matches(obj)
        before = event.old is not None and self.matches(event.old)
        if now:
            return ("MODIFIED" if before else "ADDED"), obj
        if not before:
            return None
        if event.type == "DELETED":
            return "DELETED", obj
        # The state that it last showed, at the version of the change that removed it.
        assert event.old is not None
        metadata = {**event.old["metadata"], "resourceVersion": obj["metadata"]["resourceVersion"]}
        return "DELETED", {**event.old, "metadata": metadata}


class Watch:
    """One open watch: iterate over its lines; `close` ends the iteration, from anywhere."""

    def __init__(
        self, selection: _Selection, *, seconds: float, bookmarks: bool, closed: Callable[[Watch], None]
    ) -> None:
        self.selection = selection
        self.bookmarks = bookmarks
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._lines: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._closed = False
        self._on_close = closed
        self.columns_sent = False

    def push(self, line: bytes) -> None:
        """Hand a line to the reader."""
        if len(self._lines) >= BACKLOG:
            self.close()
            return
        self._lines.append(line)
        self._news.set()

    def close(self) -> None:
        """End the watch after the lines it has."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            self._news.set()

    def take(self) -> bytes:
        """Return all lines that wait to be read, joined; empty when none does."""
        lines = b"".join(self._lines)
        self._lines.clear()
        return lines

    async def wait(self) -> bool:
        """Wait for lines; False when there will be none any more."""
        loop = asyncio.get_running_loop()
        while not self._lines:
            if self._closed:
                return False
            self._news.clear()
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._news.wait()
            except TimeoutError:
                self.close()
            if loop.time() >= self._deadline:
                self.close()
        return True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Return line after line until the watch ends."""
        while await self.wait():
            while self._lines:
                yield self._lines.popleft()


class Watchers:
    """All open watches of a server."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._open: dict[Key, list[Watch]] = {}
        self._bookmarks: asyncio.TimerHandle | None = None
        self._unsubscribe = store.subscribe(self._dispatch)

    def open(self, target: Target, request: Request) -> Watch:
        """Open a watch.

        Raises:
            StatusError: 400, 406 or 422 for the request.
        """
        query = request.query
        selection = _Selection(
            target,
            _matcher(target, query),
            responses.form_of(request.accept),
            query.get("includeObject", ""),
        )
        initial = _wants_initial(query)
        since = query.get("resourceVersion", "")
        revision = _since(since)
        bookmarks = flag(query, "allowWatchBookmarks")
        seconds = integer(query, "timeoutSeconds") or DEFAULT_SECONDS
        watch = Watch(selection, seconds=seconds, bookmarks=bookmarks, closed=self._remove)
        key = target.resource.key
        self._open.setdefault(key, []).append(watch)
        if initial is None:
            initial = revision == 0
        if revision > self._store.revision:
            self._refuse(watch, too_new(revision, self._store.revision))
        elif initial:
            self._show_all(watch)
        else:
            self._replay(watch, revision)
        self._schedule_bookmarks()
        return watch

    def close(self) -> None:
        """End every watch, and open no more events to come."""
        for watches in list(self._open.values()):
            for watch in list(watches):
                watch.close()
        self._unsubscribe()

    def count(self) -> int:
        """Return how many watches are open."""
        return sum(len(watches) for watches in self._open.values())

    def _dispatch(self, event: StoreEvent) -> None:
        watches = self._open.get(event.key)
        if not watches:
            return
        lines: dict[tuple[Any, ...], bytes] = {}
        for watch in list(watches):
            self._send(watch, event, lines)

    def _send(self, watch: Watch, event: StoreEvent, lines: dict[tuple[Any, ...], bytes]) -> None:
        selection = watch.selection
        change = selection.change(event)
        if change is None:
            return
        type_, obj = change
        # The object's identity tells the last state of a deselected object from the new one.
        same = (
            type_,
            obj is event.object,
            selection.target.resource,
            selection.form,
            selection.include,
            watch.columns_sent,
        )
        line = lines.get(same)
        if line is None:
            line = lines[same] = self._line(watch, type_, obj)
        watch.columns_sent = True
        watch.push(line)

    def _line(self, watch: Watch, type_: str, obj: Object) -> bytes:
        selection = watch.selection
        resource = selection.target.resource
        if selection.form == responses.TABLE:
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            shown: Object = tables.table(
                resource,
                [in_version(resource, obj)],
                meta,
                selection.include,
                self._clock.now(),
                definitions=not watch.columns_sent,
            )
        else:
            shown = responses.shown(resource, selection.form, [obj])[0]
        return _encode(type_, shown)

    def _show_all(self, watch: Watch) -> None:
        target = watch.selection.target
        matches = watch.selection.matches
        for obj in self._store.list(target.resource.key, target.namespace):
            if matches is None or matches(obj):
                watch.push(self._line(watch, "ADDED", obj))
                watch.columns_sent = True
        if watch.bookmarks:
            self._bookmark(watch, {_INITIAL_END: "true"})

    def _replay(self, watch: Watch, revision: int) -> None:
        try:
            events: Iterable[StoreEvent] = self._store.since(watch.selection.target.resource.key, revision)
        except ExpiredError:
            self._refuse(watch, expired(f"too old resource version: {revision} ({self._store.revision})"))
            return
        for event in events:
            self._send(watch, event, {})

    def _refuse(self, watch: Watch, error: StatusError) -> None:
        # Over a stream that has begun, as the real server does: clients look for this in the event, not in the code.
        watch.push(_encode("ERROR", error.json()))
        watch.close()

    def _bookmark(self, watch: Watch, annotations: Mapping[str, str] | None = None) -> None:
        resource = watch.selection.target.resource
        metadata: Object = {"resourceVersion": str(self._store.revision)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if not resource.custom:
            obj = {**empty(shape_of(resource)), **obj}
        watch.push(self._line(watch, "BOOKMARK", obj))

    def _schedule_bookmarks(self) -> None:
        if self._bookmarks is None:
            loop = asyncio.get_running_loop()
            self._bookmarks = loop.call_later(BOOKMARK_SECONDS, self._send_bookmarks)

    def _send_bookmarks(self) -> None:
        self._bookmarks = None
        for watches in list(self._open.values()):
            for watch in list(watches):
                if watch.bookmarks:
                    self._bookmark(watch)
        if self._open:
            self._schedule_bookmarks()

    def _remove(self, watch: Watch) -> None:
        key = watch.selection.target.resource.key
        watches = self._open.get(key, [])
        if watch in watches:
            watches.remove(watch)
        if not watches:
            self._open.pop(key, None)
        if not self._open and self._bookmarks is not None:
            self._bookmarks.cancel()
            self._bookmarks = None


def _matcher(target: Target, query: Mapping[str, str]) -> Matcher | None:
    return selectors.matcher(target.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))


def _since(text: str) -> int:
    try:
        return version(text, "") if text else 0
    except StatusError as error:
        # The real server finds out too late to take it for the client's mistake.
        raise StatusError(500, "", error.message) from error


def _wants_initial(query: Mapping[str, str]) -> bool | None:
    """Return what the query says of initial events; None when it is the version that decides."""
    match = query.get("resourceVersionMatch", "")
    if "sendInitialEvents" not in query:
        if match:
            text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise bad_options("ListOptions", [not_allowed("resourceVersionMatch", text)])
        return None
    causes = []
    if match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(not_allowed("resourceVersionMatch", text))
        if match:
            causes.append(not_one_of("resourceVersionMatch", match, ("NotOlderThan",)))
    if causes:
        raise bad_options("ListOptions", causes)
    return flag(query, "sendInitialEvents")


def _encode(type_: str, obj: Object) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"
