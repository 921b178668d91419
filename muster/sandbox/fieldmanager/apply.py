"""Server-side apply: a manager says what it wants of an object; what it wanted before and no more, goes.

Source: ``sigs.k8s.io/structured-merge-diff`` (merge.Updater) and ``k8s.io/apimachinery/pkg/util/managedfields``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.sandbox.codec.decoding import json_name
from muster.sandbox.codec.fields import ATOMIC, Shape, shape_of
from muster.sandbox.core.identities import timestamp
from muster.sandbox.core.request_info import RequestInfo, check_name
from muster.sandbox.core.status import StatusError, bad_options, bad_request, conflict, quote, required
from muster.sandbox.core.store import Object
from muster.sandbox.fieldmanager import typedpatch
from muster.sandbox.fieldmanager.fieldsets import Fields, common, difference, entries_of, minus, of_value, paths, union
from muster.sandbox.fieldmanager.ownership import BEFORE_FIRST_APPLY, Manager, Owned, Owners, ownable, read, written
from muster.sandbox.strategies import defaulting
from muster.sandbox.strategies.table import strategy_of

Json = dict[str, Any]

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_NO_OWNER: Final[Owners] = {}


class Configuration(Struct, frozen=True):
    """What a manager applies.

    Attributes:
        wanted: the object, without nulls, unknown fields and defaults.
        fields: what the manager names, and then owns: that too which it leaves empty, and which is in no object.
    """

    wanted: Json
    fields: Fields | None


def read_configuration(info: RequestInfo, body: Any) -> Configuration:
    """Read the body of an apply.

    Raises:
        StatusError: 400, 422 or 500 (as the real server has it) when it isn't an object that can be applied here.
    """
    return Configuration(_wanted(info, body), _fields_of(info, body))


def created(info: RequestInfo, applied: Configuration, now: datetime) -> Json:
    """Return the object that an apply creates."""
    obj = _with_defaults(info, applied.wanted)
    _own(info, obj, _NO_OWNER, applied.fields, now, acts=True)
    return obj


def changed(info: RequestInfo, applied: Configuration, old: Object, now: datetime, *, force: bool) -> Json:
    """Return an object as an apply changes it.

    Raises:
        StatusError: 409 with each field that another manager owns, unless ``force``.
    """
    wanted, fields, subresource = applied.wanted, applied.fields, info.target.subresource
    given = wanted["metadata"].get("resourceVersion")
    if given and given != old["metadata"]["resourceVersion"]:
        raise conflict(info.resource, info.target.name)
    shape = shape_of(info.resource)
    manager = _applier(info)
    owners = _known_owners(old, info)
    mine = owners.get(manager)
    live = ownable(info.resource, old, subresource)
    merged = _merged(shape, live, ownable(info.resource, wanted, subresource))
    changes, _ = difference(live, merged, shape)
    others = {each: owned for each, owned in owners.items() if each != manager}
    conflicts = {
        each: overlap for each, owned in others.items() if (overlap := common(owned.fields, changes)) is not None
    }
    if conflicts and not force:
        raise _conflict(conflicts)
    others = {
        each: Owned(left, owned.time)
        for each, owned in others.items()
        if (left := minus(owned.fields, conflicts.get(each)))
    }
    if mine is not None:
        kept = fields
        for owned in others.values():
            kept = union(kept, owned.fields)
        merged = _pruned(shape, merged, minus(mine.fields, kept), kept)
    obj = _remembered(info, wanted, _with_defaults(info, _reassembled(info, old, merged, wanted)))
    remaining = others if mine is None else {**others, manager: mine}
    # A status counts, though this request can't change it: it is put back only later.
    foreign = not subresource and "status" in wanted and wanted["status"] != old.get("status")
    acts = foreign or ownable(info.resource, obj, subresource) != live
    _own(info, obj, remaining, fields, now, acts=acts)
    return obj


def _wanted(info: RequestInfo, body: Any) -> Json:
    """Return the configuration without nulls and unknown fields, and without defaults: those belong to nobody."""
    if not info.options.get("fieldManager"):
        raise bad_options("PatchOptions", [required("fieldManager", "is required for apply patch")])
    if not isinstance(body, dict):
        what = f"json: cannot unmarshal {json_name(body)} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding patch: error unmarshaling JSON: while decoding JSON: {what}")
    api_version, kind = body.get("apiVersion") or "", body.get("kind") or ""
    if (api_version, kind) != (info.resource.api_version, info.resource.kind):
        group, _, version = str(api_version).rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")
    given = body.get("metadata")
    if misfits := typedpatch.misfits(body, shape_of(info.resource)):
        place = f"{(given.get('namespace') or '') if isinstance(given, dict) else ''}/{info.target.name}"
        text = misfits[0] if len(misfits) == 1 else "errors:\n" + "\n".join(f"  {each}" for each in misfits)
        what = f"{place}; {info.resource.group}/{info.resource.version}, Kind={info.resource.kind}"
        raise StatusError(500, "", f"failed to create typed patch object ({what}): {text}")
    wanted = defaulting.without_defaults(info.resource, body, [])
    metadata = wanted.setdefault("metadata", {})
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    metadata.setdefault("name", info.target.name)
    check_name(metadata, info.target.name)
    if info.resource.namespaced and metadata.get("namespace", info.target.namespace) != info.target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return wanted


def _applier(info: RequestInfo) -> Manager:
    return Manager(info.manager, "Apply", info.resource.api_version, info.target.subresource)


def _known_owners(old: Object, info: RequestInfo) -> Owners:
    owners = read(old["metadata"].get("managedFields"))
    if owners:
        return owners
    fields = of_value(ownable(info.resource, old, ""), shape_of(info.resource), inner=True)
    if not fields:
        return {}
    manager = Manager(BEFORE_FIRST_APPLY, "Update", info.resource.api_version)
    return {manager: Owned(fields, old["metadata"].get("creationTimestamp", ""))}


def _fields_of(info: RequestInfo, body: Json) -> Fields | None:
    """Return the fields that a configuration names: those too that it leaves empty, which are then in no object."""
    part = ownable(info.resource, {**body, "metadata": body.get("metadata") or {}}, info.target.subresource)
    return of_value(part, shape_of(info.resource), inner=False) or None


def _own(info: RequestInfo, obj: Json, owners: Owners, fields: Fields | None, now: datetime, *, acts: bool) -> None:
    """Write down who owns what. Who changes nothing (``acts``) doesn't act: its time stays what it was, or none."""
    manager = _applier(info)
    result = {each: owned for each, owned in owners.items() if each != manager}
    if fields:
        before = owners[manager].time if manager in owners else ""
        result[manager] = Owned(fields, timestamp(now) if acts else before)
    entries = written(result)
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries


