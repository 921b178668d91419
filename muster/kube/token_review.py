"""The API server's word on who sends a bearer token, and on what they may read: TokenReview, SubjectAccessReview.

Answers are kept for a minute at most, so that few scrapes cost a call, and a token that was revoked ends within that time. Strangers can
make the API server work by sending tokens that nobody knows: a few are asked about at once, the others wait, and
what is remembered of them doesn't push out those who are known.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from typing import Final

import msgspec

from muster.kube.client import Client
from muster.kube.errors import KubeError
from muster.kube.transport import Request
from muster.model.objects import Json

KEPT: Final = 60.0
"""Seconds for which a yes holds."""
REFUSED: Final = 10.0
"""Seconds for which a no holds: whoever grants a permission waits no longer than that."""
_REMEMBERED: Final = 256
_AT_ONCE: Final = 4
_LONGEST: Final = 8192
"""Characters of a token; those of service accounts have about a thousand."""
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESSES: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

log = logging.getLogger(__name__)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, Json] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class TokenReviewer:
    """Asks the API server, and remembers what it said."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._allowed: OrderedDict[tuple[bytes, str], tuple[int, float]] = OrderedDict()
        self._others: OrderedDict[tuple[bytes, str], tuple[int, float]] = OrderedDict()
        self._asking = asyncio.Semaphore(_AT_ONCE)

    async def status(self, authorization: str, path: str) -> int:
        """Return the HTTP status for a request to ``path`` with this Authorization header; empty: without one.

        200: RBAC allows its user to get the path. 401: no valid bearer token. 403: a valid one without the permission.
        503: the API server can't be asked.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _LONGEST or not token.isascii():
            return 401
        # What is kept of a token can't be used as one.
        key = hashlib.sha256(token.encode()).digest(), path
        if (known := self._known(key)) is not None:
            return known
        async with self._asking:
            if (known := self._known(key)) is not None:
                return known
            try:
                status = await self._ask(token, path)
            except (KubeError, msgspec.MsgspecError) as error:
                log.warning("who reads %s can't be asked of the API server: %s", path, error)
                return 503
        memory, seconds = (self._allowed, KEPT) if status == 200 else (self._others, REFUSED)
        memory[key] = status, asyncio.get_running_loop().time() + seconds
        if len(memory) > _REMEMBERED:
            memory.popitem(last=False)
        return status

    def _known(self, key: tuple[bytes, str]) -> int | None:
        for memory in (self._allowed, self._others):
            if key in memory:
                status, until = memory[key]
                if asyncio.get_running_loop().time() < until:
                    return status
                del memory[key]
        return None

    async def _ask(self, token: str, path: str) -> int:
        """Ask who it is and whether they may.

        Raises:
            KubeError: the API server can't be asked.
            MsgspecError: its answer isn't one.
        """
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = await self._client.send(Request("POST", _TOKENS, {}, msgspec.json.encode(body)))
        who = msgspec.json.decode(answer.body, type=_TokenReview).status
        if not who.authenticated:
            return 401
        user = who.user
        spec: dict[str, Json] = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._client.send(Request("POST", _ACCESSES, {}, msgspec.json.encode(body)))
        return 200 if msgspec.json.decode(answer.body, type=_AccessReview).status.allowed else 403
