"""Rules for pods and ResourceQuotas."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from muster.ledger.reservations import POD, ReservationRequest
from muster.model import kinds, names
from muster.model.amounts import Resources
from muster.model.grouping import OwnerRule
from webhooks.policies import pods, quotas
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Allowed, ObjectRef, Patched, QuotaChange

GROUP = "scheduling.k8s.io/group-name"
JOB = ("batch/v1", "Job", "train")
REPLICASET = ("apps/v1", "ReplicaSet", "web-1")


@pytest.mark.parametrize("annotations", [None, {"mine": "kept"}])
def test_a_pod_of_a_job_is_put_into_the_jobs_group(ask: Any, pod: Any, annotations: Any) -> None:
    asked = pod(owner=JOB, annotations=annotations)
    patched = jsonpatch.apply_patch(asked, ask(pods.mutate, asked).operations)
    assert patched["metadata"]["annotations"] == (annotations or {}) | {GROUP: "podgroup-uid-train"}
    assert patched["spec"] == asked["spec"]
    assert ask(pods.mutate, patched) == ALLOWED


def test_a_pod_of_a_deployment_is_put_into_the_deployments_group_once_the_caches_know_it(
    ask: Any, pod: Any, cluster: Any
) -> None:
    asked = pod(owner=REPLICASET)
    assert ask(pods.mutate, asked) == ALLOWED
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}
    cluster.put(kinds.REPLICASETS, "web-1", "dev", metadata={"ownerReferences": [deployment]})
    assert ask(pods.mutate, asked).operations[0]["value"] == {GROUP: "podgroup-uid-web"}


def test_an_owner_that_was_made_again_under_its_name_is_not_taken_for_the_old_one(
    ask: Any, pod: Any, cluster: Any
) -> None:
    cluster.put(kinds.REPLICASETS, "web-1", "dev", metadata={"uid": "another"})
    assert ask(pods.mutate, pod(owner=REPLICASET)) == ALLOWED


def test_a_replicaset_without_an_owner_is_the_root(ask: Any, pod: Any, cluster: Any) -> None:
    cluster.put(kinds.REPLICASETS, "web-1", "dev")
    assert ask(pods.mutate, pod(owner=REPLICASET)).operations[0]["value"] == {GROUP: "podgroup-uid-web-1"}


def test_a_rule_above_the_matched_owner_waits_until_that_one_is_known(ask: Any, pod: Any, cluster: Any) -> None:
    once, twice = (WebhookSettings(rules=(OwnerRule("batch/v1", "Job", level),)) for level in (1, 2))
    assert ask(pods.mutate, pod(owner=JOB), settings=once) == ALLOWED
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "uid-n", "controller": True}
    cluster.put(kinds.JOBS, "train", "dev", metadata={"ownerReferences": [cron], "uid": "uid-train"})
    assert ask(pods.mutate, pod(owner=JOB), settings=once).operations[0]["value"] == {GROUP: "podgroup-uid-n"}
    assert ask(pods.mutate, pod(owner=JOB), settings=twice) == ALLOWED


def test_pods_of_a_job_are_in_the_group_that_was_noted_on_it(ask: Any, pod: Any, cluster: Any) -> None:
    flow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "name": "f",
        "uid": "uid-flow",
        "controller": True,
    }
    noted = {"annotations": {names.JOB_GROUP: "podgroup-uid-flow"}, "ownerReferences": [flow]}
    cluster.put(kinds.JOBS, "train", "dev", metadata=noted)
    assert ask(pods.mutate, pod(owner=JOB)).operations[0]["value"] == {GROUP: "podgroup-uid-flow"}


def test_what_a_job_that_nobody_controls_says_of_another_group_was_copied_with_it(
    ask: Any, pod: Any, cluster: Any
) -> None:
    copied = {"annotations": {names.JOB_GROUP: "podgroup-uid-flow"}, "uid": "uid-train"}
    cluster.put(kinds.JOBS, "train", "dev", metadata=copied)
    assert ask(pods.mutate, pod(owner=JOB)).operations[0]["value"] == {GROUP: "podgroup-uid-train"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"owner": JOB, "scheduler": "default-scheduler"},
        {"owner": JOB, "annotations": {GROUP: "mine"}},
        {"owner": JOB, "schedulingGroup": {"podGroupName": "native"}},
        {"owner": ("example.com/v1", "Robot", "r2")},
    ],
)
def test_other_pods_are_left_to_the_controller_or_to_others(ask: Any, pod: Any, fields: Any) -> None:
    assert ask(pods.mutate, pod(**fields)) == ALLOWED


def test_only_muster_moves_a_pod_between_groups(ask: Any, pod: Any) -> None:
    old, new = pod(annotations={GROUP: "a"}), pod(annotations={GROUP: "b"})
    settings = WebhookSettings(accounts=frozenset({"system:serviceaccount:muster-system:muster"}))
    verdict = ask(pods.validate, new, "UPDATE", settings, old=old)
    assert (verdict.code, verdict.message) == (
        403,
        (
            'annotation scheduling.k8s.io/group-name can\'t change from "a" to "b" after the pod\'s creation:'
            " recreate the pod"
        ),
    )
    us = {"username": "system:serviceaccount:muster-system:muster"}
    assert ask(pods.validate, new, "UPDATE", settings, old=pod(), userInfo=us) == ALLOWED
    assert ask(pods.validate, new, "UPDATE", settings, old=new) == ALLOWED
    assert '"a" to "none"' in ask(pods.validate, pod(), "UPDATE", old=old).message


def test_a_label_of_the_pod_makes_nobody_muster(ask: Any, pod: Any) -> None:
    new = pod(annotations={GROUP: "b", "app.kubernetes.io/managed-by": "muster"})
    assert ask(pods.validate, new, "UPDATE", old=pod(annotations={GROUP: "a"})).code == 403


def test_a_pod_that_names_a_group_that_is_not_there_waits_and_says_so(ask: Any, pod: Any, cluster: Any) -> None:
    asked = pod(annotations={GROUP: "later"})
    assert ask(pods.validate, asked).warnings == ('PodGroup "later" does not exist yet; the pod waits until it does',)
    assert ask(pods.validate, pod(annotations={GROUP: "later"}, owner=JOB)).warnings == ()
    cluster.put(kinds.LEGACY_PODGROUPS[1], "later", "dev")
    assert ask(pods.validate, asked).warnings == ()


def test_the_group_that_kubernetes_makes_for_a_job_changes_nothing_of_its_pods_group(
    ask: Any, pod: Any, cluster: Any
) -> None:
    cluster.put(kinds.JOBS, "train", "dev", metadata={"uid": "uid-train"})
    native = {"podGroupName": "train-abc"}
    assert ask(pods.mutate, pod(owner=JOB, schedulingGroup=native)).operations[0]["value"] == {
        GROUP: "podgroup-uid-train"
    }
    named = {"template": {"spec": {"schedulerName": "muster", "schedulingGroup": native}}}
    cluster.put(kinds.JOBS, "train", "dev", metadata={"uid": "uid-train"}, spec=named)
    assert ask(pods.mutate, pod(owner=JOB, schedulingGroup=native)) == ALLOWED


@pytest.mark.parametrize("empty", [None, {}, {"podGroupName": None}, {"podGroupName": 3}, ["workers"]])
def test_what_names_no_group_of_kubernetes_is_none(ask: Any, pod: Any, empty: Any) -> None:
    assert ask(pods.mutate, pod(owner=JOB, schedulingGroup=empty)).operations[0]["value"] == {
        GROUP: "podgroup-uid-train"
    }


def test_of_another_schedulers_pod_only_what_it_takes_matters(ask: Any, pod: Any) -> None:
    asked = pod(scheduler="default-scheduler", annotations={GROUP: "later"}, containers=[main("1")])
    verdict = ask(pods.validate, asked)
    (warning,) = verdict.warnings
    assert warning == (
        'the pod takes nothing of what PodGroup "later" reserved, and counts outside it: its schedulerName is'
        " 'default-scheduler', and the PodGroup's owner does not own it"
    )
    assert verdict.reservation == ReservationRequest(
        # It isn't a member of the group that it names: nothing of what that reserved is for it.
        "dev",
        POD,
        "",
        "worker-0",
        "uid-worker-0",
        takes("1"),
        scope_facts="plain",
    )


# ── pods of other schedulers whose group's owner owns them too ──────────────────────────────────────────────────────


OPERATOR = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "mpi", "uid": "uid-mpi", "controller": True}
MEMBER = names.MEMBER_OF


def _gang(cluster: Any, *owners: Any) -> None:
    cluster.put(kinds.PODGROUPS, "gang", "dev", metadata={"ownerReferences": list(owners)})


def _worker(pod: Any, owner: Any = ("kubeflow.org/v1", "MPIJob", "mpi"), **annotations: str) -> Any:
    return pod(scheduler="theirs", owner=owner, annotations={GROUP: "gang"} | annotations, containers=[main("1")])


def test_a_pod_whose_controller_owns_the_group_is_a_member_whatever_its_scheduler(
    ask: Any, pod: Any, cluster: Any
) -> None:
    _gang(cluster, OPERATOR)
    patched = jsonpatch.apply_patch(_worker(pod), ask(pods.mutate, _worker(pod)).operations)
    assert patched["metadata"]["annotations"] == {GROUP: "gang", MEMBER: "gang"}
    verdict = ask(pods.validate, patched)
    assert (verdict.warnings, verdict.reservation.group) == ((), "gang")


@pytest.mark.parametrize(("kind", "owner"), [(kinds.JOBS, JOB), (kinds.REPLICASETS, REPLICASET)])
def test_so_is_one_whose_controller_has_the_owner_of_the_group_for_its_own(
    ask: Any, pod: Any, cluster: Any, kind: Any, owner: Any
) -> None:
    _gang(cluster, OPERATOR)
    launcher = _worker(pod, owner)
    assert ask(pods.mutate, launcher).evidence == (
        ObjectRef(kinds.PODGROUPS, "gang", "dev"),
        ObjectRef(kind, owner[2], "dev"),
    )
    cluster.put(kind, owner[2], "dev", metadata={"ownerReferences": [OPERATOR]})
    assert ask(pods.mutate, launcher).operations
    # An owner that was made again under its name is another one.
    cluster.put(kind, owner[2], "dev", metadata={"ownerReferences": [OPERATOR], "uid": "another"})
    assert not isinstance(ask(pods.mutate, launcher), Patched)


def test_nobody_else_is_noted_as_a_member(ask: Any, pod: Any, cluster: Any) -> None:
    _gang(cluster, OPERATOR | {"uid": "another"})
    assert ask(pods.mutate, _worker(pod)) == Allowed(evidence=(ObjectRef(kinds.PODGROUPS, "gang", "dev"),))
    for asked in (
        _worker(pod, owner=None),
        pod(scheduler="theirs", owner=("kubeflow.org/v1", "MPIJob", "mpi")),
    ):
        assert ask(pods.mutate, asked) == ALLOWED


def test_who_notes_it_themselves_is_refused_unless_it_is_so(ask: Any, pod: Any, cluster: Any) -> None:
    claimed = _worker(pod, **{MEMBER: "gang"})
    verdict = ask(pods.validate, claimed)
    assert verdict.code == 403
    assert "annotation muster.sh/member-of: 'gang' is not a PodGroup whose owner owns this pod too" in verdict.message
    assert verdict.evidence == (ObjectRef(kinds.PODGROUPS, "gang", "dev"),)
    _gang(cluster, OPERATOR)
    assert ask(pods.validate, claimed).reservation.group == "gang"
    assert ask(pods.validate, _worker(pod, **{MEMBER: "other"})).code == 403
    assert ask(pods.validate, _worker(pod, **{MEMBER: "a b"})).code == 403


def test_after_its_creation_nobody_makes_a_pod_a_member_or_none(ask: Any, pod: Any, cluster: Any) -> None:
    _gang(cluster, OPERATOR)
    member, plain = _worker(pod, **{MEMBER: "gang"}), _worker(pod)
    said = "annotation muster.sh/member-of can't change from none to 'gang' after the pod's creation: recreate the pod"
    assert ask(pods.validate, member, "UPDATE", old=plain).message == said
    assert "from 'gang' to none" in ask(pods.validate, plain, "UPDATE", old=member).message
    assert ask(pods.validate, member, "UPDATE", old=member) == ALLOWED


def main(requested: str, **limits: str) -> Any:
    return {"name": "main", "resources": {"requests": {"cpu": requested}, "limits": limits}}


def takes(requested: str, **limits: str) -> Resources:
    return Resources.parse({"cpu": requested, "pods": "1"} | {f"limits.{name}": each for name, each in limits.items()})


def test_a_pod_asks_for_its_requests_its_limits_and_a_pod(ask: Any, pod: Any) -> None:
    asked = pod(containers=[main("1", cpu="2"), main("2", memory="1Gi")], initContainers=[main("5", cpu="9")])
    # What has a limit and no request asks for its limit.
    memory = Resources.parse({"memory": "1Gi"})
    assert ask(pods.validate, asked).reservation.amounts == takes("5", cpu="9", memory="1Gi") + memory


def test_a_pod_that_grows_asks_for_the_growth_and_any_other_update_for_nothing(ask: Any, pod: Any) -> None:
    small, large = pod(containers=[main("1")]), pod(containers=[main("3")])
    grown = ask(pods.validate, large, "UPDATE", old=small).reservation
    assert (grown.revision, grown.asked) == ("7", Resources.parse({"cpu": "2"}))
    assert ask(pods.validate, small, "UPDATE", old=large) == ALLOWED
    assert ask(pods.validate, pod(), "UPDATE", old=pod()) == ALLOWED


def test_a_pod_that_has_ended_asks_for_nothing(ask: Any, pod: Any) -> None:
    ended = pod(containers=[main("3")]) | {"status": {"phase": "Succeeded"}}
    assert ask(pods.validate, ended, "UPDATE", old=ended) == ALLOWED


def test_a_pod_that_muster_moves_between_groups_asks_for_all_of_it(ask: Any, pod: Any) -> None:
    settings = WebhookSettings(accounts=frozenset({"alice"}))
    old, new = (pod(annotations={GROUP: name}, containers=[main("1")]) for name in "ab")
    moved = ask(pods.validate, new, "UPDATE", settings, old=old).reservation
    assert (moved.group, moved.asked) == ("b", takes("1"))


def test_a_pod_of_another_scheduler_moves_nothing_by_naming_another_group(ask: Any, pod: Any) -> None:
    old, new = (pod(scheduler="theirs", annotations={GROUP: name}, containers=[main("1")]) for name in "ab")
    assert ask(pods.validate, new, "UPDATE", old=old) == ALLOWED


def test_an_amount_that_is_none_is_named(ask: Any, pod: Any) -> None:
    verdict = ask(pods.validate, pod(containers=[main("lots")]))
    assert verdict.causes == (("spec", "cpu: 'lots' is not a quantity; write it like 500m, 2 or 1.5Gi"),)


# ── quotas ───────────────────────────────────────────────────────────────────────────────────────────────────────


def quota(**spec: Any) -> Any:
    metadata = {"name": "team", "namespace": "dev", "uid": "uid-team"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}


def change(hard: Any) -> Allowed:
    return Allowed(quota_change=QuotaChange("dev", "team", "uid-team", hard))


def test_the_ledger_learns_a_quota_before_it_holds(ask: Any) -> None:
    old, new = quota(hard={"cpu": "10"}), quota(hard={"cpu": "4"})
    assert ask(quotas.validate, old) == change(Resources.parse({"cpu": 10}))
    assert ask(quotas.validate, new, "UPDATE", old=old) == change(Resources.parse({"cpu": 4}))
    assert ask(quotas.validate, old, "DELETE") == change(None)


def test_an_update_that_leaves_the_limits_alone_costs_nothing(ask: Any) -> None:
    old = quota(hard={"cpu": "10"})
    assert ask(quotas.validate, old | {"status": {"used": {"cpu": "3"}}}, "UPDATE", old=old) == ALLOWED


def test_the_ledger_learns_in_which_scopes_a_quota_limits(ask: Any) -> None:
    limits = change(Resources.parse({"cpu@NotBestEffort+Terminating": 10}))
    assert ask(quotas.validate, quota(hard={"cpu": "10"}, scopes=["Terminating", "NotBestEffort"])) == limits
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low", "high"]}]}
    limits = change(Resources.parse({"cpu@PriorityClass:In:high|low": 10}))
    assert ask(quotas.validate, quota(hard={"cpu": "10"}, scopeSelector=selector)) == limits


def test_limits_that_are_no_amounts_are_named(ask: Any) -> None:
    verdict = ask(quotas.validate, quota(hard={"cpu": "-1"}))
    assert verdict.causes == (("spec.hard[cpu]", "'-1' is negative; an amount is zero or more"),)
