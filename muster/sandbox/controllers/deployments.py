"""The Deployment controller: a ReplicaSet per template, revisions, and the steps of `rollout` from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import deployment_status, rollout
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.pods import controller_of, controller_uid
from muster.sandbox.controllers.plans.rollout import MAX_REPLICAS, Resize
from muster.sandbox.controllers.plans.templates import template_hash
from muster.sandbox.controllers.replicasets import REPLICASETS
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import DEPLOYMENT_CONTROLLER
from muster.sandbox.server.requests import ApiServer

DEPLOYMENTS: Final[Key] = ("apps", "deployments")
REVISION: Final = "deployment.kubernetes.io/revision"
DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
TEMPLATE_HASH: Final = "pod-template-hash"

_NOT_INHERITED: Final = {
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision-history",
    REVISION,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
}


class DeploymentController(Controller[tuple[str, str]]):
    """Rolls out Deployments."""

    WORKERS = 5

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, DEPLOYMENT_CONTROLLER, "deployment-controller")
        self._replicasets = Indexer(self.store, REPLICASETS, controller_uid)
        self._pods = Indexer(self.store, PODS, controller_uid)

    def observe(self, event: StoreEvent) -> None:
        """A changed Deployment; that of a changed ReplicaSet; with Recreate also that of a pod that went."""
        if event.key == DEPLOYMENTS and event.type != "DELETED":
            self.queue.add(identity(event.object))
        elif event.key == REPLICASETS:
            self._add_owner(event.object)
        elif event.key == PODS and (event.type == "DELETED" or p.ended(event.object)):
            owner = controller_of(event.object)
            if owner is not None and owner["kind"] == "ReplicaSet":
                replicaset = self.store.get(REPLICASETS, identity(event.object)[0], owner["name"])
                if replicaset is not None:
                    self._add_owner(replicaset)

    def _add_owner(self, replicaset: Object) -> None:
        owner = controller_of(replicaset)
        if owner is not None and owner["kind"] == "Deployment":
            self.queue.add((identity(replicaset)[0], owner["name"]))

    async def sync(self, name: tuple[str, str]) -> None:
        """Take one step; its effect brings the next."""
        deployment = self.store.get(DEPLOYMENTS, *name)
        if deployment is None:
            return
        now = self.server.clock.now()
        new, old = self._split(deployment)
        if not p.leaving(deployment):
            conditions = deployment_status.paused(deployment, now)
            if conditions != ((deployment.get("status") or {}).get("conditions") or []):
                deployment = await self._write_conditions(deployment, conditions)
            deployment, new = await self._advance(deployment, new, old)
            new, old = self._split(deployment)
        status = deployment_status.status(deployment, new, old, now)
        deployment = await self.write.update_status(DEPLOYMENTS, deployment, status)
        if deployment_status.complete(deployment, status):
            await self._forget_old(deployment, old)
        wake = deployment_status.seconds_to_deadline(deployment, now)
        if wake:
            self.queue.add_after(name, wake)

    def _split(self, deployment: Object) -> tuple[Object | None, list[Object]]:
        """Return the ReplicaSet of the current template, if there is one, and the others."""
        mine = self._replicasets.get(deployment["metadata"]["uid"])
        same = [each for each in mine if _template(each) == deployment["spec"]["template"]]
        new = min(same, key=lambda each: each["metadata"]["creationTimestamp"], default=None)
        return new, [each for each in mine if each is not new]

    async def _advance(self, deployment: Object, new: Object | None, old: list[Object]) -> tuple[Object, Object | None]:
        everything = ([new] if new else []) + old
        if deployment["spec"].get("paused") or any(_outdated(deployment, each) for each in everything):
            if new is not None:
                deployment = await self._mark(deployment, new, old)
            await self._resize(deployment, rollout.scale(deployment, new, old))
            await self._note_sizes(deployment)
            return deployment, new
        if _strategy(deployment) == "Recreate":
            return await self._recreate(deployment, new, old)
        deployment, new = await self._ensure_new(deployment, new, old)
        await self._resize(deployment, rollout.roll(deployment, new, old))
        return deployment, new

    async def _recreate(
        self, deployment: Object, new: Object | None, old: list[Object]
    ) -> tuple[Object, Object | None]:
        pods = [pod for each in old for pod in self._pods.get(each["metadata"]["uid"])]
        old_pods = any(not p.ended(pod) for pod in pods)
        if new is None and not old_pods and not rollout.total(old):
            return await self._ensure_new(deployment, None, old)
        replicas = deployment["spec"].get("replicas", 1)
        if new is not None:
            deployment = await self._mark(deployment, new, old)
        await self._resize(deployment, rollout.recreate(new, old, replicas, old_pods=old_pods))
        return deployment, new

    # ── the ReplicaSet of the current template ───────────────────────────────────────────────────────────────────

    async def _ensure_new(self, deployment: Object, new: Object | None, old: list[Object]) -> tuple[Object, Object]:
        if new is not None:
            return await self._mark(deployment, new, old), new
        body = _new_replicaset(deployment, old)
        namespace, now = identity(deployment)[0], self.server.clock.now()
        try:
            new = await self.write.create(REPLICASETS, namespace, body)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                await self._count_collision(deployment)
            else:
                await self.events.warning(deployment, "ReplicaSetCreateError", _not_created(body, error))
            raise
        name, replicas = new["metadata"]["name"], rollout.size(new)
        if replicas:
            text = f"Scaled up replica set {name} from 0 to {replicas}"
            await self.events.normal(deployment, "ScalingReplicaSet", text)
        deployment = await self._mark(deployment, new, old)
        return await self._write_conditions(deployment, deployment_status.created(deployment, name, now)), new

    async def _count_collision(self, deployment: Object) -> None:
        """Another ReplicaSet has the name: the next try makes another one of it."""
        status = deployment.get("status") or {}
        counted = {**status, "collisionCount": status.get("collisionCount", 0) + 1}
        await self.write.update_status(DEPLOYMENTS, deployment, counted)

    async def _mark(self, deployment: Object, new: Object, old: list[Object]) -> Object:
        """See that the current ReplicaSet and the Deployment carry the newest revision."""
        revision = str(max([_revision(new), *(_revision(each) + 1 for each in old)]))
        if _annotations(new).get(REVISION) != revision:
            await self.write.patch(REPLICASETS, new, {"metadata": {"annotations": {REVISION: revision}}})
        if _annotations(deployment).get(REVISION) != revision:
            change = {"metadata": {"annotations": {REVISION: revision}}}
            deployment = await self.write.patch(DEPLOYMENTS, deployment, change)
        if p.condition(deployment, "Progressing") is None:
            conditions = deployment_status.found(deployment, new["metadata"]["name"], self.server.clock.now())
            deployment = await self._write_conditions(deployment, conditions)
        return deployment

    async def _write_conditions(self, deployment: Object, conditions: list[dict[str, Any]]) -> Object:
        status = {**(deployment.get("status") or {}), "conditions": conditions}
        return await self.write.update_status(DEPLOYMENTS, deployment, status)

    # ── sizes ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _resize(self, deployment: Object, resizes: Sequence[Resize]) -> None:
        for resize in resizes:
            before, after = rollout.size(resize.replicaset), resize.replicas
            change = {"metadata": {"annotations": _sizes(deployment)}, "spec": {"replicas": after}}
            changed = await self.write.patch(REPLICASETS, resize.replicaset, change)
            text = f"Scaled {'up' if after > before else 'down'} replica set {changed['metadata']['name']}"
            await self.events.normal(deployment, "ScalingReplicaSet", f"{text} from {before} to {after}")

    async def _note_sizes(self, deployment: Object) -> None:
        for each in self._replicasets.get(deployment["metadata"]["uid"]):
            if _outdated(deployment, each):
                await self.write.patch(REPLICASETS, each, {"metadata": {"annotations": _sizes(deployment)}})

    async def _forget_old(self, deployment: Object, old: list[Object]) -> None:
        """Delete the oldest empty ReplicaSets beyond the history that is asked for."""
        empty = [each for each in old if not (rollout.size(each) or rollout.count([each], "replicas"))]
        empty = [each for each in empty if not p.leaving(each)]
        surplus = len(empty) - deployment["spec"].get("revisionHistoryLimit", 10)
        for each in sorted(empty, key=_revision)[: max(0, surplus)]:
            await self.write.delete(REPLICASETS, each)


def _new_replicaset(deployment: Object, old: Sequence[Object]) -> Object:
    spec, metadata = deployment["spec"], deployment["metadata"]
    digest = template_hash(spec["template"], (deployment.get("status") or {}).get("collisionCount", 0))
    given = spec["template"].get("metadata") or {}
    labels = {**(given.get("labels") or {}), TEMPLATE_HASH: digest}
    selector = spec["selector"]
    matched = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: digest}
    inherited = {key: value for key, value in _annotations(deployment).items() if key not in _NOT_INHERITED}
    revision = max((_revision(each) for each in old), default=0) + 1
    body: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "labels": labels,
            "annotations": {**inherited, **_sizes(deployment), REVISION: str(revision)},
            "ownerReferences": [p.owner_reference(deployment)],
        },
        "spec": {
            "replicas": 0,
            "selector": {**selector, "matchLabels": matched},
            "template": {**spec["template"], "metadata": {**given, "labels": labels}},
            **({"minReadySeconds": spec["minReadySeconds"]} if spec.get("minReadySeconds") else {}),
        },
    }
    first = rollout.first_size(deployment, body, old)
    return {**body, "spec": {**body["spec"], "replicas": first}}


def _not_created(body: Object, error: StatusError) -> str:
    return f'Failed to create new replica set "{body["metadata"]["name"]}": {error.message}'


def _template(replicaset: Object) -> Object:
    """Return a ReplicaSet's template without the label that its Deployment put there."""
    template = replicaset["spec"]["template"]
    metadata = template["metadata"]
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != TEMPLATE_HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _revision(replicaset: Object) -> int:
    text = _annotations(replicaset).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _sizes(deployment: Object) -> dict[str, str]:
    replicas = deployment["spec"].get("replicas", 1)
    return {DESIRED_REPLICAS: str(replicas), MAX_REPLICAS: str(replicas + rollout.limits(deployment)[0])}


def _outdated(deployment: Object, replicaset: Object) -> bool:
    """Whether the Deployment's size changed since the (not empty) ReplicaSet got its own."""
    noted = _annotations(replicaset).get(DESIRED_REPLICAS)
    return bool(rollout.size(replicaset)) and noted is not None and noted != _sizes(deployment)[DESIRED_REPLICAS]


def _strategy(deployment: Object) -> str:
    kind: str = (deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate")
    return kind
