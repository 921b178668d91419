"""The ResourceClaim controller: makes claims from templates, and takes devices back from claims that nobody uses any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from muster.sandbox.controllers.controller import Controller
from muster.sandbox.controllers.indexer import PODS, Indexer
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.pods import controller_uid, node_name
from muster.sandbox.core.status import StatusError
from muster.sandbox.core.store import Key, Object, StoreEvent, identity
from muster.sandbox.core.users import RESOURCECLAIM_CONTROLLER
from muster.sandbox.server.requests import ApiServer

CLAIMS: Final[Key] = ("resource.k8s.io", "resourceclaims")
TEMPLATES: Final[Key] = ("resource.k8s.io", "resourceclaimtemplates")

_OF_POD: Final = "resource.kubernetes.io/pod-claim-name"
_OF_RESOURCES: Final = "resource.kubernetes.io/extended-resource-claim"
_FINALIZER: Final = "resource.kubernetes.io/delete-protection"

Name = tuple[Key, str, str]


class ResourceClaimController(Controller[Name]):
    """Follows pods and their claims."""

    WORKERS = 8

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, RESOURCECLAIM_CONTROLLER, "resourceclaim-controller")
        self._of_pods = Indexer(self.store, CLAIMS, controller_uid)

    def observe(self, event: StoreEvent) -> None:
        """A claim; a pod with claims, and these."""
        if event.key == CLAIMS and event.type != "DELETED":
            self.queue.add((CLAIMS, *identity(event.object)))
        elif event.key == PODS and (event.object["spec"].get("resourceClaims") or _extended(event.object)):
            namespace, name = identity(event.object)
            if event.object["spec"].get("resourceClaims"):
                self.queue.add((PODS, namespace, name))
            for claim in _used(event.object):
                self.queue.add((CLAIMS, namespace, claim))

    async def sync(self, name: Name) -> None:
        """Make what a pod's templates say, or bring a claim into order."""
        obj = self.store.get(*name)
        if obj is None:
            return
        if name[0] == PODS:
            await self._sync_pod(obj)
        else:
            await self._sync_claim(obj)

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _sync_pod(self, pod: Object) -> None:
        if p.ended(pod) or p.leaving(pod):
            return
        statuses = {each["name"]: each for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        known = dict(statuses)
        for reference in pod["spec"]["resourceClaims"]:
            if reference.get("resourceClaimTemplateName") and reference["name"] not in statuses:
                claim = self._made(pod, reference["name"]) or await self._make(pod, reference)
                statuses[reference["name"]] = {"name": reference["name"], "resourceClaimName": identity(claim)[1]}
        if statuses != known:
            status = {**(pod.get("status") or {}), "resourceClaimStatuses": list(statuses.values())}
            await self.write.update_status(PODS, pod, status)

    def _made(self, pod: Object, reference: str) -> Object | None:
        for claim in self._of_pods.get(pod["metadata"]["uid"]):
            if (claim["metadata"].get("annotations") or {}).get(_OF_POD) == reference and not p.leaving(claim):
                return claim
        return None

    async def _make(self, pod: Object, reference: Object) -> Object:
        namespace, _ = identity(pod)
        try:
            template = self._template(namespace, reference["resourceClaimTemplateName"])
            return await self.write.create(CLAIMS, namespace, _claim(pod, reference["name"], template))
        except StatusError as error:
            text = f"PodResourceClaim {reference['name']}: {error.message}"
            await self.events.warning(pod, "FailedResourceClaimCreation", text)
            raise

    def _template(self, namespace: str, name: str) -> Object:
        template = self.store.get(TEMPLATES, namespace, name)
        if template is None:
            raise StatusError(404, "NotFound", f'resourceclaimtemplate.resource.k8s.io "{name}" not found')
        return template

    # ── claims ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _sync_claim(self, claim: Object) -> None:
        status = claim.get("status") or {}
        users = status.get("reservedFor") or []
        left = [each for each in users if self._uses(identity(claim)[0], each)]
        protected = _FINALIZER in (claim["metadata"].get("finalizers") or ())
        if len(left) < len(users) or (protected and p.leaving(claim) and not left):
            claim = await self._release(claim, left, free=protected and not left)
        if not left and self._outlived(claim):
            await self.write.delete(CLAIMS, claim)

    async def _release(self, claim: Object, left: list[Any], *, free: bool) -> Object:
        """Take reservations back, and with the last one the devices."""
        kept = {key: value for key, value in (claim.get("status") or {}).items() if key != "reservedFor"}
        if free:
            kept.pop("allocation", None)
        claim = await self.write.update_status(CLAIMS, claim, kept | ({"reservedFor": left} if left else {}))
        if free:
            others = [each for each in claim["metadata"]["finalizers"] if each != _FINALIZER]
            claim = await self.write.patch(CLAIMS, claim, {"metadata": {"finalizers": others or None}})
        return claim

    def _uses(self, namespace: str, user: dict[str, str]) -> bool:
        if user.get("resource") != "pods" or user.get("apiGroup"):
            return True
        pod = self.store.get(PODS, namespace, user["name"])
        return pod is not None and pod["metadata"]["uid"] == user["uid"] and not _done(pod)

    def _outlived(self, claim: Object) -> bool:
        """Whether it was made for a pod that will use it no more. With a pod that is gone the garbage collector takes it."""
        owner = controller_uid(claim)
        annotations = claim["metadata"].get("annotations") or {}
        if not owner or p.leaving(claim) or annotations.keys().isdisjoint({_OF_POD, _OF_RESOURCES}):
            return False
        names = [each["name"] for each in claim["metadata"]["ownerReferences"] if each["uid"] == owner]
        pod = self.store.get(PODS, identity(claim)[0], names[0])
        return pod is not None and pod["metadata"]["uid"] == owner and _done(pod)


def _done(pod: Object) -> bool:
    return p.ended(pod) or (p.leaving(pod) and not node_name(pod))


def _extended(pod: Object) -> str:
    """Return the name of the claim that a pod has for extended resources, empty where it has none."""
    return str(((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or "")


def _used(pod: Object) -> Iterator[str]:
    """List the names of the claims that a pod uses, as far as these exist."""
    if extended := _extended(pod):
        yield extended
    for each in pod["spec"].get("resourceClaims") or ():
        if each.get("resourceClaimName"):
            yield each["resourceClaimName"]
    for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if each.get("resourceClaimName"):
            yield each["resourceClaimName"]


def _claim(pod: Object, reference: str, template: Object) -> Object:
    stated = template["spec"].get("metadata") or {}
    metadata = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made = {
        "generateName": f"{metadata['name']}-{reference}-",
        "annotations": {**(stated.get("annotations") or {}), _OF_POD: reference},
        "ownerReferences": [owner],
    }
    labels = {"labels": stated["labels"]} if stated.get("labels") else {}
    return {"metadata": made | labels, "spec": template["spec"]["spec"]}
