"""Records changes to a JSON document as a JSON Patch (RFC 6902)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from muster.kube.decoding import decoder
from muster.model.objects import Json, Meta

_MEMBERS: Final[Any] = dict[str, msgspec.Raw] | None


class PatchRecorder:
    """Changes members of nested JSON objects and remembers how.

    Missing parents are made, names escaped, and what changes nothing is left out: a patch of a patched document is
    empty, which is what lets the API server call a mutating webhook again. Only the objects on the way to a change are
    read: an object under review is large, and a change is small.
    """

    def __init__(self, document: bytes | msgspec.Raw) -> None:
        self._document = _members(document)
        self._operations: list[dict[str, Json]] = []

    @property
    def operations(self) -> tuple[dict[str, Json], ...]:
        """The operations recorded so far, in order."""
        return tuple(self._operations)

    def set(self, *path: str, value: Json) -> None:
        """Return the member at ``path`` that value; whatever is on the way to it is an object or isn't there."""
        parent = self._document
        for depth, name in enumerate(path[:-1], start=1):
            below = parent.get(name)
            if isinstance(below, msgspec.Raw):
                below = parent[name] = _members(below)
            if below is None:
                # One operation makes the whole missing branch; an explicit null is replaced by it.
                for missing in reversed(path[depth:]):
                    value = {missing: value}
                self._put(parent, path[:depth], value)
                return
            parent = below
        self._put(parent, path, value)

    def _put(self, parent: dict[str, Any], path: tuple[str, ...], value: Json) -> None:
        name = path[-1]
        if name in parent and _same(parent[name], value):
            return
        verb = "replace" if name in parent else "add"
        parent[name] = value
        self._operations.append({"op": verb, "path": _pointer(path), "value": value})


def annotating(meta: Meta, key: str, value: str) -> tuple[dict[str, Json], ...]:
    """Return the operations that set an annotation of an object of which the metadata were read; none where it has that value."""
    if meta.annotations is None:
        return ({"op": "add", "path": "/metadata/annotations", "value": {key: value}},)
    if key in meta.annotations and meta.annotations[key] == value:
        return ()
    verb = "replace" if key in meta.annotations else "add"
    return ({"op": verb, "path": _pointer(("metadata", "annotations", key)), "value": value},)


def _members(document: bytes | msgspec.Raw) -> Any:
    """Read one level: an object's members stay raw; anything else (a null, say) is read whole."""
    return decoder(_MEMBERS).decode(document)


def _same(there: Any, value: Json) -> bool:
    if isinstance(there, msgspec.Raw):
        there = msgspec.json.decode(there)
    # To Python, true equals 1.
    return bool(there == value) and msgspec.json.encode(there) == msgspec.json.encode(value)


def _pointer(path: tuple[str, ...]) -> str:
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)
