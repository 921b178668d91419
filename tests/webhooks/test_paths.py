"""Who knows the path of a webhook, and who doesn't: on values, and over the wire."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from listening import Listening

from certs import authority
from certs.serving import POLL, CertificateFiles, LiveCertificate
from muster.kube.clock import SystemClock
from muster.model import names
from muster.sandbox import virtual_time
from webhooks.admission import Admission
from webhooks.paths import LivePaths, hook_path
from webhooks.server import ListenOptions, WebhookServer

SEGMENT = "x" * 42 + "_"
OTHER = "y" * 43


@pytest.mark.parametrize(
    ("path", "accepted", "means"),
    [
        ("/validate/pods", {"-"}, "/validate/pods"),
        (f"/validate/pods/{SEGMENT}", {"-"}, None),
        ("/validate/pods", {SEGMENT}, None),
        (f"/validate/pods/{SEGMENT}", {SEGMENT, OTHER}, "/validate/pods"),
        (f"/validate/pods/{OTHER}", {SEGMENT, OTHER}, "/validate/pods"),
        (f"/validate/pods/{SEGMENT[:-1]}", {SEGMENT}, None),
        (f"/validate/pods/{SEGMENT}/", {SEGMENT}, None),
        ("/validate/pods/", {SEGMENT}, None),
        ("/validate/pods/-", {"-", SEGMENT}, None),
        ("/validate/pods/\u00fc", {SEGMENT}, None),
        ("/", {"-"}, None),
    ],
)
def test_a_path_is_a_webhook_s_only_with_a_segment_that_is_accepted(path: str, accepted: set[str], means: Any) -> None:
    assert hook_path(path, frozenset(accepted)) == means


@given(st.text(), st.frozensets(st.text(alphabet="abc-_", min_size=1), min_size=1))
def test_no_text_is_a_caller_s_without_a_segment(path: str, accepted: frozenset[str]) -> None:
    means = hook_path(path, accepted)
    assert means is None or path == means or path.removeprefix(f"{means}/") in accepted - {"-"}


@pytest.mark.parametrize("path", ["/validate/pods", f"/validate/pods/{SEGMENT}", f"/validate/pods/{OTHER}"])
def test_who_shows_a_certificate_is_known_whatever_the_path_ends_in(tmp_path: Path, path: str) -> None:
    (tmp_path / names.SEGMENTS_FILE).write_text(f"{SEGMENT}\n")
    live = LivePaths(tmp_path, certified=True)
    assert hook_path(path, live.accepted) == "/validate/pods"
    assert live.problems() == []


def test_before_the_leader_has_said_a_segment_nobody_is_known_and_the_server_is_not_ready(tmp_path: Path) -> None:
    live = LivePaths(tmp_path)
    assert hook_path("/validate/pods", live.accepted) is None
    assert live.problems() == [f"{tmp_path} has no file segments yet: `muster certs run` writes it"]
    (tmp_path / names.SEGMENTS_FILE).write_text("-\n")
    live.refresh()
    assert hook_path("/validate/pods", live.accepted) == "/validate/pods"
    assert live.problems() == []
    assert LivePaths(None).problems() == []


def test_the_file_is_followed_and_one_that_can_not_be_read_changes_nothing(tmp_path: Path, caplog: Any) -> None:
    async def told() -> None:
        live = LivePaths(tmp_path)
        following = asyncio.create_task(live.run())
        assert live.accepted == set()
        file = tmp_path / names.SEGMENTS_FILE
        for content, accepted in (
            (f"{SEGMENT}\n{OTHER}\n".encode(), {SEGMENT, OTHER}),
            (b"\xff\xfe", {SEGMENT, OTHER}),
            (b"\n", {SEGMENT, OTHER}),
            (f"{OTHER}\n".encode(), {OTHER}),
        ):
            file.write_bytes(content)
            await asyncio.sleep(2 * POLL)
            assert live.accepted == accepted
        file.unlink()
        await asyncio.sleep(2 * POLL)
        assert live.accepted == {OTHER}
        following.cancel()

    virtual_time.run(told())
    (line,) = caplog.messages
    assert line.endswith(": UnicodeDecodeError")


@pytest.fixture
async def call(admission: Admission, tmp_path: Path, aiohttp_client: Any) -> Any:
    """Calls a server whose paths end in SEGMENT, and gives (status, headers, text)."""
    today = SystemClock().now()
    ca = authority.new_ca(today)
    pair = authority.issue(ca, ("127.0.0.1",), today)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    (tmp_path / names.SEGMENTS_FILE).write_text(f"{SEGMENT}\n")
    paths = LivePaths(tmp_path)
    server = WebhookServer(
        admission, LiveCertificate(CertificateFiles(tmp_path)), ListenOptions("127.0.0.1", 0, 0.0), paths=paths
    )
    await server.start()
    client = await aiohttp_client(Listening(port=server.port), connector=aiohttp.TCPConnector(ssl=False))

    async def called(path: str, body: bytes = b"", method: str = "POST") -> tuple[int, Any, str]:
        async with client.request(method, path, data=body) as response:
            return response.status, response.headers, await response.text()

    yield called, paths
    await server.stop()


async def test_a_stranger_gets_404_and_learns_nothing(call: Any, review_of: Any, pod: Any) -> None:
    called, paths = call
    before = paths.failed_at
    strange = [
        await called(path, body, method)
        for path in ("/validate/pods", f"/validate/pods/{OTHER}", "/validate/nothing", "/", "/metrics")
        for body, method in ((review_of(pod()), "POST"), (b"{", "POST"), (b"", "GET"))
    ]
    assert {(status, text) for status, _, text in strange} == {(404, "no webhook is served here\n")}
    assert {frozenset(headers) - {"Date"} for _, headers, _ in strange} == {
        frozenset({"Content-Type", "Content-Length", "Server", "Connection"})
    }
    assert paths.failed_at == before


async def test_a_caller_is_answered_and_neither_metrics_nor_logs_name_the_segment(
    call: Any, admission: Admission, review_of: Any, podgroup: Any, caplog: Any
) -> None:
    called, _ = call
    with caplog.at_level(logging.DEBUG):
        status, _, text = await called(f"/validate/podgroups/{SEGMENT}?timeout=5s", review_of(podgroup()))
        refused = await called(f"/validate/podgroups/{SEGMENT}?timeout=5s", review_of(podgroup(queue="nope")))
        assert (await called(f"/validate/podgroups/{SEGMENT}", b"{"))[0] == 400
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    assert not json.loads(refused[2])["response"]["allowed"]
    shown = [str(sample) for metric in admission.metrics.collect() for sample in metric.samples]
    assert any("/validate/podgroups" in each for each in shown)
    assert not [each for each in (*shown, caplog.text) if SEGMENT in each]


async def test_a_failed_call_is_told_to_who_knows_the_path(call: Any, review_of: Any, podgroup: Any) -> None:
    called, paths = call

    async def failed_at() -> int:
        status, headers, _ = await called(f"/validate/podgroups/{SEGMENT}", method="GET")
        assert status == 405
        return int(headers[names.FAILED_HEADER])

    paths._failed_at = datetime.fromtimestamp(999.5, UTC)
    assert (await called(f"/validate/podgroups/{SEGMENT}", review_of(podgroup())))[0] == 200
    assert await failed_at() == 1000
    assert (await called(f"/validate/podgroups/{SEGMENT}", b"{"))[0] == 400
    assert await failed_at() > 1000


async def test_a_path_that_was_used_ends_with_its_segment(
    call: Any, tmp_path: Path, review_of: Any, podgroup: Any
) -> None:
    called, paths = call
    body, old, new = review_of(podgroup()), f"/validate/podgroups/{SEGMENT}", f"/validate/podgroups/{OTHER}"
    assert [(await called(path, body))[0] for path in (old, new)] == [200, 404]
    (tmp_path / names.SEGMENTS_FILE).write_text(f"{OTHER}\n")
    paths.refresh()
    assert [(await called(path, body))[0] for path in (old, new)] == [404, 200]


def test_no_target_of_strangers_is_kept(admission: Admission) -> None:
    server = WebhookServer(admission, None, ListenOptions())  # type: ignore[arg-type] # it doesn't listen
    for number in range(1000):
        assert server._call(f"/validate/nothing-{number}?timeout=5s") is None
        assert server._call(f"/validate/pods?timeout={number}s") is not None
    assert [server._call(target) for target in ("", "*", "//[x", "http://[::1", "/%ff?=&&#")] == [None] * 5
    assert len(server._known) < 300
