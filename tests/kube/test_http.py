"""The transport against real sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from datetime import UTC, datetime

import pytest
from aiohttp import web

from certs import authority
from muster.kube import errors
from muster.kube.auth import Endpoint
from muster.kube.clock import steady
from muster.kube.connection import Connection
from muster.kube.dialing import Dialer
from muster.kube.fence import Fence, FencedTransport
from muster.kube.http import HttpTransport
from muster.kube.transport import MERGE_PATCH, Request

GET, PUT = Request("GET", "/x"), Request("PUT", "/x", body=b"{}")


@contextlib.asynccontextmanager
async def serving(handler, tls=None):
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def speaking(conversation):
    """A server of raw bytes: ``conversation(reader, writer, number of the connection)``."""
    tasks, count = set(), 0

    async def connected(reader, writer):
        nonlocal count
        count += 1
        tasks.add(asyncio.current_task())
        try:
            await conversation(reader, writer, count)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        # The connections that were closed now are gone at the loop's next turn.
        await asyncio.sleep(0)


async def head(reader):
    return (await reader.readuntil(b"\r\n\r\n")).decode()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


async def read(transport: HttpTransport, seen: list[bytes], *, idle: float) -> None:
    async with transport.watch(GET, idle=idle) as lines:
        async for line in lines:
            seen.append(line)  # noqa: PERF401 - what was seen before an error counts


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_request_arrives_as_it_was_meant_and_so_does_the_answer():
    async def handler(request):
        seen.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        return web.Response(status=201, body=b"made", headers={"Retry-After": "3", "X-Y": "z"})

    async def token():
        return {"Authorization": "Bearer t"}

    seen = []
    async with serving(handler) as url, HttpTransport(Endpoint(url, headers=token)) as transport:
        request = Request("PATCH", "/api/v1/nodes/system:a", {"fieldManager": "a b&c"}, b"{}", MERGE_PATCH)
        answer = await transport.request(request, within=60)
    assert (answer.status, answer.body, answer.headers["retry-after"], answer.headers["x-y"]) == (
        201,
        b"made",
        "3",
        "z",
    )
    ((method, path, headers, body),) = seen
    assert (method, path, body) == ("PATCH", "/api/v1/nodes/system:a?fieldManager=a+b%26c", b"{}")
    assert headers["Content-Type"] == MERGE_PATCH
    assert headers["Authorization"] == "Bearer t"
    assert headers["Accept"] == "application/json"


async def test_one_connection_serves_many_requests_and_none_is_left_open():
    peers = set()

    async def handler(request):
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(body=b"{}")

    async with serving(handler) as url:
        transport = HttpTransport(Endpoint(url))
        for _ in range(20):
            await transport.request(GET, within=60)
        await transport.close()
        await transport.close()
    assert len(peers) == 1
    del transport
    # An unclosed session or transport would warn here, and warnings are errors.
    gc.collect()


async def test_no_more_requests_are_under_way_than_allowed_and_the_wait_counts():
    under_way, most = 0, 0
    all_used = asyncio.Event()

    async def handler(request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if most == 3:
            all_used.set()
        await all_used.wait()
        await asyncio.sleep(0.05)
        under_way -= 1
        return web.Response(body=b"{}")

    async with serving(handler) as url, HttpTransport(Endpoint(url), connections=3) as transport:
        await asyncio.gather(*(transport.request(GET, within=60) for _ in range(12)))
        assert most == 3
        answers = await asyncio.gather(
            *(transport.request(PUT, within=0.08) for _ in range(12)), return_exceptions=True
        )
        waited = [each for each in answers if isinstance(each, errors.UnreachableError)]
        assert any(not each.maybe_applied for each in waited)


async def test_a_write_that_found_no_connection_was_certainly_not_applied():
    async with HttpTransport(Endpoint(f"http://127.0.0.1:{unused_port()}")) as transport:
        with pytest.raises(
            errors.UnreachableError, match=r"no connection to http://127.0.0.1:\d+: Connection refused"
        ) as caught:
            await transport.request(PUT, within=60)
    assert not caught.value.maybe_applied
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_connection_that_is_never_made_is_given_up_and_nothing_was_applied():
    # A listener whose queue is full answers no more: as behind a firewall that drops.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        filling = [socket.socket() for _ in range(4)]
        try:
            for each in filling:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            async with HttpTransport(Endpoint(f"http://127.0.0.1:{port}")) as transport:
                with pytest.raises(errors.UnreachableError, match="no connection") as caught:
                    await transport.request(PUT, within=0.4)
        finally:
            for each in filling:
                each.close()
    assert not caught.value.maybe_applied


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_whose_answer_is_lost_is_sent_once_and_may_have_been_applied(method):
    requests = []

    async def conversation(reader, writer, number):
        while True:
            requests.append((await head(reader)).split()[0])
            if len(requests) == 2:
                return
            writer.write(OK)

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        await transport.request(GET, within=60)
        with pytest.raises(errors.UnreachableError, match="broke") as caught:
            await transport.request(Request(method, "/x", body=b""), within=60)
        assert caught.value.maybe_applied
    assert requests == ["GET", method]


async def test_a_read_on_a_connection_that_the_server_had_closed_is_sent_again():
    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(OK)
        if number == 1:
            await head(reader)

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        for _ in range(2):
            assert (await transport.request(GET, within=60)).body == b"{}"


async def test_a_watch_on_a_connection_that_the_server_had_closed_is_opened_again():
    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(OK if number == 1 else b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\none\n")
        await head(reader)

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        await transport.request(GET, within=60)
        seen = []
        await read(transport, seen, idle=60)
    assert seen == [b"one"]


@pytest.mark.parametrize(("request_", "maybe"), [(GET, False), (PUT, True)])
async def test_a_server_that_never_answers_is_given_up(request_, maybe):
    async def conversation(reader, writer, number):
        await head(reader)
        await asyncio.Event().wait()

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        with pytest.raises(errors.UnreachableError, match=r"did not answer .* within 0.5 s") as caught:
            await transport.request(request_, within=0.5)
    assert caught.value.maybe_applied is maybe


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b""])
async def test_nonsense_and_half_an_answer_are_no_answer(said):
    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(said)

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        for request in (GET, PUT):
            with pytest.raises(errors.UnreachableError) as caught:
                await transport.request(request, within=60)
            assert caught.value.maybe_applied is request.writes
            assert len(str(caught.value)) <= errors.TEXT_LIMIT


async def test_a_refused_token_is_renewed_once_for_all_who_wait():
    class Tokens:
        current, renewed = {"Authorization": "Bearer old"}, 0

        async def headers(self):
            return self.current

        async def renew(self, refused):
            if refused is self.current:
                self.renewed += 1
                self.current = {"Authorization": f"Bearer new-{self.renewed}"}
            return True

    async def handler(request):
        good = request.headers["Authorization"] == "Bearer new-1"
        return web.Response(status=200 if good else 401, body=b"line\n")

    tokens = Tokens()
    async with serving(handler) as url, HttpTransport(Endpoint(url, None, tokens.headers, tokens.renew)) as transport:
        answers = await asyncio.gather(*(transport.request(PUT, within=60) for _ in range(10)))
        assert {answer.status for answer in answers} == {200}
        assert tokens.renewed == 1
        tokens.current = {"Authorization": "Bearer old"}
        tokens.renewed = 0
        async with transport.watch(GET, idle=60) as lines:
            assert [line async for line in lines] == [b"line"]
        tokens.current = {"Authorization": "Bearer wrong"}
        # Renewed once, still refused: the refusal is the answer.
        assert (await transport.request(GET, within=60)).status == 401


async def test_a_watch_gives_lines_of_any_length_however_they_are_cut():
    big = b"x" * 3_000_000
    pieces = [b"one\nt", b"wo\n\n", big[:1_000_000], big[1_000_000:], b"\nlast"]

    async def handler(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        for piece in pieces:
            await answer.write(piece)
            await asyncio.sleep(0)
        return answer

    async with (
        serving(handler) as url,
        HttpTransport(Endpoint(url)) as transport,
        transport.watch(GET, idle=60) as lines,
    ):
        assert [line async for line in lines] == [b"one", b"two", big, b"last"]


@pytest.mark.parametrize("begun", [True, False])
async def test_a_silent_watch_is_dead(begun):
    async def handler(request):
        if begun:
            answer = web.StreamResponse()
            await answer.prepare(request)
            await answer.write(b"one\n")
        await asyncio.Event().wait()

    seen = []
    async with serving(handler) as url, HttpTransport(Endpoint(url)) as transport:
        with pytest.raises(errors.UnreachableError, match=r"sent nothing for 0.5 s|did not answer in time"):
            await read(transport, seen, idle=0.5)
    assert seen == ([b"one"] if begun else [])


async def test_a_watch_that_breaks_off_is_an_error_and_one_that_ends_is_not():
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"

    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(chunked + (b"0\r\n\r\n" if number == 1 else b""))

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        async with transport.watch(GET, idle=60) as lines:
            assert [line async for line in lines] == [b"one"]
        with pytest.raises(errors.UnreachableError):
            await read(transport, [], idle=60)


async def test_a_refused_watch_says_why():
    async def handler(request):
        return web.json_response({"kind": "Status", "reason": "Expired", "message": "too old"}, status=410)

    async with serving(handler) as url, HttpTransport(Endpoint(url)) as transport:
        with pytest.raises(errors.GoneError, match="too old"):
            async with transport.watch(GET, idle=60):
                pytest.fail("a refused watch was opened")


async def test_a_refusal_whose_reason_never_comes_is_given_up():
    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\n{")
        await asyncio.Event().wait()

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        with pytest.raises(errors.UnreachableError, match="did not answer in time"):
            await read(transport, [], idle=0.5)


async def test_a_watch_that_is_cancelled_closes_its_connection_at_once():
    closed = asyncio.Event()

    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        assert await reader.read() == b""
        closed.set()

    async def watch(transport, opened):
        async with transport.watch(GET, idle=60) as lines:
            async for _ in lines:
                opened.set()

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        opened = asyncio.Event()
        task = asyncio.create_task(watch(transport, opened))
        await opened.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), 5)


@pytest.fixture(scope="module")
def ca():
    return authority.new_ca(datetime.now(UTC))  # noqa: TID251 - a certificate for a real handshake


@pytest.fixture
def tls(ca, tmp_path):
    def make(*hosts):
        pair = authority.issue(ca, hosts, datetime.now(UTC))  # noqa: TID251 - a certificate for a real handshake
        file = tmp_path / "server.pem"
        file.write_bytes(pair.certificate + pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    return make


async def fine(request):
    return web.Response(body=request.headers.get("Authorization", "").encode())


async def test_tls_with_a_token_works_and_ends_cleanly(ca, tls):
    async with serving(fine, tls("127.0.0.1")) as url:
        endpoint = Endpoint.with_token(url, ca.certificate.decode(), "secret")
        async with HttpTransport(endpoint) as transport:
            assert (await transport.request(PUT, within=60)).body == b"Bearer secret"
    gc.collect()


async def test_a_certificate_that_is_not_trusted_is_said_in_one_line_and_nothing_was_sent(tls):
    other = authority.new_ca(datetime.now(UTC))  # noqa: TID251 - as above
    async with (
        serving(fine, tls("127.0.0.1")) as url,
        HttpTransport(Endpoint.with_token(url, other.certificate.decode(), "t")) as transport,
    ):
        with pytest.raises(errors.UnreachableError, match=r"is not trusted.*certificate-authority") as caught:
            await transport.request(PUT, within=60)
    assert not caught.value.maybe_applied
    assert "\n" not in str(caught.value)


async def test_a_server_that_speaks_no_tls_is_said_so_and_nothing_was_sent():
    async with (
        serving(fine) as url,
        HttpTransport(Endpoint(url.replace("http:", "https:"), ssl.create_default_context())) as transport,
    ):
        with pytest.raises(errors.UnreachableError, match="its TLS isn't understood") as caught:
            await transport.request(PUT, within=60)
    assert not caught.value.maybe_applied


async def test_a_certificate_for_another_name_needs_the_server_name(ca, tls):
    context = ssl.create_default_context(cadata=ca.certificate.decode())
    async with serving(fine, tls("kubernetes.default")) as url:
        async with HttpTransport(Endpoint(url, context)) as transport:
            with pytest.raises(errors.UnreachableError, match="is not trusted"):
                await transport.request(GET, within=60)
        async with HttpTransport(Endpoint(url, context, server_name="kubernetes.default")) as transport:
            assert (await transport.request(GET, within=60)).status == 200
            async with transport.watch(GET, idle=60) as lines:
                assert [line async for line in lines] == []


async def test_a_connection_that_nobody_waits_for_any_more_ends_at_once_and_its_number_serves_another(ca, tls):
    """The loop keeps a socket under TLS until both ends have said good-bye; what comes then must not meet its number."""
    made = []

    class GivenUp(Connection):
        def connection_made(self, transport):
            super().connection_made(transport)
            made.append(transport)
            dialing.cancel()

    async with serving(fine, tls("127.0.0.1")) as url:
        endpoint = Endpoint(url, ssl.create_default_context(cadata=ca.certificate.decode()))
        dialer, buffer = Dialer(endpoint), memoryview(bytearray(1024))
        dialing = asyncio.create_task(dialer.dial(lambda: GivenUp(buffer, lambda _: None)))
        with pytest.raises(asyncio.CancelledError):
            await dialing
        (abandoned,) = made
        assert abandoned.is_closing()
        async with HttpTransport(endpoint) as transport:
            answers = await asyncio.gather(*(transport.request(GET, within=60) for _ in range(4)))
            assert {answer.status for answer in answers} == {200}


async def test_a_proxy_is_asked_for_what_it_shall_fetch():
    asked = []

    async def conversation(reader, writer, number):
        asked.append((await head(reader)).splitlines()[0])
        writer.write(OK)

    async with (
        speaking(conversation) as proxy,
        HttpTransport(Endpoint("http://cluster.example", proxy=proxy)) as transport,
    ):
        assert (await transport.request(GET, within=60)).status == 200
    assert asked == ["GET http://cluster.example/x HTTP/1.1"]


async def relay(source, sink):
    try:
        while data := await source.read(65536):
            sink.write(data)
    finally:
        sink.close()


async def test_a_proxy_connects_us_to_a_server_that_speaks_tls(ca, tls):
    asked = []

    async def conversation(reader, writer, number):
        asked.append(await head(reader))
        there = await asyncio.open_connection("127.0.0.1", int(asked[-1].split()[1].rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(relay(reader, there[1]), relay(there[0], writer))

    async with serving(fine, tls("127.0.0.1")) as url, speaking(conversation) as proxy:
        context = ssl.create_default_context(cadata=ca.certificate.decode())
        endpoint = Endpoint(url, context, proxy=proxy.replace("//", "//me:p%40ss@"))
        async with HttpTransport(endpoint) as transport:
            for _ in range(2):
                assert (await transport.request(PUT, within=60)).status == 200
    (one,) = asked
    assert one.startswith(f"CONNECT {url.partition('//')[2]} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in one


async def test_a_proxy_that_refuses_is_named_and_nothing_was_sent():
    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with (
        speaking(conversation) as proxy,
        HttpTransport(Endpoint("https://cluster.example", proxy=proxy)) as transport,
    ):
        with pytest.raises(errors.UnreachableError, match=r"the proxy refused .*cluster\.example: .* 403") as caught:
            await transport.request(PUT, within=60)
    assert not caught.value.maybe_applied


async def test_a_server_below_a_path_is_asked_there():
    asked = []

    async def conversation(reader, writer, number):
        asked.append((await head(reader)).splitlines()[0])
        writer.write(OK)

    async with speaking(conversation) as url, HttpTransport(Endpoint(f"{url}/k8s/clusters/c")) as transport:
        await transport.request(Request("GET", "/api/v1/a b\r\nc"), within=60)
    assert asked == ["GET /k8s/clusters/c/api/v1/a%20b%0D%0Ac HTTP/1.1"]


def test_a_server_that_is_no_url_is_said_so():
    with pytest.raises(errors.ConfigError, match=r"https://host:port isn't the URL of a server"):
        HttpTransport(Endpoint("https://host:port"))


async def test_credentials_that_would_be_a_header_of_their_own_are_refused():
    async def token():
        return {"Authorization": "Bearer t\r\nImpersonate-User: root"}

    async with serving(fine) as url, HttpTransport(Endpoint(url, headers=token)) as transport:
        with pytest.raises(errors.ConfigError, match="write them again"):
            await transport.request(GET, within=60)


@pytest.mark.parametrize(
    ("said", "body"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"{}"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{"\r\n1\r\n}\r\n0\r\n\r\n', b'{"}'),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
async def test_an_answer_is_whole_however_its_end_is_told(said, body):
    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(said)

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        answer = await transport.request(PUT, within=60)
    assert answer.body == body
    assert "link" not in answer.headers


async def test_what_a_server_says_unasked_is_nobodys_answer():
    connections = []

    async def conversation(reader, writer, number):
        connections.append(number)
        await head(reader)
        writer.write(OK + (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n" if number == 1 else b""))
        await reader.read()

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        assert [(await transport.request(PUT, within=60)).status for _ in range(2)] == [200, 200]
    assert connections == [1, 2]


async def test_headers_without_end_are_cut_off():
    async def conversation(reader, writer, number):
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        for line in range(10_000):
            writer.write(b"X-%d: %s\r\n" % (line, b"y" * 100))
            await writer.drain()
        await reader.read()

    async with speaking(conversation) as url, HttpTransport(Endpoint(url)) as transport:
        with pytest.raises(errors.UnreachableError, match="headers of more than 65536 bytes"):
            await transport.request(GET, within=60)


async def test_a_watch_that_nobody_reads_makes_the_server_wait():
    sent = 0

    async def conversation(reader, writer, number):
        nonlocal sent
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        while True:
            writer.write(b"x" * 99_999 + b"\n")
            await writer.drain()
            sent += 100_000

    async with (
        speaking(conversation) as url,
        HttpTransport(Endpoint(url)) as transport,
        transport.watch(GET, idle=60) as lines,
    ):
        waited_at = -1
        while waited_at != sent:
            waited_at = sent
            for _ in range(1000):
                await asyncio.sleep(0)
        assert sent < 100_000_000
        read = 0
        async for line in lines:
            read += len(line) + 1
            if read > waited_at + 1_000_000:
                break
        assert sent > waited_at


async def test_a_name_that_does_not_resolve_is_said_so():
    async with HttpTransport(Endpoint("http://no-such-host.invalid")) as transport:
        with pytest.raises(errors.UnreachableError, match=r"no-such-host\.invalid") as caught:
            await transport.request(PUT, within=60)
    assert not caught.value.maybe_applied


async def test_a_write_that_waited_for_a_connection_while_its_fence_ended_is_not_sent():
    """The fence was live when the write was asked for, and dead when there was a connection for it."""

    async def handler(request):
        seen.append(request.method)
        if request.method == "GET":
            held.set()
            await free.wait()
        return web.Response(body=b"{}")

    seen, held, free = [], asyncio.Event(), asyncio.Event()
    async with serving(handler) as url, HttpTransport(Endpoint(url), connections=1) as transport:
        fence = Fence("me", steady(asyncio.get_running_loop()) + 60)
        fenced = FencedTransport(transport, fence)
        reading = asyncio.create_task(fenced.request(GET, within=60))
        await held.wait()
        writing = asyncio.create_task(fenced.request(PUT, within=60))
        await asyncio.sleep(0)
        fence.revoke()
        free.set()
        assert (await reading).status == 200
        with pytest.raises(errors.FenceLostError, match="not sent"):
            await writing
        # The transport goes on for those who may write.
        assert (await transport.request(PUT, within=60)).status == 200
    assert seen == ["GET", "PUT"]
