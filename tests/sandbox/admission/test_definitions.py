"""What is refused when it is registered: webhook configurations and CustomResourceDefinitions."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

GROUP = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OURS = sorted((Path(__file__).parents[3] / "deploy" / "crds").glob("*.yaml"))
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"matchPolicy": "X"}, 'matchPolicy: Unsupported value: "X": supported values: "Equivalent", "Exact"'),
        (
            {"reinvocationPolicy": "X"},
            'reinvocationPolicy: Unsupported value: "X": supported values: "IfNeeded", "Never"',
        ),
        (
            {"timeoutSeconds": 31},
            "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        ({"sideEffects": "Some"}, 'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'),
        (
            {"rules": [{**RULE, "apiGroups": ["*", "apps"]}]},
            'rules[0].apiGroups: Invalid value: ["*","apps"]: if \'*\' is present, must not specify other API groups',
        ),
        (
            {"rules": [{**RULE, "resources": ["pods/*", "pods/status"]}]},
            "rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "object.x ="}]},
            "matchConditions[0].expression: Invalid value: \"object.x =\": compilation failed: ERROR: <input>:1:10: Syntax error: token recognition error at: '='\n | object.x =\n | .........^",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]},
            'matchConditions[1].name: Duplicate value: "a"',
        ),
        (
            {"clientConfig": {"url": "https://h/p?q=1"}},
            'clientConfig.url: Invalid value: "q=1": query parameters are not permitted in the URL',
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "X"}]}},
            'namespaceSelector.matchExpressions[0].operator: Invalid value: "X": not a valid selector operator',
        ),
        (
            {"admissionReviewVersions": ["v1", "v1"]},
            'admissionReviewVersions[1]: Invalid value: "v1": duplicate version',
        ),
    ],
)
async def test_a_webhook_that_can_not_work_is_refused(api, hook, more, message):
    obj = {"metadata": {"name": "test"}, "webhooks": [hook(**more)]}
    status, body = await api.create(f"{GROUP}/mutatingwebhookconfigurations", obj)
    head = 'MutatingWebhookConfiguration.admissionregistration.k8s.io "test" is invalid: webhooks[0].'
    assert (status, body["message"]) == (422, head + message)


async def test_two_webhooks_of_one_name_are_refused(api, hook):
    obj = {"metadata": {"name": "test"}, "webhooks": [hook(), hook()]}
    status, body = await api.create(f"{GROUP}/validatingwebhookconfigurations", obj)
    assert (status, body["details"]["causes"][0]["field"]) == (422, "webhooks[1].name")


# ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def definition():
    """A good CustomResourceDefinition."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Thing", "plural": "things"}
    spec = {"group": "t.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "things.t.example.com"}, "spec": spec}


def changed(definition, **version):
    made = copy.deepcopy(definition)
    made["spec"]["versions"][0] |= version
    return made


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (
            {"additionalPrinterColumns": [{"name": "A", "type": "foo", "jsonPath": ".spec.a"}]},
            'spec.additionalPrinterColumns[0].type: Invalid value: "foo": must be one of boolean,date,integer,number,string',
        ),
        (
            {"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": "spec"}]},
            'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with .',
        ),
        (
            {"subresources": {"scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".foo"}}},
            'spec.subresources.scale.statusReplicasPath: Invalid value: ".foo": should be a json path under .status',
        ),
        (
            {"selectableFields": [{"jsonPath": ".spec.z"}]},
            'spec.selectableFields[0].jsonPath: Invalid value: ".spec.z": is an invalid path: does not refer to a valid field',
        ),
        (
            {"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "array"}}}}},
            "spec.validation.openAPIV3Schema.properties[spec].items: Required value: must be specified",
        ),
    ],
)
async def test_a_definition_that_can_not_work_is_refused(api, definition, version, message):
    status, body = await api.create(CRDS, changed(definition, **version))
    head = 'CustomResourceDefinition.apiextensions.k8s.io "things.t.example.com" is invalid: '
    assert (status, body["message"]) == (422, head + message)


async def test_two_versions_of_one_name_are_refused(api, definition):
    definition["spec"]["versions"].append({**definition["spec"]["versions"][0], "storage": False})
    _, body = await api.create(CRDS, definition)
    assert "must contain unique version names" in body["message"]


@pytest.mark.parametrize("path", OURS, ids=[path.name for path in OURS])
async def test_the_definitions_that_muster_installs_are_good(api, path):
    for document in yaml.safe_load_all(path.read_text()):
        await api.made(CRDS, document)


async def test_a_custom_object_is_defaulted_judged_and_told_in_the_real_words(api):
    for path in OURS:
        for document in yaml.safe_load_all(path.read_text()):
            await api.made(CRDS, document)
    group = "/apis/scheduling.volcano.sh/v1beta1"
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1"}
    made = await api.made(f"{group}/namespaces/team/podgroups", {**head, "kind": "PodGroup", "metadata": {"name": "g"}})
    assert made["spec"]["queue"] == "default"
    bad = {**head, "kind": "PodGroup", "metadata": {"name": "x"}, "spec": {"minMember": -1}}
    status, body = await api.create(f"{group}/namespaces/team/podgroups", bad)
    text = "spec.minMember: Invalid value: -1: spec.minMember in body should be greater than or equal to 0"
    assert (status, body["message"]) == (422, f'PodGroup.scheduling.volcano.sh "x" is invalid: {text}')
    queue = {**head, "kind": "Queue", "metadata": {"name": "q"}, "spec": {"parent": "q"}}
    _, body = await api.create(f"{group}/queues", queue)
    text = "<nil>: Invalid value: spec.parent must be another queue"
    assert body["message"] == f'Queue.scheduling.volcano.sh "q" is invalid: {text}'
    bad = {**head, "kind": "PodGroup", "metadata": {"name": "x"}, "spec": {"minMembre": 1}}
    status, body = await api.create(f"{group}/namespaces/team/podgroups", bad, fieldValidation="Strict")
    assert (status, 'unknown field "spec.minMembre"' in body["message"]) == (400, True)
