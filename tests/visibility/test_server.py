"""Who is heard: only the front proxy of the API server, by a certificate of the CA that it publishes; and what it says is believed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import frontproxy
import pytest

from muster.cli.installation import crds
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.transport import Request, Response
from muster.model import kinds
from muster.sandbox import virtual_time
from muster.sandbox.compose import Sandbox
from muster.visibility.access import KEPT, Access, Attributes
from muster.visibility.paths import ROOT
from muster.visibility.requestheader import CONFIGMAP, Caller
from muster.visibility.server import VisibilityServer

ALICE = {"X-Remote-User": "alice", "X-Remote-Group": "system:authenticated"}
SPACE, NAME = CONFIGMAP


def published(authority: frontproxy.Authority, names: str = '["front-proxy-client"]') -> dict[str, Any]:
    data = {
        "requestheader-client-ca-file": authority.certificate.decode(),
        "requestheader-allowed-names": names,
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    return {"metadata": {"name": NAME}, "data": data}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """An API server in this process, with Muster's CRDs."""
    sandbox = Sandbox(SystemClock())
    await sandbox.start()
    client = Client(sandbox.transport())
    await crds.apply(client, legacy_apis=False, adopt=True)
    yield client
    await sandbox.stop()


@pytest.fixture
async def server(client: Client, trusted: frontproxy.Authority, serve: Any) -> AsyncIterator[VisibilityServer]:
    await client.create(kinds.CONFIGMAPS, published(trusted), SPACE)
    async with serve(client, "localhost") as server:
        yield server


def test_a_permission_is_asked_for_once_and_again_after_five_seconds():
    asked: list[dict[str, Any]] = []

    class Api:
        async def send(self, request: Request) -> Response:
            asked.append(json.loads(request.body)["spec"])
            return Response(201, json.dumps({"status": {"allowed": len(asked) < 3}}).encode())

    async def ask() -> None:
        access = Access(Api(), "visibility.muster.sh", "v1alpha1")
        alice, bob = (Caller(name) for name in ("alice", "bob"))
        mine = Attributes("get", "podgroups", "why", "team", "train")
        assert [await access.allowed(alice, mine) for _ in range(3)] == [True] * 3
        assert [each["user"] for each in asked] == ["alice"]
        # Another caller, and another object, are other questions.
        assert await access.allowed(bob, mine)
        assert not await access.allowed(alice, Attributes("get", "podgroups", "why", "other", "train"))
        await asyncio.sleep(KEPT - 0.1)
        assert await access.allowed(alice, mine)
        await asyncio.sleep(0.2)
        assert not await access.allowed(alice, mine)

    virtual_time.run(ask())
    assert [each["user"] for each in asked] == ["alice", "bob", "alice", "alice"]
    assert asked[0]["resourceAttributes"] == {
        "group": "visibility.muster.sh",
        "version": "v1alpha1",
        "verb": "get",
        "resource": "podgroups",
        "subresource": "why",
        "namespace": "team",
        "name": "train",
    }


async def test_the_front_proxy_is_believed(server, trusted, proxy):
    async with proxy(server, trusted.client("front-proxy-client")) as calling:
        status, body = await calling.get(ROOT, ALICE)
        assert (status, body["groupVersion"]) == (200, "visibility.muster.sh/v1alpha1")


async def test_a_proxy_that_names_nobody_is_answered_nothing(server, trusted, proxy):
    async with proxy(server, trusted.client("front-proxy-client")) as calling:
        assert (await calling.get(ROOT, {}))[0] == 401


@pytest.mark.parametrize("shows", ["nothing", "a certificate of its own CA"])
async def test_forged_headers_are_not_even_read_without_a_certificate_of_that_ca(server, proxy, shows):
    own = frontproxy.Authority("mallory")
    shown = None if shows == "nothing" else own.client("front-proxy-client")
    async with proxy(server, shown) as calling:
        with pytest.raises(aiohttp.ClientError):
            await calling.get(ROOT, ALICE)


async def test_forged_headers_of_another_client_of_that_ca_are_refused(server, trusted, proxy):
    async with proxy(server, trusted.client("mallory")) as calling:
        status, body = await calling.get(ROOT, {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"})
        assert (status, body["reason"]) == (401, "Unauthorized")


async def test_a_changed_ca_is_followed_and_the_former_one_not_believed_any_more(client, server, trusted, proxy):
    other = frontproxy.Authority("requestheader-ca")
    async with (
        proxy(server, trusted.client("front-proxy-client")) as before,
        proxy(server, other.client("front-proxy-client")) as after,
    ):
        assert (await before.get(ROOT, ALICE))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await after.get(ROOT, ALICE)
        await client.patch(kinds.CONFIGMAPS, NAME, published(other), SPACE)
        async with asyncio.timeout(30):
            while True:
                try:
                    assert (await after.get(ROOT, ALICE))[0] == 200
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)
                else:
                    break
        # Its connection was open, and is so no more.
        with pytest.raises(aiohttp.ClientError):
            await before.get(ROOT, ALICE)
