"""What a server's swap of contexts brings along and what it doesn't, with the TLS library that is really there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certs import authority
from certs.bundle import KeyPair
from certs.serving import CertificateFiles, LiveCertificate
from muster.cli.certs import files
from muster.kube.clock import SystemClock
from webhooks.metrics import WebhookMetrics

HOSTS = ("127.0.0.1",)


@pytest.fixture(scope="module")
def ca() -> KeyPair:
    return authority.new_ca(SystemClock().now())


@pytest.fixture
def write(tmp_path: Path, ca: KeyPair) -> Callable[..., None]:
    def written(name: str = "server", signer: KeyPair = ca, **more: bytes) -> None:
        pair = authority.issue(signer, HOSTS, SystemClock().now())
        files.write(tmp_path / name, {"tls.crt": pair.certificate, "tls.key": pair.key, **more})

    return written


def server_context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


async def greeted(context: ssl.SSLContext, *, client: Path | None = None, twice: bool = False) -> list[bool]:
    """Connect to a server with this context, with a certificate or without, and say whether it served each time."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    connecting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connecting.check_hostname = False
    connecting.verify_mode = ssl.CERT_NONE
    if client is not None:
        connecting.load_cert_chain(client / "tls.crt", client / "tls.key")
    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return [await asyncio.to_thread(_hello, connecting, port) for _ in range(2 if twice else 1)]


def _hello(context: ssl.SSLContext, port: int) -> bool:
    import socket

    with socket.create_connection(("127.0.0.1", port)) as bare, context.wrap_socket(bare) as secured:
        try:
            return secured.recv(5) == b"hello"
        except (ssl.SSLError, ConnectionError):
            return False


async def test_whether_a_certificate_is_asked_for_is_not_swapped_with_the_context(write, tmp_path):
    """The fact on which the listening context's own verify_mode rests."""
    write()
    base, swapped = server_context(tmp_path / "server"), server_context(tmp_path / "server")
    swapped.verify_mode = ssl.CERT_REQUIRED
    base.sni_callback = lambda connection, *_: setattr(connection, "context", swapped)
    assert await greeted(base) == [True]
    base.verify_mode = ssl.CERT_REQUIRED
    assert await greeted(base) == [False]


async def test_who_is_trusted_is_swapped_with_the_context_so_that_a_ca_can_be_taken_out(write, tmp_path, ca):
    other = authority.new_ca(SystemClock().now(), 2)
    write()
    clients = tmp_path / "clients.crt"
    clients.write_bytes(ca.certificate)
    live = LiveCertificate(CertificateFiles(tmp_path / "server", clients))
    me = tmp_path / "me"
    files.write(me, as_client(ca))
    assert await greeted(live.listening) == [False]
    assert await greeted(live.listening, client=me) == [True]
    clients.write_bytes(other.certificate)
    live.refresh()
    assert await greeted(live.listening, client=me) == [False]


def as_client(ca: KeyPair) -> dict[str, bytes]:
    return {"tls.crt": ca.certificate, "tls.key": ca.key}


async def test_no_session_is_resumed_since_one_that_is_shows_no_certificate(write, tmp_path):
    write()
    live = LiveCertificate(CertificateFiles(tmp_path / "server"))

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    def session(port: int, version: ssl.TLSVersion) -> bool:
        import socket

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        with socket.create_connection(("127.0.0.1", port)) as bare, context.wrap_socket(bare) as secured:
            secured.recv(5)
            return secured.session is not None and secured.session.has_ticket

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=live.listening)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert not await asyncio.to_thread(session, port, version)


async def test_what_can_not_be_served_is_a_metric_until_it_can(write, tmp_path):
    write()
    metrics = WebhookMetrics()
    live = LiveCertificate(CertificateFiles(tmp_path / "server"), stale=metrics.certificate_stale)

    def stale() -> Any:
        return metrics.registry.get_sample_value("muster_webhook_certificate_stale")

    assert stale() == 0
    (tmp_path / "server" / "tls.key").write_bytes(b"half a k")
    live.refresh()
    assert stale() == 1
    write()
    live.refresh()
    assert stale() == 0


def test_files_are_written_all_at_once_and_only_where_they_differ(tmp_path):
    folder = tmp_path / "certificates"
    first = {"tls.crt": b"1", "tls.key": b"1"}
    assert files.write(folder, first, dry_run=True) == ["tls.crt", "tls.key"]
    assert not folder.exists()
    assert files.write(folder, first) == ["tls.crt", "tls.key"]
    assert files.write(folder, first) == []
    assert {file.resolve().stat().st_mode & 0o777 for file in folder.glob("tls.*")} == {0o600}
    assert files.write(folder, first | {"tls.key": b"2"}) == ["tls.key"]
    assert [(folder / name).read_bytes() for name in first] == [b"1", b"2"]
    assert len([each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]) == 1
    (folder / "tls.crt").unlink()
    assert files.write(folder, first | {"tls.key": b"2"}) == ["tls.crt"]
