"""The answers to objects that somebody would like to apply, as values. Light: who is told them by another program has no API server in memory."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from muster.model.manifests import Manifest

Json = dict[str, Any]

BUSY: Final = 429


class DryRunResult(Struct, frozen=True):
    """What applying an object came to.

    Attributes:
        code: HTTP status; 0 where the kind is none that is looked at, so that nobody was asked.
        status: why not, as the Status of the answer; None where it was stored.
        stored: the object as it would be stored; None where it wasn't.
        created: whether it is new.
        note: why it can't be told; empty where it can.
        unchecked: whether the schema of its kind isn't known, so that its fields weren't checked.
    """

    manifest: Manifest
    code: int
    status: Json | None = None
    stored: Json | None = None
    created: bool = True
    warnings: tuple[str, ...] = ()
    note: str = ""
    unchecked: bool = False

    @property
    def asked(self) -> bool:
        """Whether its kind is looked at."""
        return bool(self.code or self.note)

    @property
    def admitted(self) -> bool:
        """Whether it would be stored."""
        return 200 <= self.code < 300


class AdmissionVerdict(Struct, frozen=True):
    """What became of one object.

    Attributes:
        alone: it was refused, and would be admitted without the other objects of the files that ask for something.
    """

    answer: DryRunResult
    alone: bool = False

    @property
    def outcome(self) -> str:
        """One word for programs."""
        if not self.answer.asked:
            return "unknown"
        if self.answer.admitted:
            return "admitted"
        if self.answer.note:
            return "undecided"
        return "undecided" if self.answer.code == BUSY or self.answer.code >= 500 else "refused"
