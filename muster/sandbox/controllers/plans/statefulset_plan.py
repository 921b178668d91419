"""The next steps of a StatefulSet, from the set, its pods and the time. Pure.

The order is the real controller's: pods of the wanted ordinals are made and repaired first, then those beyond go, then
those of an old template, each from the end. In order (``OrderedReady``) one pod at a time, and only when those before
it are available; in ``Parallel`` all at once, but for an update.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.int_or_percent import pods_of
from muster.sandbox.controllers.plans.templates import HASH, template_of
from muster.sandbox.core.store import Object

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"

_ORDINAL: Final = re.compile(r"(.*)-(0|[1-9][0-9]{0,8})")


class Plan(Struct, frozen=True):
    """Pods to make, by ordinal, with the revision of each; pods to delete, of those ``ended`` to be made anew.

    ``wake``: seconds until a pod has been ready long enough, or None.
    """

    create: Sequence[tuple[int, Object]] = ()
    delete: Sequence[Object] = ()
    ended: Sequence[Object] = ()
    wake: float | None = None


class View(Struct, frozen=True):
    """A StatefulSet as it stands: its pods by ordinal, and the two revisions between which it may be."""

    owner: Object
    pods: dict[int, Object]
    current: Object
    update: Object
    now: datetime

    @property
    def wanted(self) -> range:
        """The ordinals that there have to be."""
        spec = self.owner["spec"]
        start = (spec.get("ordinals") or {}).get("start", 0)
        return range(start, start + spec.get("replicas", 1))

    @property
    def condemned(self) -> list[int]:
        """The ordinals of pods beyond, the highest first."""
        return sorted((each for each in self.pods if each not in self.wanted), reverse=True)

    @property
    def in_order(self) -> bool:
        """Whether one pod waits for another."""
        return bool(self.owner["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady")

    @property
    def partition(self) -> int:
        """The first ordinal, counted from 0, that gets the new template."""
        rolling = self.owner["spec"]["updateStrategy"].get("rollingUpdate") or {}
        return int(rolling.get("partition") or 0)

    @property
    def rolls(self) -> bool:
        """Whether pods of an old template are replaced."""
        return bool(self.owner["spec"]["updateStrategy"]["type"] == "RollingUpdate")

    def available(self, pod: Object | None) -> bool:
        """Whether a pod runs, is ready for long enough and stays."""
        if pod is None or p.leaving(pod) or p.phase(pod) != "Running":
            return False
        since = p.available_at(pod, self.owner["spec"].get("minReadySeconds", 0))
        return since is not None and since <= self.now


def ordinal(owner: Object, pod: Object) -> int | None:
    """Return the number that a pod's name ends in; None where it isn't one of the set's names."""
    match = _ORDINAL.fullmatch(pod["metadata"]["name"])
    return int(match[2]) if match and match[1] == owner["metadata"]["name"] else None


def plan(view: View) -> Plan:
    """Decide what to do next."""
    if p.leaving(view.owner):
        return Plan()
    first = _ordered(view) if view.in_order else _parallel(view)
    if first is not None:
        return first
    return Plan(delete=_outdated(view) if view.rolls else (), wake=_wake(view))


def _ordered(view: View) -> Plan | None:
    """Return the one next step; None when all wanted pods are available and none is beyond."""
    for number in view.wanted:
        pod = view.pods.get(number)
        if pod is None:
            return Plan(create=[(number, _revision_for(view, number))])
        if p.ended(pod) and not p.leaving(pod):
            return Plan(ended=[pod])
        if not view.available(pod):
            return Plan(wake=_wake(view))
    return _shrink(view)


def _shrink(view: View) -> Plan | None:
    """Take the last pod; not one that isn't available while another isn't either, as the real controller."""
    if not view.condemned:
        return None
    last, *others = (view.pods[number] for number in view.condemned)
    waits = not view.available(last) and not all(map(view.available, others))
    return Plan(wake=_wake(view)) if p.leaving(last) or waits else Plan(delete=[last])


def _parallel(view: View) -> Plan | None:
    missing = [number for number in view.wanted if number not in view.pods]
    ended = [pod for pod in view.pods.values() if p.ended(pod) and not p.leaving(pod)]
    condemned = [view.pods[number] for number in view.condemned]
    going = [pod for pod in condemned if not p.leaving(pod) and not p.ended(pod)]
    if not (missing or ended or going):
        return None
    return Plan(create=[(each, _revision_for(view, each)) for each in missing], delete=going, ended=ended)


def _revision_for(view: View, number: int) -> Object:
    """Return the revision that a missing pod is made from: below the partition the old one."""
    below = view.rolls and number < view.wanted.start + view.partition
    return view.current if below else view.update


