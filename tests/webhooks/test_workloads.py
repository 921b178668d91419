"""Rules for workloads other than Jobs: what is refused when it is applied, and what never is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from muster.ledger.reservations import Exceeded, ReservationRequest, Reserved, Shortage
from muster.model import kinds
from muster.model.amounts import NANO, Resources
from muster.model.grouping import OwnerRule
from muster.model.workloads import WORKLOADS
from tests.support.frameworks import needs_them, sample
from webhooks import review
from webhooks.evaluation import HOOKS, Trial, evaluate
from webhooks.policies import workloads
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, DenialReason, Denied

MEMBERS = "scheduling.k8s.io/group-min-member"
QUEUE = "scheduling.volcano.sh/queue-name"
BY_NAME = {each.kind.name: each for each in WORKLOADS}
FLEET = {"cpu": "12"}


def template(cpu: str = "1", scheduler: str = "muster", **annotations: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": annotations}, "spec": spec}


def made(kind: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """Write an object of a kind; annotations by keys without their prefixes."""
    metadata = {"name": "web", "namespace": "dev", "uid": "uid-web", "resourceVersion": "7", "annotations": annotations}
    return {"apiVersion": BY_NAME[kind].kind.api_version, "kind": kind, "metadata": metadata, "spec": spec}


def deployment(members: int = 1, replicas: int = 12, cpu: str = "1", **annotations: str) -> dict[str, Any]:
    whole = {MEMBERS: str(members), **annotations}
    return made("Deployment", {"replicas": replicas, "template": template(cpu)}, **whole)


def nightly(members: int, **job: Any) -> dict[str, Any]:
    spec = {"parallelism": 12, "template": template(), **job}
    return made("CronJob", {"schedule": "0 3 * * *", "jobTemplate": {"spec": spec}}, **{MEMBERS: str(members)})


@pytest.fixture
def judged(ask: Any) -> Any:
    """Gives what is said of an object: ``judged(object, old=…)``."""

    def asked(one: Any, old: Any = None, **fields: Any) -> Any:
        resource = BY_NAME[one["kind"]].kind
        fields["resource"] = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        return ask(workloads.validate, one, "UPDATE" if old else "CREATE", old=old, **fields)

    return asked


EVERY_KIND = [
    (made("Deployment", {"template": template()}), "Deployment"),
    (made("StatefulSet", {"template": template()}), "StatefulSet"),
    (made("ReplicaSet", {"template": template()}), "ReplicaSet"),
    (nightly(1), "CronJob"),
    (made("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": template()}}}), "PyTorchJob"),
    (made("MPIJob", {"mpiReplicaSpecs": {"Worker": {"template": template()}}}), "MPIJob"),
    (made("RayCluster", {"headGroupSpec": {"template": template()}}), "RayCluster"),
    (made("RayJob", {"rayClusterSpec": {"headGroupSpec": {"template": template()}}}), "RayJob"),
    (made("JobSet", {"replicatedJobs": [{"template": {"spec": {"template": template()}}}]}), "JobSet"),
    (made("LeaderWorkerSet", {"leaderWorkerTemplate": {"workerTemplate": template()}}), "LeaderWorkerSet"),
    (made("SparkApplication", {"driver": {"schedulerName": "muster"}}), "SparkApplication"),
    (made("TrainJob", {}, **{MEMBERS: "1"}), "TrainJob"),
    (made("Workflow", {"schedulerName": "muster"}), "Workflow"),
]


@pytest.mark.parametrize(("one", "kind"), EVERY_KIND, ids=[kind for _, kind in EVERY_KIND])
def test_every_kind_is_refused_in_a_queue_that_is_missing_or_closed_with_the_words_of_jobs(
    judged: Any, cluster: Any, one: Any, kind: str
) -> None:
    assert judged(one) == ALLOWED or judged(one).reservation
    lost = copy.deepcopy(one)
    lost["metadata"]["annotations"][QUEUE] = "reserch"
    verdict = judged(lost)
    assert verdict.code == 403
    assert verdict.message.startswith(
        f'queue "reserch" (annotation {QUEUE}) does not exist: did you mean research? Or use one of the open queues ('
    )
    cluster.queue("default", state="Closed")
    assert judged(one).message == (
        f'queue "default" (where no annotation names another) is Closed and takes no new {kind}:'
        ' use one of the open queues (research) or open it with "muster queue open default"'
    )
    # What was there before the queue closed may be changed, scaled and deleted.
    changed = copy.deepcopy(one)
    changed["spec"]["minReadySeconds"] = 5
    assert judged(changed, old=one) == ALLOWED
    assert judged(lost, old=one).code == 403


def test_a_deployments_minimum_is_reserved_as_that_of_its_group(judged: Any) -> None:
    verdict = judged(deployment(12))
    group = "scheduling.volcano.sh", "podgroup-uid-web", "uid-web"
    assert verdict == Allowed(
        reservation=ReservationRequest("dev", "Job", *group, Resources.parse(FLEET), scope_facts="plain")
    )


def answered(review_of: Any, cluster: Any, answer: Any, *args: Any, **fields: Any) -> Any:
    """Return what the ledger is asked, and the verdict when it answers so."""
    fields["resource"] = {"group": "apps", "version": "v1", "resource": "deployments"}
    request = review.parse(review_of(*args, **fields))
    steps = evaluate(HOOKS["/validate/workloads"], request, cluster, WebhookSettings())
    question = next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(answer)
    return question, end.value.value


TEN = Exceeded("team", (Shortage("requests.cpu", 10 * NANO, 0, 0, 12 * NANO, 2 * NANO, "team"),))


def test_a_gang_whose_group_is_there_asks_for_what_is_more_than_that_holds(judged: Any, cluster: Any) -> None:
    metadata = {"uid": "uid-group", "resourceVersion": "42"}
    cluster.put(kinds.PODGROUPS, "podgroup-uid-web", "dev", metadata=metadata, spec={"minResources": {"cpu": "5"}})
    wanted = judged(deployment(12), old=deployment(4)).reservation
    assert (wanted.uid, wanted.revision, wanted.previous) == ("uid-group", "42", Resources.parse({"cpu": "5"}))
    assert wanted.asked == Resources.parse({"cpu": "7"})


def test_a_gang_of_twelve_in_a_quota_of_ten_is_refused_by_its_name(review_of: Any, cluster: Any) -> None:
    question, verdict = answered(review_of, cluster, TEN, deployment(12))
    assert isinstance(question, ReservationRequest)
    assert verdict.message == (
        'Deployment web requests 12 requests.cpu, but quota "team" has 10 requests.cpu hard, 0 reserved, so 10 are free:'
        " short by 2 requests.cpu; lower what its pods request or raise the quota"
    )
    assert verdict.denial_reason is DenialReason.QUOTA


def test_a_gang_that_grows_is_only_tried_since_its_group_will_ask(review_of: Any, cluster: Any) -> None:
    fields = {"operation": "UPDATE", "old": deployment(4)}
    question, verdict = answered(review_of, cluster, TEN, deployment(12), **fields)
    assert isinstance(question, Trial)
    wanted = question.reservation
    # All of it: under its group's name what is reserved already costs nothing more.
    assert (wanted.previous, wanted.amounts, wanted.revision) == (None, Resources.parse(FLEET), "")
    assert isinstance(verdict, Denied)
    _, verdict = answered(review_of, cluster, Reserved(), deployment(12), **fields)
    assert verdict == Allowed(reservation=wanted, trial=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (deployment(12), deployment(6)),
        (deployment(12), deployment(12, replicas=1)),
        (deployment(12), deployment(12, replicas=100)),
        (deployment(12, cpu="2"), deployment(12, cpu="1")),
        (deployment(12), deployment(12, team="a")),
        (deployment(12, **{QUEUE: "gone"}), deployment(11, **{QUEUE: "gone"})),
    ],
    ids=["smaller", "scaled-down", "scaled-up", "smaller-pods", "metadata", "queue-was-gone"],
)
def test_what_makes_nothing_worse_is_never_refused(judged: Any, cluster: Any, before: Any, after: Any) -> None:
    cluster.queue("default", state="Closed")
    cluster.put(kinds.RESOURCEQUOTAS, "team", "dev", spec={"hard": {"cpu": "1"}})
    assert judged(after, old=before) == ALLOWED


def test_what_controllers_write_and_what_is_being_deleted_is_never_refused(judged: Any) -> None:
    lost = deployment(2, **{QUEUE: "nope"})
    assert judged(lost).code == 403
    for user in ("system:kube-controller-manager", "system:serviceaccount:kube-system:deployment-controller"):
        assert judged(lost, userInfo={"username": user}) == ALLOWED
    # A GitOps tool is no controller of Kubernetes: it applies what somebody wrote.
    assert judged(lost, userInfo={"username": "system:serviceaccount:argocd:argocd"}).code == 403
    # `muster up` runs as the user who applies: Muster's own accounts apply no workloads.
    assert judged(lost, settings=WebhookSettings(accounts=frozenset({"alice"}))).code == 403
    leaving = copy.deepcopy(lost)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    assert judged(leaving, old=deployment(1)) == ALLOWED
    owned = made("ReplicaSet", lost["spec"], **{QUEUE: "nope"})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    assert judged(owned) == ALLOWED


def test_others_objects_and_malformed_ones_are_left_alone(judged: Any) -> None:
    foreign = made("Deployment", {"template": template(scheduler="default-scheduler")}, **{QUEUE: "nope"})
    assert judged(foreign) == ALLOWED
    assert judged(made("Deployment", {"template": {"spec": 5}})) == ALLOWED
    assert judged(made("Deployment", [])) == ALLOWED


@pytest.mark.parametrize(("job", "most"), [({"parallelism": 2}, 2), ({"completions": 3}, 3)])
def test_a_cronjob_whose_jobs_could_never_start_is_refused(judged: Any, job: Any, most: int) -> None:
    assert judged(nightly(4, **job)).message == (
        f"the gang never starts: it needs 4 pods at once, parallelism and completions allow {most}:"
        f" raise them to 4 or lower annotation {MEMBERS} to {most}"
    )
    # On an update only what makes it worse: a larger minimum, and not what was so before.
    assert judged(nightly(4, **job), old=nightly(4)) == ALLOWED
    assert judged(nightly(4, **job), old=nightly(1, **job)).code == 403


def test_a_cronjob_whose_jobs_no_quota_could_ever_hold_is_refused_at_apply(judged: Any, cluster: Any) -> None:
    cluster.put(kinds.RESOURCEQUOTAS, "scoped", "dev", spec={"hard": {"cpu": "1"}, "scopes": ["BestEffort"]})
    cluster.put(kinds.RESOURCEQUOTAS, "team", "dev", spec={"hard": {"requests.cpu": "10"}})
    verdict = judged(nightly(12))
    assert verdict.message == (
        'a Job of CronJob web requests 12 requests.cpu, but quota "team" has 10 requests.cpu hard:'
        " short by 2 requests.cpu; lower what its pods request or raise the quota"
    )
    assert [ref.name for ref in verdict.evidence] == ["team"]
    # Nothing is reserved before a Job is made.
    assert judged(nightly(10)) == ALLOWED
    assert judged(nightly(12), old=nightly(12)) == ALLOWED
    assert judged(nightly(12), old=nightly(10)).code == 403
    cluster.namespace("dev", labels={"muster.sh/quota-policy": "Queue"})
    assert judged(nightly(12)) == ALLOWED


def test_an_ordered_statefulset_can_never_start_a_gang(judged: Any) -> None:
    spec = {"replicas": 3, "template": template()}
    ordered, parallel = made("StatefulSet", spec), made("StatefulSet", spec | {"podManagementPolicy": "Parallel"})
    assert judged(ordered).reservation
    for one in (ordered, parallel):
        one["metadata"]["annotations"][MEMBERS] = "3"
    assert judged(parallel).reservation
    text = (
        "the gang never starts: it needs 3 pods at once, and a StatefulSet makes each only once the one before is ready:"
        f" set spec.podManagementPolicy to Parallel, or lower annotation {MEMBERS} to 1"
    )
    assert judged(ordered).message == text
    assert judged(ordered, old=ordered) == ALLOWED
    assert judged(ordered, old=made("StatefulSet", spec)).message == text


SCALED = [
    (made("StatefulSet", {"replicas": 2, "podManagementPolicy": "Parallel", "template": template()}), 2),
    (made("ReplicaSet", {"replicas": 2, "template": template()}), 2),
    (made("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template()}}}), 2),
    (made("RayCluster", {"headGroupSpec": {"template": template()}}), 1),
    (made("LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": {"workerTemplate": template()}}), 2),
    (made("SparkApplication", {"driver": {"schedulerName": "muster"}, "executor": {"schedulerName": "muster"}}), 2),
]


@pytest.mark.parametrize(("one", "pods"), SCALED, ids=[each["kind"] for each, _ in SCALED])
def test_a_minimum_above_the_pods_of_what_somebody_may_scale_is_a_warning(judged: Any, one: Any, pods: int) -> None:
    one = copy.deepcopy(one)
    one["metadata"]["annotations"][MEMBERS] = "4"
    warning = f"the gang waits until it is scaled: it needs 4 pods at once, replicas allow {pods}"
    assert judged(one).warnings == (warning,)


def test_a_minimum_above_the_replicas_of_what_may_be_scaled_is_a_warning(judged: Any) -> None:
    verdict = judged(deployment(4, replicas=2))
    assert verdict.warnings == ("the gang waits until it is scaled: it needs 4 pods at once, replicas allow 2",)
    assert verdict.reservation
    # Scaled to zero, it reserves nothing until somebody scales it.
    assert judged(deployment(4, replicas=0)) == ALLOWED


def test_what_the_cluster_cannot_hold_today_is_a_warning(judged: Any, cluster: Any) -> None:
    cluster.size = Resources.parse({"cpu": "8", "pods": "110"})
    warning = "all nodes together have 8 cpu, the gang needs 12 cpu to start"
    assert judged(deployment(12)).warnings == (warning,)
    assert judged(deployment(12), old=deployment(4)).warnings == (warning,)
    assert judged(deployment(12, replicas=13), old=deployment(12)) == ALLOWED


def test_where_groups_reserve_late_nothing_is_reserved_at_apply(judged: Any, cluster: Any) -> None:
    cluster.namespace("dev", labels={"muster.sh/quota-policy": "Queue"})
    assert judged(deployment(12)) == ALLOWED


def test_a_workload_in_a_named_group_is_judged_by_that_groups_queue(judged: Any, cluster: Any) -> None:
    one = made("Deployment", {"template": template(**{"scheduling.k8s.io/group-name": "gang"})}, **{QUEUE: "nope"})
    assert judged(one).warnings == ('PodGroup "gang" does not exist yet; the pods wait until it does',)
    cluster.put(kinds.PODGROUPS, "gang", "dev", spec={"queue": "research"})
    assert judged(one) == ALLOWED
    cluster.queue("research", state="Closing")
    assert judged(one).message.startswith(
        'queue "research" (of PodGroup "gang") is Closing and takes no new Deployment'
    )


def test_annotations_are_judged_where_they_stand(judged: Any) -> None:
    one = nightly(1)
    one["spec"]["jobTemplate"]["metadata"] = {"annotations": {QUEUE: "No Queue"}}
    assert judged(one).causes[0][0] == f"spec.jobTemplate.metadata.annotations[{QUEUE}]"
    assert judged(one, old=one) == ALLOWED
    warned = judged(deployment(1, **{MEMBERS: "two"})).warnings
    assert warned == (f"{MEMBERS} 'two' counts as 1: write a whole number from 0 to 2147483647",)


def test_the_owner_rules_decide_what_is_judged(judged: Any) -> None:
    lost = deployment(12, **{QUEUE: "nope"})
    each_pod = WebhookSettings(rules=(OwnerRule("apps/v1", "Deployment", -2),))
    assert judged(lost, settings=each_pod) == ALLOWED


# ── what has no effect: of kinds without webhooks for hints ──────────────────────────────────────────────────────

TYPO = "scheduling.k8s.io/group-min-members"
MEANT = f"unknown annotation {TYPO}: did you mean {MEMBERS}?"
NO_EFFECT = 'the queue and group annotations have no effect: the pods\' schedulerName is not "muster"'


def pytorchjob(worker: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return made("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": worker}}}, **annotations)


def test_a_misspelt_key_is_told_on_an_operators_object_and_in_its_templates(judged: Any) -> None:
    above, inside = pytorchjob(template(), **{TYPO: "2"}), pytorchjob(template(**{TYPO: "2"}))
    assert judged(above).warnings == judged(inside).warnings == (MEANT,)
    # At an update what is new; a template that came before another is found by where it stands.
    assert judged(above, old=pytorchjob(template())).warnings == (MEANT,)
    later = copy.deepcopy(inside)
    later["spec"]["pytorchReplicaSpecs"] = {"Master": {"template": template()}, **later["spec"]["pytorchReplicaSpecs"]}
    assert judged(later, old=inside).warnings == ()
    # What names no template of its own is read by Muster alone.
    assert judged(made("TrainJob", {}, **{TYPO: "2"})).warnings == (MEANT,)
    foreign = pytorchjob(template(scheduler="theirs"), **{TYPO: "2"})
    assert judged(foreign) == ALLOWED
    foreign["metadata"]["labels"] = {"muster.sh/qouta": "x"}
    assert judged(foreign).warnings == ("unknown label muster.sh/qouta: did you mean muster.sh/quota?",)


@pytest.mark.parametrize("scheduler", ["", "default-scheduler"])
def test_an_operators_gang_of_the_default_scheduler_is_told_so_and_nothing_else_is_judged(
    judged: Any, cluster: Any, scheduler: str
) -> None:
    cluster.queue("default", state="Closed")
    assert judged(pytorchjob(template(scheduler=scheduler), **{MEMBERS: "2"})).warnings == (NO_EFFECT,)
    assert judged(pytorchjob(template(scheduler=scheduler, **{MEMBERS: "2"}))).warnings == (NO_EFFECT,)
    assert judged(pytorchjob(template(scheduler=scheduler))) == ALLOWED
    # A workflow of the default scheduler with a misspelt key is called about, and isn't Muster's.
    assert judged(made("Workflow", {}, **{TYPO: "2"})).warnings == (MEANT,)


def test_a_minimum_that_can_not_be_read_is_told_at_each_change_of_an_operators_object(judged: Any) -> None:
    unreadable = f"{MEMBERS} '{{}}' counts as 1: write a whole number from 0 to 2147483647"
    good, bad, worse = (pytorchjob(template(), **{MEMBERS: text}) for text in ("2", "two", "three"))
    assert judged(bad).warnings == (unreadable.format("two"),)
    assert judged(bad, old=good).warnings == (unreadable.format("two"),)
    assert judged(worse, old=bad).warnings == (unreadable.format("three"),)
    assert judged(bad, old=bad) == ALLOWED


def rayjob(small: int, large: int, cpu: str = "8") -> dict[str, Any]:
    groups = [{"replicas": small, "template": template()}, {"replicas": large, "template": template(cpu)}]
    return made("RayCluster", {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups}, **{MEMBERS: "3"})


def test_who_scales_one_of_several_templates_makes_no_gang_larger(judged: Any, cluster: Any) -> None:
    # The first pods of the gang are larger ones then, whether it was scaled up or down.
    for before, after in ((rayjob(2, 2), rayjob(0, 2)), (rayjob(1, 0), rayjob(1, 4))):
        assert judged(after, old=before) == ALLOWED
    assert judged(rayjob(0, 2, "9"), old=rayjob(0, 2)).reservation
    assert judged(rayjob(0, 2, "9"), old=rayjob(2, 0)).reservation


@needs_them
@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("pytorchjob-simple", "PyTorchJob"),
        ("mpijob-pi", "MPIJob"),
        ("raycluster-volcano-queue", "RayCluster"),
        ("rayjob-volcano-queue", "RayJob"),
        ("jobset-depends-on", "JobSet"),
        ("leaderworkerset", "LeaderWorkerSet"),
        ("spark-pi-python", "SparkApplication"),
        ("workflow-dag-diamond", "Workflow"),
    ],
)
def test_a_sample_as_published_is_another_schedulers_and_passes(judged: Any, file: str, kind: str) -> None:
    one = sample(file, kind)
    one["metadata"] = {"name": "web", "namespace": "dev", "uid": "uid-web"} | one["metadata"]
    if kind != "Workflow":  # it is called about only where it names Muster
        assert judged(one) == ALLOWED
