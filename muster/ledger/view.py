"""What one process knows of a namespace's groups and quotas, as the ledger needs it. Pure: an `Observer` feeds it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from muster.model.amounts import NOTHING, Resources

QUOTAS: Final = "resourcequotas"
"""The source that shows ResourceQuotas."""

_REMEMBERED: Final = 10_000


def source(group: str) -> str:
    """Name the source that shows the PodGroups of an API group. Each source has revisions of its own."""
    return f"podgroups.{group}"


@dataclass(frozen=True, slots=True)
class Shown:
    """A PodGroup as a view shows it.

    Attributes:
        amounts: what it holds, as `promises.held` writes it; nothing once it is Completed.
        absent_at: a revision at which it certainly didn't exist yet; zero when that isn't known.
    """

    group: str
    name: str
    uid: str
    revision: int
    amounts: Resources
    absent_at: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """A ResourceQuota as a view shows it; ``hard`` is empty where its scopes leave groups alone."""

    name: str
    uid: str
    revision: int
    hard: Resources


class View(Protocol):
    """A namespace at one revision of each source."""

    @property
    def revisions(self) -> Mapping[str, int]:
        """Source to the revision that it is at; a source that has shown nothing yet is absent."""
        ...

    @property
    def total(self) -> Resources:
        """What all groups hold."""
        ...

    @property
    def quotas(self) -> Mapping[str, Limits]:
        """Every quota, by name."""
        ...

    def groups(self) -> Iterable[Shown]:
        """Every group."""
        ...

    def group(self, uid: str) -> Shown | None:
        """The group of that uid, if it is shown."""
        ...

    def called(self, name: str) -> Iterable[Shown]:
        """The groups of that name, of any API group."""
        ...

    def revision_of(self, uid: str) -> int:
        """The resourceVersion of the group or quota that is shown; zero when none of that uid is."""
        ...

    def delivered(self, uid: str) -> bool:
        """Whether a group or quota of that uid is shown, or is known to have been and to be gone as of `revisions`."""
        ...

    def born_after(self, revisions: Mapping[str, int]) -> Iterable[Shown]:
        """The groups that certainly didn't exist yet at ``revisions``."""
        ...


def covers(view: View, observed: Mapping[str, int]) -> bool:
    """Whether the view is at least as new as ``observed``, for each source there."""
    return all(view.revisions.get(name, 0) >= revision for name, revision in observed.items())


class Memory(Protocol):
    """Remembers where and when objects were seen that a view doesn't show."""

    def last_seen(self, uid: str) -> tuple[str, int]:
        """Give the source that showed it, and the last revision at which it was there; zero when it is unknown."""
        ...


class Graveyard:
    """The memory of objects that are gone.

    Bounded: what is forgotten costs a row its early end, and it ends by expiry instead.
    """

    def __init__(self) -> None:
        self._gone: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def bury(self, uid: str, place: str, revision: int) -> None:
        """Remember that an object was there at ``revision`` and no longer is."""
        self._gone[uid] = place, revision
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def last_seen(self, uid: str) -> tuple[str, int]:
        """Give where and at which revision it was last there."""
        return self._gone.get(uid, ("", 0))


class NamespaceView:
    """A `View` that is told of each change, with its sums kept up to date.

    ``revisions`` and ``memory`` belong to whoever feeds the view and may be shared by many.
    """

    def __init__(self, revisions: Mapping[str, int], memory: Memory) -> None:
        self._revisions = revisions
        self._memory = memory
        self._groups: dict[str, Shown] = {}
        self._called: dict[str, dict[str, Shown]] = {}
        self._born: dict[str, deque[tuple[int, str]]] = {}
        self._quotas: dict[str, Limits] = {}
        self._total = NOTHING

    @property
    def empty(self) -> bool:
        """Whether it shows nothing."""
        return not (self._groups or self._quotas)

    @property
    def revisions(self) -> Mapping[str, int]:
        """Source to revision, as its owner keeps it."""
        return self._revisions

    @property
    def total(self) -> Resources:
        """What all groups hold."""
        return self._total

    @property
    def quotas(self) -> Mapping[str, Limits]:
        """Every quota, by name."""
        return self._quotas

    def groups(self) -> Iterable[Shown]:
        """Every group."""
        return self._groups.values()

    def group(self, uid: str) -> Shown | None:
        """Give the group of that uid, if it is shown."""
        return self._groups.get(uid)

    def called(self, name: str) -> Iterable[Shown]:
        """Give the groups of that name, of any API group."""
        return self._called.get(name, {}).values()

    def revision_of(self, uid: str) -> int:
        """Give the resourceVersion of the group or quota; zero when none of that uid is shown."""
        shown = self._groups.get(uid) or next((each for each in self._quotas.values() if each.uid == uid), None)
        return shown.revision if shown else 0

    def delivered(self, uid: str) -> bool:
        """Tell whether it is shown, or gone: last seen at a revision that this view is past, and not there now.

        The comparison matters where the memory is of another view than this one, which may be ahead of it.
        """
        if self.revision_of(uid):
            return True
        place, revision = self._memory.last_seen(uid)
        return 0 < revision <= self._revisions.get(place, 0)

    def born_after(self, revisions: Mapping[str, int]) -> Iterator[Shown]:
        """Give the groups that certainly didn't exist yet at ``revisions``."""
        for place, floor in revisions.items():
            for absent_at, uid in reversed(self._born.get(place, ())):
                if absent_at < floor:
                    break
                if uid in self._groups:
                    yield self._groups[uid]

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, shown: Shown) -> None:
        """Show a new or changed group."""
        known = self._groups.get(shown.uid)
        if known is None:
            births = self._born.setdefault(source(shown.group), deque(maxlen=_REMEMBERED))
            births.append((shown.absent_at, shown.uid))
        self._total = self._total + shown.amounts - (known.amounts if known else NOTHING)
        self._groups[shown.uid] = shown
        self._called.setdefault(shown.name, {})[shown.uid] = shown

    def drop(self, uid: str) -> None:
        """Show that a group is gone."""
        shown = self._groups.pop(uid)
        self._total = (self._total - shown.amounts).positive()
        namesakes = self._called[shown.name]
        del namesakes[uid]
        if not namesakes:
            del self._called[shown.name]

    def put_quota(self, quota: Limits) -> None:
        """Show a new or changed quota."""
        self._quotas[quota.name] = quota

    def drop_quota(self, name: str) -> None:
        """Show that a quota is gone."""
        self._quotas.pop(name, None)
