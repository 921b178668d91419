"""The questions that tenants ask, each a function of the cluster that is asked; and the objects that they would like admitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.model.manifests import Manifest
from muster.sandbox import virtual_time
from muster.visibility.questions import Asked
from muster.whatif import targets, tenants
from muster.whatif.admission import MalformedObjectError, find_out
from muster.whatif.cluster_view import PODGROUPS, ClusterObjects
from muster.whatif.object_paths import path_of
from muster.whatif.why import ask
from scheduler.model.snapshot import GroupKey

OBJECTS: Final = 20
"""Objects that are tried at once: to find out when each of so many gangs starts takes three seconds."""
PODS: Final = 1000
"""Pods that all of them want together, as far as their specs say it."""
_COUNTS: Final = frozenset(
    {
        "minMember",
        "minAvailable",
        "parallelism",
        "replicas",
        "size",
        "numSlices",
        "instances",
        "minReplicas",
        "numNodes",
        "numOfHosts",
    }
)
"""Fields that say how many pods, or how many of what has pods, there shall be."""

Json = dict[str, Any]


class RefusedObjectsError(ValueError):
    """Objects that can't be tried for a tenant. The text says which, and why."""


class WantedObjects(Struct, frozen=True):
    """Objects of a namespace that would be applied, and those of them that exist."""

    namespace: str
    manifests: tuple[Manifest, ...]
    existing: tuple[Json, ...] = ()


class _AdmissionSpec(Struct, frozen=True):
    objects: tuple[Json, ...] = ()
    existing: tuple[Json, ...] = ()


class _AdmissionBody(Struct, frozen=True):
    spec: _AdmissionSpec = _AdmissionSpec()


def why(namespace: str, name: str, *, trying: bool) -> Callable[[Asked], Json | None]:
    """Ask why what is called ``name`` (or kind/name) waits; the answer is None where there is no such thing."""

    def answer(asked: Asked) -> Json | None:
        target = targets.find(asked.state, namespace, name, asked.schedulers)
        if target is None:
            return None
        if target.key is None or target.key.namespace != namespace:
            return {"podGroup": "", "message": target.remark}
        found = ask(asked.cluster, target.key, trying=trying)
        return tenants.why(found, namespace, tried=trying)

    return answer


def position(namespace: str, name: str) -> Callable[[Asked], Json | None]:
    """Ask where a group stands in the line of its queue; None where there is no such group, or it doesn't wait."""

    def answer(asked: Asked) -> Json | None:
        kind = next((each for each in PODGROUPS if asked.state.find(each, name, namespace) is not None), None)
        return tenants.position(asked.plan(), GroupKey(kind.group, namespace, name)) if kind is not None else None

    return answer


def queues(asked: Asked) -> list[Json]:
    """Ask for the queues: their use and shares, and how many wait."""
    return tenants.queues(asked.state, asked.plan(), "")


def admission(
    wanted: WantedObjects, definitions: Sequence[Mapping[str, Any]]
) -> Callable[[Asked], tuple[Json, ClusterObjects | None]]:
    """Ask whether objects would be admitted, and when what starts would start; in virtual time, so nobody waits. With it goes the cluster as it would be.

    Raises, when it is asked:
        RefusedObjectsError: an object isn't what its kind has.
    """

    def answer(asked: Asked) -> tuple[Json, ClusterObjects | None]:
        trial = find_out(
            asked.cluster.state,
            wanted.manifests,
            wanted.existing,
            asked.policy,
            asked.schedulers,
            [dict(each) for each in definitions],
            trying=False,
            cluster=asked.cluster,
        )
        try:
            forecast = virtual_time.run(trial)
            return tenants.admitted(forecast, wanted.namespace), forecast.after
        except MalformedObjectError as error:
            raise RefusedObjectsError(f"spec.objects: {error}") from error
        except Exception as error:
            # They are taken as an API server has them, without a look at each field: whoever sends others is told so.
            if not wanted.existing:
                raise
            found = f"{type(error).__name__}: {error}"[:200]
            raise RefusedObjectsError(f"spec.existing isn't as an API server has it: {found}") from error

    return answer


def read_objects(body: bytes, namespace: str) -> WantedObjects:
    """Read the body of an Admission.

    Raises:
        RefusedObjectsError: it is none, or holds objects of another namespace or of none, or too many.
    """
    try:
        return _wanted(msgspec.json.decode(body, type=_AdmissionBody).spec, namespace)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RefusedObjectsError(f"the body is no Admission: {error}") from error


def _wanted(spec: _AdmissionSpec, namespace: str) -> WantedObjects:
    if not spec.objects:
        raise RefusedObjectsError("spec.objects names no object")
    if len(spec.objects) > OBJECTS:
        raise RefusedObjectsError(f"spec.objects: at most {OBJECTS} objects at once, these are {len(spec.objects)}")
    manifests = tuple(_manifest(each, number, namespace) for number, each in enumerate(spec.objects))
    pods = sum(_pods(each.body.get("spec")) for each in manifests)
    if pods > PODS:
        raise RefusedObjectsError(f"spec.objects: at most {PODS} pods at once, these want {pods}")
    applied = {_of(each.body) for each in manifests}
    return WantedObjects(namespace, manifests, tuple(each for each in spec.existing if _of(each) in applied))


def _manifest(body: Json, number: int, namespace: str) -> Manifest:
    place, meta = f"spec.objects[{number}]", body.get("metadata")
    if (
        not isinstance(meta, dict)
        or not isinstance(body.get("kind"), str)
        or not isinstance(body.get("apiVersion"), str)
    ):
        raise RefusedObjectsError(f"{place} is no object: it needs apiVersion, kind and metadata")
    if odd := next((key for key in ("name", "generateName") if not isinstance(meta.get(key, ""), str)), ""):
        raise RefusedObjectsError(f"{place}: metadata.{odd} is no text")
    if not (meta.get("name") or meta.get("generateName")):
        raise RefusedObjectsError(f"{place} has no metadata.name")
    if meta.get("namespace", namespace) != namespace:
        raise RefusedObjectsError(f"{place} is of another namespace than {namespace}, which is asked about")
    manifest = Manifest({**body, "metadata": {**meta, "namespace": namespace}}, place, namespace)
    path = path_of(manifest)
    if path and f"/namespaces/{namespace}/" not in path:
        raise RefusedObjectsError(f"{place}: {manifest.kind} is of no namespace, so it is not asked for in one")
    return manifest


def _pods(spec: Any) -> int:
    """Count the pods that a spec may want: what says a number multiplies what is below it."""
    parts = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    below = sum(map(_pods, parts))
    if not isinstance(spec, dict):
        return below
    stated = [value for key, value in spec.items() if key in _COUNTS and isinstance(value, int) and value > 0]
    return math.prod(stated) * max(below, 1) if stated else below


def _of(body: Mapping[str, Any]) -> tuple[Any, ...]:
    meta = body.get("metadata")
    about = meta if isinstance(meta, dict) else {}
    found = (body.get("apiVersion"), body.get("kind"), about.get("name"), about.get("namespace"))
    return tuple(each if isinstance(each, str) else None for each in found)
