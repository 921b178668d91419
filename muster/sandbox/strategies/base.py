"""The base of all strategies: the one that kinds refine, and the rules of metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from muster.sandbox.core import syntax
from muster.sandbox.core.status import Cause, not_allowed, required, shown, wrong

Json = dict[str, Any]


_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid")


class Strategy:
    """How a kind behaves. Its methods may change the object they are given: it is private until it is stored."""

    has_status = False
    """Whether status is written through its subresource only."""

    counts_generations = False
    """Whether metadata.generation counts the changes of what isn't status."""

    creates_on_update = False
    """Whether a PUT of what isn't there creates it."""

    unconditional = True
    """Whether a PUT may leave out the resourceVersion."""

    returns_deleted = False
    """Whether the answer to a completed DELETE is the object, not a Status."""

    uncontrolled = ""
    """Warning to who creates one: what the sandbox doesn't do about it."""

    refused = ""
    """What can't be created, for the 501: its whole meaning is something that the sandbox doesn't do."""

    def name_errors(self, name: str) -> tuple[str, ...]:
        """Check a name."""
        return syntax.subdomain(name)

    def default(self, obj: Json) -> None:
        """Set what the client left out."""

    def prepare_create(self, obj: Json) -> None:
        """Reset what a client may not set."""
        if self.has_status:
            obj.pop("status", None)

    def validate(self, obj: Json) -> list[Cause]:  # noqa: ARG002 - refined by kinds
        """Return what is wrong with a new object, beyond its metadata."""
        return []

    def prepare_update(self, obj: Json, old: Json) -> None:
        """Carry over what this request may not change."""
        if self.has_status:
            carry(obj, old, "status")

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:  # noqa: ARG002 - refined by kinds
        """Return what is wrong with a change, beyond metadata."""
        return self.validate(obj)

    def prepare_status(self, obj: Json, old: Json) -> None:
        """Carry over everything that an update of the status may not change."""
        for key in obj.keys() | old.keys():
            if key not in {"status", "metadata"}:
                carry(obj, old, key)

    def validate_status(self, obj: Json, old: Json) -> list[Cause]:  # noqa: ARG002 - refined by kinds
        """Return what is wrong with a change of the status."""
        return []


def carry(obj: Json, old: Json, key: str) -> None:
    """Make ``obj[key]`` what it is in ``old``; absent when it is absent there."""
    if key in old:
        obj[key] = old[key]
    else:
        obj.pop(key, None)


# ── metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────


def validate_metadata(metadata: Mapping[str, Any], strategy: Strategy, *, namespaced: bool) -> list[Cause]:
    """Return what is wrong with an object's metadata."""
    causes: list[Cause] = []
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    if prefix:
        # What follows a generated name is always valid, so an ending that needs something behind it is too.
        causes += [
            wrong("metadata.generateName", prefix, text) for text in strategy.name_errors(prefix.rstrip("-") or "-")
        ]
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        causes += [wrong("metadata.name", name, text) for text in strategy.name_errors(name)]
    namespace = metadata.get("namespace", "")
    if namespaced:
        causes += [wrong("metadata.namespace", namespace, text) for text in syntax.label(namespace)]
    elif namespace:
        causes.append(not_allowed("metadata.namespace", "not allowed on this type"))
    return causes + _changeable_causes(metadata) + _finalizer_causes(metadata)


def _changeable_causes(metadata: Mapping[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    if labels := metadata.get("labels"):
        causes += syntax.check_labels(labels, "metadata.labels")
    if annotations := metadata.get("annotations"):
        causes += syntax.check_annotations(annotations, "metadata.annotations")
    if owners := metadata.get("ownerReferences"):
        causes += _owner_causes(owners)
    return causes


def _finalizer_causes(metadata: Mapping[str, Any]) -> list[Cause]:
    finalizers = metadata.get("finalizers") or []
    causes = [cause for each in finalizers for cause in syntax.finalizer(each, "metadata.finalizers")]
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append(wrong("metadata.finalizers", finalizers, text))
    return causes


def validate_finalizers(metadata: Mapping[str, Any]) -> list[Cause]:
    """Return the finalizers of a built-in kind's object that are neither Kubernetes' own nor somebody's."""
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        wrong(f"metadata.finalizers[{index}]", each, text)
        for index, each in enumerate(metadata.get("finalizers") or ())
        if "/" not in each and each not in _STANDARD_FINALIZERS
    ]


def _owner_causes(owners: list[Json]) -> list[Cause]:
    causes: list[Cause] = []
    controller = ""
    path = "metadata.ownerReferences"
    for number, owner in enumerate(owners):
        here, api_version = f"{path}[{number}]", str(owner.get("apiVersion", ""))
        causes += [required(f"{here}.{key}", "must not be empty") for key in _OWNER_FIELDS if not owner.get(key)]
        group, _, version = api_version.rpartition("/")
        if api_version and ("/" in group or not version):
            causes.append(wrong(f"{here}.apiVersion", api_version, "must be <group>/<version> or <version>"))
        if owner.get("kind") == "Event" and (group, version) == ("", "v1"):
            causes.append(wrong(here, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            who = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                text = f'Only one reference can have Controller set to true. Found "true" in references for {controller} and {who}'
                causes.append(wrong(path, owners, text))
            controller = who
    return causes


def validate_metadata_update(metadata: Mapping[str, Any], old: Mapping[str, Any], *, custom: bool) -> list[Cause]:
    """Return what is wrong with a change of metadata; what may not change is carried over or refused before.

    Of a custom resource's object the real server says the same several times.
    """
    causes: list[Cause] = []
    if metadata.get("uid") != old.get("uid"):
        causes.append(wrong("metadata.uid", metadata.get("uid"), "field is immutable"))
    if old.get("deletionTimestamp"):
        added = [each for each in metadata.get("finalizers") or () if each not in (old.get("finalizers") or ())]
        if added:
            shown_added = "[]string{" + ", ".join(shown(each) for each in added) + "}"
            text = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown_added}"
            causes.append(not_allowed("metadata.finalizers", text))
    causes += _changeable_causes(metadata)
    return (causes * 2 + _changeable_causes(metadata) if custom else causes) + _finalizer_causes(metadata)
