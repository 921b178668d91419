"""Sockets of both families, and what a machine does that lacks one."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest
from prometheus_client import CollectorRegistry

from muster.telemetry import sockets
from muster.telemetry.probes import Probes


async def families(host: str, port: int = 0) -> tuple[list[str], set[int]]:
    opened = await sockets.listen(host, port)
    try:
        return [each.family.name for each in opened], {each.getsockname()[1] for each in opened}
    finally:
        for each in opened:
            each.close()


async def test_without_a_host_both_families_listen_on_one_port():
    names, ports = await families("")
    assert names == ["AF_INET6", "AF_INET"]
    assert len(ports) == 1


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", "AF_INET"), ("::1", "AF_INET6"), ("0.0.0.0", "AF_INET")])
async def test_a_host_chooses_its_family(host, family):
    assert (await families(host))[0] == [family]


@pytest.mark.parametrize(
    ("lacks", "left"), [(socket.AF_INET6, ["AF_INET"]), (socket.AF_INET, ["AF_INET6"])], ids=["no-ipv6", "no-ipv4"]
)
@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_a_machine_without_a_family_listens_on_the_other(monkeypatch, lacks, left, error):
    _without(monkeypatch, {lacks}, error)
    assert (await families(""))[0] == left


async def test_a_machine_without_either_family_is_told(monkeypatch):
    _without(monkeypatch, {socket.AF_INET6, socket.AF_INET}, errno.EAFNOSUPPORT)
    with pytest.raises(OSError, match="Address family not supported"):
        await families("")


def _without(monkeypatch: pytest.MonkeyPatch, families: set[int], error: int) -> None:
    made = socket.socket

    def make(family: int, kind: int) -> socket.socket:
        if family in families:
            raise OSError(error, "Address family not supported by protocol")
        return made(family, kind)

    monkeypatch.setattr(sockets.socket, "socket", make)


async def test_a_port_that_one_family_has_taken_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await families("", taken.getsockname()[1])


async def test_of_the_systems_choice_a_port_is_found_that_both_have_free(monkeypatch):
    made, refused = sockets._one, []

    def one(family: int, address: tuple[str, int]) -> socket.socket:
        if family == socket.AF_INET and not refused:
            refused.append(address)
            raise OSError(errno.EADDRINUSE, "in use")
        return made(family, address)

    monkeypatch.setattr(sockets, "_one", one)
    names, ports = await families("")
    assert (names, len(ports), len(refused)) == (["AF_INET6", "AF_INET"], 1, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_probes_answer_on_both_families(host):
    probes = Probes(tuple, CollectorRegistry())
    await probes.start()
    try:
        reader, writer = await asyncio.open_connection(host, probes.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
    finally:
        await probes.stop()


@pytest.mark.parametrize(
    ("host", "text"), [("", ":9443"), ("10.0.0.1", "10.0.0.1:9443"), ("fd00::1", "[fd00::1]:9443")]
)
def test_an_address_is_written_as_urls_have_it(host, text):
    assert sockets.shown(host, 9443) == text
