"""Lists that are asked for before those who read them exist: while a program imports what decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec

from muster.kube.client import PAGE, TIMEOUT
from muster.kube.errors import KubeError
from muster.kube.transport import Request, Response, Transport
from muster.model.kinds import Kind

PAGES: Final = 64
"""Pages of a list that are read ahead at most; what is longer is read on by who reads the list."""


class _ListToken(msgspec.Struct):
    token: str = msgspec.field(default="", name="continue")


class _ListHead(msgspec.Struct):
    metadata: _ListToken


log = logging.getLogger(__name__)

_DECODER: Final = msgspec.json.Decoder(_ListHead)


class EarlyLists:
    """A transport that has the first lists of some kinds under way; everything else passes.

    Each page is handed out once, to who asks for it by the same path and query, so that nobody reads an old list twice. What is read
    when no more is asked for early is dropped by `end`.
    """

    def __init__(self, via: Transport) -> None:
        self._via = via
        self._pages: dict[tuple[str, frozenset[tuple[str, str]]], asyncio.Future[Response | None]] = {}
        self._readers: set[asyncio.Task[None]] = set()

    def begin(self, kinds: Collection[Kind[Any]]) -> None:
        """Ask for whole lists as `Client.list` does, in pages; returns at once."""
        for kind in kinds:
            reader = asyncio.create_task(self._read(kind.path()), name=f"early list of {kind}")
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)

    def end(self) -> None:
        """Read nothing ahead any more, and forget what nobody has asked for."""
        for reader in self._readers:
            reader.cancel()
        self._pages.clear()

    async def request(self, request: Request, *, within: float) -> Response:
        """Send, as `Transport.request`; a page that was asked for is waited for."""
        page = self._pages.pop(_key(request), None) if request.method == "GET" else None
        answer = await page if page is not None else None
        return answer if answer is not None else await self._via.request(request, within=within)

    def watch(self, request: Request, *, idle: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Watch, as `Transport.watch`."""
        return self._via.watch(request, idle=idle)

    async def _read(self, path: str) -> None:
        query = {"limit": str(PAGE)}
        for _ in range(PAGES):
            answer = await self._page(Request("GET", path, query))
            token = _token(answer) if answer is not None else ""
            if not token:
                return
            query = {"limit": str(PAGE), "continue": token}

    async def _page(self, request: Request) -> Response | None:
        """Read a page; None where that fails, so that whoever waits for it asks for itself."""
        page = self._pages[_key(request)] = asyncio.get_running_loop().create_future()
        answer = None
        try:
            answer = await self._via.request(request, within=TIMEOUT)
        except KubeError as error:
            log.debug("an early list of %s: %s", request.path, error)
        finally:
            if not page.done():
                page.set_result(answer)
        return answer


def _token(answer: Response) -> str:
    """Return the token of the next page; empty for the last one, and for what is no list."""
    try:
        return _DECODER.decode(answer.body).metadata.token if answer.status == 200 else ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _key(request: Request) -> tuple[str, frozenset[tuple[str, str]]]:
    return request.path, frozenset(request.query.items())
