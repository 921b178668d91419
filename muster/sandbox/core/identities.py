"""Values that the server makes up: uids, endings of generated names, times. Repeatable with a seed."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Final

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_ENDING: Final = 5
_LONGEST: Final = 63
_VARIANTS: Final = "89ab"


class Identities:
    """A source of names. ``seed`` None: of the system's randomness."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311 - names, not secrets; a simulation has to repeat

    def uid(self) -> str:
        """Return a new uid."""
        bits = f"{self._random.getrandbits(128):032x}"
        # As `uuid.UUID(int=…, version=4)` writes it, five times as fast: two of the digits say what kind of uuid it is.
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{_VARIANTS[int(bits[16], 16) % 4]}{bits[17:20]}-{bits[20:]}"

    def name(self, prefix: str) -> str:
        """Return ``prefix``, cut where it is too long, with five letters that nobody reads as a word."""
        ending = "".join(self._random.choices(_ALPHABET, k=_ENDING))
        return prefix[: _LONGEST - _ENDING] + ending


def timestamp(moment: datetime) -> str:
    """Write a time as objects have it: in UTC, to the second."""
    return f"{moment.astimezone(UTC).isoformat()[:19]}Z"
