"""Lists as kubectl's `get` has them: selected, sorted, in its forms, and as they change."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import binaries
import pytest
import yaml
from commands import cluster, muster

from muster.cli.connect import connected
from muster.cli.installation import crds
from muster.kube.client import Client
from muster.model import kinds
from muster.model.kinds import Kind
from muster.model.objects import Object

QUEUES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("research", {"weight": 10, "capability": {"cpu": "8"}}),
    ("night", {"weight": 9}),
    ("lab", {"weight": 1, "capability": {"cpu": "500m"}}),
)
TEMPLATES = (
    "jsonpath={.items[*].metadata.name}",
    "jsonpath={range .items[*]}{.metadata.name}{'\\t'}{.spec.parallelism}{'\\n'}{end}",
    "jsonpath={.items[?(@.spec.parallelism>5)].metadata.labels}",
    "jsonpath={.items[-1:].metadata.labels.by}, {.kind}{.nope}",
    "jsonpath={.items[0].spec}",
    "custom-columns=NAME:.metadata.name,LABELS:{.metadata.labels},NONE:.spec.nope,ALL:.spec.template.spec.containers[*].name",
    "name",
    "json",
)
SORTED = (".spec.parallelism", "{.metadata.name}", "metadata.labels.by")


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: Any) -> AsyncIterator[Client]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    async with cluster(tmp_path) as reached:
        assert (await muster("install"))[0] == 0
        await furnish(reached)
        yield reached


async def furnish(client: Client) -> None:
    for name, spec in QUEUES:
        labels = {"team": "vision"} if name != "lab" else {}
        await client.create(kinds.QUEUES, {"metadata": {"name": name, "labels": labels}, "spec": spec})


def names(said: str) -> list[str]:
    return [line.rpartition("/")[2] for line in said.split()]


async def listed(*words: str) -> list[str]:
    status, said = await muster("queue", "list", "-o=name", *words)
    assert status == 0, said
    return names(said)


async def test_objects_are_selected_and_sorted(client):
    assert await listed() == ["lab", "night", "research"]
    assert await listed("-l", "team=vision") == ["night", "research"]
    assert await listed("-l=team!=vision") == ["lab"]
    assert await listed("--field-selector", "metadata.name=night") == ["night"]
    assert await listed("--sort-by", ".spec.weight") == ["lab", "night", "research"]
    assert await listed("--sort-by={.spec.capability.cpu}") == ["night", "lab", "research"]
    status, said = await muster("queue", "list", "--sort-by", ".nope")
    assert (status, said) == (1, "Error: --sort-by: no object has the field .nope\n")
    status, said = await muster("queue", "list", "--field-selector", "spec.weight=9")
    assert status == 1
    assert "spec.weight" in said


async def test_no_objects_are_no_failure(client):
    assert await muster("podgroup", "list") == (0, "No resources found in default namespace.\n")
    assert await muster("job", "list", "-A") == (0, "No resources found\n")
    assert await muster("queue", "list", "-l", "no=such") == (0, "No resources found\n")
    assert await muster("podgroup", "list", "-o", "name") == (0, "")
    assert json.loads((await muster("podgroup", "list", "-o", "json"))[1])["items"] == []
    assert (await muster("queue", "view", "nowhere"))[0] == 1


async def test_documents_have_no_managed_fields_unless_they_are_wanted(client):
    for words in (("list",), ("view", "night")):
        assert "managedFields" not in (await muster("queue", *words, "-o", "yaml"))[1]
        assert "managedFields" in (await muster("queue", *words, "-o", "yaml", "--show-managed-fields"))[1]
    listed = yaml.safe_load((await muster("queue", "list", "-o", "yaml"))[1])
    assert (listed["kind"], {each["kind"] for each in listed["items"]}) == ("List", {"Queue"})


async def test_a_table_without_its_heads(client):
    status, said = await muster("queue", "list", "--no-headers")
    assert [line.split()[0] for line in said.splitlines()] == ["lab", "night", "research"]
    assert status == 0


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ("go-template={{.x}}", "is none of table, wide, json, yaml, name, jsonpath=…, custom-columns=…"),
        ("jsonpath", "needs a template"),
        ("jsonpath={..name}", "can't be read from"),
        ("custom-columns=NAME", "isn't HEADER:PATH"),
    ],
)
async def test_a_form_that_is_none_is_a_mistake_of_usage(client, form, complaint):
    status, said = await muster("queue", "list", "-o", form)
    assert status == 2
    assert complaint in said


async def test_changes_are_printed_as_they_come(client, tmp_path, monkeypatch):
    lines: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr("muster.cli.output.click.echo", lambda text="", **_: lines.put_nowait(text))

    from muster.cli.commands.queue import _COLUMNS
    from muster.cli.listing import ObjectPrinter, Selection

    following = asyncio.create_task(ObjectPrinter(client, (kinds.QUEUES,), _COLUMNS, Selection(watch=True)).show())
    first = [(await lines.get()).split()[0] for _ in range(4)]
    await client.patch(kinds.QUEUES, "night", {"spec": {"weight": 3}})
    changed = await lines.get()
    await client.create(kinds.QUEUES, {"metadata": {"name": "new"}})
    assert first[1:] == ["lab", "night", "research"]
    assert changed.split()[:2] == ["night", "3"]
    assert (await lines.get()).split()[0] == "new"
    following.cancel()
    await asyncio.wait([following])


def stated(said: str) -> tuple[Any, ...]:
    """Return what doesn't change by itself."""
    whole = json.loads(said)
    items = whole.pop("items")
    return whole, *((each.keys(), each["metadata"].keys(), each["spec"]) for each in items)


