"""The subscribers of a cache, and the objects that one failed on: quarantined, and left out until a retry succeeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from muster.kube import errors
from muster.model import objects

T = TypeVar("T", bound=objects.Object)
T_co = TypeVar("T_co", bound=objects.Object, covariant=True)

log = logging.getLogger(__name__)

Name = tuple[str, str]
"""Namespace and name of an object."""


class ObjectChange(msgspec.Struct, Generic[T], frozen=True):
    """What happened to one object: ``old`` is as the view showed it, ``new`` as it shows it now.

    An object that was deleted and made again under its name is two changes, a DELETED and an ADDED.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    old: T | None
    new: T | None


class SubscribedCache(Protocol[T_co]):
    """What a subscriber follows: an `ObjectCache`."""

    stirred: asyncio.Event

    def items(self) -> Iterator[T_co]:
        """Iterate over all objects."""
        ...

    def doubt(self) -> None:
        """Tell those who follow what is doubtful that this may have changed."""
        ...


class DerivedState:
    """Whether something that callbacks keep up to date, of one cache or of several, can be relied on.

    Attributes:
        stale: a callback failed amid a change. Its owner makes it anew before it is used again, and sets this to false.

    Args:
        spoilt: called when it becomes stale.
    """

    def __init__(self, spoilt: Callable[[], None] = lambda: None) -> None:
        self.stale = False
        self._spoilt = spoilt

    def spoil(self) -> None:
        """Have it made anew before it is used again."""
        self.stale = True
        self._spoilt()


class Subscription(Generic[T]):
    """One subscriber of a cache. Calling it ends it, with ``end``.

    Attributes:
        failed: the objects that it failed on, each with the reason. It isn't told of their changes.
    """

    def __init__(
        self,
        cache: SubscribedCache[T],
        callback: Callable[[ObjectChange[T]], None],
        derived: DerivedState | None,
        end: Callable[[Subscription[T]], None],
    ) -> None:
        self.failed: dict[Name, str] = {}
        self._cache = cache
        self._callback = callback
        self._derived = derived
        self._end = end

    def __call__(self) -> None:
        """End it."""
        self._end(self)

    @property
    def is_stale(self) -> bool:
        """Whether what it keeps up to date is to be made anew first."""
        return self._derived is not None and self._derived.stale

    def items(self) -> Iterator[T]:
        """Iterate over the objects that it didn't fail on; not across an await."""
        if not self.failed:
            yield from self._cache.items()
            return
        for item in self._cache.items():
            if (item.namespace, item.name) not in self.failed:
                yield item

    def fail(self, item: T, error: Exception) -> None:
        """Quarantine an object, with the error of which its owner says that it is this object's."""
        name = (item.namespace, item.name)
        if name not in self.failed:
            log.error("%s %s/%s is quarantined: an error in Muster", type(item).__name__, *name, exc_info=error)
        self.failed[name] = reason_of(error)
        if self._derived is not None:
            self._derived.spoil()
        self._cache.stirred.set()
        self._cache.doubt()

    def tell(self, change: ObjectChange[T]) -> None:
        """Pass a change on, unless its object is quarantined, or what it goes into is to be made anew."""
        if self.failed:
            item = change.new or change.old
            assert item is not None
            name = (item.namespace, item.name)
            if name in self.failed:
                if change.new is None:
                    del self.failed[name]
                if change.new is not None or self._derived is not None:
                    return  # What is made anew never had it.
        if not self.is_stale:
            self._call(change)

    def retry(self, name: Name, item: T | None) -> None:
        """Pass an object on that it failed on, as it is now."""
        before = self.failed.pop(name, None)
        if before is not None and item is not None:
            self._call(ObjectChange("ADDED", None, item), before)

    def _call(self, change: ObjectChange[T], before: str = "") -> None:
        try:
            self._callback(change)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw must neither end the process nor spread
            self._failed(change, error, before)

    def _failed(self, change: ObjectChange[T], error: Exception, before: str) -> None:
        item = change.new or change.old
        assert item is not None
        name, reason = (item.namespace, item.name), reason_of(error)
        if reason != before:
            log.error("a subscriber failed on %s of %s/%s", change.type, *name, exc_info=error)
        if self._derived is not None:
            self._derived.spoil()
        if change.new is not None:
            self.failed[name] = reason


def reason_of(error: Exception) -> str:
    """Return what is said of an object because of an error: one line, bounded."""
    return errors.bounded(f"{type(error).__name__}: {error}")
