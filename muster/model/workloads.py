"""The kinds of workloads, and where the objects of each have the templates of their pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from muster.model import kinds
from muster.model.kinds import Kind
from muster.model.objects import Container, Json, Meta, Object, PodSpec, PodTemplate, ResourceRequirements

_MEBI: Final = 2**20

Steps = list[tuple[str, Json]]
"""The values on the way from an object to a template, each with its path."""


class TemplatePath(Struct, frozen=True):
    """Where an object has the template of some of its pods.

    Attributes:
        path: keys joined by dots; ``[]`` behind one stands for each entry of a list, ``{}`` for each value of a map.
        count: gives, of the values on the way, how many pods of it exist at once, in one of the lowest owners.
        below: kinds of the controllers between the pods and the object, the nearest to the pods first.
        copies: gives how many of the lowest owners there are.
        read: makes a template of what stands there.
        scheduler: path from there to the schedulerName.
        metadata: path from there to what has the annotations.
    """

    path: str
    count: Callable[[Steps], int]
    below: tuple[tuple[str, str], ...] = ()
    copies: Callable[[Steps], int] = lambda _: 1
    read: Callable[[Json], PodTemplate] = lambda value: msgspec.convert(value, PodTemplate)
    scheduler: str = "spec.schedulerName"
    metadata: str = "metadata"


class WorkloadKind(Struct, frozen=True):
    """A kind whose objects describe gangs.

    Attributes:
        kind: what the API server calls it.
        templates: where its pods' templates are; none where it has none.
        scheduler_names: where it names a scheduler beside its templates.
        below: as of a `TemplatePath`, of pods without a template.
    """

    kind: Kind[Any]
    templates: tuple[TemplatePath, ...] = ()
    scheduler_names: tuple[str, ...] = ()
    below: tuple[tuple[str, str], ...] = ()


class WorkloadObject(Object, frozen=True, kw_only=True):
    """An object of any workload's kind; what its spec looks like, a `WorkloadKind` knows."""

    spec: dict[str, Json] = field(default_factory=dict)


# ── counts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _number(value: Json, key: str, default: int) -> int:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, int) else default


def _up(steps: Steps, levels: int) -> Json:
    """Return the value so many levels above a template."""
    return steps[-1 - levels][1]


def _replicas(steps: Steps) -> int:
    return _number(_up(steps, 1), "replicas", 1)


def _one(_: Steps) -> int:
    return 1


def at_once(parallelism: int | None, completions: int | None) -> int:
    """Return how many pods a Job has at one time."""
    most = 1 if parallelism is None else parallelism
    return most if completions is None else min(most, completions)


def _job(steps: Steps) -> int:
    spec = _up(steps, 1)
    parallelism, completions = (_number(spec, key, -1) for key in ("parallelism", "completions"))
    return at_once(None if parallelism < 0 else parallelism, None if completions < 0 else completions)


def _ray_workers(steps: Steps) -> int:
    group = _up(steps, 1)
    wanted = max(_number(group, "replicas", 0), _number(group, "minReplicas", 0))
    return 0 if group.get("suspend") is True else wanted * _number(group, "numOfHosts", 1)


def _leaders(steps: Steps) -> int:
    return _number(_up(steps, 2), "replicas", 1)


def _leaders_like_workers(steps: Steps) -> int:
    return 0 if isinstance(_up(steps, 1).get("leaderTemplate"), dict) else _leaders(steps)


def _workers(steps: Steps) -> int:
    return _leaders(steps) * max(_number(_up(steps, 1), "size", 1) - 1, 0)


def _sets(steps: Steps) -> int:
    """How many Jobs a JobSet makes of one of its entries."""
    return _number(_up(steps, 3), "replicas", 1)


# ── templates that are none ──────────────────────────────────────────────────────────────────────────────────────

_JAVA_UNITS: Final[Mapping[str, int]] = {"k": 2**10, "m": _MEBI, "g": 2**30, "t": 2**40, "p": 2**50}
_LEAST_OVERHEAD: Final = 384 * _MEBI
_OVERHEAD: Final = 0.1


def _bytes(text: Json, otherwise: int) -> int:
    """Read an amount of memory as the JVM writes it: ``512m`` are mebibytes."""
    written = str(text or "").lower().rstrip("b").removesuffix("i")
    digits, unit = (written[:-1], written[-1]) if written[-1:] in _JAVA_UNITS else (written, "m")
    return int(digits) * _JAVA_UNITS[unit] if digits.isascii() and digits.isdigit() and len(digits) < 16 else otherwise


