"""What kubectl prints when the server says no. The texts are the real server's, word for word."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

Kubectl = Any

CART = {"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": "a"}, "spec": {"wheels": 4}}


def document(**parts: Any) -> str:
    return json.dumps({**CART, **parts})


def test_a_missing_object(kubectl: Kubectl) -> None:
    assert kubectl.fails("get", "pod", "x") == 'Error from server (NotFound): pods "x" not found'
    assert kubectl.fails("delete", "job", "x") == 'Error from server (NotFound): jobs.batch "x" not found'
    assert kubectl.fails("get", "namespace", "x") == 'Error from server (NotFound): namespaces "x" not found'


def test_a_missing_custom_resource(carts: Kubectl) -> None:
    said = carts.fails("patch", "cart", "x", "--type=merge", "-p", "{}")
    assert said == 'Error from server (NotFound): carts.shop.example.com "x" not found'


def test_an_unknown_resource(kubectl: Kubectl) -> None:
    said = kubectl.fails("get", "unicorns")
    assert said == 'error: the server doesn\'t have a resource type "unicorns"'


def test_an_unknown_kind_in_a_file(kubectl: Kubectl) -> None:
    said = kubectl.fails("create", "-f", "-", stdin=document(kind="Unicorn", apiVersion="shop.example.com/v7"))
    assert 'no matches for kind "Unicorn" in version "shop.example.com/v7"' in said
    assert "ensure CRDs are installed first" in said


def test_a_namespace_that_is_missing(carts: Kubectl) -> None:
    said = carts.fails("create", "-n", "nowhere", "-f", "-", stdin=document())
    assert said == 'Error from server (NotFound): error when creating "STDIN": namespaces "nowhere" not found'
    assert (
        carts.fails("get", "carts", "a", "-n", "nowhere")
        == 'Error from server (NotFound): namespaces "nowhere" not found'
    )


def test_a_name_that_is_taken(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=document())
    assert carts.fails("create", "-f", "-", stdin=document()) == (
        'Error from server (AlreadyExists): error when creating "STDIN": carts.shop.example.com "a" already exists'
    )
    assert carts.fails("create", "namespace", carts.namespace) == (
        f'Error from server (AlreadyExists): namespaces "{carts.namespace}" already exists'
    )


def test_an_unknown_field_is_refused_unless_told_otherwise(carts: Kubectl) -> None:
    manifest = document(spec={"wheels": 4, "wings": 2})
    assert carts.fails("create", "-f", "-", stdin=manifest) == (
        'Error from server (BadRequest): error when creating "STDIN": Cart in version "v1" cannot be handled as a '
        'Cart: strict decoding error: unknown field "spec.wings"'
    )
    done = carts.run("create", "-f", "-", "--validate=warn", stdin=manifest)
    assert (done.status, done.err.strip()) == (0, 'Warning: unknown field "spec.wings"')
    assert "wings" not in carts("get", "cart", "a", "-o", "json").out


def test_an_unknown_field_of_a_built_in_kind(kubectl: Kubectl) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "datum": {}}
    assert kubectl.fails("create", "-f", "-", stdin=json.dumps(manifest)) == (
        'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be handled as '
        'a ConfigMap: strict decoding error: unknown field "datum"'
    )


def test_a_value_out_of_bounds(carts: Kubectl) -> None:
    said = carts.fails("create", "-f", "-", stdin=document(spec={"wheels": 9}))
    assert said == (
        'The Cart "a" is invalid: spec.wheels: Invalid value: 9: spec.wheels in body should be less than or equal to 8'
    )
    said = carts.fails("create", "-f", "-", stdin=document(spec={"wheels": 9, "colour": "pink"}))
    first, *rest = said.splitlines()
    assert first == 'The Cart "a" is invalid: '
    # The real server goes through the fields in an order of chance.
    assert sorted(rest) == [
        '* spec.colour: Unsupported value: "pink": supported values: "red", "blue", "green"',
        "* spec.wheels: Invalid value: 9: spec.wheels in body should be less than or equal to 8",
    ]
    assert (
        carts.fails("create", "-f", "-", stdin=document(spec={}))
        == 'The Cart "a" is invalid: spec.wheels: Required value'
    )


def test_a_job_that_cannot_be(kubectl: Kubectl) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "A", "image": "b"}]}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    said = kubectl.fails("create", "-f", "-", stdin=json.dumps(job))
    assert said.startswith('The Job "j" is invalid: ')
    assert (
        'spec.template.spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of' in said
    )
    assert 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"' in said


def test_an_immutable_field(kubectl: Kubectl) -> None:
    kubectl("create", "job", "j", "--image=busybox")
    said = kubectl.fails("patch", "job", "j", "-p", '{"spec":{"completions":7}}')
    assert said.startswith('The Job "j" is invalid: spec.completions: Invalid value: ')
    assert "field is immutable" in said


def test_an_edit_of_a_version_that_is_gone(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=document())
    old = json.loads(carts("get", "cart", "a", "-o", "json").out)
    carts("label", "cart", "a", "x=1")
    old["spec"]["wheels"] = 1
    assert carts.fails("replace", "-f", "-", stdin=json.dumps(old)) == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on '
        'carts.shop.example.com "a": the object has been modified; please apply your changes to the latest version '
        "and try again"
    )


def test_a_strategic_patch_of_a_custom_resource(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=document())
    said = carts.fails("patch", "cart", "a", "-p", '{"spec":{"wheels":1}}')
    assert "application/strategic-merge-patch+json is not supported" in said or "media type" in said


def test_a_json_patch_whose_test_fails(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=document())
    patch = json.dumps([{"op": "test", "path": "/spec/wheels", "value": 7}])
    said = carts.fails("patch", "cart", "a", "--type=json", "-p", patch)
    assert said.startswith("The request is invalid: ")


def test_all_documents_of_a_file_are_tried(carts: Kubectl) -> None:
    good = json.loads(document())
    bad = {**good, "metadata": {"name": "Bad"}}
    done = carts.run("create", "-f", "-", stdin=yaml.safe_dump_all([bad, good]))
    assert (done.status, done.out) == (1, "cart.shop.example.com/a created\n")
    assert (
        'The Cart "Bad" is invalid: metadata.name: Invalid value: "Bad": a lowercase RFC 1123 subdomain must'
        in done.err
    )


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("a==b==c", "found '==', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
    ],
)
def test_a_selector_that_cannot_be_read(kubectl: Kubectl, selector: str, why: str) -> None:
    assert why in kubectl.fails("get", "pods", "-l", selector)


def test_a_wait_that_runs_out(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=document())
    said = carts.fails("wait", "--for=condition=Ready", "cart/a", "--timeout=1s")
    assert said == "error: timed out waiting for the condition on carts/a"


@pytest.mark.parametrize(
    "command",
    ["create token default", "exec p -- ls", "attach p"],
)
def test_what_the_sandbox_does_not_do_it_says(kubectl: Kubectl, command: str) -> None:
    if kubectl.server.name != "sandbox":
        pytest.skip("only the sandbox refuses these")
    kubectl("run", "p", "--image=busybox")
    assert "not supported by the Muster sandbox; use a real control plane" in kubectl.fails(*command.split())
