"""Bodies in Kubernetes' protobuf form as JSON.

kubectl sends them for `create namespace` and every other `create NOUN`, for `create token`, `auth whoami` and
`auth can-i`, and doesn't try JSON after a refusal. Read are the kinds and fields of `muster.sandbox.codec.protomessages`;
any other is refused, never dropped.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.codec.protomessages import MESSAGES, ROOTS
from muster.sandbox.core.status import StatusError, bad_request

Json = dict[str, Any]

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT_LIMIT: Final = 10


class _Field(Struct, frozen=True):
    name: str
    type: str
    shape: str
    """Empty, ``[]`` or ``{}``."""
    keep: str
    """Empty, ``?`` or ``!``; see `muster.sandbox.codec.protomessages`."""


def decode(body: bytes) -> Json:
    """Read an object.

    Raises:
        StatusError: 415 when the kind or a field that is set isn't among those that can be read; 400 when the body is
            no such message.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not protobuf as Kubernetes writes it: it doesn't start with k8s and a zero byte")
    try:
        return _object(body[len(_MAGIC) :])
    except (IndexError, UnicodeDecodeError, OverflowError) as error:
        raise bad_request("the protobuf body can't be read: it is cut short or malformed") from error


def _object(unknown: bytes) -> Json:
    envelope = dict(_fields(unknown))
    types = {
        number: value.decode() for number, value in _fields(_bytes(envelope.get(1, b""))) if isinstance(value, bytes)
    }
    version, kind = types.get(1, ""), types.get(2, "")
    if kind not in ROOTS.get(version, ()):
        what = f"kind {kind!r} of apiVersion {version!r}"
        raise _unsupported(f"{what} can't be read as protobuf here: send it as JSON")
    return {"kind": kind, "apiVersion": version} | _message(kind, _bytes(envelope.get(2, b"")))


def _unsupported(why: str) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", why)


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _fields_of(message: str) -> dict[int, _Field]:
    fields = {}
    for text in MESSAGES[message].split(", "):
        number, name, kind = text.split(" ")
        shape = kind[:2] if kind[:2] in {"[]", "{}"} else ""
        bare = kind[len(shape) :]
        fields[int(number)] = _Field(name, bare.rstrip("?!"), shape, bare[len(bare.rstrip("?!")) :])
    return fields


def _message(message: str, data: bytes) -> Json:
    known = _fields_of(message)
    result: Json = {field.name: _EMPTY.get(field.type, dict)() for field in known.values() if field.keep == "!"}
    for number, value in _fields(data):
        field = known.get(number)
        if field is None:
            # A zero is how the sender's language writes a field that nobody set.
            if value:
                raise _unsupported(
                    f"field {number} of {message} can't be read as protobuf here: send the object as JSON"
                )
        elif field.shape == "[]":
            result.setdefault(field.name, []).append(_value(field.type, value))
        elif field.shape == "{}":
            entry = dict(_fields(_bytes(value)))
            key, content = _bytes(entry.get(1, b"")).decode(), entry.get(2, b"")
            result.setdefault(field.name, {})[key] = _value(field.type, content)
        else:
            _set(result, field, value)
    return result


def _set(result: Json, field: _Field, value: int | bytes) -> None:
    if field.type == "-":
        return
    read = _value(field.type, value)
    if field.name == ".":
        result.update(read)
    elif field.keep or read:
        result[field.name] = read


def _value(kind: str, value: int | bytes) -> Any:
    if kind == "i":
        return _signed(_integer(value))
    if kind == "b":
        return bool(_integer(value))
    data = _bytes(value)
    special = _SPECIAL.get(kind)
    return special(data) if special is not None else _message(kind, data)


def _time(data: bytes) -> str:
    """Return RFC 3339 with as many fractional digits as the value has; empty for the zero time."""
    parts = dict(_fields(data))
    seconds, nanos = _signed(_integer(parts.get(1, 0))), _signed(_integer(parts.get(2, 0)))
    if not seconds and not nanos:
        return ""
    moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{moment.microsecond:06d}" if nanos else "") + "Z"


def _quantity(data: bytes) -> str:
    return _bytes(dict(_fields(data)).get(1, b"")).decode()


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_fields(data))
    if parts.get(1, 0):
        return _bytes(parts.get(3, b"")).decode()
    return _signed(_integer(parts.get(2, 0)))


_SPECIAL: Final[dict[str, Callable[[bytes], Any]]] = {
    "s": bytes.decode,
    "y": lambda data: base64.b64encode(data).decode(),
    "Time": _time,
    "MicroTime": _time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
}
_EMPTY: Final[dict[str, Callable[[], Any]]] = {"s": str, "i": int, "b": bool, "IntOrString": int}


# ── the wire ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return number and value of each field in order.

    Raises:
        IndexError: the data ends inside a field, or has a wire type that isn't used by Kubernetes.
    """
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        value, position = _varint(data, position)
        if wire == 0:
            yield number, value
        elif wire == 2 and position + value <= len(data):
            yield number, data[position : position + value]
            position += value
        else:
            raise IndexError(position)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_LIMIT):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise IndexError(position)


def _signed(value: int) -> int:
    """Undo the two's complement of 64 bits in which negative integers are sent."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise IndexError(value)
    return value


def _integer(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise IndexError(len(value))
    return value
