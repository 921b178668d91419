"""From JSON to structs. One object that can't be read is set aside with its reason; the rest goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from muster.kube import errors
from muster.model import objects
from muster.model.kinds import Kind
from muster.model.nesting import decode_shallow

T = TypeVar("T", bound=objects.Object)

_MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError)


@lru_cache(maxsize=256)
def decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """Return the one decoder for ``type_``; making one costs more than most decodes."""
    return msgspec.json.Decoder(type_)


class Unreadable(Struct, frozen=True):
    """An object that doesn't decode to its struct.

    Attributes:
        about: its name, namespace, uid and resourceVersion; nothing else of it.
        reason: the decoder's error, at most `errors.TEXT_LIMIT` characters.
        node: its spec.nodeName; empty where it has none.
    """

    about: objects.Object
    reason: str
    node: str = ""


class ListPage(Struct, Generic[T], frozen=True):
    """One page of a list.

    Attributes:
        items: the objects that could be decoded.
        unreadable: the others.
        resource_version: the version that the whole list shows.
        token: the parameter ``continue`` for the next page; empty on the last.
    """

    items: tuple[T, ...]
    unreadable: tuple[Unreadable, ...]
    resource_version: str
    token: str


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    # `continue` is a keyword, so the field has a name of its own.
    token: str = msgspec.field(default="", name="continue")


class _Wire(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta
    # The API server writes null for a list of none in some answers.
    items: tuple[T, ...] | None = None


class _RawWire(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


# Identity alone: what an object must have for us to know which one can't be read.
class _Identity(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""


class _MetadataOnly(msgspec.Struct, frozen=True):
    metadata: _Identity


# And of a pod, which node it takes something of.
class _PlaceSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Placed(msgspec.Struct, frozen=True):
    spec: _PlaceSpec = _PlaceSpec()


def page(kind: Kind[T], body: bytes) -> ListPage[T]:
    """Return one page of a list; objects that can't be decoded are in `ListPage.unreadable`.

    Raises:
        ServerError: the body is no list.
    """
    try:
        wire = decode_shallow(decoder(_Wire[kind.struct]).decode, body)  # type: ignore[name-defined]
    except Exception:  # noqa: BLE001 - the same is tried of each object, where the reason is told
        return _one_by_one(kind, body)
    return ListPage(wire.items or (), (), wire.metadata.resource_version, wire.metadata.token)


def _one_by_one(kind: Kind[T], body: bytes) -> ListPage[T]:
    wire: _RawWire = strictly(_RawWire, body)
    decoded: Sequence[T | Unreadable] = [item(kind, raw) for raw in wire.items or ()]
    return ListPage(
        tuple(each for each in decoded if not isinstance(each, Unreadable)),
        tuple(each for each in decoded if isinstance(each, Unreadable)),
        wire.metadata.resource_version,
        wire.metadata.token,
    )


def item(kind: Kind[T], body: bytes | msgspec.Raw) -> T | Unreadable:
    """Return one object, decoded to the struct of its kind, or the reason why it can't be.

    Raises:
        ServerError: it has no readable metadata, so nobody can say which object it is.
    """
    try:
        decoded: T = decode_shallow(decoder(kind.struct).decode, body)
    except Exception as error:  # noqa: BLE001 - a decoder's defect must not hide all objects behind one
        bare: _MetadataOnly = strictly(_MetadataOnly, body)
        reason = str(error) if isinstance(error, _MALFORMED) else f"{type(error).__name__}: {error}"
        return Unreadable(objects.Object(metadata=_meta(bare.metadata)), errors.bounded(reason), _node(body))
    return decoded


def _node(body: bytes | msgspec.Raw) -> str:
    try:
        placed: _Placed = strictly(_Placed, body)
    except errors.ServerError:
        return ""
    return placed.spec.node_name


def _meta(bare: _Identity) -> objects.Meta:
    return objects.Meta(name=bare.name, namespace=bare.namespace, uid=bare.uid, resource_version=bare.resource_version)


def strictly(type_: Any, body: bytes | msgspec.Raw) -> Any:
    """Return a JSON document as a value of ``type_``.

    Raises:
        ServerError: the document is of another shape; its code is 502.
    """
    try:
        return decode_shallow(decoder(type_).decode, body)
    except _MALFORMED as error:
        raise errors.ServerError(502, "", f"the API server's answer can't be read: {error}") from error
