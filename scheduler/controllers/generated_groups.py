"""PodGroups that are generated for workloads: which owner each stands for, and making it, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.events import EventRecorder
from muster.ledger.reservations import waits_for_quota
from muster.model import device_classes, device_quota, grouping, kinds, names
from muster.model.amounts import QuantityError, Resources
from muster.model.kinds import Kind
from muster.model.objects import Meta, Object, OwnerReference, Pod, PodGroup, PodSpec
from scheduler.controllers import manifests
from scheduler.controllers.owners import OwnerReader
from scheduler.controllers.workload import CREATED, as_object, created_text
from scheduler.model.snapshot import Phase
from scheduler.state import conversion
from scheduler.state.informers import Informers

_RESOURCES: Final = "minResources"
_SHOWN: Final = 30.0
"""Seconds after which a group that was made, and that no watch has shown, is made again."""


class RetryLater(errors.KubeError):
    """What is to be done has to wait for something else to end."""


class GroupSource(Struct, frozen=True):
    """What a group is made from.

    Attributes:
        about: the Job, pod or workload that it is made for; events are about it.
        owner: whom the group stands for.
        nearest: whose annotations count before those of the owners above ``about``.
        need: what so many of the group's pods request; None where all are as the template says.
        followed: whether the group is changed later as ``about`` changes.
        annotations: more annotations for it.
    """

    kind: Kind[Any]
    about: Object
    owner: OwnerReference
    nearest: Sequence[Meta]
    template: PodSpec
    need: Callable[[int], Resources] | None = None
    followed: bool = False
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)


class GeneratedGroups:
    """Makes the groups. ``rules``: gives the owner rules that are in force."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        recorder: EventRecorder,
        rules: Callable[[], Sequence[grouping.OwnerRule]],
    ) -> None:
        self._client = client
        self._informers = informers
        self._recorder = recorder
        self._rules = rules
        self._owners = OwnerReader(client, informers)
        self._made: dict[tuple[str, str], float] = {}
        for cache in informers.groups.values():
            cache.subscribe(lambda change: self._forget(change.new or change.old))

    async def chosen(
        self, meta: Meta, namespace: str, below: Sequence[OwnerReference], named: str = ""
    ) -> tuple[OwnerReference | None, str]:
        """Return whom a group stands for, and what couldn't be read on the way; None is each pod for itself.

        ``below``: the object itself and what it controls, nearest to the pod first, as far as a rule may choose these. A
        name that is there already decides: it was made by rules, maybe by older ones.
        """
        rules = self._rules()
        if named:
            lineage = await self._owners.above(meta, namespace, lambda owners: _named(owners[-1:], named) is not None)
            return _named([*below, *lineage.owners], named), lineage.trouble
        if grouping.decided(below, rules):
            return grouping.chosen_owner(below, rules), ""
        lineage = await self._owners.above(meta, namespace, lambda owners: grouping.decided([*below, *owners], rules))
        return grouping.chosen_owner([*below, *lineage.owners], rules), lineage.trouble

    def namespace(self, name: str) -> Iterable[Meta]:
        """Return the metadata of a namespace, as far as it is known."""
        found = self._informers.cache(kinds.NAMESPACES).get(name)
        return (found.metadata,) if found is not None else ()

    async def metas(self, about: Object, nearest: Sequence[Meta]) -> list[Meta]:
        """Return whose annotations count: the nearest, all above, the namespace."""
        above = await self._owners.above(about.metadata, about.namespace, lambda _: False)
        return [*nearest, *above.metas, *self.namespace(about.namespace)]

    def devices(self, namespace: str) -> device_quota.DeviceNeed:
        """Return what counts the claims on devices that are made for pods of a namespace."""
        templates = self._informers.cache(kinds.RESOURCECLAIMTEMPLATES)
        classes = self._informers.cache(kinds.DEVICECLASSES)
        return device_quota.need_by(
            partial(templates.get, namespace=namespace), lambda: device_classes.of(classes.items())
        )

    def rules(self) -> Sequence[grouping.OwnerRule]:
        """Return the owner rules that are in force."""
        return self._rules()

    async def make(self, source: GroupSource, again: Callable[[], None]) -> None:
        """Make a group, by what ``source.about``, all above it and the namespace say.

        Where that was done just now for another pod or Job of it, ``again`` is called once a watch should have shown it.
        """
        name = grouping.generated_name(source.owner.uid)
        group, now = (source.about.namespace, name), asyncio.get_running_loop().time()
        left = self._made.get(group, now) - now
        if left > 0:
            asyncio.get_running_loop().call_later(left, again)
            return
        self._made[group] = now + _SHOWN
        made = False
        try:
            made = await self._make(source)
        finally:
            if not made:
                self._made.pop(group, None)

    async def _make(self, source: GroupSource) -> bool:
        """Make a group; tell whether there is one now."""
        kind, about = source.kind, source.about
        metas = await self.metas(about, source.nearest)
        queue = self._informers.queue(grouping.queue_name(*metas))
        if queue is not None and queue.metadata.deletion_timestamp is not None:
            # It would be deleted at once, and made again.
            self.tell(kind, about, "NoPodGroup", f"queue {queue.name} is being deleted; name another queue")
            raise RetryLater(f"queue {queue.name} is being deleted")
        body = self._manifest(source, metas)
        if body is None:
            return False
        for warning in manifests.warnings(metas):
            self.tell(kind, about, "IgnoredAnnotation", warning)
        try:
            await self._create(source, body)
        except errors.AlreadyExistsError:
            return True  # Another leader's, or an answer that got lost: the watch will show it.
        except errors.ForbiddenError as error:
            if errors.namespace_ends(error):
                return False
            self.tell(kind, about, "NoPodGroup", error.message)
            raise
        if source.owner.kind != kinds.PODS.name:
            workload = as_object(source.owner, about.namespace)
            self._recorder.record(*workload, CREATED, created_text(body["spec"]["queue"], body["spec"]["minMember"]))
        return True

    async def _create(self, source: GroupSource, body: dict[str, Any]) -> None:
        """Store a group; where the quota has no room for its minimum, without that.

        Its workload exists already: a group that holds nothing says so to whoever looks, and keeps its pods out. That of a
        bare pod has no other pods to keep out.
        """
        namespace = source.about.namespace
        try:
            await self._client.create(kinds.PODGROUPS, body, namespace)
        except errors.ForbiddenError as error:
            if errors.namespace_ends(error) or source.owner.kind == kinds.PODS.name:
                raise
            # Where the quota isn't what is in the way, this is refused as well, with the same words.
            await self._client.create(kinds.PODGROUPS, manifests.without_reservation(body), namespace)

    async def manifest(self, source: GroupSource) -> dict[str, Any] | None:
        """Return the group as it would be made now; None where what its pods request can't be read."""
        return self._manifest(source, await self.metas(source.about, source.nearest))

    def _manifest(self, source: GroupSource, metas: Sequence[Meta]) -> dict[str, Any] | None:
        try:
            return manifests.podgroup(
                source.owner,
                metas,
                source.template,
                source.need
                or partial(manifests.estimate, [source.template], devices=self.devices(source.about.namespace)),
                followed=source.followed,
                annotations=source.annotations,
            )
        except QuantityError as error:
            text = f"the pods' request can't be read: {error}"
            self.tell(source.kind, source.about, "NoPodGroup", text)
            return None

    async def follow(self, source: GroupSource, group: PodGroup) -> None:
        """Change in a group what its workload says otherwise than before; what people changed in it stays."""
        before = manifests.description(group.metadata)
        if before is None or conversion.phase_of(group) is Phase.COMPLETED:
            return
        body = await self.manifest(source)
        now = manifests.described(body) if body is not None else before
        if now == before:
            return
        fields = {*before.spec, *now.spec}
        spec = {field: now.spec.get(field) for field in fields if now.spec.get(field) != before.spec.get(field)}
        noted = manifests.noted_on_group(now)
        if _RESOURCES in spec and waits_for_quota(group) is not None:
            noted |= manifests.wanted_by(now.spec[_RESOURCES])
            del spec[_RESOURCES]
        elif _RESOURCES in spec:
            gone = dict.fromkeys(set(group.spec.min_resources or {}) - set(now.spec[_RESOURCES]))
            spec[_RESOURCES] = {**gone, **now.spec[_RESOURCES]}
        metadata = {"uid": group.metadata.uid, "annotations": noted}
        change = {"metadata": metadata, "spec": spec}
        try:
            await self._client.patch(kinds.PODGROUPS, group.name, change, group.namespace)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone, or another of its name.
        except errors.ForbiddenError as error:
            self.tell(source.kind, source.about, "PodGroupNotChanged", error.message)
            raise

    async def join(self, pod: Pod, group: str) -> None:
        """Write the name of its group on a pod."""
        meta = {"uid": pod.metadata.uid, "annotations": {names.GROUP_NAME: group}}
        try:
            await self._client.patch(kinds.PODS, pod.name, {"metadata": meta}, pod.namespace)
        except (errors.NotFoundError, errors.ConflictError):
            return  # Gone, or another of its name.

    def tell(self, kind: Kind[Any], about: Object, reason: str, message: str) -> None:
        """Record what is wrong as an event of an object."""
        self._recorder.record(kind, about, reason, message, type_="Warning")

    def _forget(self, group: Object | None) -> None:
        if group is not None:
            self._made.pop((group.namespace, group.name), None)


def _named(owners: Iterable[OwnerReference], group: str) -> OwnerReference | None:
    """Return the owner after which a generated group is named."""
    return next((each for each in owners if grouping.generated_name(each.uid) == group), None)
