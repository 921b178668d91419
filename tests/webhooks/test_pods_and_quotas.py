"""Rules for pods and ResourceQuotas."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from muster.model import kinds
from muster.model.amounts import Resources
from muster.model.grouping import Rule
from webhooks.policies import pods, quotas
from webhooks.settings import Settings
from webhooks.verdict import ALLOWED, Allowed, QuotaChange

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


def test_a_rule_above_the_matched_owner_waits_for_the_whole_chain(ask: Any, pod: Any, cluster: Any) -> None:
    settings = Settings(rules=(Rule("batch/v1", "Job", 1),))
    assert ask(pods.mutate, pod(owner=JOB), settings=settings) == ALLOWED
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "uid-n", "controller": True}
    cluster.put(kinds.JOBS, "train", "dev", metadata={"ownerReferences": [cron]})
    assert ask(pods.mutate, pod(owner=JOB), settings=settings) == ALLOWED


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
    settings = Settings(accounts=frozenset({"system:serviceaccount:muster-system:muster"}))
    verdict = ask(pods.validate, new, "UPDATE", settings, old=old)
    assert (verdict.code, verdict.message) == (
        403,
        (
            'annotation scheduling.k8s.io/group-name can\'t change from "a" to "b" after the pod\'s creation:'
            " recreate the pod"
        ),
    )
    us = {"username": "system:serviceaccount:muster-system:muster"}
    assert ask(pods.validate, new, "UPDATE", settings, old=old, userInfo=us) == ALLOWED
    assert ask(pods.validate, new, "UPDATE", settings, old=new) == ALLOWED
    assert '"a" to "none"' in ask(pods.validate, pod(), "UPDATE", old=old).message


def test_a_label_of_the_pod_makes_nobody_muster(ask: Any, pod: Any) -> None:
    new = pod(annotations={GROUP: "b", "app.kubernetes.io/managed-by": "muster"})
    assert ask(pods.validate, new, "UPDATE", old=pod(annotations={GROUP: "a"})).code == 403


def test_a_pod_that_names_a_group_that_is_not_there_waits_and_says_so(ask: Any, pod: Any, cluster: Any) -> None:
    asked = pod(annotations={GROUP: "later"})
    assert ask(pods.validate, asked).warnings == ('PodGroup "later" does not exist yet; the pod waits until it does',)
    assert ask(pods.validate, pod(annotations={GROUP: "later"}, owner=JOB)) == ALLOWED
    cluster.put(kinds.LEGACY_PODGROUPS[1], "later", "dev")
    assert ask(pods.validate, asked) == ALLOWED


def test_a_pod_of_another_scheduler_is_its_own_business(ask: Any, pod: Any) -> None:
    asked = pod(scheduler="default-scheduler", annotations={GROUP: "later"})
    assert ask(pods.validate, asked) == ALLOWED


# ── quotas ───────────────────────────────────────────────────────────────────────────────────────────────────────


def quota(**spec: Any) -> Any:
    metadata = {"name": "team", "namespace": "dev", "uid": "uid-team"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}


def change(hard: Any) -> Allowed:
    return Allowed(learn=QuotaChange("dev", "team", "uid-team", hard))


def test_the_ledger_learns_a_quota_before_it_holds(ask: Any) -> None:
    old, new = quota(hard={"cpu": "10"}), quota(hard={"cpu": "4"})
    assert ask(quotas.validate, old) == change(Resources.parse({"cpu": 10}))
    assert ask(quotas.validate, new, "UPDATE", old=old) == change(Resources.parse({"cpu": 4}))
    assert ask(quotas.validate, old, "DELETE") == change(None)


def test_an_update_that_leaves_the_limits_alone_costs_nothing(ask: Any) -> None:
    old = quota(hard={"cpu": "10"})
    assert ask(quotas.validate, old | {"status": {"used": {"cpu": "3"}}}, "UPDATE", old=old) == ALLOWED


def test_a_quota_with_scopes_limits_no_podgroup(ask: Any) -> None:
    assert ask(quotas.validate, quota(hard={"cpu": "10"}, scopes=["BestEffort"])) == change(None)
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    assert ask(quotas.validate, quota(hard={"cpu": "10"}, scopeSelector=selector)) == change(None)


def test_limits_that_are_no_amounts_are_named(ask: Any) -> None:
    verdict = ask(quotas.validate, quota(hard={"cpu": "-1"}))
    assert verdict.causes == (("spec.hard[cpu]", "'-1' is negative; an amount is zero or more"),)
