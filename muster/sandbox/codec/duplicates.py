"""Fields that stand more than once in a JSON object, which decoding would lose."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def duplicates(body: bytes) -> list[str]:
    """Return the paths of fields that stand more than once in their object, in the order in which Go finds them."""
    if not _may_repeat(body):
        return []
    found: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> _Pairs:
        return _Pairs(pairs)

    _walk(json.loads(body, object_pairs_hook=note), "", found)
    return list(dict.fromkeys(found))


def _may_repeat(body: bytes) -> bool:
    """Say whether a field may stand twice in JSON: cheap, and a no is certain.

    What is lost in decoding is lost for good, and with each repeated field its colon. An escaped colon would make up for
    it, so where there are escapes by number the answer is a maybe.
    """
    return b"\\u" in body or body.count(b":") != msgspec.json.encode(msgspec.json.decode(body)).count(b":")


class _Pairs(list[tuple[str, Any]]):
    """An object with all that stood in it."""


def _walk(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, each in value:
            below = f"{path}.{key}" if path else key
            _walk(each, below, found)
            if key in seen:
                found.append(below)
            seen.add(key)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            _walk(each, f"{path}[{index}]", found)
