"""The policies' view of the cluster: a pure read interface, and queries that several policies share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from muster.model import grouping, kinds, labels, names
from muster.model.amounts import Resources
from muster.model.kinds import Kind
from muster.model.objects import Object, PodGroup, Queue
from webhooks.verdict import ObjectRef

T = TypeVar("T", bound=Object)


class AdmissionView(Protocol):
    """What the caches show. It may lag behind the API server, and says nothing of a kind that nobody watches."""

    def get(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Return an object, or None where the view shows none."""
        ...

    def items(self, kind: Kind[T], namespace: str = "") -> Iterable[T]:
        """Return the objects of a kind, of one namespace or of all."""
        ...

    def children(self, queue: str) -> Iterable[Queue]:
        """Return the queues whose parent is the queue of that name."""
        ...

    def capacity(self) -> Resources | None:
        """Return what all nodes together have, in nano-units, ``pods`` among it; None where nodes aren't watched."""
        ...


class FreshView(Struct, frozen=True):
    """A view with some objects, or their absence, read afresh."""

    base: AdmissionView
    fresh: Mapping[ObjectRef, Object | None]

    def get(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """Return the fresh object if there is one, else what the view below shows."""
        ref = ObjectRef(kind, name, namespace)
        if ref in self.fresh:
            found: Any = self.fresh[ref]
            typed: T | None = found
            return typed
        return self.base.get(kind, name, namespace)

    def items(self, kind: Kind[T], namespace: str = "") -> Iterable[T]:
        """Return the objects of a kind, the fresh ones in place of those below."""
        yield from self._replaced(kind, self.base.items(kind, namespace), lambda one: namespace in {"", one.namespace})

    def children(self, queue: str) -> Iterable[Queue]:
        """Return the children of a queue, the fresh ones in place of those below."""
        yield from self._replaced(kinds.QUEUES, self.base.children(queue), lambda one: parent_of(one) == queue)

    def capacity(self) -> Resources | None:
        """Return what the view below shows."""
        return self.base.capacity()

    def _replaced(self, kind: Kind[T], below: Iterable[T], belongs: Callable[[Any], bool]) -> Iterable[T]:
        mine: dict[tuple[str, str], Any] = {
            (ref.namespace, ref.name): found for ref, found in self.fresh.items() if ref.kind == kind
        }
        yield from (one for one in below if (one.namespace, one.name) not in mine)
        yield from (one for one in mine.values() if one is not None and belongs(one))


def parent_of(queue: Queue) -> str:
    """Return the name of a queue's parent; the root queue has none."""
    return "" if queue.name == names.ROOT_QUEUE else queue.spec.parent or names.ROOT_QUEUE


def state_of(queue: Queue) -> str:
    """Return Open, Closing or Closed as it holds for new work.

    What the queue's owner asks for counts from that moment on, not from when the controller has seen it.
    """
    if queue.metadata.deletion_timestamp is not None:
        return "Closing"
    if queue.spec.desired_state == "Open" or queue.status.state not in {"Closing", "Closed"}:
        return "Closing" if queue.spec.desired_state == "Closed" else "Open"
    return queue.status.state


def closed_above(view: AdmissionView, queue: Queue) -> Queue | None:
    """Return the nearest ancestor of a queue that takes no new work, and for which the queue takes none either."""
    seen, name = {queue.name}, parent_of(queue)
    while name and name not in seen:
        seen.add(name)
        above = view.get(kinds.QUEUES, name)
        if above is None:
            break
        if state_of(above) != "Open":
            return above
        name = parent_of(above)
    return None


def below(view: AdmissionView, name: str) -> set[str]:
    """Return the names of all queues below one, however the tree is bent."""
    found: set[str] = set()
    level = {name}
    while level:
        level = {child.name for parent in level for child in view.children(parent)} - found
        found |= level
    return found


def find_queue(view: AdmissionView, name: str) -> Queue | None:
    """Return the queue of that name: the primary group's, else a legacy one."""
    found = view.get(kinds.QUEUES, name)
    if found is None:
        legacy = (view.get(kind, name) for kind in kinds.LEGACY_QUEUES)
        found = next((queue for queue in legacy if queue is not None), None)
    return found


def serves(view: AdmissionView, queue: Queue, namespace: str) -> bool:
    """Whether a queue's namespaceSelector lets that namespace use it."""
    selector = queue.spec.namespace_selector
    if selector is None:
        return True
    found = view.get(kinds.NAMESPACES, namespace)
    return found is not None and labels.matches(selector, found.metadata.labels)


def usable_queues(view: AdmissionView, namespace: str) -> list[str]:
    """Return the names of the queues that take new work of a namespace, in order."""
    return sorted(
        queue.name
        for queue in view.items(kinds.QUEUES)
        if queue.name != names.ROOT_QUEUE
        and state_of(queue) == "Open"
        and serves(view, queue, namespace)
        and not any(view.children(queue.name))
        and closed_above(view, queue) is None
    )


def groups_named(view: AdmissionView, namespace: str, name: str) -> dict[str, PodGroup]:
    """Return the PodGroups of one name in a namespace, by their API group; of no name there is none."""
    if not name:
        return {}
    found = {kind.group: view.get(kind, name, namespace) for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS)}
    return {group: podgroup for group, podgroup in found.items() if podgroup is not None}


def owner_named(view: AdmissionView, namespace: str, name: str) -> str:
    """Return what a generated group of that name is for, ``Job train``; empty where the view shows neither of the two.

    What a Job reserved has the name of a group that is made only later.
    """
    for group in groups_named(view, namespace, name).values():
        if owner := grouping.owner_of(group.metadata):
            return owner
    jobs = view.items(kinds.JOBS, namespace)
    return next(
        (f"{kinds.JOBS.name} {job.name}" for job in jobs if grouping.generated_name(job.metadata.uid) == name), ""
    )
