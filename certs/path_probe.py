"""The probe of a path at one replica: whether it is taken, and when a call failed there last.

The path is told only to who shows a certificate that API servers would trust: an address in an EndpointSlice proves nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from typing import Final, Protocol

from msgspec import Struct

from certs.path_secret import PathEntry, path_of
from muster.model.names import FAILED_HEADER

WITHIN: Final = 5.0
"""Seconds that a replica has to answer."""
_TAKEN: Final = "405"
_STRANGER: Final = "404"


class PathProbe(Struct, frozen=True):
    """What a replica says.

    Attributes:
        taken: whether it takes the path; None where it doesn't say.
        failed_at: when a call failed last, where it says so.
        hung_up: whether it showed its certificate and then said nothing, as one that demands a certificate does.
    """

    taken: bool | None = None
    failed_at: datetime | None = None
    hung_up: bool = False


class PathProber(Protocol):
    """Asks a replica."""

    async def __call__(self, address: str, entry: PathEntry, segment: str) -> PathProbe:
        """Ask HOST:PORT for the path of an entry with a segment; never raises for what is wrong there."""
        ...


async def probe(address: str, entry: PathEntry, segment: str) -> PathProbe:
    """Ask as `PathProber`: a GET of a webhook is refused with 405, and of anything else with 404."""
    host, _, port = address.rpartition(":")
    try:
        context = ssl.create_default_context(cadata=entry.trusted.decode("ascii") or None)
        # What API servers accept: authorities of others may lack what RFC 5280 wants of them.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        async with asyncio.timeout(WITHIN):
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=context, server_hostname=entry.host or None
            )
            try:
                path = path_of(entry.hook, segment)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {entry.host}\r\nConnection: close\r\n\r\n".encode())
                return answer((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            finally:
                writer.close()
    except asyncio.IncompleteReadError as error:
        return PathProbe(hung_up=not error.partial)
    except (OSError, ValueError, TimeoutError, asyncio.LimitOverrunError):
        return PathProbe()


def answer(head: str) -> PathProbe:
    """Read the head of an answer."""
    first, *lines = head.split("\r\n")
    status = first.split(" ")[1:2]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    said = headers.get(FAILED_HEADER.lower(), "")
    failed_at = datetime.fromtimestamp(int(said), UTC) if said.isdigit() and len(said) <= 10 else None
    return PathProbe({_TAKEN: True, _STRANGER: False}.get("".join(status)), failed_at)
