"""Finding the webhook servers, and seeing what they really show."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from certs import authority, replicas
from certs.bundle import KeyPair
from certs.targets import WebhookService
from muster.kube.clock import SystemClock


async def test_the_ready_endpoints_of_a_service_are_the_replicas(plane):
    space = await plane.namespace()

    async def piece(name: str, service: str, *endpoints: tuple[str, Any], port: int = 9443) -> None:
        kind = "IPv6" if ":" in endpoints[0][0] else "IPv4"
        made = [{"addresses": [address], "conditions": conditions} for address, conditions in endpoints]
        manifest = {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
            "addressType": kind,
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            "endpoints": made,
        }
        await plane.client.create(replicas.ENDPOINTSLICES, manifest, space)

    await piece("one", "webhook", ("10.1.0.1", {"ready": True}), ("10.1.0.2", {"ready": False}), ("10.1.0.3", {}))
    await piece("two", "webhook", ("fd00::1", {"ready": True}), port=8443)
    await piece("other", "another", ("10.1.0.9", {"ready": True}))
    more = await replicas.find(plane.client, [WebhookService(space, "webhook")], ("10.9.9.9:1",))
    assert more == ("10.1.0.1:9443", "10.1.0.3:9443", "10.9.9.9:1", "[fd00::1]:8443")
    found = await replicas.find(plane.client, [WebhookService(space, "webhook")] * 2, ())
    assert found == ("10.1.0.1:9443", "10.1.0.3:9443", "[fd00::1]:8443")
    assert await replicas.find(plane.client, [WebhookService(space, "nobody")], ()) == ()


async def test_without_a_service_those_that_somebody_names_are_the_replicas_or_nobody_knows_any(plane):
    assert await replicas.find(plane.client, [], ("10.0.0.1:9443",)) == ("10.0.0.1:9443",)
    assert await replicas.find(plane.client, [], ()) is None


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    servers: list[asyncio.Server] = []

    async def served(
        pair: KeyPair, answer: bytes, *, clients: bytes = b"", tls: Any = None, silent: bool = False
    ) -> str:
        (tmp_path / "crt").write_bytes(pair.certificate)
        (tmp_path / "key").write_bytes(pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.decode())

        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            if silent:
                await reader.read()
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=context if tls is None else None)
        servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield served
    for server in servers:
        server.close()


@pytest.fixture
def pair() -> KeyPair:
    now = SystemClock().now()
    ca = authority.new_ca(now)
    leaf = authority.issue(ca, ("127.0.0.1",), now)
    return KeyPair(leaf.certificate + ca.certificate, leaf.key)


async def test_a_replica_shows_its_whole_chain_and_its_clock_trusted_or_not(serve, pair):
    address = await serve(pair, b"HTTP/1.1 405 No\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\n\r\n")
    shown = await replicas.probe(address, "127.0.0.1")
    assert [each.subject.rfc4514_string()[:9] for each in shown.chain] == ["CN=127.0.", "CN=muster"]
    assert (shown.clock, shown.trouble) == (datetime.fromisoformat("2026-11-21T12:00:00+00:00"), "")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nDate: today\r\n\r\n", b"x" * 100_000]
)
async def test_one_that_does_not_tell_the_time_is_seen_all_the_same(serve, pair, answer):
    shown = await replicas.probe(await serve(pair, answer), "127.0.0.1")
    assert (len(shown.chain), shown.clock) == (2, None)


async def test_one_that_never_answers_what_it_is_asked_is_seen_all_the_same(serve, pair, monkeypatch):
    monkeypatch.setattr(replicas, "_POLITE", 0.1)
    shown = await replicas.probe(await serve(pair, b"", silent=True), "127.0.0.1")
    assert (len(shown.chain), shown.clock) == (2, None)


async def test_one_that_asks_for_a_client_s_certificate_is_seen_too(serve, pair):
    shown = await replicas.probe(await serve(pair, b"", clients=pair.certificate), "127.0.0.1")
    assert (len(shown.chain), shown.clock) == (2, None)


async def test_what_does_not_answer_is_said_in_one_line(serve, pair, monkeypatch):
    closed = await serve(pair, b"")
    monkeypatch.setattr(replicas, "WITHIN", timedelta(seconds=0.2).total_seconds())
    for address in ("127.0.0.1:1", "127.0.0.1:port", "nowhere.invalid:1", await serve(pair, b"", tls=False)):
        shown = await replicas.probe(address, "127.0.0.1")
        assert shown.chain == ()
        assert shown.trouble
        assert "\n" not in shown.trouble
    assert closed
