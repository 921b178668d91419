"""ValidatingAdmissionPolicies. The texts are those of kube-apiserver 1.36.3."""

from __future__ import annotations

import pytest

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/team/configmaps"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}


def policy(name="p", **spec):
    return {"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [RULE]}, **spec}}


def binding(policy_name="p", actions=("Deny",), **spec):
    spec = {"policyName": policy_name, "validationActions": list(actions), **spec}
    return {"metadata": {"name": f"{policy_name}-b"}, "spec": spec}


@pytest.fixture
def bound(api):
    """Make a policy with a binding."""

    async def make(name="p", actions=("Deny",), limits=None, **spec):
        await api.made(f"{GROUP}/validatingadmissionpolicies", policy(name, **spec))
        more = {"matchResources": limits} if limits else {}
        await api.made(f"{GROUP}/validatingadmissionpolicybindings", binding(name, actions, **more))

    return make


DENIED = "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request: "


@pytest.mark.parametrize(
    ("validation", "code", "reason", "text"),
    [
        ({"expression": "object.metadata.name != 'x'", "message": "no x"}, 422, "Invalid", "no x"),
        ({"expression": "false", "reason": "Forbidden"}, 403, "Forbidden", "failed expression: false"),
        (
            {"expression": "variables.d.size() < 1", "messageExpression": "string(variables.d.size()) + ' entries'"},
            422,
            "Invalid",
            "1 entries",
        ),
        (
            {"expression": "false", "messageExpression": "object.nope", "message": "plain"},
            422,
            "Invalid",
            "plain",
        ),
        (
            {"expression": "object.nope == 1"},
            422,
            "Invalid",
            "expression 'object.nope == 1' resulted in error: no such key: nope",
        ),
        (
            {"expression": "variables.bad == 1"},
            422,
            "Invalid",
            "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: no such key: nope",
        ),
        (
            {"expression": "namespaceObject.metadata.labels.tier == 'silver'", "message": "ns"},
            422,
            "Invalid",
            "ns",
        ),
    ],
)
async def test_a_validation_that_does_not_hold_denies(api, bound, config_map, validation, code, reason, text):
    variables = [{"name": "d", "expression": "object.data"}, {"name": "bad", "expression": "object.nope.x"}]
    await bound(variables=variables, validations=[{"expression": "true"}, validation])
    status, body = await api.create(MAPS, config_map(a="1"))
    assert (status, body["reason"], body["message"]) == (code, reason, DENIED + text)
    cause = {"message": (DENIED + text).removeprefix('configmaps "x" is forbidden: ')}
    assert body["details"] == {"name": "x", "kind": "configmaps", "causes": [cause]}


async def test_a_policy_without_a_binding_has_no_effect(api, config_map):
    await api.made(f"{GROUP}/validatingadmissionpolicies", policy(validations=[{"expression": "false"}]))
    assert (await api.create(MAPS, config_map()))[0] == 201


async def test_a_binding_that_only_warns_warns(api, bound, config_map):
    await bound(actions=("Warn", "Audit"), validations=[{"expression": "false", "message": "hm"}])
    status, _ = await api.create(MAPS, config_map())
    text = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b': hm"
    assert (status, api.warnings) == (201, f'299 - "{text}"')


async def test_failures_of_expressions_are_passed_over_when_the_policy_says_so_but_not_what_they_find(
    api, bound, config_map
):
    await bound(
        failurePolicy="Ignore",
        validations=[{"expression": "object.nope == 1"}, {"expression": "object.metadata.name != 'x'"}],
    )
    assert (await api.create(MAPS, config_map("y")))[0] == 201
    assert (await api.create(MAPS, config_map("x")))[0] == 422


async def test_match_conditions_and_rules_limit_a_policy(api, bound, config_map):
    conditions = [{"name": "c", "expression": "object.metadata.name == 'x'"}]
    await bound(matchConditions=conditions, validations=[{"expression": "false"}])
    assert (await api.create(MAPS, config_map("y")))[0] == 201
    assert (await api.patch(f"{MAPS}/y", {"data": {"a": "b"}}))[0] == 200
    assert (await api.create(MAPS, config_map("x")))[0] == 422


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ({"namespaceSelector": {"matchLabels": {"tier": "gold"}}}, 422),
        ({"namespaceSelector": {"matchLabels": {"tier": "silver"}}}, 201),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, 201),
        ({"resourceRules": [{**RULE, "resourceNames": ["x"]}]}, 422),
        ({"resourceRules": [{**RULE, "resourceNames": ["y"]}]}, 201),
        ({"excludeResourceRules": [RULE]}, 201),
    ],
)
async def test_a_binding_says_where_its_policy_counts(api, bound, config_map, limits, status):
    await bound(limits=limits, validations=[{"expression": "false"}])
    assert (await api.create(MAPS, config_map()))[0] == status


