"""What the policies answer to texts that Muster can't keep: a refusal that names the key, and no block for what exists."""

from __future__ import annotations

from typing import Any

import pytest

from muster.model.amounts import Resources
from webhooks import review
from webhooks.evaluation import HOOKS, evaluate
from webhooks.policies import jobs, podgroups, pods, quotas
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Denied

GROUP, QUEUE, TRAITS = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name", "muster.sh/pod-traits"
LONG = "a" * 500_000


@pytest.fixture(autouse=True)
def _default_queue(cluster: Any) -> None:
    cluster.queue("default")
    cluster.namespace("dev")


def refused(verdict: Any, path: str) -> None:
    assert isinstance(verdict, Denied), verdict
    assert verdict.code == 422
    assert path in [where for where, _ in verdict.causes], verdict.causes
    assert len(verdict.message) < 1000
    assert "\n" not in verdict.message


@pytest.mark.parametrize("name", ["a b", "a/b/c", "a,b", "a=b", "", "a\nb", LONG])
def test_a_resource_that_cant_be_is_named_in_the_refusal(ask: Any, podgroup: Any, name: str) -> None:
    verdict = ask(podgroups.validate, podgroup(minResources={"cpu": "1", name: "1"}))
    assert isinstance(verdict, Denied)
    ((path, _),) = verdict.causes
    assert path.startswith("spec.minResources['")
    assert (len(path) < 80, len(verdict.message) < 300, "\n" in verdict.message) == (True, True, False)


def test_thousands_of_resources_are_refused_in_few_words(ask: Any, podgroup: Any, pod: Any) -> None:
    for names in ([f"example.com/r{n}" for n in range(2000)], [f"r {n}" for n in range(2000)]):
        refused(ask(podgroups.validate, podgroup(minResources=dict.fromkeys(names, "1"))), "spec.minResources")


@pytest.mark.parametrize("text", ["a b", "A", "a/b", "a,b", "a=b", "a\nb", LONG])
def test_a_name_in_an_annotation_that_cant_be_is_refused_by_its_key(ask: Any, pod: Any, job: Any, text: str) -> None:
    for key in (GROUP, QUEUE):
        path = f"metadata.annotations[{key}]"
        refused(ask(pods.validate, pod(annotations={key: text})), path)
        refused(ask(jobs.validate, job(annotations={key: text})), path)
        refused(ask(jobs.validate, job(pod={key: text})), f"spec.template.{path}")


@pytest.mark.parametrize("text", ["plain,plain", "class=a,class=b", "plain," * 100_000])
def test_traits_that_say_a_thing_twice_are_refused_by_their_key(ask: Any, podgroup: Any, text: str) -> None:
    group = podgroup(metadata={"annotations": {TRAITS: text}}, minResources={"cpu": "1"})
    refused(ask(podgroups.validate, group), f"metadata.annotations[{TRAITS}]")


def test_what_was_stored_so_can_be_changed_and_reserves_what_is_legal_of_it(
    ask: Any, podgroup: Any, pod: Any, job: Any
) -> None:
    hostile = {"annotations": {TRAITS: "plain,plain", QUEUE: "a b"}}
    old, new = (podgroup(metadata=hostile, minResources={"a b": "1", "cpu": cpu}) for cpu in ("1", "3"))
    assert ask(podgroups.validate, old, "UPDATE", old=old) == ALLOWED
    reservation = ask(podgroups.validate, new, "UPDATE", old=old).reservation
    assert (reservation.asked, reservation.scope_facts) == (Resources.parse({"cpu": "2"}), "")
    member = pod(annotations={GROUP: "a b"})
    assert ask(pods.validate, member, "UPDATE", old=member) == ALLOWED
    child = job(annotations={QUEUE: "a b"})
    assert ask(jobs.validate, child, "UPDATE", old=child) == ALLOWED


def test_a_pod_of_another_scheduler_that_names_no_group_is_charged_as_in_none(ask: Any, pod: Any) -> None:
    verdict = ask(pods.validate, pod(scheduler="theirs", annotations={GROUP: "a b"}))
    assert verdict.reservation.group == ""


def test_an_owner_of_any_uid_leads_to_a_group_whose_name_can_be(ask: Any, pod: Any) -> None:
    made = pod(owner=("batch/v1", "Job", "train"))
    made["metadata"]["ownerReferences"][0]["uid"] = "a b"
    (operation,) = ask(pods.mutate, made).operations
    name = operation["value"][GROUP] if isinstance(operation["value"], dict) else operation["value"]
    assert name.startswith("podgroup-")
    assert " " not in name


def test_what_no_policy_foresaw_is_refused_by_name_and_not_a_failure(
    cluster: Any, review_of: Any, podgroup: Any
) -> None:
    forged = podgroup("a b", minResources={"cpu": "1"})
    steps = evaluate(HOOKS["/validate/podgroups"], review.parse(review_of(forged)), cluster, WebhookSettings())
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert isinstance(done.value.value, Denied)
    assert "'a b' can't be the name of an object" in done.value.value.message


def test_a_quota_is_bounded_and_one_that_was_too_large_can_shrink(ask: Any) -> None:
    def quota(count: int, **spec: Any) -> Any:
        hard = {f"count/r{n}.example.com": "1" for n in range(count)}
        metadata = {"name": "team", "namespace": "dev", "uid": "uid-team"}
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard} | spec}

    refused(ask(quotas.validate, quota(129)), "spec.hard")
    assert ask(quotas.validate, quota(150), "UPDATE", old=quota(200)).quota_change is not None
    values = [f"class-{n}" for n in range(500)]
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": values}]}
    refused(ask(quotas.validate, quota(1, scopeSelector=selector)), "spec.scopeSelector")
