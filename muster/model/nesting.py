"""JSON that is nested deeper than decoders go: an API server stores 10,000 levels from anybody, in ``managedFields``.

A decoder in C recurses once for each level, and gives up at a depth that differs between versions of Python and with how
deep the caller stands. Nothing that Muster reads is nested deeper than a few dozen levels, so what is deeper is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

DEPTH: Final = 60
"""Levels that are kept. The deepest field that Muster reads is at 12; a list of objects adds two."""

# Strings are passed over whole. Nothing here backtracks, so the time is that of the text.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)
_OPEN: Final = frozenset(b"[{")
_QUOTE: Final = ord('"')


def decode_shallow(decode: Callable[[Any], T], text: bytes | msgspec.Raw) -> T:
    """Decode JSON; where it is nested too deeply for ``decode``, without what lies deeper than `DEPTH`.

    Raises:
        whatever ``decode`` raises, but no RecursionError for the depth of ``text``.
    """
    try:
        return decode(text)
    except RecursionError:
        return decode(shallow(bytes(text)))


def shallow(text: bytes) -> bytes:
    """Return JSON text in which each value that lies deeper than `DEPTH` is null; what isn't JSON stays none."""
    kept: list[bytes] = []
    level = copied = cut = 0
    for token in _TOKEN.finditer(text):
        place = token.start()
        sign = text[place]
        if sign == _QUOTE:
            continue
        if sign in _OPEN:
            level += 1
            if level == DEPTH + 1:
                cut = place
        else:
            if level == DEPTH + 1:
                kept += (text[copied:cut], b"null")
                copied = place + 1
            level -= 1
    # Where brackets don't match it is no JSON; its decoder says so, and must not be led into the depth for that.
    return b"".join((*kept, text[copied:cut] if level > DEPTH else text[copied:]))
