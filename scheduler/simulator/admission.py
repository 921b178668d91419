"""Admission, as a simulation uses it. The webhooks' rules are a program of their own, so they come from outside."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from muster.ledger.table import Table
from muster.model.kinds import Kind
from muster.model.objects import Meta, Object, PodGroup


class Admitted(Struct, frozen=True):
    """The answer to a creation: the object as it is stored, or None and the text that kubectl would print."""

    stored: Any
    refusal: str = ""


class SimulatedAdmission(Protocol):
    """Admits objects, and is told what exists: the quota ledger counts it."""

    def admit(self, kind: Kind[Any], one: Object, now: datetime) -> Admitted:
        """Put a new object through the rules that its creation would go through; one that passes exists from then on."""
        ...

    def show(self, kind: Kind[Any], one: Object) -> None:
        """Tell of an object as it is now."""
        ...

    def hide(self, kind: Kind[Any], one: Object) -> None:
        """Tell that an object is gone."""
        ...

    def advance(self, kind: Kind[PodGroup], before: PodGroup, after: PodGroup, now: datetime) -> str:
        """Change the status of a group; return the ledger's refusal, empty when the change is stored."""
        ...

    def limited(self, namespace: str) -> bool:
        """Whether a namespace has a quota, so that no two pods of it are sure to get the same answer."""
        ...

    def table(self, namespace: str, names: Collection[str]) -> Table | None:
        """Return what is reserved in a namespace, the groups of these names apart; None where there is no quota."""
        ...

    def namespace(self, name: str) -> Meta | None:
        """Return what a namespace says of itself, None where nothing is known of it."""
        ...
