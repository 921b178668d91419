"""create, apply, diff, patch, edit, replace, label, annotate, delete: what people change."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

Kubectl = Any

CART = {
    "apiVersion": "shop.example.com/v1",
    "kind": "Cart",
    "metadata": {"name": "a"},
    "spec": {"wheels": 4, "items": ["p", "q"], "tags": {"k": "v"}},
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {
        "suspend": True,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "main", "image": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                ],
            }
        },
    },
}
SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"a": "1", "b": "2"}}


def changed(manifest: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**manifest, "spec": {**manifest["spec"], **spec}}


def read(kubectl: Kubectl, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", *what, "-o", "json").out)
    return found


# ── create ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_document_of_a_file_is_created(carts: Kubectl) -> None:
    done = carts("create", "-f", "-", stdin=yaml.safe_dump_all([CART, JOB, SETTINGS]))
    assert done.lines == ["cart.shop.example.com/a created", "job.batch/j created", "configmap/s created"]


@pytest.mark.parametrize(
    ("command", "created"),
    [
        ("create quota q --hard=cpu=1,pods=3", "resourcequota/q created"),
        ("create job j --image=busybox -- sleep 1", "job.batch/j created"),
        ("create deployment d --image=a --replicas=2", "deployment.apps/d created"),
        ("create configmap c --from-literal=a=b", "configmap/c created"),
        ("create secret generic s --from-literal=a=b", "secret/s created"),
        ("create service clusterip s --tcp=80:8080", "service/s created"),
        ("create serviceaccount x", "serviceaccount/x created"),
        ("create role r --verb=get --resource=pods", "role.rbac.authorization.k8s.io/r created"),
        ("create rolebinding r --role=r --user=u", "rolebinding.rbac.authorization.k8s.io/r created"),
        ("create poddisruptionbudget p --selector=a=b --min-available=1", "poddisruptionbudget.policy/p created"),
    ],
)
def test_every_noun_that_kubectl_sends_as_protobuf_can_be_created(kubectl: Kubectl, command: str, created: str) -> None:
    assert kubectl(*command.split()).out.strip() == created
    kind, name = created.split(maxsplit=1)[0].split("/")
    assert name in kubectl("get", kind, name).out


def test_a_quota_created_by_flags_has_its_limits(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "q", "--hard=cpu=1500m,pods=3", "--scopes=BestEffort", "--dry-run=client", "-o", "yaml")
    kubectl("create", "quota", "q", "--hard=cpu=1500m,requests.memory=1Gi")
    assert read(kubectl, "quota", "q")["spec"] == {"hard": {"cpu": "1500m", "requests.memory": "1Gi"}}


def test_a_dry_run_on_the_server_shows_defaults_and_stores_nothing(carts: Kubectl) -> None:
    done = carts("create", "-f", "-", "--dry-run=server", "-o", "json", stdin=json.dumps(CART))
    assert json.loads(done.out)["spec"]["colour"] == "red"
    assert carts("create", "-f", "-", "--dry-run=server", stdin=json.dumps(CART)).out == (
        "cart.shop.example.com/a created (server dry run)\n"
    )
    assert "not found" in carts.fails("get", "cart", "a")


# ── apply ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("manifest", "change", "name"),
    [
        (CART, changed(CART, wheels=6), "cart.shop.example.com/a"),
        (JOB, changed(JOB, parallelism=3), "job.batch/j"),
        (SETTINGS, {**SETTINGS, "data": {"a": "2"}}, "configmap/s"),
    ],
    ids=["custom", "job", "configmap"],
)
@pytest.mark.parametrize("flags", [[], ["--server-side"]], ids=["client-side", "server-side"])
def test_apply_says_created_unchanged_and_configured(
    carts: Kubectl, manifest: dict[str, Any], change: dict[str, Any], name: str, flags: list[str]
) -> None:
    def apply(what: dict[str, Any]) -> str:
        said: str = carts("apply", "-f", "-", *flags, stdin=json.dumps(what)).out.strip()
        return said

    # A controller writes a Job's status meanwhile, which is no change of its spec.
    version = "generation" if manifest is JOB else "resourceVersion"
    created, unchanged = ("serverside-applied",) * 2 if flags else ("created", "unchanged")
    assert apply(manifest) == f"{name} {created}"
    before = read(carts, name)["metadata"][version]
    assert apply(manifest) == f"{name} {unchanged}"
    assert read(carts, name)["metadata"][version] == before
    assert apply(change) == f"{name} {'serverside-applied' if flags else 'configured'}"
    assert read(carts, name)["metadata"][version] != before


def test_apply_removes_what_the_file_no_longer_says(carts: Kubectl) -> None:
    carts("apply", "-f", "-", stdin=yaml.safe_dump_all([CART, SETTINGS]))
    carts("label", "cart", "a", "kept=yes")
    less = changed(CART, items=["q"])
    del less["spec"]["tags"]
    carts("apply", "-f", "-", stdin=yaml.safe_dump_all([less, {**SETTINGS, "data": {"b": "2"}}]))
    cart = read(carts, "cart", "a")
    assert cart["spec"] == {"wheels": 4, "colour": "red", "items": ["q"]}
    assert cart["metadata"]["labels"] == {"kept": "yes"}
    assert read(carts, "configmap", "s")["data"] == {"b": "2"}


def test_apply_merges_lists_by_their_keys(kubectl: Kubectl) -> None:
    container: dict[str, Any] = {"name": "main", "image": "a"}
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(deployment))
    assert kubectl("apply", "-f", "-", stdin=yaml.safe_dump(deployment)).out == "deployment.apps/d unchanged\n"
    kubectl("set", "env", "deployment/d", "C=3")
    container["env"] = [{"name": "B", "value": "9"}]
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(deployment))
    (stored,) = read(kubectl, "deployment", "d")["spec"]["template"]["spec"]["containers"]
    assert stored["env"] == [{"name": "B", "value": "9"}, {"name": "C", "value": "3"}]


def test_server_side_apply_tells_of_fields_that_another_manages(carts: Kubectl) -> None:
    carts("apply", "--server-side", "--field-manager=first", "-f", "-", stdin=json.dumps(CART))
    said = carts.fails(
        "apply", "--server-side", "--field-manager=second", "-f", "-", stdin=json.dumps(changed(CART, wheels=5))
    )
    assert said.startswith('error: Apply failed with 1 conflict: conflict with "first": .spec.wheels')
    carts(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=second",
        "-f",
        "-",
        stdin=json.dumps(changed(CART, wheels=5)),
    )
    assert read(carts, "cart", "a")["spec"]["wheels"] == 5


def test_server_side_apply_keeps_the_note_that_client_side_apply_reads(carts: Kubectl) -> None:
    carts("apply", "-f", "-", stdin=json.dumps(CART))
    carts("apply", "--server-side", "-f", "-", stdin=json.dumps(changed(CART, owner="me")))
    carts("apply", "-f", "-", stdin=json.dumps(CART))
    assert "owner" not in read(carts, "cart", "a")["spec"]


def test_diff_shows_what_apply_would_change_and_changes_nothing(carts: Kubectl) -> None:
    carts("apply", "-f", "-", stdin=json.dumps(CART))
    assert carts("diff", "-f", "-", stdin=json.dumps(CART)).out == ""
    done = carts.run("diff", "-f", "-", stdin=json.dumps(changed(CART, wheels=7)))
    assert done.status == 1
    assert [line for line in done.lines if line.startswith(("-  ", "+  ")) and "wheels" in line] == [
        "-  wheels: 4",
        "+  wheels: 7",
    ]
    assert read(carts, "cart", "a")["spec"]["wheels"] == 4


# ── change in place ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "patch"),
    [("merge", {"spec": {"wheels": 5}}), ("json", [{"op": "replace", "path": "/spec/wheels", "value": 5}])],
)
def test_patches_of_custom_resources(carts: Kubectl, kind: str, patch: Any) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    arguments = ("patch", "cart", "a", f"--type={kind}", "-p", json.dumps(patch))
    assert carts(*arguments).out == "cart.shop.example.com/a patched\n"
    assert carts(*arguments).out == "cart.shop.example.com/a patched (no change)\n"
    assert read(carts, "cart", "a")["spec"]["wheels"] == 5


def test_a_strategic_patch_changes_one_container_and_removes_another(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=a", "--image=b", "--replicas=0")
    containers = [{"name": "a", "command": ["x"]}, {"name": "b", "$patch": "delete"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    assert kubectl("patch", "deployment", "d", "-p", json.dumps(patch)).out == "deployment.apps/d patched\n"
    (container,) = read(kubectl, "deployment", "d")["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["image"], container["command"]) == ("a", "a", ["x"])


def test_status_is_patched_on_its_own(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    patch = json.dumps({"spec": {"wheels": 1}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    carts("patch", "cart", "a", "--subresource=status", "--type=merge", "-p", patch)
    assert carts("get", "cart", "a", "--no-headers").words[0][:4] == ["a", "4", "red", "True"]
    carts("wait", "--for=condition=Ready", "cart/a", "--timeout=100s")


def test_edit_saves_what_the_editor_leaves(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    editor = carts.file("edit.sh", "sed -i 's/wheels: 4/wheels: 5/' \"$1\"\n")
    assert carts("edit", "cart", "a", EDITOR=f"sh {editor}").out == "cart.shop.example.com/a edited\n"
    assert read(carts, "cart", "a")["spec"]["wheels"] == 5
    again = carts.run("edit", "cart", "a", EDITOR="true")
    assert "Edit cancelled, no changes made." in again.err + again.out


def test_edit_shows_what_the_server_did_not_accept(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    editor = carts.file("edit.sh", 'sed -i \'s/wheels: 4/wheels: 99/\' "$1"; cp "$1" "$HOME/seen"\n')
    carts.fails("edit", "cart", "a", EDITOR=f"sh {editor}")
    assert "spec.wheels: Invalid value: 99" in (carts.home / "seen").read_text()


def test_edit_of_a_built_in_kind(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(SETTINGS))
    editor = kubectl.file("edit.sh", 'sed -i s/\'b: "2"\'/\'b: "3"\'/ "$1"\n')
    assert kubectl("edit", "configmap", "s", EDITOR=f"sh {editor}").out == "configmap/s edited\n"
    assert read(kubectl, "configmap", "s")["data"] == {"a": "1", "b": "3"}


def test_replace_puts_a_new_object_in_place_of_the_old(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    uid = read(carts, "cart", "a")["metadata"]["uid"]
    lean = {**CART, "spec": {"wheels": 1}}
    assert carts("replace", "-f", "-", stdin=json.dumps(lean)).out == "cart.shop.example.com/a replaced\n"
    cart = read(carts, "cart", "a")
    assert (cart["spec"], cart["metadata"]["uid"]) == ({"wheels": 1, "colour": "red"}, uid)
    assert cart["metadata"]["generation"] == 2
    carts("replace", "--force", "-f", "-", stdin=json.dumps(lean))
    assert read(carts, "cart", "a")["metadata"]["uid"] != uid


def test_labels_and_annotations_are_set_and_removed(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    assert carts("label", "cart", "a", "x=1", "y=2").out == "cart.shop.example.com/a labeled\n"
    assert carts("label", "cart", "a", "x=1").out == "cart.shop.example.com/a not labeled\n"
    assert "already has a value (1)" in carts.fails("label", "cart", "a", "x=2")
    carts("label", "cart", "a", "--overwrite", "x=2", "y-")
    assert carts("annotate", "cart", "--all", "note=hello").out == "cart.shop.example.com/a annotated\n"
    metadata = read(carts, "cart", "a")["metadata"]
    assert (metadata["labels"], metadata["annotations"]["note"]) == ({"x": "2"}, "hello")


def test_scale_changes_what_the_definition_says_is_the_number(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    carts("patch", "cart", "a", "--subresource=status", "--type=merge", "-p", '{"status":{"wheels":4}}')
    assert carts("scale", "cart/a", "--replicas=2").out == "cart.shop.example.com/a scaled\n"
    assert read(carts, "cart", "a")["spec"]["wheels"] == 2
    carts("scale", "cart/a", "--current-replicas=2", "--replicas=3")
    assert read(carts, "cart", "a")["spec"]["wheels"] == 3
    assert "Expected replicas to be 7, was 3" in carts.fails("scale", "cart/a", "--current-replicas=7", "--replicas=1")


# ── delete ───────────────────────────────────────────────────────────────────────────────────────────────────────


def named(name: str, **labels: str) -> dict[str, Any]:
    return {**CART, "metadata": {"name": name, "labels": labels}}


def test_delete_by_name_label_and_all(carts: Kubectl) -> None:
    documents = [named("a"), named("b", x="1"), named("c", x="1"), named("d")]
    carts("create", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert carts("delete", "cart", "a").out.startswith('cart.shop.example.com "a" deleted')
    assert len(carts("delete", "carts", "-l", "x=1").lines) == 2
    assert carts("get", "carts", "-o", "name").lines == ["cart.shop.example.com/d"]
    assert len(carts("delete", "carts", "--all").lines) == 1
    assert carts("delete", "cart", "a", "--ignore-not-found").out == ""


def test_a_dry_run_deletes_nothing(carts: Kubectl) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    assert "(server dry run)" in carts("delete", "cart", "a", "--dry-run=server").out
    assert read(carts, "cart", "a")


def test_deletion_waits_for_finalizers(carts: Kubectl) -> None:
    held = {**CART, "metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
    carts("create", "-f", "-", stdin=json.dumps(held))
    assert "timed out waiting" in carts.fails("delete", "cart", "a", "--timeout=1s")
    assert "deletionTimestamp" in read(carts, "cart", "a")["metadata"]
    with carts.started("delete", "cart", "a") as deletion:
        # It says so before it begins to wait.
        assert deletion.line()[:3] == ["cart.shop.example.com", '"a"', "deleted"]
        carts("patch", "cart", "a", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert deletion.end() == 0
    assert "not found" in carts.fails("get", "cart", "a")


def test_a_namespace_goes_with_all_that_is_in_it(carts: Kubectl) -> None:
    name = f"{carts.namespace}-gone"
    carts("create", "namespace", name)
    carts("create", "-n", name, "-f", "-", stdin=json.dumps(CART))
    carts("delete", "namespace", name, "--timeout=100s")
    assert "not found" in carts.fails("get", "namespace", name)
    assert "not found" in carts.fails("get", "cart", "a", "-n", name)


@pytest.mark.parametrize(("cascade", "left"), [("background", []), ("foreground", []), ("orphan", ["configmap/child"])])
def test_what_an_object_owns_goes_as_the_cascade_says(carts: Kubectl, cascade: str, left: list[str]) -> None:
    carts("create", "-f", "-", stdin=json.dumps(CART))
    uid = read(carts, "cart", "a")["metadata"]["uid"]
    owner = {"apiVersion": CART["apiVersion"], "kind": "Cart", "name": "a", "uid": uid, "blockOwnerDeletion": True}
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "ownerReferences": [owner]}}
    carts("create", "-f", "-", stdin=json.dumps(child))
    # The real collector learns of a new kind only with its next look at discovery, up to 30 s later.
    carts("delete", "cart", "a", f"--cascade={cascade}", "--timeout=100s")
    if not left:
        carts.run("wait", "--for=delete", "configmap/child", "--timeout=100s")
    names = carts("get", "configmap", "-o", "name").lines
    assert [each for each in names if each == "configmap/child"] == left
