"""Suppositions that are taken back: whoever makes one says how, and the end of the block does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


class Undoable:
    """Something that can be made to be what it was before a block."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] | None = None

    @contextmanager
    def assuming(self) -> Iterator[None]:
        """Take back at the end of the block whatever was supposed in it."""
        before, self._undo = self._undo, []
        try:
            yield
        finally:
            mine, self._undo = self._undo, before
            for undo in reversed(mine):
                undo()

    def _on_undo(self, undo: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if self._undo is not None:
            self._undo.append(partial(undo, *args, **kwargs))

    def _set(self, name: str, value: Any) -> None:
        """Set an attribute until the end of the block."""
        self._on_undo(setattr, self, name, getattr(self, name))
        setattr(self, name, value)

    def _learn(self, learn: Callable[..., None], old: Any, new: Any) -> None:
        """Tell of an object in the place of the one of its name that was there before, if any."""
        if old is not None and old.metadata.uid == new.metadata.uid:
            self._on_undo(learn, old)
        else:
            if old is not None:
                learn(old, gone=True)
                self._on_undo(learn, old)
            self._on_undo(learn, new, gone=True)
        learn(new)
