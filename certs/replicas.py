"""The webhook servers as they are: where they are, and which certificate each really shows."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol

from cryptography import x509
from msgspec import Struct

from certs.targets import WebhookService
from muster.kube.client import Client
from muster.model import objects
from muster.model.kinds import Kind

WITHIN: Final = 5.0
"""Seconds that a replica has to show its certificate."""
_POLITE: Final = 1.0
"""Seconds to say what time it is; the certificate is known by then."""
_AT_ONCE: Final = 32
_HEAD: Final = 16 * 1024


class EndpointSlice(objects.Object, frozen=True, kw_only=True):
    """discovery.k8s.io/v1 EndpointSlice, as far as it says who is ready."""

    endpoints: tuple[dict[str, Any], ...] | None = None
    ports: tuple[dict[str, Any], ...] | None = None


ENDPOINTSLICES: Final = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice)


class ProbeResult(Struct, frozen=True):
    """What a replica shows.

    Attributes:
        chain: its certificates, its own first; empty when it doesn't answer.
        clock: what time it is there, to the second, where it says so.
        trouble: why it doesn't answer.
    """

    chain: tuple[x509.Certificate, ...] = ()
    clock: datetime | None = None
    trouble: str = ""


class Prober(Protocol):
    """Looks at a replica."""

    async def __call__(self, address: str, name: str) -> ProbeResult:
        """Return what HOST:PORT shows to who asks for ``name``; never raises for what is wrong there."""
        ...


async def find(client: Client, services: Iterable[WebhookService], named: Sequence[str]) -> tuple[str, ...] | None:
    """Return the addresses (HOST:PORT) of all ready replicas; None where nobody can know them.

    They are those that somebody named, and those in the EndpointSlices of the Services.
    """
    called = sorted(set(services), key=lambda each: (each.namespace, each.name))
    if not called and not named:
        return None
    found = set(named)
    for service in called:
        selector = f"kubernetes.io/service-name={service.name}"
        for piece in (await client.list(ENDPOINTSLICES, service.namespace, labels=selector)).items:
            found.update(_ready(piece))
    return tuple(sorted(found))


def _ready(piece: EndpointSlice) -> Iterable[str]:
    # A Service of ours has one port; what a slice says of others is none of ours.
    port = next((each["port"] for each in piece.ports or () if each.get("port")), None)
    if port is None:
        return
    for endpoint in piece.endpoints or ():
        # Not said means ready.
        if (endpoint.get("conditions") or {}).get("ready") is not False:
            for address in endpoint.get("addresses") or ():
                yield f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


async def look(prober: Prober, addresses: Iterable[str], name: str) -> dict[str, ProbeResult]:
    """Look at all replicas, many at once."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(address: str) -> tuple[str, ProbeResult]:
        async with limit:
            return address, await prober(address, name)

    return dict(await asyncio.gather(*map(one, addresses)))


async def probe(address: str, name: str) -> ProbeResult:
    """Open a TLS connection and give what is shown; as `Prober`."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # What is wrong with the certificate is for others to judge; here it is only asked for.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(WITHIN):
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=context, server_hostname=name or None
            )
            try:
                return ProbeResult(_chain(writer), await _clock(reader, writer, name))
            finally:
                writer.close()
    except TimeoutError:
        return ProbeResult(trouble=f"no answer within {WITHIN:g} s")
    except (OSError, ValueError) as error:
        return ProbeResult(trouble=" ".join(str(error).split()))


def _chain(writer: asyncio.StreamWriter) -> tuple[x509.Certificate, ...]:
    # Python has it since 3.10 and shows it since 3.13; without verification nothing public gives more than the leaf.
    shown = writer.get_extra_info("ssl_object")
    inner = getattr(shown, "_sslobj", None)
    whole = inner.get_unverified_chain() if inner is not None else None
    ders = [each.public_bytes(2) for each in whole or ()] or [shown.getpeercert(binary_form=True)]
    return tuple(map(x509.load_der_x509_certificate, ders))


async def _clock(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> datetime | None:
    """Ask for anything and read the header Date; None where the server doesn't say it, or wants a client's certificate."""
    writer.write(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
    try:
        async with asyncio.timeout(_POLITE):
            head = await reader.readuntil(b"\r\n\r\n")
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    dated = (line for line in head[:_HEAD].decode("latin-1").split("\r\n") if line.lower().startswith("date:"))
    return date(next(dated, "").partition(":")[2])


def date(text: str) -> datetime | None:
    """Read the header Date, None where it isn't one."""
    try:
        moment = parsedate_to_datetime(text.strip())
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
