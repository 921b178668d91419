"""What Go's JSON decoder says about a text that isn't JSON.

Clients show these words to people, and the real server's are Go's. Source: ``encoding/json`` (scanner).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

_TRUNCATED: Final = "unexpected end of JSON input"
_VALUE: Final = "looking for beginning of value"
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_SPACES: Final = re.compile(r"[ \t\r\n]*")


class _SyntaxError(Exception):
    """Where Go stops, in its words."""


def explain(body: bytes) -> str:
    """Return Go's words for the first mistake in ``body``, which isn't JSON."""
    text = body.decode(errors="replace")
    try:
        end = _space(text, _value(text, _space(text, 0)))
        if end < len(text):
            return _unexpected(text, end, "after top-level value")
    except _SyntaxError as error:
        return str(error)
    except RecursionError:
        return "exceeded max depth"
    return _TRUNCATED


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


def _space(text: str, at: int) -> int:
    match = _SPACES.match(text, at)
    return match.end() if match else at


def _unexpected(text: str, at: int, where: str) -> str:
    if at >= len(text):
        return _TRUNCATED
    character = {"'": r"'\''", '"': "'\"'"}.get(text[at]) or f"'{json.dumps(text[at])[1:-1]}'"
    return f"invalid character {character} {where}"


def _value(text: str, at: int) -> int:
    first = text[at : at + 1]
    if first == "{":
        return _object(text, at + 1)
    if first == "[":
        return _array(text, at + 1)
    if first == '"':
        return _string(text, at)
    if first in _LITERALS and first:
        return _literal(text, at, _LITERALS[first])
    number = _NUMBER.match(text, at)
    if number is None:
        raise _SyntaxError(_unexpected(text, at, "in numeric literal" if first == "-" else _VALUE))
    return number.end()


def _literal(text: str, at: int, word: str) -> int:
    for index, letter in enumerate(word):
        if text[at + index : at + index + 1] != letter:
            # At the end Go looks one blank further.
            given = text[at + index : at + index + 1] or " "
            raise _SyntaxError(_unexpected(given, 0, f"in literal {word} (expecting '{letter}')"))
    return at + len(word)


def _string(text: str, at: int) -> int:
    match = _STRING.match(text, at)
    stop = match.end() if match else at + 1
    if text[stop : stop + 1] == '"':
        return stop + 1
    if text[stop : stop + 1] == "\\":
        raise _SyntaxError(_unexpected(text, stop + 1, "in string escape code"))
    raise _SyntaxError(_unexpected(text, stop, "in string literal"))


def _object(text: str, at: int) -> int:
    at = _space(text, at)
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        if text[at : at + 1] != '"':
            raise _SyntaxError(_unexpected(text, at, "looking for beginning of object key string"))
        at = _space(text, _string(text, at))
        if text[at : at + 1] != ":":
            raise _SyntaxError(_unexpected(text, at, "after object key"))
        at = _space(text, _value(text, _space(text, at + 1)))
        if text[at : at + 1] == "}":
            return at + 1
        if text[at : at + 1] != ",":
            raise _SyntaxError(_unexpected(text, at, "after object key:value pair"))
        at = _space(text, at + 1)


def _array(text: str, at: int) -> int:
    at = _space(text, at)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        at = _space(text, _value(text, at))
        if text[at : at + 1] == "]":
            return at + 1
        if text[at : at + 1] != ",":
            raise _SyntaxError(_unexpected(text, at, "after array element"))
        at = _space(text, at + 1)
