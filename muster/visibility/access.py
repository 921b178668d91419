"""Permissions of callers: the API server's word (SubjectAccessReview), kept for seconds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.kube.client import Client
from muster.kube.transport import Request
from muster.visibility.requestheader import Caller

KEPT: Final = 5.0
"""Seconds for which an answer holds."""
_REMEMBERED: Final = 4096
_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Attributes(Struct, frozen=True):
    """What is asked for, as RBAC sees it."""

    verb: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _AccessDecision(Struct, frozen=True):
    allowed: bool = False


class _AccessAnswer(Struct, frozen=True):
    status: _AccessDecision = _AccessDecision()


class Access:
    """Asks the API server, and remembers what it said."""

    def __init__(self, client: Client, group: str, version: str) -> None:
        self._client = client
        self._group = group
        self._version = version
        self._known: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()

    async def allowed(self, caller: Caller, attributes: Attributes) -> bool:
        """Whether a caller may.

        Raises:
            KubeError: the API server can't be asked.
        """
        spec: dict[str, Any] = {
            "user": caller.name,
            "uid": caller.uid,
            "groups": caller.groups,
            "extra": dict(caller.extra),
            "resourceAttributes": {
                "group": self._group,
                "version": self._version,
                **{name: value for name, value in msgspec.structs.asdict(attributes).items() if value},
            },
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        question = msgspec.json.encode(body, order="sorted")
        now = asyncio.get_running_loop().time()
        known = self._known.get(question)
        if known is not None and now < known[1]:
            return known[0]
        answer = await self._client.send(Request("POST", _PATH, {}, question))
        may = msgspec.json.decode(answer.body, type=_AccessAnswer).status.allowed
        self._known[question] = may, now + KEPT
        self._known.move_to_end(question)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return may
