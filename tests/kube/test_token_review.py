"""Who may read metrics, as the API server says."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

from muster.kube.client import Client
from muster.kube.errors import UnreachableError
from muster.kube.token_review import KEPT, REFUSED, TokenReviewer
from muster.kube.transport import Request, Response
from muster.sandbox.virtual_time import run


class Answering:
    """An API server that knows some tokens, and who of them may read what."""

    def __init__(self, **users: tuple[str, ...]) -> None:
        self.users = users
        self.asked: list[dict[str, Any]] = []
        self.under_way = self.most = 0
        self.down = False

    async def request(self, request: Request, *, within: float) -> Response:
        assert within
        if self.down:
            raise UnreachableError("nobody answers", maybe_applied=False)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.1)
        self.under_way -= 1
        spec = json.loads(request.body)["spec"]
        self.asked.append(spec)
        if "token" in spec:
            known = spec["token"] in self.users
            user = {"username": spec["token"], "groups": ["system:authenticated"], "extra": {"a": ["b"]}}
            return _answer({"authenticated": known, **({"user": user} if known else {})})
        assert spec["groups"] == ["system:authenticated"]
        assert spec["extra"] == {"a": ["b"]}
        return _answer({"allowed": spec["nonResourceAttributes"]["path"] in self.users[spec["user"]]})

    def watch(self, request: Request, *, idle: float) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError


def _answer(status: dict[str, Any]) -> Response:
    return Response(201, json.dumps({"status": status}).encode())


def test_a_token_is_known_allowed_or_neither() -> None:
    async def played() -> None:
        server = Answering(prometheus=("/metrics",))
        reviewer = TokenReviewer(Client(server))
        assert await reviewer.status("Bearer prometheus", "/metrics") == 200
        assert await reviewer.status("bearer prometheus", "/debug/state") == 403
        assert await reviewer.status("Bearer nobody", "/metrics") == 401
        before = len(server.asked)
        for header in ("", "Bearer", "Bearer ", "Basic cHJvbWV0aGV1cw==", "Bearer " + "a" * 9000, "Bearer \xe9"):
            assert await reviewer.status(header, "/metrics") == 401
        assert len(server.asked) == before

    run(played())


def test_an_answer_holds_for_a_minute() -> None:
    async def played() -> None:
        server = Answering(prometheus=("/metrics",))
        reviewer = TokenReviewer(Client(server))
        for _ in range(5):
            assert await reviewer.status("Bearer prometheus", "/metrics") == 200
        assert len(server.asked) == 2
        server.users = {}
        await asyncio.sleep(KEPT - 1)
        assert await reviewer.status("Bearer prometheus", "/metrics") == 200
        await asyncio.sleep(2)
        assert await reviewer.status("Bearer prometheus", "/metrics") == 401

    run(played())


def test_a_no_holds_for_less_so_that_a_grant_is_noticed() -> None:
    async def played() -> None:
        server = Answering(prometheus=())
        reviewer = TokenReviewer(Client(server))
        assert await reviewer.status("Bearer prometheus", "/metrics") == 403
        server.users = {"prometheus": ("/metrics",)}
        assert await reviewer.status("Bearer prometheus", "/metrics") == 403
        await asyncio.sleep(REFUSED)
        assert await reviewer.status("Bearer prometheus", "/metrics") == 200

    run(played())


def test_what_could_not_be_asked_is_not_remembered() -> None:
    async def played() -> None:
        server = Answering(prometheus=("/metrics",))
        reviewer = TokenReviewer(Client(server))
        server.down = True
        assert await reviewer.status("Bearer prometheus", "/metrics") == 503
        server.down = False
        assert await reviewer.status("Bearer prometheus", "/metrics") == 200

    run(played())


def test_strangers_push_nobody_out_and_a_few_are_asked_about_at_once() -> None:
    async def played() -> None:
        server = Answering(prometheus=("/metrics",))
        reviewer = TokenReviewer(Client(server))
        assert await reviewer.status("Bearer prometheus", "/metrics") == 200
        strangers = (reviewer.status(f"Bearer stranger-{number}", "/metrics") for number in range(1000))
        assert set(await asyncio.gather(*strangers)) == {401}
        assert server.most <= 4
        before = len(server.asked)
        assert await reviewer.status("Bearer prometheus", "/metrics") == 200
        assert len(server.asked) == before
        assert len(reviewer._others) <= 256

    run(played())
