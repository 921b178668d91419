"""The real server over TLS, called as an API server would, and as nobody should."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from listening import Listening

from certs import authority
from certs.bundle import KeyPair
from certs.serving import POLL, CertificateFiles, LiveCertificate, ServingCertificateError
from muster.kube.clock import SystemClock
from muster.ledger.reservations import Reserved
from muster.sandbox import virtual_time
from webhooks import connections
from webhooks import server as servers
from webhooks.admission import Admission
from webhooks.server import ListenOptions, WebhookServer

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HEAD = "POST /validate/podgroups?timeout=5s HTTP/1.1\r\nHost: muster\r\nContent-Length: {length}\r\n\r\n"


class FixedClock:
    now_ = NOW

    def now(self) -> datetime:
        return self.now_


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture(scope="session")
def authorities() -> Any:
    # Valid today as well: the client's TLS library asks the machine's clock.
    today = SystemClock().now()
    return today, authority.new_ca(today), authority.new_ca(today, 2)


@pytest.fixture
def write(tmp_path: Path, authorities: Any) -> Callable[..., None]:
    """Writes a pair of the first or second CA into the folder; ``mixed`` takes the key of another pair."""
    today, *cas = authorities

    def written(which: int = 0, *, mixed: bool = False) -> None:
        pair = authority.issue(cas[which], ("127.0.0.1",), today)
        key = authority.issue(cas[which], ("127.0.0.1",), today).key if mixed else pair.key
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(key)

    return written


@pytest.fixture
async def served(admission: Admission, tmp_path: Path, write: Any, clock: Any) -> AsyncIterator[WebhookServer]:
    write()
    server = WebhookServer(
        admission, LiveCertificate(CertificateFiles(tmp_path), clock), ListenOptions("127.0.0.1", 0, 0.0)
    )
    await server.start()
    yield server
    await server.stop()


def trusting(authorities: Any, *which: int) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata="".join(authorities[1 + each].certificate.decode() for each in which))
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


@pytest.fixture
async def post(served: WebhookServer, authorities: Any, aiohttp_client: Any) -> Callable[..., Any]:
    """Posts a body and gives (status, text)."""
    connector = aiohttp.TCPConnector(ssl=trusting(authorities, 0))
    client = await aiohttp_client(Listening(port=served.port), connector=connector)

    async def posted(path: str, body: Any, method: str = "POST", **options: Any) -> tuple[int, str]:
        async with client.request(method, path, data=body, **options) as response:
            return response.status, await response.text()

    return posted


@pytest.fixture
async def raw(served: WebhookServer, authorities: Any) -> AsyncIterator[Callable[..., Any]]:
    """Opens a bare TLS connection to write bytes on."""
    writers: list[asyncio.StreamWriter] = []

    async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=trusting(authorities, 0))
        writers.append(writer)
        return reader, writer

    yield opened
    for writer in writers:
        writer.close()


async def test_a_review_is_answered(post: Any, review_of: Any, podgroup: Any) -> None:
    status, text = await post("/validate/podgroups?timeout=5s", review_of(podgroup()))
    assert (status, json.loads(text)["response"]) == (200, {"uid": "6f0c5b4e", "allowed": True})


async def test_one_connection_serves_many_reviews(raw: Any, review_of: Any, podgroup: Any) -> None:
    reader, writer = await raw()
    body = review_of(podgroup())
    for _ in range(3):
        writer.write(HEAD.format(length=len(body)).encode() + body)
        answer = await reader.readuntil(b"}}")
        assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind": "AdmissionReview', b"\x00\xff", b'{"a":' * 100_000])
async def test_what_is_no_review_gets_400_with_one_line(post: Any, body: bytes) -> None:
    status, text = await post("/validate/pods", body)
    assert (status, text.count("\n")) == (400, 1)
    assert "Traceback" not in text


async def test_a_verdict_is_whole_http(raw: Any, review_of: Any, podgroup: Any) -> None:
    body = review_of(podgroup())
    reader, writer = await raw()
    writer.write(HEAD.format(length=len(body)).encode() + body)
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if line)
    assert status == "HTTP/1.1 200 OK"
    assert headers.keys() == {"Content-Type", "Content-Length", "Date"}
    assert headers["Content-Type"] == "application/json"
    assert abs(parsedate_to_datetime(headers["Date"]) - SystemClock().now()) < timedelta(minutes=5)
    answer = await reader.readexactly(int(headers["Content-Length"]))
    assert json.loads(answer)["response"]["allowed"] is True


@pytest.mark.parametrize(
    "ending",
    [b" HTTP/1.1\r\nConnection: close\r\n", b" HTTP/1.0\r\n"],
    ids=["a caller that closes", "a caller of HTTP/1.0"],
)
async def test_a_caller_that_asks_once_is_told_that_the_connection_ends(
    raw: Any, review_of: Any, podgroup: Any, ending: bytes
) -> None:
    body = review_of(podgroup())
    reader, writer = await raw()
    head = HEAD.format(length=len(body)).encode()
    writer.write(head.replace(b" HTTP/1.1\r\n", ending) + body)
    answer = await reader.read()  # until the server closes it
    assert answer.startswith(b"HTTP/1.")
    assert b'"allowed":true' in answer
    assert (b"Connection: close" in answer) == (b"1.1" in ending)


async def test_a_verdict_of_many_bytes_arrives_whole(post: Any, review_of: Any, podgroup: Any) -> None:
    # The uid comes back, and so makes an answer of any length.
    review = json.loads(review_of(podgroup()))
    review["request"]["uid"] = "u" * (connections.LARGE + 1)
    status, text = await post("/validate/podgroups?timeout=5s", json.dumps(review))
    assert (status, json.loads(text)["response"]["uid"]) == (200, review["request"]["uid"])


async def test_other_paths_and_methods_are_errors(post: Any) -> None:
    assert (await post("/validate/nodes", b"{}"))[0] == 404
    assert (await post("/", b"", "GET"))[0] == 404
    assert (await post("/validate/pods", b"", "GET"))[0] == 405


async def test_a_body_just_under_the_limit_is_read(post: Any, review_of: Any, podgroup: Any) -> None:
    asked = podgroup(metadata={"annotations": {"note": "x" * (servers.BODY_LIMIT - 2000)}})
    status, _ = await post("/validate/podgroups", io.BytesIO(review_of(asked)))
    assert status == 200


async def test_a_body_that_says_it_is_too_large_is_refused_unread(raw: Any) -> None:
    reader, writer = await raw()
    writer.write(HEAD.format(length=100 * 2**20).encode() + b"{")
    assert (await reader.read()).startswith(b"HTTP/1.1 413 ")


async def test_a_body_of_100_mb_in_chunks_is_cut_off(post: Any) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            yield b"x" * 2**20
            sent += 1

    try:
        status, _ = await post("/validate/pods", endless())
        assert status == 413
    except aiohttp.ClientError:
        # The server stopped reading before the client stopped writing.
        pass
    assert sent < 100


async def test_a_body_that_never_ends_is_given_up_in_time(raw: Any) -> None:
    reader, writer = await raw()
    writer.write(HEAD.format(length=100).replace("5s", "20ms").encode() + b'{"kind":')
    assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


async def test_a_compressed_body_is_not_inflated(post: Any, review_of: Any, pod: Any) -> None:
    status, text = await post("/validate/pods", gzip.compress(review_of(pod())), headers={"Content-Encoding": "gzip"})
    assert (status, text.startswith("the body is not an AdmissionReview")) == (400, True)


async def test_no_http_at_all_gets_400(raw: Any) -> None:
    reader, writer = await raw()
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.0 400 ")


async def test_a_review_nested_200_deep_is_answered(post: Any, review_of: Any, podgroup: Any) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    assert (await post("/validate/podgroups", review_of(podgroup() | {"extra": deep})))[0] == 200


async def test_what_is_in_flight_is_finished_before_the_server_stops(
    served: WebhookServer, post: Any, review_of: Any, podgroup: Any, ledger: Any
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def reserve(*_: Any, **__: Any) -> Any:
        asked.set()
        await go_on.wait()
        return Reserved()

    ledger.reserve = reserve
    answer = asyncio.create_task(post("/validate/podgroups", review_of(podgroup(minResources={"cpu": "1"}))))
    await asked.wait()
    assert served.not_ready() == []
    stopping = asyncio.create_task(served.stop())
    for _ in range(20):  # turns of the loop in which it could do harm
        await asyncio.sleep(0)
    assert served.not_ready() == ["stopping"]
    go_on.set()
    status, text = await answer
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    await stopping
    with pytest.raises(aiohttp.ClientConnectionError):
        await post("/validate/podgroups", b"{}")


# ── certificates ─────────────────────────────────────────────────────────────────────────────────────────────────


async def serial(port: int, context: ssl.SSLContext, server_hostname: str | None = None) -> int:
    """Return the serial number of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_hostname)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(found).serial_number


