"""The plain listener beside a program."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from certs import authority, guarded_metrics
from certs.serving import CertificateFiles, LiveCertificate
from muster.kube.clock import SystemClock
from muster.telemetry.probes import Probes, _is_this_machine


@pytest.fixture
def missing() -> list[str]:
    return []


@pytest.fixture
def ills() -> list[str]:
    return []


@pytest.fixture
async def base(missing: list[str], ills: list[str]) -> AsyncIterator[str]:
    registry = CollectorRegistry()
    Counter("muster_things", "Things.", registry=registry).inc(3)
    probes = Probes(lambda: missing, registry, alive=lambda: ills, host="127.0.0.1")
    await probes.start()
    yield f"http://127.0.0.1:{probes.port}"
    await probes.stop()


async def fetched(url: str, method: str = "GET") -> tuple[int, str]:
    async with aiohttp.request(method, url) as response:
        return response.status, await response.text()


async def test_a_program_is_alive_while_its_loop_turns(base: str, missing: list[str]) -> None:
    missing.append("the first list of queues")
    assert await fetched(base + "/healthz") == (200, "ok\n")


async def test_a_program_that_only_a_new_start_can_mend_says_why(base: str, ills: list[str]) -> None:
    ills.append("the cluster isn't watched any more")
    assert await fetched(base + "/healthz") == (503, "the cluster isn't watched any more\n")


async def test_the_state_is_shown_only_where_somebody_asked_for_it(base: str) -> None:
    assert await fetched(base + "/debug/state") == (404, "it is off: start the program with --debug-state\n")
    probes = Probes(tuple, CollectorRegistry(), state=lambda: {"leading": True}, host="127.0.0.1")
    await probes.start()
    try:
        url = f"http://127.0.0.1:{probes.port}/debug/state"
        assert await fetched(url) == (200, '{"leading":true}')
        assert (await fetched(url, "POST"))[0] == 405
    finally:
        await probes.stop()


async def test_a_program_is_ready_or_says_what_it_waits_for(base: str, missing: list[str]) -> None:
    assert await fetched(base + "/readyz") == (200, "ok\n")
    missing += ["the first list of queues", "a certificate"]
    assert await fetched(base + "/readyz") == (503, "the first list of queues\na certificate\n")


async def test_metrics_are_in_prometheus_form(base: str) -> None:
    status, text = await fetched(base + "/metrics")
    assert (status, "muster_things_total 3.0" in text) == (200, True)


async def test_other_paths_and_methods_are_refused(base: str) -> None:
    assert (await fetched(base + "/"))[0] == 404
    assert (await fetched(base + "/healthz", "POST"))[0] == 405


async def spoken(base: str, *parts: bytes) -> bytes:
    """Return what is answered to bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    try:
        writer.write(b"".join(parts))
        return await reader.read()
    finally:
        writer.close()