def _with_defaults(info: RequestInfo, obj: Json) -> Json:
    return defaulting.with_defaults(info.resource, obj, strategy_of(info.resource), [])


def _remembered(info: RequestInfo, wanted: Json, obj: Json) -> Json:
    """Keep kubectl's own note of what it applied last up to date, so that it may apply from its side again."""
    annotations = obj["metadata"].get("annotations") or {}
    if info.manager != "kubectl" or _LAST_APPLIED not in annotations:
        return obj
    others = {key: value for key, value in wanted["metadata"].items() if key != "annotations"}
    own = {key: value for key, value in (wanted["metadata"].get("annotations") or {}).items() if key != _LAST_APPLIED}
    note = {**wanted, "metadata": {**others, "annotations": own} if own else others}
    text = msgspec.json.encode(note, order="sorted").decode() + "\n"
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations, _LAST_APPLIED: text}}}


def _reassembled(info: RequestInfo, old: Object, merged: Json, wanted: Json) -> Json:
    """Put the part that an apply may own back among the rest."""
    owned = ownable(info.resource, old, info.target.subresource)
    kept = {key: value for key, value in old["metadata"].items() if key not in owned.get("metadata", {})}
    rest = {key: value for key, value in old.items() if key not in owned}
    metadata = {**kept, **merged.get("metadata", {})}
    if "uid" in wanted["metadata"]:
        metadata["uid"] = wanted["metadata"]["uid"]  # and validation says that it is another's
    return {**rest, **merged, "apiVersion": wanted["apiVersion"], "kind": old["kind"], "metadata": metadata}


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _merged(shape: Shape, live: Any, wanted: Any) -> Any:
    if shape.merges == ATOMIC or type(live) is not type(wanted):
        return wanted
    if type(wanted) is dict and shape.type in {"object", "dict"}:
        result = dict(live)
        for key, value in wanted.items():
            result[key] = _merged(shape.child(key), live[key], value) if key in live else value
        return result
    if type(wanted) is list and shape.element is not None:
        return _merged_list(shape, live, wanted)
    return wanted


def _merged_list(shape: Shape, live: list[Any], wanted: list[Any]) -> list[Any]:
    before, after = entries_of(live, shape), entries_of(wanted, shape)
    if before is None or after is None:
        return wanted
    element = shape.element or shape
    merged = dict(before)
    for key, value in after.items():
        merged[key] = _merged(element, before[key], value) if key in before else value
    order: dict[str, Any] = {}
    coming = iter(after)
    for key in before:
        if key not in after:
            order[key] = merged[key]
        while key in after and key not in order:
            # What is applied keeps its order; what isn't stays behind what it stood behind.
            following = next(coming)
            order[following] = merged[following]
    return list((order | {key: merged[key] for key in coming}).values())


def _pruned(shape: Shape, value: Any, doomed: Fields | None, kept: Fields | None) -> Any:
    """Return a value without what is doomed, entries whole unless somebody wants something of them."""
    if doomed is None:
        return value
    if type(value) is dict:
        result = dict(value)
        for name in value:
            key = f"f:{name}"
            if key in doomed:
                if kept is None or key not in kept:
                    del result[name]
                else:
                    result[name] = _pruned(shape.child(name), value[name], doomed[key], kept[key])
        return result
    entries = entries_of(value, shape) if type(value) is list else None
    if entries is None:
        return value
    element = shape.element or shape
    left = []
    for key, entry in entries.items():
        if key not in doomed:
            left.append(entry)
        elif kept is not None and key in kept:
            left.append(_pruned(element, entry, doomed[key], kept[key]))
    return left


# ── conflicts ────────────────────────────────────────────────────────────────────────────────────────────────────


def _conflict(conflicts: dict[Manager, Fields]) -> StatusError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_shown(manager)}", "field": path}
        for manager, fields in conflicts.items()
        for path in paths(fields)
    ]
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for manager, fields in sorted(conflicts.items(), key=lambda item: _shown(item[0])):
            lines += [f"conflicts with {_shown(manager)}:", *(f"- {path}" for path in paths(fields))]
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", message, {"causes": causes})


def _shown(manager: Manager) -> str:
    text = quote(manager.name)
    if manager.subresource:
        text += f" with subresource {quote(manager.subresource)}"
    return f"{text} using {manager.api_version}" if manager.operation == "Update" else text
