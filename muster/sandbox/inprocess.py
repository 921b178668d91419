"""The server as a transport, without a network: for tests, dry runs and the programs of ``muster up``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from muster.kube import errors
from muster.kube.transport import Request, Response
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.users import ADMIN, User
from muster.sandbox.server.requests import ApiServer


class InProcessTransport:
    """Implements `muster.kube.transport.Transport`, in virtual time too."""

    def __init__(self, server: ApiServer, user: User = ADMIN) -> None:
        self._server = server
        self._user = user

    async def request(self, request: Request, *, within: float) -> Response:
        """Answer a request.

        Raises:
            UnreachableError: a webhook behind it took longer than ``within`` seconds.
        """
        try:
            async with asyncio.timeout(within):
                return await self._server.handle(request, self._user)
        except TimeoutError as error:
            text = f"{request.method} {request.path}: no answer within {within:g} s"
            raise errors.UnreachableError(text, maybe_applied=request.writes) from error

    @asynccontextmanager
    async def watch(self, request: Request, *, idle: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch.

        Raises:
            ApiError: the server refused it.
            UnreachableError: nothing came for ``idle`` seconds.
        """
        watching = replace(request, query={**request.query, "watch": "true"})
        try:
            watch = self._server.watch(watching, self._user)
        except StatusError as error:
            raise errors.from_status(error.code, error.json()) from error
        try:
            yield _within(watch.__aiter__(), idle)
        finally:
            watch.close()


async def _within(lines: AsyncIterator[bytes], idle: float) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(idle):
                line = await anext(lines, None)
        except TimeoutError as error:
            raise errors.UnreachableError(f"the watch was silent for {idle:g} s", maybe_applied=False) from error
        if line is None:
            return
        yield line