async def test_who_asks_for_the_head_only_gets_it_with_the_length_of_the_whole(base: str) -> None:
    answer = await spoken(base, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert b"Content-Length: 3" in head.splitlines()
    assert body == b""


async def test_a_query_isn_t_part_of_the_path_and_accept_chooses_the_form_of_metrics(base: str) -> None:
    accept = b"ACCEPT: application/openmetrics-text;version=1.0.0\r\n"
    answer = await spoken(base, b"GET /metrics?x=/healthz HTTP/1.1\r\n", accept, b"\r\n")
    assert b"Content-Type: application/openmetrics-text" in answer
    assert answer.endswith(b"# EOF\n")


async def test_what_is_sent_beside_a_request_doesn_t_keep_the_answer_back(base: str) -> None:
    body = b"x" * 1_000_000
    answer = await spoken(base, b"POST /healthz HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", body)
    assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")


@pytest.mark.parametrize("sent", [b"GET " + b"/" * 20_000, b"\x16\x03\x01 no HTTP\r\n\r\n"])
async def test_what_is_no_request_is_refused_or_hung_up_on(base: str, sent: bytes) -> None:
    answer = await spoken(base, sent)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 405 ")
    assert await fetched(base + "/healthz") == (200, "ok\n")


def _own_address() -> str:
    """Return an address of this machine that isn't loopback, as other pods see it; nothing is sent to find it."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def test_strangers_get_no_metrics_and_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    Counter("muster_secret_things", "Things.", registry=registry).inc()
    probes = Probes(tuple, registry, state=lambda: {"leading": True}, metrics_port=0)
    await probes.start()
    address = _own_address()
    if address == "127.0.0.1":
        # A machine without a network: what tells loopback from other addresses is tried below.
        monkeypatch.setattr("muster.telemetry.probes._is_this_machine", lambda _: False)
    try:
        for path in ("/metrics", "/metrics?x=y", "/debug/state"):
            status, text = await fetched(f"http://{address}:{probes.port}{path}")
            assert (status, "--metrics-port" in text, "secret" in text) == (403, True, False)
        assert (await fetched(f"http://{address}:{probes.port}/readyz"))[0] == 200
        assert "muster_secret_things" in (await fetched(f"http://{address}:{probes.metrics_port}/metrics"))[1]
        assert (await fetched(f"http://{address}:{probes.metrics_port}/debug/state"))[0] == 200
    finally:
        await probes.stop()


@pytest.mark.parametrize(
    ("peer", "known"),
    [(("127.0.0.1", 1), True), (("::1", 1, 0, 0), True), (("10.0.0.1", 1), False), (None, False), (("x", 1), False)],
)
def test_this_machine_is_who_comes_over_loopback(peer: object, *, known: bool) -> None:
    class Writer:
        def get_extra_info(self, name: str) -> object:
            assert name == "peername"
            return peer

    assert _is_this_machine(Writer()) is known  # type: ignore[arg-type]


async def test_one_that_is_stopped_hangs_up_on_who_has_asked_nothing_yet(caplog: pytest.LogCaptureFixture) -> None:
    probes = Probes(tuple, CollectorRegistry(), host="127.0.0.1")
    await probes.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", probes.port)
    writer.write(b"GET /healthz")
    async with asyncio.timeout(30):
        while not probes._serving:  # noqa: ASYNC110 - nobody is told that a connection is served
            await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await probes.stop()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    assert caplog.records == []


async def test_who_holds_many_connections_loses_them_and_the_kubelet_is_answered(base: str) -> None:
    port = int(base.rpartition(":")[2])
    held = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(400)]
    assert await fetched(base + "/healthz") == (200, "ok\n")
    closed = [asyncio.ensure_future(reader.read()) for reader, _ in held]
    async with asyncio.timeout(30):
        # No more than four times those of an address are ever there.
        while sum(each.done() for each in closed) < 400 - 4 * 32:  # noqa: ASYNC110 - nobody is told of a connection
            await asyncio.sleep(0.01)
    assert await fetched(base + "/healthz") == (200, "ok\n")
    for each, (_, writer) in zip(closed, held, strict=True):
        each.cancel()
        writer.close()
    await asyncio.gather(*closed, return_exceptions=True)


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A folder with a certificate for 127.0.0.1, and who signed it."""
    now = SystemClock().now()
    ca = authority.new_ca(now)
    issued = authority.issue(ca, ("127.0.0.1",), now)
    for name, content in (("ca.crt", ca.certificate), ("tls.crt", issued.certificate), ("tls.key", issued.key)):
        (tmp_path / name).write_bytes(content)
    return tmp_path


async def test_over_tls_metrics_are_for_whom_somebody_lets_read_them(pair: Path) -> None:
    registry = CollectorRegistry()
    Counter("muster_things", "Things.", registry=registry).inc(3)
    probes = Probes(tuple, registry, host="127.0.0.1")
    asked: list[tuple[str, str]] = []

    async def authorize(authorization: str, path: str) -> int:
        asked.append((authorization, path))
        return {"Bearer good": 200, "Bearer other": 403, "Bearer slow": 503}.get(authorization, 401)

    await probes.start()
    await probes.serve_metrics(0, guarded_metrics.listening(LiveCertificate(CertificateFiles(pair))), authorize)
    trusted = ssl.create_default_context(cafile=str(pair / "ca.crt"))
    url = f"https://127.0.0.1:{probes.metrics_port}"

    async def read(path: str, token: str, method: str = "GET") -> tuple[int, str]:
        headers = {"Authorization": token} if token else {}
        async with aiohttp.request(method, url + path, ssl=trusted, headers=headers) as response:
            return response.status, await response.text()

    try:
        status, text = await read("/metrics?name=x", "Bearer good")
        assert (status, "muster_things_total 3.0" in text) == (200, True)
        assert asked == [("Bearer good", "/metrics")]
        assert await read("/metrics", "Bearer good", "HEAD") == (200, "")
        for token, code in (("", 401), ("Bearer other", 403), ("Bearer slow", 503)):
            status, text = await read("/metrics", token)
            assert (status, "muster_things" in text) == (code, False)
        # Plain HTTP is not spoken there, and the probes' port stays as it is.
        with pytest.raises(aiohttp.ClientError):
            await fetched(f"http://127.0.0.1:{probes.metrics_port}/metrics")
        assert await fetched(f"http://127.0.0.1:{probes.port}/healthz") == (200, "ok\n")
    finally:
        await probes.stop()
