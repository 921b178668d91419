"""Strategic merge patches: merges that know which lists merge by a key, and directives in ``$…`` fields.

Source: ``k8s.io/apimachinery/pkg/util/strategicpatch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from muster.sandbox.codec.fields import Shape
from muster.sandbox.core.status import StatusError, bad_request

Json = dict[str, Any]

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"


def strategic_merge(shape: Shape, obj: Json, patch: Json) -> Json:
    """Return ``obj`` with a strategic merge patch applied; both are left as they are.

    Raises:
        StatusError: 400 or, as the real server has it, 500 when a directive or an entry of a list is malformed.
    """
    directive = patch.get(_PATCH)
    if directive == "replace":
        return strategic_merge(shape, {}, {key: value for key, value in patch.items() if key != _PATCH})
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise StatusError(500, "", f"unknown patch type: {directive} in map: {go_text(patch)}")
    result = _retained(obj, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
            continue
        child = shape.child(key)
        order = patch.get(_ORDER + key)
        result[key] = _merged(child, result.get(key), value, order)
    _directives_alone(shape, result, patch)
    return result


def _retained(obj: Json, patch: Json) -> Json:
    keep = patch.get(_RETAIN)
    if keep is None:
        return dict(obj)
    if not isinstance(keep, list):
        raise bad_request(f"{_RETAIN} has to be a list")
    surplus = {key for key, value in patch.items() if value is not None and not key.startswith("$")} - set(keep)
    if surplus:
        raise bad_request(f"{_RETAIN} doesn't name what the patch sets: {', '.join(sorted(surplus))}")
    return {key: value for key, value in obj.items() if key in keep}


def _directives_alone(shape: Shape, result: Json, patch: Json) -> None:
    """Carry out deletions from primitive lists, and orders of lists that the patch doesn't change otherwise."""
    for key, value in patch.items():
        if key.startswith(_DELETE):
            name = key.removeprefix(_DELETE)
            gone = value if isinstance(value, list) else []
            if isinstance(result.get(name), list):
                result[name] = [each for each in result[name] if each not in gone]
        elif key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            if name not in patch and isinstance(result.get(name), list):
                result[name] = _ordered(shape.child(name), result[name], result[name], value)


def _merged(shape: Shape, old: Any, value: Any, order: Any) -> Any:
    if isinstance(value, dict):
        if "replace" in shape.strategy or not isinstance(old, dict):
            return strategic_merge(shape, {}, value)
        return strategic_merge(shape, old, value)
    if isinstance(value, list):
        if "merge" not in shape.strategy:
            return [_without_directives(shape.element or shape, each) for each in value]
        return _merged_list(shape, old if isinstance(old, list) else [], value, order)
    return value


def _merged_list(shape: Shape, old: list[Any], patch: list[Any], order: Any) -> list[Any]:
    if isinstance(order, list):
        _check_order(shape, patch, order)
    else:
        order = patch  # the order of what is patched is the patch's, as far as nobody says else
    if not shape.merge_key:
        added = [each for each in patch if each not in old]
        return _ordered(shape, [*old, *dict.fromkeys(added)], old, order)
    element = shape.element or shape
    if any(isinstance(each, dict) and each == {_PATCH: "replace"} for each in patch):
        return [_without_directives(element, each) for each in patch if each != {_PATCH: "replace"}]
    merged = {_key(each, shape): each for each in old}
    for each in patch:
        key = _key(each, shape)
        if each.get(_PATCH) == "delete":
            merged.pop(key, None)
        elif each.get(_PATCH) == "replace":
            merged[key] = _without_directives(element, {k: v for k, v in each.items() if k != _PATCH})
        else:
            merged[key] = strategic_merge(element, merged.get(key, {}), each)
    return _ordered(shape, list(merged.values()), old, order)


def _check_order(shape: Shape, patch: list[Any], order: list[Any]) -> None:
    """Refuse a patch whose entries stand in another order than the one that it sets."""
    keep = [each for each in patch if not (isinstance(each, dict) and each.get(_PATCH))]
    given = [each.get(shape.merge_key) if isinstance(each, dict) else each for each in keep]
    wanted = [each.get(shape.merge_key) if isinstance(each, dict) else each for each in order]
    if given != [each for each in wanted if each in given]:
        text = (
            f"The order in patch list:\n{go_text(keep)}\n doesn't match {_ORDER.rstrip('/')} list:\n{go_text(order)}\n"
        )
        raise StatusError(500, "", text)


def _key(entry: Any, shape: Shape) -> Any:
    value = entry.get(shape.merge_key) if isinstance(entry, dict) else None
    if value is None or isinstance(value, dict | list):
        raise StatusError(500, "", f"map: {go_text(entry)} does not contain declared merge key: {shape.merge_key}")
    return value


def _ordered(shape: Shape, merged: list[Any], old: list[Any], order: Any) -> list[Any]:
    if not isinstance(order, list):
        raise bad_request(f"{_ORDER.rstrip('/')} has to be a list")

    def key(entry: Any) -> Any:
        return _key(entry, shape) if shape.merge_key else entry

    wanted = [key(each) for each in order]
    if any(isinstance(each, dict | list) for each in wanted):
        raise bad_request(f"{_ORDER.rstrip('/')} has an entry that isn't a key")
    return interleaved(merged, [key(each) for each in old], wanted, key)


def interleaved(
    entries: Iterable[Any], live: Sequence[Any], wanted: Sequence[Any], key: Callable[[Any], Any]
) -> list[Any]:
    """Return entries in the order of ``wanted``, and those not in it between them where ``live`` has them."""
    place = {each: index for index, each in enumerate(live)}
    rank = {each: index for index, each in enumerate(wanted)}
    named = sorted((each for each in entries if key(each) in rank), key=lambda each: rank[key(each)])
    others = [each for each in entries if key(each) not in rank]
    result: list[Any] = []
    while named and others:
        mine, theirs = place.get(key(named[0])), place.get(key(others[0]))
        first = others if mine is not None and theirs is not None and theirs < mine else named
        result.append(first.pop(0))
    return result + named + others


def go_text(value: Any) -> str:
    """Write a value as Go's %v does, for messages."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(each)}' for key, each in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(go_text(each) for each in value)}]"
    return "<nil>" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _without_directives(shape: Shape, value: Any) -> Any:
    return strategic_merge(shape, {}, value) if isinstance(value, dict) else value
