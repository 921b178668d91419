"""Coroutines that are run as far as they get without waiting, so that what has nothing to wait for costs no timer."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """A coroutine that was begun: it is ``done`` and has a ``result``, or waits and has to be awaited.

    What it waits for was made in the task that began it, which is the one to await it.
    """

    __slots__ = ("_coroutine", "_waits_for", "done", "result")

    result: T

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.done = False
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as ended:
            self.done = True
            self.result = ended.value

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on where it waits."""
        while True:
            thrown: BaseException | None = None
            sent = None
            try:
                sent = yield self._waits_for
            except BaseException as error:  # noqa: BLE001 - whatever comes from outside is the coroutine's to see
                thrown = error
            try:
                self._waits_for = self._coroutine.send(sent) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration as ended:
                result: T = ended.value
                return result


def begin(coroutine: Coroutine[Any, Any, T]) -> Begun[T]:
    """Run a coroutine until it first waits."""
    return Begun(coroutine)