async def test_a_change_of_policy_or_binding_counts_for_the_next_request(api, bound, config_map):
    await bound(validations=[{"expression": "false"}])
    assert (await api.create(MAPS, config_map()))[0] == 422
    path = f"{GROUP}/validatingadmissionpolicies/p"
    await api.patch(path, {"spec": {"validations": [{"expression": "true"}]}})
    assert (await api.create(MAPS, config_map("a")))[0] == 201
    await api.patch(path, {"spec": {"validations": [{"expression": "false"}]}})
    assert (await api.create(MAPS, config_map("b")))[0] == 422
    await api.delete(f"{GROUP}/validatingadmissionpolicybindings/p-b")
    assert (await api.create(MAPS, config_map("b")))[0] == 201


async def test_policies_are_not_asked_about_policies(api, bound):
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    await bound(matchConstraints={"resourceRules": [everything]}, validations=[{"expression": "false"}])
    assert (await api.delete(f"{GROUP}/validatingadmissionpolicies/p"))[0] == 200


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"validations": [{"expression": "1"}]},
            'spec.validations[0].expression: Invalid value: "1": must evaluate to bool but got int',
        ),
        (
            {"validations": [{"expression": "true", "messageExpression": "1"}]},
            'spec.validations[0].messageExpression: Invalid value: "1": must evaluate to string but got int',
        ),
        (
            {"validations": [{"expression": "variables.c"}]},
            "spec.validations[0].expression: Invalid value: \"variables.c\": compilation failed: ERROR: <input>:1:10: undefined field 'c'\n | variables.c\n | .........^",
        ),
        (
            {"variables": [{"name": "a", "expression": "variables.a"}], "validations": [{"expression": "true"}]},
            "spec.variables[0].expression: Invalid value: \"variables.a\": compilation failed: ERROR: <input>:1:10: undefined field 'a'\n | variables.a\n | .........^",
        ),
        (
            {"variables": [{"name": "a-b", "expression": "1"}], "validations": [{"expression": "true"}]},
            'spec.variables[0].name: Invalid value: "a-b": must be a valid CEL identifier',
        ),
        (
            {"validations": [{"expression": "true", "reason": "X"}]},
            'spec.validations[0].reason: Unsupported value: "X": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"',
        ),
    ],
)
async def test_a_policy_that_can_not_work_is_refused(api, spec, message):
    status, body = await api.create(f"{GROUP}/validatingadmissionpolicies", policy(**spec))
    head = 'ValidatingAdmissionPolicy.admissionregistration.k8s.io "p" is invalid: '
    assert (status, body["message"]) == (422, head + message)


@pytest.mark.parametrize(
    "more",
    [
        {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}},
        {"auditAnnotations": [{"key": "a", "valueExpression": "'b'"}]},
    ],
)
async def test_a_policy_that_asks_for_more_than_the_sandbox_does_is_refused_by_name(api, more):
    obj = policy(validations=[{"expression": "true"}], **more)
    status, body = await api.create(f"{GROUP}/validatingadmissionpolicies", obj)
    assert status == 501
    assert body["message"].startswith(f"{next(iter(more))} of ValidatingAdmissionPolicy p")


async def test_a_binding_can_not_both_deny_and_warn(api):
    status, body = await api.create(f"{GROUP}/validatingadmissionpolicybindings", binding(actions=("Deny", "Warn")))
    assert status == 422
    assert (
        'spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn' in body["message"]
    )
