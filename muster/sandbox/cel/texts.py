"""Functions on text."""

from __future__ import annotations

import re
from typing import Any, Final

from muster.model.amounts import Quantity
from muster.sandbox.cel.numbers import Row, double_text
from muster.sandbox.cel.regular import PatternError, compile_pattern
from muster.sandbox.cel.times import duration_text, timestamp_text
from muster.sandbox.cel.values import CelError, kind_of
from muster.sandbox.core.status import quote

_MOST: Final = 1 << 20


def pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of Go's engine.

    Raises:
        CelError: it isn't one, or one that can't be translated.
    """
    try:
        return compile_pattern(text)
    except PatternError as error:
        raise CelError(str(error)) from error


def _matches(text: str, wanted: str) -> bool:
    return pattern(wanted).search(text) is not None


def _find(text: str, wanted: str) -> str:
    match = pattern(wanted).search(text)
    return match.group() if match else ""


def _find_all(text: str, wanted: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in pattern(wanted).finditer(text)]
    return found if limit < 0 else found[:limit]


def _character(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _index(text: str, wanted: str, start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    return text.find(wanted, start)


def _last_index(text: str, wanted: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(wanted)
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    return text.rfind(wanted, 0, start + len(wanted))


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise CelError(f"index out of range: {end}")
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    result = text.replace(old, new, limit)
    if len(result) > _MOST:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return result


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        characters = list(text)
        return characters if limit < 0 or limit >= len(characters) else [*characters[: limit - 1], text[limit - 1 :]]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _joined(parts: list[Any], separator: str = "") -> str:
    if any(not isinstance(part, str) for part in parts):
        raise CelError("no such overload")
    return separator.join(parts)


def _added(left: str, right: str) -> str:
    if len(left) + len(right) > _MOST:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return left + right


def _lower(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)


def _upper(text: str) -> str:
    return "".join(character.upper() if character.isascii() else character for character in text)


_VERB: Final = re.compile(r"%(?:(%)|(?:\.([0-9]+))?([sdfebxXo]))|%")


_CLAUSES: Final = {
    "d": ("decimal", "integers"),
    "f": ("fixed-point", "doubles"),
    "e": ("scientific", "doubles"),
    "b": ("binary", "integers and bools"),
    "x": ("hex", "integers, byte buffers, and strings"),
    "X": ("hex", "integers, byte buffers, and strings"),
    "o": ("octal", "integers"),
}


def _formatted(text: str, values: list[Any]) -> str:
    remaining = iter(values)

    def fill(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        if match[3] is None:
            raise CelError("could not parse formatting clause: unrecognized formatting clause")
        try:
            value = next(remaining)
        except StopIteration:
            raise CelError(f"index {len(values)} out of range") from None
        return _clause(match[3], value, int(match[2] or 6))

    return _VERB.sub(fill, text)


def _clause(verb: str, value: Any, precision: int) -> str:
    if verb == "s":
        return shown(value)
    kind = kind_of(value)
    number = kind in {"int", "uint"}
    if verb == "d" and number:
        return str(value)
    if verb in "fe" and (number or kind == "double"):
        return f"{float(value):.{min(precision, 100)}{verb}}"
    if verb in "bxXo" and (number or (verb == "b" and kind == "bool")):
        return f"{int(value):{verb}}"
    if verb in "xX" and kind in {"string", "bytes"}:
        digits: str = (value.encode() if kind == "string" else value).hex()
        return digits.upper() if verb == "X" else digits
    clause, wanted = _CLAUSES[verb]
    raise CelError(f"error during formatting: {clause} clause can only be used on {wanted}, was given {kind}")


def shown(value: Any) -> str:
    """Write a value as ``%s`` does."""
    match kind_of(value):
        case "string":
            return str(value)
        case "null":
            return "null"
        case "bool":
            return "true" if value else "false"
        case "double":
            return double_text(value)
        case "bytes":
            return str(value, "utf-8", "replace")
        case "timestamp":
            return timestamp_text(value)
        case "duration":
            return duration_text(value)
        case "list":
            return f"[{', '.join(map(_inside, value))}]"
        case "map":
            return f"{{{', '.join(f'{_inside(key)}:{_inside(value[key])}' for key in sorted(value, key=str))}}}"
        case "type":
            return str(value.name)
        case _ if isinstance(value, Quantity):
            raise CelError(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given kubernetes.Quantity"
            )
    return str(value)


def _inside(value: Any) -> str:
    return quote(value) if isinstance(value, str) else shown(value)


FUNCTIONS: Final[tuple[Row, ...]] = (
    ("+", "string; string", "string", _added),
    ("+", "bytes; bytes", "bytes", lambda a, b: a + b),
    ("size", "string", "int", len),
    (".size", "string", "int", len),
    ("size", "bytes", "int", len),
    (".size", "bytes", "int", len),
    (".startsWith", "string; string", "bool", str.startswith),
    (".endsWith", "string; string", "bool", str.endswith),
    (".contains", "string; string", "bool", lambda a, b: b in a),
    (".matches", "string; string", "bool", _matches),
    ("matches", "string; string", "bool", _matches),
    (".find", "string; string", "string", _find),
    (".findAll", "string; string", "list(string)", _find_all),
    (".findAll", "string; string; int", "list(string)", _find_all),
    (".charAt", "string; int", "string", _character),
    (".indexOf", "string; string", "int", _index),
    (".indexOf", "string; string; int", "int", _index),
    (".lastIndexOf", "string; string", "int", _last_index),
    (".lastIndexOf", "string; string; int", "int", _last_index),
    (".substring", "string; int", "string", _substring),
    (".substring", "string; int; int", "string", _substring),
    (".replace", "string; string; string", "string", _replace),
    (".replace", "string; string; string; int", "string", _replace),
    (".split", "string; string", "list(string)", _split),
    (".split", "string; string; int", "list(string)", _split),
    (".join", "list(string)", "string", _joined),
    (".join", "list(string); string", "string", _joined),
    (".lowerAscii", "string", "string", _lower),
    (".upperAscii", "string", "string", _upper),
    (".trim", "string", "string", str.strip),
    (".format", "string; list(A)", "string", _formatted),
)