def _spark(value: Json) -> PodTemplate:
    """Read driver or executor of a SparkApplication: cores and memory, with the overhead that Spark adds."""
    part = value if isinstance(value, dict) else {}
    memory = _bytes(part.get("memory"), 1024 * _MEBI)
    overhead = _bytes(part.get("memoryOverhead"), max(int(memory * _OVERHEAD), _LEAST_OVERHEAD))
    requests: dict[str, Json] = {"cpu": part.get("coreRequest") or part.get("cores") or 1, "memory": memory + overhead}
    gpu = part.get("gpu")
    if isinstance(gpu, dict) and gpu.get("name"):
        requests[gpu["name"]] = gpu.get("quantity", 0)
    resources = ResourceRequirements(requests=requests)
    metadata = msgspec.convert({"annotations": part.get("annotations"), "labels": part.get("labels")}, Meta)
    container = Container(name="spark", resources=resources)
    spec = PodSpec(scheduler_name=str(part.get("schedulerName") or ""), containers=(container,))
    return PodTemplate(metadata=metadata, spec=spec)


def _executors(steps: Steps) -> int:
    return _number(_up(steps, 0), "instances", 1)


# ── the kinds ────────────────────────────────────────────────────────────────────────────────────────────────────

_JOB: Final = (kinds.JOBS.api_version, kinds.JOBS.name)
_REPLICASET: Final = (kinds.REPLICASETS.api_version, kinds.REPLICASETS.name)
_STATEFULSET: Final = (kinds.STATEFULSETS.api_version, kinds.STATEFULSETS.name)
_POD: Final = (kinds.PODS.api_version, kinds.PODS.name)
_JOBSET: Final = ("jobset.x-k8s.io/v1alpha2", "JobSet")
_RAYCLUSTER: Final = ("ray.io/v1", "RayCluster")


def _ray(root: str, below: tuple[tuple[str, str], ...]) -> tuple[TemplatePath, ...]:
    return (
        TemplatePath(f"{root}.headGroupSpec.template", _one, below),
        TemplatePath(f"{root}.workerGroupSpecs[].template", _ray_workers, below),
    )


def _custom(group: str, version: str, plural: str, name: str) -> Kind[WorkloadObject]:
    return Kind(group, version, plural, name, WorkloadObject)


_WORKER_TEMPLATE: Final = "spec.leaderWorkerTemplate.workerTemplate"

DEPLOYMENT: Final = WorkloadKind(kinds.DEPLOYMENTS, (TemplatePath("spec.template", _replicas, (_REPLICASET,)),))
STATEFULSET: Final = WorkloadKind(kinds.STATEFULSETS, (TemplatePath("spec.template", _replicas),))
REPLICASET: Final = WorkloadKind(kinds.REPLICASETS, (TemplatePath("spec.template", _replicas),))
JOB: Final = WorkloadKind(kinds.JOBS, (TemplatePath("spec.template", _job),))
CRONJOB: Final = WorkloadKind(
    _custom("batch", "v1", "cronjobs", "CronJob"), (TemplatePath("spec.jobTemplate.spec.template", _job, (_JOB,)),)
)
OPERATORS: Final = (
    WorkloadKind(
        _custom("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
        (TemplatePath("spec.pytorchReplicaSpecs{}.template", _replicas),),
    ),
    WorkloadKind(
        _custom("kubeflow.org", "v2beta1", "mpijobs", "MPIJob"),
        (
            TemplatePath("spec.mpiReplicaSpecs.Launcher.template", _replicas, (_JOB,)),
            TemplatePath("spec.mpiReplicaSpecs.Worker.template", _replicas),
        ),
    ),
    WorkloadKind(_custom("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"), below=(_JOB, _JOBSET)),
    WorkloadKind(_custom("ray.io", "v1", "rayclusters", "RayCluster"), _ray("spec", ())),
    WorkloadKind(_custom("ray.io", "v1", "rayjobs", "RayJob"), _ray("spec.rayClusterSpec", (_RAYCLUSTER,))),
    WorkloadKind(
        _custom("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
        (TemplatePath("spec.replicatedJobs[].template.spec.template", _job, (_JOB,), _sets),),
    ),
    WorkloadKind(
        _custom("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"),
        (
            TemplatePath("spec.leaderWorkerTemplate.leaderTemplate", _leaders, (_STATEFULSET,)),
            TemplatePath(_WORKER_TEMPLATE, _leaders_like_workers, (_STATEFULSET,)),
            TemplatePath(_WORKER_TEMPLATE, _workers, (_STATEFULSET, _POD, _STATEFULSET)),
        ),
    ),
    WorkloadKind(
        _custom("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication"),
        (
            TemplatePath("spec.driver", _one, (), _one, _spark, "schedulerName", ""),
            TemplatePath("spec.executor", _executors, (_POD,), _one, _spark, "schedulerName", ""),
        ),
    ),
    WorkloadKind(
        _custom("argoproj.io", "v1alpha1", "workflows", "Workflow"),
        scheduler_names=("spec.schedulerName", "spec.templates[].schedulerName"),
    ),
)
"""The kinds of operators, where their CRDs exist."""

WORKLOADS: Final[tuple[WorkloadKind, ...]] = (DEPLOYMENT, STATEFULSET, REPLICASET, CRONJOB, *OPERATORS)
"""All kinds that admission judges when they are applied, beside Jobs and PodGroups."""

HINTED_APART: Final = (DEPLOYMENT, STATEFULSET, CRONJOB)
"""Kinds that have webhooks for hints; of the others the webhook that judges them warns of what has no effect, too."""