async def test_a_new_certificate_is_served_to_new_connections_and_old_ones_go_on(
    served: WebhookServer, post: Any, write: Any, authorities: Any, review_of: Any, podgroup: Any
) -> None:
    assert (await post("/validate/podgroups", review_of(podgroup())))[0] == 200
    before = await serial(served.port, trusting(authorities, 0))
    write(1)
    served._certificate.refresh()
    after = await serial(served.port, trusting(authorities, 0, 1))
    assert after != before
    assert (await post("/validate/podgroups", review_of(podgroup())))[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        await serial(served.port, trusting(authorities, 0))


def mismatched(_: Path, write: Any) -> None:
    write(1, mixed=True)


def half_written(folder: Path, _: Any) -> None:
    (folder / "tls.crt").write_bytes(b"half of a")


def empty(folder: Path, _: Any) -> None:
    (folder / "tls.key").write_bytes(b"")


def missing(folder: Path, _: Any) -> None:
    (folder / "tls.key").unlink()


@pytest.mark.parametrize("spoil", [mismatched, half_written, empty, missing])
async def test_a_pair_that_can_not_be_served_changes_nothing_while_the_one_that_is_served_is_good(
    served: WebhookServer, tmp_path: Path, write: Any, authorities: Any, clock: Any, spoil: Any
) -> None:
    before = await serial(served.port, trusting(authorities, 0))
    spoil(tmp_path, write)
    served._certificate.refresh()
    served._certificate.refresh()
    assert await serial(served.port, trusting(authorities, 0)) == before
    # It is so on all replicas at once: nobody would be left to answer.
    assert served.not_ready() == []
    trouble = served._certificate.state()["trouble"]
    assert trouble.startswith(str(tmp_path))
    assert "\n" not in trouble
    clock.now_ += timedelta(days=1000)
    expired, reason = served.not_ready()
    assert expired.startswith("the certificate ended on")
    assert reason == trouble
    clock.now_ = NOW
    write(0)
    served._certificate.refresh()
    assert served.not_ready() == []
    assert await serial(served.port, trusting(authorities, 0)) != before


async def test_a_mounted_secret_changes_as_one(tmp_path: Path, write: Any, authorities: Any, clock: Any) -> None:
    write(0)
    for version in ("..1", "..2"):
        folder = tmp_path / version
        folder.mkdir()
        write(int(version[-1]) - 1)
        for name in ("tls.crt", "tls.key"):
            (tmp_path / name).rename(folder / name)
    (tmp_path / "..data").symlink_to("..1")
    live = LiveCertificate(CertificateFiles(tmp_path), clock)
    first = live._served.fingerprint
    (tmp_path / "..next").symlink_to("..2")
    (tmp_path / "..next").rename(tmp_path / "..data")
    live.refresh()
    assert (live._served.fingerprint != first, live.trouble) == (True, "")


def test_files_that_change_while_they_are_read_are_not_served(tmp_path: Path, write: Any, clock: Any) -> None:
    class Busy(CertificateFiles):
        def fingerprint(self) -> str:
            return str(next(versions))

    versions = itertools.count()
    write(0)
    with pytest.raises(ServingCertificateError, match=r"tls.crt is being written"):
        LiveCertificate(Busy(tmp_path), clock)


async def test_an_expired_certificate_is_no_longer_ready(served: WebhookServer, clock: Any) -> None:
    clock.now_ = NOW + timedelta(days=3650)
    (reason,) = served.not_ready()
    assert reason.startswith("the certificate ended on ")


async def test_without_a_certificate_there_is_nothing_to_start(tmp_path: Path, clock: Any) -> None:
    with pytest.raises(ServingCertificateError, match=r"tls.crt: No such file or directory; run `muster certs init`"):
        LiveCertificate(CertificateFiles(tmp_path), clock)


def test_a_folder_that_is_empty_yet_is_waited_for(tmp_path: Path, write: Any, caplog: Any) -> None:
    async def told() -> None:
        (tmp_path / "tls.crt").write_bytes(b"")
        waiting = asyncio.create_task(CertificateFiles(tmp_path).arrived())
        await asyncio.sleep(10 * POLL)
        assert not waiting.done()
        write(0)
        await asyncio.sleep(2 * POLL)
        assert waiting.done()

    virtual_time.run(told())
    (said,) = caplog.messages
    assert said.endswith("holds no certificate yet: `muster certs run` issues it, or `muster certs init`")


async def test_a_folder_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(ServingCertificateError, match="nowhere is not a folder; run `muster certs export --folder "):
        await CertificateFiles(tmp_path / "nowhere").arrived()


def client_certificate(now: datetime) -> KeyPair:
    """Make a certificate that says of itself that it is a client's."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"client-{x509.random_serial_number()}")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(certificate.public_bytes(pem), private)


async def test_only_callers_with_a_certificate_are_served_where_that_is_asked(
    admission: Admission, tmp_path: Path, write: Any, authorities: Any, clock: Any
) -> None:
    write(0)
    me, stranger = client_certificate(authorities[0]), client_certificate(authorities[0])
    (tmp_path / "clients.crt").write_bytes(me.certificate)
    certificate = LiveCertificate(CertificateFiles(tmp_path, tmp_path / "clients.crt"), clock)
    server = WebhookServer(admission, certificate, ListenOptions("127.0.0.1", 0, 0.0))
    await server.start()

    async def first_line(who: KeyPair | None) -> bytes:
        context = trusting(authorities, 0)
        if who is not None:
            (tmp_path / "me.pem").write_bytes(who.certificate + who.key)
            context.load_cert_chain(tmp_path / "me.pem")
        # TLS 1.3 tells the client of a refused certificate with its first read, if the connection lasts that long.
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.write(HEAD.format(length=2).encode() + b"{}")
            line = await reader.readline()
            writer.close()
            return line
        return b""

    assert await first_line(me) == b"HTTP/1.1 400 Bad Request\r\n"
    assert await first_line(None) == b""
    assert await first_line(stranger) == b""
    (tmp_path / "clients.crt").write_bytes(me.certificate + stranger.certificate)
    certificate.refresh()
    assert await first_line(stranger) == b"HTTP/1.1 400 Bad Request\r\n"
    assert await first_line(None) == b""
    await server.stop()


def test_all_of_it_holds_on_uvloop(
    admission: Admission, tmp_path: Path, write: Any, authorities: Any, clock: Any, review_of: Any, podgroup: Any
) -> None:
    async def story() -> None:
        write(0)
        certificate = LiveCertificate(CertificateFiles(tmp_path), clock)
        server = WebhookServer(admission, certificate, ListenOptions("127.0.0.1", 0, 0.0))
        await server.start()
        before = await serial(server.port, trusting(authorities, 0))
        write(1)
        certificate.refresh()
        assert await serial(server.port, trusting(authorities, 1)) != before
        connector = aiohttp.TCPConnector(ssl=trusting(authorities, 1))
        async with aiohttp.ClientSession(f"https://127.0.0.1:{server.port}", connector=connector) as session:
            async with session.post("/validate/podgroups", data=review_of(podgroup())) as response:
                assert (await response.json())["response"]["allowed"]
            async with session.post(
                "/validate/podgroups", data=io.BytesIO(b"x" * (servers.BODY_LIMIT + 1))
            ) as response:
                assert response.status == 413
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


NO_HTTP = (
    b"\x16\x03\x01 hello\r\n\r\n",
    b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /validate/pods/segment HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 20_000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
)


async def test_what_strangers_send_that_is_no_http_is_one_line_of_the_log_without_their_bytes(
    raw: Any, caplog: pytest.LogCaptureFixture, post: Any, review_of: Any, podgroup: Any
) -> None:
    for sent in NO_HTTP:
        reader, writer = await raw()
        writer.write(sent)
        answer = await reader.read()
        # Some of it is HTTP of a stranger, to whom nothing is here.
        assert answer.split()[1] in {b"400", b"404"}
        assert b"segment" not in answer
    (line,) = [each for each in caplog.records if each.levelname != "DEBUG" and each.name != "asyncio"]
    assert line.exc_info is None
    assert line.getMessage().startswith("what 127.0.0.1 sends isn't HTTP (Bad")
    assert (await post("/validate/podgroups", review_of(podgroup())))[0] == 200


async def test_an_error_in_what_answers_is_counted_as_one_of_muster_s(
    served: WebhookServer, post: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: str) -> None:
        raise ValueError("not foreseen")

    monkeypatch.setattr(served, "_call", fails)
    assert (await post("/validate/podgroups", b"{}"))[0] == 500
    (line,) = [each for each in caplog.records if each.exc_info]
    assert line.name.partition(".")[0] == "webhooks"
