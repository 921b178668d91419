"""Formats of strings that the server checks."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from typing import Final

from muster.cel.times import parse_duration, parse_timestamp
from muster.cel.values import CelError

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}")
_MAC: Final = re.compile(r"[0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}")
_URI: Final = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*:|/)[^\s\x00-\x1f]*")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt].+")


def _reads(reader: Callable[[str], object]) -> Callable[[str], bool]:
    def good(text: str) -> bool:
        try:
            reader(text)
        except (CelError, ValueError, binascii.Error):
            return False
        return True

    return good


_good_time: Final = _reads(parse_timestamp)

CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "date": lambda text: _DATE.fullmatch(text) is not None and _good_time(text),
    "date-time": lambda text: _DATE_TIME.fullmatch(text) is not None and _good_time(text),
    "duration": _reads(parse_duration),
    "byte": _reads(lambda text: base64.b64decode(text, validate=True)),
    "ipv4": _reads(ipaddress.IPv4Address),
    "ipv6": _reads(ipaddress.IPv6Address),
    "cidr": _reads(lambda text: ipaddress.ip_network(text, strict=False)),
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "password": lambda _text: True,
}

UNSUPPORTED: Final = frozenset(
    {"bsonobjectid", "email", "hostname", "uuid3", "uuid4", "uuid5", "isbn", "isbn10", "isbn13", "creditcard", "ssn"}
    | {"hexcolor", "rgbcolor", "k8s-short-name", "k8s-long-name", "datetime"}
)
"""Formats that the real server checks and the sandbox doesn't: a definition that uses one is refused."""

INTEGER_RANGES: Final = {"int32": 2**31, "int64": 2**63}