def _outdated(view: View) -> list[Object]:
    """Return the pods of an old template whose turn it is, from the end to the partition; nothing while one isn't back."""
    most = _most_unavailable(view)
    gone = sum(not view.available(view.pods.get(number)) for number in view.wanted)
    turn: list[Object] = []
    for number in reversed(view.wanted[view.partition :]):
        pod = view.pods.get(number)
        if pod is None:
            break
        if revision_of(pod) != view.update["metadata"]["name"] and not p.leaving(pod):
            # A broken pod of the old template is replaced whatever else is: it doesn't serve.
            broken = not view.available(pod)
            if not broken and gone >= most:
                break
            turn.append(pod)
            gone += not broken
        elif most == 1 and not view.available(pod):
            break
        if len(turn) >= most:
            break
    return turn


def _most_unavailable(view: View) -> int:
    rolling = view.owner["spec"]["updateStrategy"].get("rollingUpdate") or {}
    return max(1, pods_of(rolling.get("maxUnavailable", 1), len(view.wanted), up=False))


def revision_of(pod: Object) -> str:
    """Return the name of the revision that a pod was made from."""
    name: str = (pod["metadata"].get("labels") or {}).get(HASH, "")
    return name


def _wake(view: View) -> float | None:
    seconds = view.owner["spec"].get("minReadySeconds", 0)
    times = [p.available_at(pod, seconds) for pod in view.pods.values()]
    ahead = [(at - view.now).total_seconds() for at in times if at is not None and at > view.now]
    return min(ahead, default=None)


# ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────


def status(view: View) -> dict[str, Any]:
    """Return the whole status."""
    pods = view.pods.values()
    staying = [pod for pod in pods if not p.leaving(pod)]
    current, update = view.current["metadata"]["name"], view.update["metadata"]["name"]
    ready = sum(p.phase(pod) == "Running" and p.ready(pod) for pod in pods)
    updated = sum(revision_of(pod) == update for pod in staying)
    complete = view.rolls and len(pods) == updated == ready == len(view.wanted)
    if complete:
        current = update
    counts = {
        "readyReplicas": ready,
        "currentReplicas": sum(revision_of(pod) == current for pod in staying),
        "updatedReplicas": updated,
    }
    return {
        "observedGeneration": view.owner["metadata"]["generation"],
        "replicas": len(pods),
        **{name: number for name, number in counts.items() if number},
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": (view.owner.get("status") or {}).get("collisionCount", 0),
        "availableReplicas": sum(map(view.available, pods)),
    }


# ── what is made ─────────────────────────────────────────────────────────────────────────────────────────────────


def new_pod(owner: Object, revision: Object, number: int) -> Object:
    """Make the pod of an ordinal: its name, its host's name, its claims, and which template it is from."""
    name = f"{owner['metadata']['name']}-{number}"
    made = p.from_template(template_of(revision), owner, f"{owner['metadata']['name']}-")
    labels = {**(made["metadata"].get("labels") or {}), POD_NAME: name, POD_INDEX: str(number)}
    metadata = {**made["metadata"], "name": name, "labels": {**labels, HASH: revision["metadata"]["name"]}}
    spec = {**made["spec"], "hostname": name, "subdomain": owner["spec"].get("serviceName", "")}
    if not spec["subdomain"]:
        del spec["subdomain"]
    return {**made, "metadata": metadata, "spec": {**spec, **_volumes(owner, spec, name)}}


def _volumes(owner: Object, spec: Object, pod: str) -> Object:
    templates = owner["spec"].get("volumeClaimTemplates") or ()
    if not templates:
        return {}
    names = [each["metadata"]["name"] for each in templates]
    claimed = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{pod}"}} for each in names]
    return {"volumes": [*claimed, *(each for each in spec.get("volumes") or () if each["name"] not in names)]}


def claims(owner: Object, number: int) -> list[Object]:
    """Make the claims of an ordinal's pod, with the labels by which the set is selected."""
    pod = f"{owner['metadata']['name']}-{number}"
    return [_claim(each, owner, pod) for each in owner["spec"].get("volumeClaimTemplates") or ()]


def _claim(template: Object, owner: Object, pod: str) -> Object:
    metadata = template["metadata"]
    labels = {**(metadata.get("labels") or {}), **(owner["spec"]["selector"].get("matchLabels") or {})}
    named = {**metadata, "name": f"{metadata['name']}-{pod}", "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": named, "spec": template["spec"]}


def claim_owners(owner: Object, pod: Object, *, condemned: bool) -> list[Object]:
    """Return who takes a pod's claims along: the set when it goes, the pod when the set gets smaller, or nobody."""
    policy = owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    if policy.get("whenScaled") == "Delete" and condemned:
        return [p.owner_reference(pod)]
    return [p.owner_reference(owner)] if policy.get("whenDeleted") == "Delete" else []


def by_ordinal(owner: Object, pods: Iterable[Object]) -> dict[int, Object]:
    """Return the pods by their ordinals, lowest first."""
    numbered = ((ordinal(owner, pod), pod) for pod in pods)
    return dict(sorted((number, pod) for number, pod in numbered if number is not None))
