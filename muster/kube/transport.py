"""Requests to an API server as values, and what sends them.

Two methods are all there is. `muster.kube.http` implements them over sockets, the sandbox in process, which is what lets
tests and the simulator run the real programs in virtual time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Request(msgspec.Struct, frozen=True):
    """One HTTP request.

    Attributes:
        method: in capitals.
        path: absolute, escaped, without the query.
        query: parameters, unescaped.
        body: empty for methods that have none.
        content_type: the media type of the body.
        accept: the media type of the answer.
        permit: called each time that the bytes are about to leave. It raises to stop them: a request that waited for a
            connection may no longer be allowed when there is one.
    """

    method: str
    path: str
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    permit: Callable[[], None] | None = None

    @property
    def writes(self) -> bool:
        """Whether the server may change something because of it."""
        return self.method not in {"GET", "HEAD", "OPTIONS"}


class Response(msgspec.Struct, frozen=True):
    """One whole answer, whatever its status; the names of ``headers`` are in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Transport(Protocol):
    """What a client needs of an API server."""

    async def request(self, request: Request, *, within: float) -> Response:
        """Send a request, and return the whole answer, whatever its status.

        Raises:
            UnreachableError: no answer within that many seconds, or no connection.
            FenceLostError: the request writes and this transport's fence is no longer live.
        """
        ...

    def watch(self, request: Request, *, idle: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch and iterate over its lines, each one JSON document.

        ``idle`` is how many seconds without a line mean a dead connection.

        Raises:
            ApiError: the server refused the watch.
            UnreachableError: the connection could not be made, broke, or was idle for too long.
        """
        ...