async def jobs(client: Client) -> None:
    await client.create(kinds.NAMESPACES, {"metadata": {"name": "templates"}})
    pods = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/x"}]}
    for name, parallelism in (("night", 9), ("lab-10", 10), ("lab-9", 1)):
        spec = {"parallelism": parallelism, "suspend": True, "template": {"spec": pods}}
        manifest = {"metadata": {"name": name, "labels": {"by": name}}, "spec": spec}
        await client.create(kinds.JOBS, manifest, "templates")


@pytest.mark.processes
async def test_templates_say_what_kubectl_s_say(real_control_plane, monkeypatch):
    kubectl = binaries.find("kubectl")
    assert kubectl is not None
    monkeypatch.setenv("KUBECONFIG", str(real_control_plane.kubeconfig()))
    async with connected(None, None) as client:
        await jobs(client)
    for words in (*(["-o", each] for each in TEMPLATES), *(["-o", "name", "--sort-by", each] for each in SORTED)):
        asked = [kubectl, "get", "jobs", "-n", "templates", *words]
        theirs = await asyncio.to_thread(subprocess.run, asked, capture_output=True, text=True, check=True)
        status, ours = await muster("job", "list", "-n", "templates", *words)
        if words[1] == "json":
            assert stated(ours) == stated(theirs.stdout)
        else:
            assert (status, ours) == (0, theirs.stdout), words


async def tenant(client: Client) -> None:
    await crds.apply(client, legacy_apis=False, adopt=False)
    await client.create(kinds.NAMESPACES, {"metadata": {"name": "tenant"}})
    rule = {"apiGroups": [kinds.PODGROUPS.group], "resources": ["podgroups"], "verbs": ["get", "list", "watch"]}
    role, rbac = {"metadata": {"name": "tenant"}, "rules": [rule]}, "rbac.authorization.k8s.io"
    await client.create(Kind(rbac, "v1", "roles", "Role", Object), role, "tenant")
    bound = {"roleRef": {"apiGroup": rbac, "kind": "Role", "name": "tenant"}, "metadata": {"name": "tenant"}}
    bound["subjects"] = [{"apiGroup": rbac, "kind": "User", "name": "jane"}]
    await client.create(Kind(rbac, "v1", "rolebindings", "RoleBinding", Object), bound, "tenant")
    await client.create(kinds.PODGROUPS, {"metadata": {"name": "train"}, "spec": {"minMember": 1}}, "tenant")


@pytest.mark.processes
async def test_a_tenant_who_may_see_podgroups_of_our_group_alone_sees_them(real_control_plane, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(real_control_plane.kubeconfig()))
    async with connected(None, None) as client:
        await tenant(client)
    jane = ("--as=jane", "--as-group=system:authenticated", "-n", "tenant")
    assert await muster(*jane, "podgroup", "list", "-o", "name") == (0, f"podgroup.{kinds.PODGROUPS.group}/train\n")
    assert (await muster("podgroup", "view", "train", *jane))[0] == 0
    status, said = await muster("podgroup", "list", *jane[:2], "-n", "default")
    assert status == 1
    assert 'User "jane" cannot list resource "podgroups" in API group "scheduling.volcano.sh"' in said
    assert 'in the namespace "default"' in said
