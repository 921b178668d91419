"""The gangs that a workload's object describes: one for the object, or one for each of its children, by the owner rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.model import gangs, kinds
from muster.model.amounts import Resources
from muster.model.gangs import DescribedGang
from muster.model.grouping import DEFAULT_RULES, OwnerRule
from muster.model.objects import Job, Meta
from muster.model.workloads import WORKLOADS, WorkloadKind, WorkloadObject
from tests.support.frameworks import needs_them, sample

MEMBERS = "scheduling.k8s.io/group-min-member"
QUEUE = "scheduling.volcano.sh/queue-name"
BY_NAME = {each.kind.name: each for each in WORKLOADS}


def template(cpu: str = "1", **annotations: str) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"annotations": annotations}, "spec": {"schedulerName": "muster", "containers": [container]}}


def described(
    kind: str, spec: dict[str, Any], rules: Any = DEFAULT_RULES, **metadata: Any
) -> tuple[DescribedGang, ...]:
    body = {"metadata": {"name": "one", **metadata}, "spec": spec}
    return gangs.gangs_of(BY_NAME[kind], msgspec.convert(body, WorkloadObject), rules)


def resources(**amounts: str) -> Resources:
    return Resources.parse(amounts)


def test_a_deployments_pods_are_one_gang_over_all_its_replicasets():
    (gang,) = described("Deployment", {"replicas": 3, "template": template()}, annotations={MEMBERS: "2", QUEUE: "own"})
    assert (gang.own, gang.at_once, gang.min_member(), gang.queue()) == (True, 3, 2, "own")
    assert gang.min_resources() == resources(cpu="2")
    assert gang.scope_facts == "plain"


def test_the_nearest_annotation_wins_from_the_template_up_to_the_namespace():
    body = {"template": template(**{QUEUE: "near"})}
    (gang,) = described("StatefulSet", body, annotations={QUEUE: "far", MEMBERS: "4"})
    assert (gang.queue(Meta(annotations={QUEUE: "farthest"})), gang.min_member()) == ("near", 4)
    (gang,) = described("StatefulSet", {"template": template()})
    assert not gang.names_queue()
    assert gang.queue(None, Meta(annotations={QUEUE: "namespace"})) == "namespace"


def test_each_job_of_a_cronjob_is_a_gang_of_its_own():
    job = {"parallelism": 4, "completions": 3, "template": template()}
    spec = {"jobTemplate": {"metadata": {"annotations": {MEMBERS: "3"}}, "spec": job}}
    (gang,) = described("CronJob", spec, annotations={MEMBERS: "9"})
    assert (gang.own, gang.at_once, gang.min_member()) == (False, 3, 3)
    # Where a rule gives the group to the owner above a Job, it is the CronJob's.
    (gang,) = described("CronJob", spec, [OwnerRule("batch/v1", "job", 1)])
    assert gang.own


@pytest.mark.parametrize(
    ("kind", "rules", "owned"),
    [
        ("Deployment", [OwnerRule("apps/v1", "Deployment", -1)], [False]),
        ("Deployment", [OwnerRule("apps/v1", "Deployment", -2)], []),
        ("Deployment", [OwnerRule("apps/v1", "Deployment", 1)], [True]),
        ("Deployment", [], [True]),
        ("StatefulSet", [OwnerRule("apps/v1", "StatefulSet", -1)], []),
    ],
)
def test_the_owner_rules_say_whose_the_group_is(kind, rules, owned):
    assert [gang.own for gang in described(kind, {"template": template()}, rules)] == owned


def test_what_something_above_owns_is_described_there():
    above = [{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "up", "uid": "u", "controller": True}]
    spec = {"headGroupSpec": {"template": template()}}
    assert described("RayCluster", spec, ownerReferences=above) == ()
    assert [gang.own for gang in described("Deployment", {"template": template()}, ownerReferences=above)] == [True]


def test_a_gang_of_several_templates_needs_its_first_pods_first():
    roles = {
        "Master": {"replicas": 1, "template": template("4")},
        "Worker": {"replicas": 2, "template": template("1", **{QUEUE: "q"})},
    }
    (gang,) = described("PyTorchJob", {"pytorchReplicaSpecs": roles}, annotations={MEMBERS: "2"})
    assert [task.path for task in gang.tasks] == [f"spec.pytorchReplicaSpecs[{role}].template" for role in roles]
    assert (gang.at_once, gang.queue(), gang.min_resources()) == (3, "q", resources(cpu="5"))
    # More than there are is like the last: nobody knows what else comes.
    assert gang.need(5) == resources(cpu="8")
    assert gang.need(0) == resources()


def test_an_mpijobs_launcher_is_a_job_and_so_a_gang_beside_its_workers():
    roles = {"Launcher": {"template": template("2")}, "Worker": {"replicas": 3, "template": template()}}
    workers, launcher = described("MPIJob", {"mpiReplicaSpecs": roles}, annotations={MEMBERS: "3"})
    assert (workers.own, workers.min_resources()) == (True, resources(cpu="3"))
    assert (launcher.own, launcher.at_once) == (False, 1)
    (whole,) = described("MPIJob", {"mpiReplicaSpecs": roles}, [OwnerRule("batch/v1", "Job", 1)])
    assert (whole.own, whole.at_once) == (True, 4)


def test_ray_workers_are_as_many_as_hosts():
    groups = [
        {"replicas": 2, "numOfHosts": 4, "template": template()},
        {"replicas": 0, "minReplicas": 1, "template": template()},
        {"replicas": 5, "suspend": True, "template": template()},
    ]
    spec = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups}
    (gang,) = described("RayCluster", spec)
    assert [task.count for task in gang.tasks] == [1, 8, 1, 0]
    (gang,) = described("RayJob", {"rayClusterSpec": spec})
    assert gang.at_once == 10


def test_leaders_are_like_workers_where_they_have_no_template():
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template()}}
    (gang,) = described("LeaderWorkerSet", spec)
    assert gang.at_once == 8
    spec["leaderWorkerTemplate"]["leaderTemplate"] = template("3")
    (gang,) = described("LeaderWorkerSet", spec, annotations={MEMBERS: "3"})
    assert (gang.at_once, gang.min_resources()) == (8, resources(cpu="7"))


def test_a_jobset_by_default_is_a_gang_for_each_job_and_one_by_a_rule():
    entry = {"replicas": 2, "template": {"spec": {"parallelism": 3, "template": template()}}}
    spec = {"replicatedJobs": [entry, {"template": {"spec": {"template": template()}}}]}
    assert [(gang.own, gang.at_once) for gang in described("JobSet", spec)] == [(False, 3), (False, 1)]
    assert [(gang.own, gang.at_once) for gang in described("JobSet", spec, [OwnerRule("batch/v1", "Job", 1)])] == [
        (True, 7)
    ]


def test_a_spark_application_asks_for_cores_and_memory_with_its_overhead():
    spec = {
        "driver": {"cores": 1, "memory": "512m", "schedulerName": "muster", "annotations": {MEMBERS: "2"}},
        "executor": {
            "instances": 2,
            "coreRequest": "500m",
            "memory": "8g",
            "gpu": {"name": "nvidia.com/gpu", "quantity": 1},
        },
    }
    (gang,) = described("SparkApplication", spec)
    assert gang.scheduler_names == {"muster", ""}
    whole = gang.min_resources()
    assert whole == Resources.parse(
        {"cpu": "1500m", "memory": str((512 + 384) * 2**20 + int(8.8 * 2**30)), "nvidia.com/gpu": 1}
    )


@pytest.mark.parametrize("spec", [{}, {"replicas": None}, {"template": None}])
def test_an_object_without_a_template_describes_none(spec):
    assert described("Deployment", spec) == ()


def test_what_a_server_would_refuse_is_said_as_such():
    with pytest.raises(msgspec.ValidationError):
        described("Deployment", {"template": {"spec": {"schedulerName": 5}}})
    (gang,) = described("Deployment", {"replicas": "many", "template": template()})
    assert gang.at_once == 1


def test_a_jobs_gang_is_what_its_template_says():
    job = Job(metadata=Meta(annotations={MEMBERS: "x"}))
    gang = gangs.gang_of_job(job)
    assert (gang.at_once, gang.min_member()) == (1, 1)
    assert "counts as 1" in gang.warnings()[0]


PUBLISHED = [
    ("pytorchjob-simple", "PyTorchJob", [(True, 2)]),
    ("mpijob-pi", "MPIJob", [(True, 2), (False, 1)]),
    ("raycluster-volcano-queue", "RayCluster", [(True, 3)]),
    ("rayjob-volcano-queue", "RayJob", [(True, 3)]),
    ("jobset-depends-on", "JobSet", [(False, 1), (False, 1), (False, 4)]),
    ("leaderworkerset", "LeaderWorkerSet", [(True, 12)]),
    ("spark-pi-python", "SparkApplication", [(True, 2)]),
    ("spark-pi-volcano", "SparkApplication", [(True, 3)]),
    ("workflow-steps", "Workflow", [(True, 0)]),
]


@needs_them
@pytest.mark.parametrize(("file", "kind", "found"), PUBLISHED, ids=[file for file, _, _ in PUBLISHED])
def test_a_sample_as_published_describes_its_gangs(file, kind, found):
    one = sample(file, kind)
    workload = BY_NAME[kind]
    assert one["apiVersion"] == workload.kind.api_version
    described_ = gangs.gangs_of(workload, msgspec.convert(one, WorkloadObject), DEFAULT_RULES)
    assert [(gang.own, gang.at_once) for gang in described_] == found


def test_every_kind_has_a_name_of_its_own():
    assert len(BY_NAME) == len(WORKLOADS) == len({str(each.kind) for each in WORKLOADS})
    assert kinds.JOBS not in [each.kind for each in WORKLOADS]
    assert all(isinstance(each, WorkloadKind) for each in WORKLOADS)
