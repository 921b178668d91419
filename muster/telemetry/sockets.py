"""Listening sockets: of both families where an address doesn't choose one, on one port."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

BACKLOG: Final = 1024
_TRIES: Final = 8
"""Ports of the system's choice that are tried, for one that is free in both families."""
_ABSENT: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})
"""What a machine says that lacks a family."""

Address = tuple[int, Any]
"""A family, and an address of it."""


async def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on a host's addresses; on all of this machine where ``host`` is empty: IPv6 and IPv4, as far as it has them.

    With port 0 the system chooses one, the same for all.

    Raises:
        OSError: an address is taken or not ours, or there is neither family.
    """
    if host:
        found = await _looked_up(host, port)
        return _all({(family, address): None for family, *_, address in found}, needed=True)
    for tries_left in reversed(range(_TRIES)):
        try:
            return _everywhere(port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or not tries_left:
                raise
    raise AssertionError


async def _looked_up(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    try:
        # A thread looks names up; an address, as there mostly is, needs none.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)


def _everywhere(port: int) -> list[socket.socket]:
    opened = _all([(socket.AF_INET6, ("::", port))], needed=False)
    try:
        # Where the system chooses, the second gets the port of the first.
        chosen = int(opened[0].getsockname()[1]) if opened else port
        return opened + _all([(socket.AF_INET, ("0.0.0.0", chosen))], needed=not opened)  # noqa: S104 - that is asked for
    except OSError:
        _close(opened)
        raise


def _all(addresses: Iterable[Address], *, needed: bool) -> list[socket.socket]:
    """Listen on some addresses; where they aren't ``needed``, without those of a family that this machine lacks."""
    opened: list[socket.socket] = []
    for family, address in addresses:
        try:
            opened.append(_one(family, address))
        except OSError as error:
            if needed or error.errno not in _ABSENT:
                _close(opened)
                raise
    return opened


def _one(family: int, address: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The other family has a socket of its own, where it is asked for.
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        with suppress(OSError):
            each.close()


def shown(host: str, port: int) -> str:
    """Write an address as URLs have it: IPv6 in brackets; of an empty host the port alone."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
