"""One process's knowledge of a namespace's groups, pods and quotas, as the ledger asks for it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from muster.model.amounts import NOTHING, Resources

QUOTA_SOURCE: Final = "resourcequotas"
"""The source that shows ResourceQuotas."""
POD_SOURCE: Final = "pods"
"""The source that shows Pods."""
CLAIM_SOURCE: Final = "resourceclaims"
"""The source that shows ResourceClaims; there is none where the API server serves none."""


def source(group: str) -> str:
    """Name the source that shows the PodGroups of an API group. Each source has revisions of its own."""
    return f"podgroups.{group}"


class ObservedGroup(Struct, frozen=True):
    """A PodGroup as a view shows it.

    Attributes:
        amounts: what it holds, as `reservations.held` writes it; nothing where `reservations.reserving` says so.
        absent_at: a revision at which it certainly didn't exist yet; zero when that isn't known.
        scope_facts: what decides in which scopes of quotas its pods are (`muster.model.scopes`), where that is known.
        wanted: what it waits for, where its minimum was refused: it holds nothing then.
        native: the uid of the PodGroup of Kubernetes' own whose claims its pods share, where it stands for something else.
    """

    group: str
    name: str
    uid: str
    revision: int
    amounts: Resources
    absent_at: int = 0
    scope_facts: str = ""
    wanted: Resources = NOTHING
    native: str = ""

    @property
    def age(self) -> tuple[int, str]:
        """What sorts groups, the oldest first."""
        return self.revision, self.uid

    @property
    def minimum(self) -> Resources:
        """What it holds, or waits for."""
        return self.wanted or self.amounts


class ObservedPod(Struct, frozen=True):
    """A Pod as a view shows it, or a ResourceClaim: what it is for, a pod takes.

    Attributes:
        group: the name of the PodGroup that it is counted with; empty where there is none.
        amounts: what it takes of quotas; nothing once it has ended.
        scope_facts: what decides in which scopes of quotas it is.
        gone_by: where it is being deleted, when its grace period ends, in seconds since 1970; else zero.
        place: the source that shows it.
    """

    uid: str
    group: str
    revision: int
    amounts: Resources
    scope_facts: str = ""
    gone_by: float = 0.0
    place: str = POD_SOURCE


class ObservedQuota(Struct, frozen=True):
    """A ResourceQuota as a view shows it; ``hard`` names its scopes (`muster.model.scopes.scoped`)."""

    name: str
    uid: str
    revision: int
    hard: Resources


class LedgerView(Protocol):
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
    def used(self) -> Resources:
        """What all pods and claims take."""
        ...

    @property
    def excess(self) -> Resources:
        """What pods take beyond what their groups hold, summed over all names of groups: see `beyond`."""
        ...

    @property
    def quotas(self) -> Mapping[str, ObservedQuota]:
        """Every quota, by name."""
        ...

    def follow(self, resources: Collection[str]) -> None:
        """Count from now on what quotas with these resources limit, too, and in their scopes.

        Sums tell of nothing else: a tenant may ask for thousands of resources that nobody limits.
        """
        ...

    def usage(self, name: str) -> Resources:
        """What the pods take that say they are in a group of that name; of no name, those in no group."""
        ...

    def beyond(self, name: str) -> Resources:
        """What of `usage` exceeds what groups of that name hold."""
        ...

    def groups(self) -> Iterable[ObservedGroup]:
        """Every group."""
        ...

    def waiting(self) -> Collection[ObservedGroup]:
        """The groups whose minimum was refused, and that wait for it; the oldest first."""
        ...

    def group(self, uid: str) -> ObservedGroup | None:
        """The group of that uid, if it is shown."""
        ...

    def pod(self, uid: str) -> ObservedPod | None:
        """The pod or claim of that uid, if it is shown."""
        ...

    def pods(self) -> Iterable[ObservedPod]:
        """Every pod and claim."""
        ...

    def leaving(self) -> Iterable[ObservedPod]:
        """The pods that are being deleted."""
        ...

    def called(self, name: str) -> Iterable[ObservedGroup]:
        """The groups of that name, of any API group."""
        ...

    def revision_of(self, uid: str) -> int:
        """The resourceVersion of the group, pod or quota that is shown; zero when none of that uid is."""
        ...

    def delivered(self, uid: str) -> bool:
        """Whether an object of that uid is shown, or is known to have been and to be gone as of `revisions`."""
        ...

    def born_after(self, revisions: Mapping[str, int]) -> Iterable[ObservedGroup]:
        """The groups that certainly didn't exist yet at ``revisions``."""
        ...


def follows_more(view: LedgerView, observed: Mapping[str, int]) -> bool:
    """Whether the view shows sources of which nothing is in ``observed``: totals folded by who doesn't follow them, as by an older version.

    How far they were counted before, nobody knows then, so a view that is to be folded in has to be a quorum read.
    """
    return not view.revisions.keys() <= observed.keys()


def covers(view: LedgerView, observed: Mapping[str, int]) -> bool:
    """Whether the view is at least as new as ``observed``, for each source there."""
    return all(view.revisions.get(name, 0) >= revision for name, revision in observed.items())


class ObjectMemory(Protocol):
    """Remembers where and when objects were seen that a view doesn't show."""

    def last_seen(self, uid: str) -> tuple[str, int]:
        """Return the source that showed it, and the last revision at which it was there; zero when it is unknown."""
        ...
