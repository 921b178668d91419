"""Sets of fields in the form of FieldsV1, and the arithmetic on them.

A set is a tree: ``{"f:spec": {"f:replicas": {}}}``. A node is a member of the set when it is empty or holds ``"."``.
None is the empty set. Sets are not changed in place.
Source: ``sigs.k8s.io/structured-merge-diff`` (fieldpath.Set).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from muster.sandbox.codec.fields import ATOMIC, MAP, SET, Shape

Fields = dict[str, Any]

_SELF: Final = "."
_KEY_DEFAULTS: Final = {"protocol": "TCP"}
"""Fields of list keys that have a default, which a client may leave out."""

_encode: Final = msgspec.json.Encoder(order="sorted").encode


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────────────────────────


def is_member(node: Fields) -> bool:
    """Say whether the node itself is in the set, not only something below it."""
    return not node or _SELF in node


def union(one: Fields | None, other: Fields | None) -> Fields | None:
    """Return all members of both."""
    if one is None or other is None:
        return other if one is None else one
    merged = {key: child for key, child in other.items() if key != _SELF}
    for key, child in one.items():
        if key != _SELF:
            merged[key] = union(child, merged.get(key)) or {}
    if merged and (is_member(one) or is_member(other)):
        merged[_SELF] = {}
    return merged


def minus(one: Fields | None, other: Fields | None) -> Fields | None:
    """Return the members of ``one`` that aren't in ``other``."""
    if one is None or other is None:
        return one
    left: Fields = {}
    for key, child in one.items():
        if key != _SELF:
            rest = minus(child, other.get(key))
            if rest is not None:
                left[key] = rest
    if is_member(one) and not is_member(other):
        if left:
            left[_SELF] = {}
        return left
    return left or None


def common(one: Fields | None, other: Fields | None) -> Fields | None:
    """Return the members that are in both."""
    if one is None or other is None:
        return None
    both: Fields = {}
    for key, child in one.items():
        if key != _SELF and key in other:
            shared = common(child, other[key])
            if shared is not None:
                both[key] = shared
    if is_member(one) and is_member(other):
        if both:
            both[_SELF] = {}
        return both
    return both or None


def paths(fields: Fields | None, prefix: str = "") -> Iterator[str]:
    """Return the members as text: ``.spec.containers[name="c"].image``."""
    for key, child in (fields or {}).items():
        if key == _SELF:
            continue
        path = prefix + _shown(key)
        if is_member(child):
            yield path
        yield from paths(child, path)


def _shown(key: str) -> str:
    kind, _, text = key.partition(":")
    if kind == "f":
        return f".{text}"
    if kind == "k":
        parts = (f"{name}={_encode(value).decode()}" for name, value in sorted(msgspec.json.decode(text).items()))
        return f"[{','.join(parts)}]"
    return f"[={text}]"


# ── from objects ─────────────────────────────────────────────────────────────────────────────────────────────────


def of_value(value: Any, shape: Shape, *, inner: bool, new: bool = False) -> Fields:
    """Return the set of everything in a value.

    ``inner``: whether what holds other fields is a member beside them, as it is for who made it by an update, not by
    an apply; ``new``: whether this value itself is one of those.
    """
    kind = type(value)
    if not value or shape.merges == ATOMIC or kind not in {dict, list}:
        return {}
    if kind is list:
        fields = _of_list(value, shape, inner=inner)
    elif shape.type in {"object", "dict"}:
        fields = _of_fields(value, shape, inner=inner, new=new)
    else:
        return {}
    if fields and inner and new:
        fields[_SELF] = {}
    return fields


def _of_fields(value: dict[str, Any], shape: Shape, *, inner: bool, new: bool) -> Fields:
    fields: Fields = {}
    for key, each in value.items():
        if each and type(each) in {dict, list}:
            fields[f"f:{key}"] = _of_field(each, shape.child(key), inner=inner, new=new)
        elif each or _counts_empty(each, shape.child(key), inner=inner, new=new):
            # What every object has isn't set by who leaves it empty.
            fields[f"f:{key}"] = {}
    return fields


def _counts_empty(value: Any, shape: Shape, *, inner: bool, new: bool) -> bool:
    if inner:
        return new or not shape.always
    # Of an applied list that merges its entries are wanted, and there are none.
    return value != [] or shape.merges not in {MAP, SET}


def _of_field(value: Any, shape: Shape, *, inner: bool, new: bool) -> Fields:
    # Within something that is there already, a field that every object has isn't new.
    return of_value(value, shape, inner=inner, new=new or not shape.always)


def _of_list(value: list[Any], shape: Shape, *, inner: bool) -> Fields:
    entries = entries_of(value, shape)
    if entries is None or shape.element is None:
        return {}
    if shape.merges == SET:
        return {key: {} for key in entries}
    element = shape.element
    fields = {}
    for key, each in entries.items():
        inside = of_value(each, element, inner=inner, new=True)
        fields[key] = {**inside, _SELF: {}} if inside else {}
    return fields


def entries_of(value: list[Any], shape: Shape) -> dict[str, Any] | None:
    """Return the entries of a list that merges, by their keys; None when it doesn't, or an entry has no key."""
    if shape.merges == SET:
        return {f"v:{_encode(each).decode()}": each for each in value}
    if shape.merges != MAP:
        return None
    entries: dict[str, Any] = {}
    for each in value:
        key = _entry_key(each, shape.keys)
        if key is None:
            return None
        entries[key] = each
    return entries


def _entry_key(entry: Any, names: Iterable[str]) -> str | None:
    if type(entry) is not dict:
        return None
    key = {}
    for name in names:
        value = entry.get(name, _KEY_DEFAULTS.get(name))
        if value is None:
            continue
        key[name] = value
    return f"k:{_encode(key).decode()}" if key else None


def difference(old: Any, new: Any, shape: Shape) -> tuple[Fields | None, Fields | None]:
    """Return what is set or changed in ``new``, and what ``old`` had that ``new`` has no more."""
    if old is new or old == new:
        return None, None
    if type(old) is dict and type(new) is dict and shape.type in {"object", "dict"} and shape.merges != ATOMIC:
        before = {f"f:{key}": (each, shape.child(key)) for key, each in old.items()}
        after = {f"f:{key}": (each, shape.child(key)) for key, each in new.items()}
        return _difference_of(before, after)
    if type(old) is list and type(new) is list and shape.element is not None and shape.merges in {MAP, SET}:
        before_entries, after_entries = entries_of(old, shape), entries_of(new, shape)
        if before_entries is not None and after_entries is not None:
            element = shape.element
            return _difference_of(
                {key: (each, element) for key, each in before_entries.items()},
                {key: (each, element) for key, each in after_entries.items()},
            )
    return {}, None


def _difference_of(
    before: dict[str, tuple[Any, Shape]], after: dict[str, tuple[Any, Shape]]
) -> tuple[Fields | None, Fields | None]:
    changed: Fields = {}
    removed: Fields = {}
    for key, (new, shape) in after.items():
        if key not in before:
            changed[key] = _of_field(new, shape, inner=True, new=False)
            continue
        changes, removals = difference(before[key][0], new, shape)
        if changes is not None:
            changed[key] = changes
        if removals is not None:
            removed[key] = removals
    for key, (old, shape) in before.items():
        if key not in after:
            removed[key] = _of_field(old, shape, inner=True, new=False)
    return changed or None, removed or None
