"""The parts of all objects: metadata, conditions and label selectors; and the base of the structs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import field

Json = Any
"""A decoded JSON value whose shape is not ours to know."""


# frozen and kw_only are repeated on each class: msgspec doesn't inherit kw_only, type checkers neither.
# gc=False: what is decoded is a tree, so that no collection has to walk 100,000 pods to find that no cycle is among them.
class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of all of them: camel-case names on the wire, and nothing that has its default."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """A link to the object that this one belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Meta(ApiStruct, frozen=True, kw_only=True):
    """ObjectMeta."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    def label(self, key: str) -> str:
        """Return the label's value, empty when absent."""
        return self.labels.get(key, "") if self.labels else ""

    def annotation(self, *keys: str) -> str:
        """Return the value of the first of ``keys`` that is set, empty when none is."""
        # A loop: every pod is asked for several, and a generator takes three times as long.
        mine = self.annotations
        if mine:
            for key in keys:
                if key in mine:
                    return mine[key]
        return ""

    def controller(self) -> OwnerReference | None:
        """Return the owner that controls this object, if one does."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


class Object(ApiStruct, frozen=True, kw_only=True):
    """What every kind has. Enough to delete, own, or wait for an object of any kind."""

    api_version: str = ""
    kind: str = ""
    metadata: Meta = field(default_factory=Meta)

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The object's namespace; empty for cluster-scoped kinds."""
        return self.metadata.namespace


class Condition(ApiStruct, frozen=True, kw_only=True):
    """A condition in a status. `transitionID` is that of PodGroup conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0
    transition_id: str = field(default="", name="transitionID")


class LabelSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """One expression of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    """A label selector; an empty one matches everything, an absent one nothing."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
