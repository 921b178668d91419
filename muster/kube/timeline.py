"""The check that an API server's state still follows from its earlier state.

A resourceVersion only grows, until somebody restores etcd from a backup. Then the caches show objects that never were,
miss some that are, and call themselves newer than all that follows. One `Timeline` for each process: whoever sees a
revision go back says so here, every reflector lists again, and until then nothing is decided from a cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from muster.kube import errors
from muster.model import versions

log = logging.getLogger(__name__)


class WentBackError(errors.KubeError):
    """The API server's state went back. What was read before says nothing any more; it is being read again."""


class Timeline:
    """What the reflectors of a process know of it together. Kinds are named as `str` of a Kind.

    Attributes:
        restores: how many times the state went back.
    """

    def __init__(self) -> None:
        self.restores = 0
        self._relists: dict[str, Callable[[], None]] = {}
        self._old: set[str] = set()
        self._doubtful: set[str] = set()
        self._subscribers: list[Callable[[], None]] = []

    def join(self, kind: str, relist: Callable[[], None]) -> None:
        """Have ``relist`` called when the cache of that kind must be listed again."""
        self._relists[kind] = relist

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when the state went back; it may note that, no more."""
        self._subscribers.append(callback)

    def relisting(self, kinds: Collection[str]) -> bool:
        """Whether any of these caches still shows a state from before the restore."""
        return not self._old.isdisjoint(kinds)

    def sure(self, kinds: Collection[str]) -> bool:
        """Whether each of these caches is kept by a watch of which it is known that nothing went back."""
        return not self.relisting(kinds) and self._doubtful.isdisjoint(kinds)

    def went_back(self, kind: str, why: str) -> None:
        """Note that a revision went back; nothing new where this kind is about to be listed again already."""
        if kind in self._old:
            return
        self.restores += 1
        log.warning("the cluster's state went back (etcd was restored?): %s; everything is listed again", why)
        self._old = set(self._relists)
        for relist in list(self._relists.values()):
            relist()
        for callback in self._subscribers:
            callback()

    def doubt(self, kind: str) -> None:
        """Note that the watch of a kind ended: a restore could happen unseen."""
        self._doubtful.add(kind)

    def watched(self, kind: str) -> None:
        """Note that a kind is watched, and that nothing went back since its last watch."""
        self._doubtful.discard(kind)

    def listed(self, kind: str) -> None:
        """Note that a cache shows a list that began after all that was noticed here."""
        self._old.discard(kind)
        self._doubtful.discard(kind)


def behind(version: str, seen: str) -> bool:
    """Whether a revision is lower than one that was seen; one that says nothing is not."""
    try:
        return bool(version and seen) and versions.number(version) < versions.number(seen)
    except ValueError:
        return False
