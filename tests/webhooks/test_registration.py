"""The webhook configurations."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from muster.model import webhooks
from muster.model.workloads import WORKLOADS
from webhooks.evaluation import HOOKS
from webhooks.registration import ServiceRef, UrlBase, configurations

_WRITE = ["CREATE", "UPDATE"]
URL = UrlBase("https://127.0.0.1:9443/")


def entries(base: Any = URL, *, legacy: bool = False, own: str = "muster-system") -> dict[str, Any]:
    both = configurations(base, b"PEM", scheduler_names=["muster", "volcano"], legacy_apis=legacy, own_namespace=own)
    return {webhook["name"]: webhook for configuration in both for webhook in configuration["webhooks"]}


def test_there_is_one_configuration_of_each_kind() -> None:
    mutating, validating = configurations(URL, b"", scheduler_names=["muster"], legacy_apis=False, own_namespace="")
    api_version = "admissionregistration.k8s.io/v1"
    assert (mutating["apiVersion"], mutating["kind"]) == (api_version, "MutatingWebhookConfiguration")
    assert (validating["apiVersion"], validating["kind"]) == (api_version, "ValidatingWebhookConfiguration")
    assert mutating["metadata"]["name"] == validating["metadata"]["name"] == "muster"


@pytest.mark.parametrize(
    ("name", "path", "resources", "operations", "policy"),
    [
        ("jobs.mutate.muster.sh", "/mutate/jobs", ["jobs"], ["CREATE"], "Ignore"),
        ("pods.mutate.muster.sh", "/mutate/pods", ["pods"], ["CREATE"], "Ignore"),
        ("podgroups.mutate.muster.sh", "/mutate/podgroups", ["podgroups"], ["CREATE"], "Ignore"),
        ("podgroups.namespace-queue.muster.sh", "/mutate/podgroups", ["podgroups"], ["CREATE"], "Ignore"),
        ("namespaces.mutate.muster.sh", "/mutate/namespaces", ["namespaces"], ["CREATE", "UPDATE"], "Ignore"),
        ("podgroupminresources.muster.sh", "/validate/podgroups", ["podgroups"], ["CREATE", "UPDATE"], "Fail"),
        ("jobs.validate.muster.sh", "/validate/jobs", ["jobs"], ["CREATE", "UPDATE"], "Fail"),
        ("queues.validate.muster.sh", "/validate/queues", ["queues"], ["CREATE", "UPDATE", "DELETE"], "Fail"),
        ("pods.guaranteed.muster.sh", "/validate/pods", ["pods", "pods/resize"], ["CREATE", "UPDATE"], "Fail"),
        ("pods.guarded.muster.sh", "/validate/pods", ["pods", "pods/resize"], ["CREATE", "UPDATE"], "Ignore"),
        ("resourceclaims.guarded.muster.sh", "/validate/resourceclaims", ["resourceclaims"], ["CREATE"], "Ignore"),
        ("resourceclaims.guaranteed.muster.sh", "/validate/resourceclaims", ["resourceclaims"], ["CREATE"], "Fail"),
        (
            "resourcequotas.muster.sh",
            "/validate/resourcequotas",
            ["resourcequotas"],
            ["CREATE", "UPDATE", "DELETE"],
            "Ignore",
        ),
        (
            "resourcequotas.guaranteed.muster.sh",
            "/validate/resourcequotas",
            ["resourcequotas"],
            ["CREATE", "UPDATE", "DELETE"],
            "Fail",
        ),
        *(
            (f"{each.kind.plural}.validate.muster.sh", webhooks.WORKLOADS, [each.kind.plural], _WRITE, "Ignore")
            for each in WORKLOADS
        ),
    ],
)
def test_each_webhook_is_registered_as_the_design_says(
    name: str, path: str, resources: list[str], operations: list[str], policy: str
) -> None:
    webhook = entries()[name]
    (rule,) = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (resources, operations)
    assert webhook["clientConfig"]["url"] == "https://127.0.0.1:9443" + path
    assert webhook["failurePolicy"] == policy
    assert webhook["matchPolicy"] == "Equivalent"
    assert (webhook["sideEffects"], webhook["timeoutSeconds"]) == ("NoneOnDryRun", 5)
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert webhook.get("reinvocationPolicy") == ("IfNeeded" if path.startswith("/mutate/") else None)


def test_every_path_that_is_served_is_registered_and_the_other_way_round() -> None:
    registered = {each["clientConfig"]["url"].removeprefix("https://127.0.0.1:9443") for each in entries().values()}
    assert registered == set(HOOKS)


def test_a_service_is_called_by_name_with_the_bundle() -> None:
    webhook = entries(ServiceRef("muster-system", "muster-webhook"))["jobs.mutate.muster.sh"]
    assert webhook["clientConfig"] == {
        "service": {"namespace": "muster-system", "name": "muster-webhook", "port": 443, "path": "/mutate/jobs"},
        "caBundle": base64.b64encode(b"PEM").decode(),
    }


def test_system_namespaces_and_our_own_are_left_out() -> None:
    webhook = entries()["podgroupminresources.muster.sh"]
    assert webhook["namespaceSelector"] == {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "kube-node-lease", "muster-system"],
            }
        ]
    }
    outside = entries(own="")["podgroupminresources.muster.sh"]["namespaceSelector"]
    assert outside["matchExpressions"][0]["values"] == ["kube-system", "kube-node-lease"]


def test_the_fence_stands_where_a_namespace_is_labelled_for_it() -> None:
    found = {
        name: each["namespaceSelector"]["matchExpressions"][1:] for name, each in entries().items() if "q" not in name
    }

    def only(operator: str, mode: str) -> list[Any]:
        return [{"key": "muster.sh/quota", "operator": operator, "values": [mode]}]

    assert found["pods.guaranteed.muster.sh"] == only("In", "guaranteed")
    assert found["pods.guarded.muster.sh"] == only("In", "guarded")
    quotas = entries()["resourcequotas.muster.sh"], entries()["resourcequotas.guaranteed.muster.sh"]
    assert [each["namespaceSelector"]["matchExpressions"][1:] for each in quotas] == [
        only("NotIn", "guaranteed"),
        only("In", "guaranteed"),
    ]


def test_the_legacy_groups_are_registered_where_they_are_served() -> None:
    groups = ["scheduling.volcano.sh", "scheduling.incubator.k8s.io", "scheduling.sigs.dev"]
    for name in ("podgroups.mutate.muster.sh", "podgroupminresources.muster.sh", "queues.validate.muster.sh"):
        assert entries(legacy=True)[name]["rules"][0]["apiGroups"] == groups
        assert entries()[name]["rules"][0]["apiGroups"] == groups[:1]
    assert entries()["queues.validate.muster.sh"]["rules"][0]["scope"] == "Cluster"


def test_conditions_keep_away_what_is_not_ours() -> None:
    conditions = {
        name: {each["name"]: each["expression"] for each in webhook.get("matchConditions", [])}
        for name, webhook in entries().items()
    }
    group = '["scheduling.volcano.sh/group-name","scheduling.k8s.io/group-name"]'
    assert conditions["pods.mutate.muster.sh"] == {
        "ours": 'has(object.spec.schedulerName) && object.spec.schedulerName in ["muster","volcano"]',
        "without-group": "!(has(object.metadata.annotations) && "
        f"{group}.exists(key, key in object.metadata.annotations))",
    }
    no_queue = '!has(object.spec.queue) || object.spec.queue in ["","default"]'
    queue = '["scheduling.volcano.sh/queue-name","volcano.sh/queue-name"]'
    queue_named = f"has(object.metadata.annotations) && {queue}.exists(key, key in object.metadata.annotations)"
    assert conditions["podgroups.namespace-queue.muster.sh"] == {"no-queue": no_queue}
    assert conditions["podgroups.mutate.muster.sh"] == {
        "no-queue": no_queue,
        "names-another": f"!has(object.spec.queue) || object.spec.queue == '' || {queue_named}",
    }
    assert conditions["namespaces.mutate.muster.sh"] == {
        "names-queue": queue_named,
        "not-labelled": '!(has(object.metadata.labels) && "muster.sh/names-queue" in object.metadata.labels'
        " && object.metadata.labels[\"muster.sh/names-queue\"] == 'true')",
    }
    assert conditions["jobs.mutate.muster.sh"]["not-suspended"] == "!has(object.spec.suspend) || !object.spec.suspend"
    assert conditions["jobs.validate.muster.sh"]["ours"].startswith(
        "(has(object.spec.template.spec.schedulerName) && object.spec.template.spec.schedulerName in"
    )


def test_a_workload_that_names_no_scheduler_of_ours_costs_no_call() -> None:
    conditions = {
        each["name"]: each["expression"] for each in entries()["rayjobs.validate.muster.sh"]["matchConditions"]
    }
    head = "object.spec.rayClusterSpec.headGroupSpec.template.spec.schedulerName"
    assert conditions["ours"].startswith("(has(object.spec) && has(object.spec.rayClusterSpec) && ")
    assert f'has({head}) && {head} in ["muster","volcano"]) || (' in conditions["ours"]
    assert "workerGroupSpecs.exists(each0, has(each0.template) && " in conditions["ours"]
    assert conditions["applied"].endswith("&& !has(object.metadata.deletionTimestamp)")
    assert conditions["not-by-a-controller"].startswith("!(request.userInfo.username in ")
    assert conditions["judged-part-changes"].startswith("oldObject == null || object.spec != oldObject.spec || ")
    maps = entries()["pytorchjobs.validate.muster.sh"]["matchConditions"][0]["expression"]
    assert "pytorchReplicaSpecs.exists(each0, has(object.spec.pytorchReplicaSpecs[each0].template) && " in maps
    assert "annotations" in entries()["trainjobs.validate.muster.sh"]["matchConditions"][0]["expression"]
