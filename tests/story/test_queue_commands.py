"""The queue commands against a running Muster, as their users type them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from running import kubectl


@pytest.fixture
def run(up):
    def vcctl(*words: str, program: str = "vcctl") -> subprocess.CompletedProcess[str]:
        script = f"import sys; from muster.cli.main import {program} as run; run()"
        command = [sys.executable, "-c", script, *words, "--kubeconfig", str(up.kubeconfig)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return vcctl


def said(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_queue_is_created_viewed_listed_closed_opened_and_deleted(run, up):
    assert said(run("queue", "create", "--name", "myqueue", "--weight", "10")) == "queue myqueue created\n"
    seen = ("--for=jsonpath={.status.state}=Open", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", "queues.scheduling.volcano.sh/myqueue", *seen).returncode == 0
    header, row = said(run("queue", "view", "myqueue")).splitlines()
    assert header.split() == [
        "NAME",
        "WEIGHT",
        "TOTAL",
        "PENDING",
        "RUNNING",
        "INQUEUE",
        "COMPLETED",
        "FAILED",
        "STATE",
        "CREATED",
    ]
    assert row.split()[:-1] == ["myqueue", "10", *["0"] * 6, "Open"]
    created = kubectl(
        up.kubeconfig,
        "get",
        "queues.scheduling.volcano.sh",
        "myqueue",
        "-o",
        "jsonpath={.metadata.creationTimestamp}",
    )
    assert row.split()[-1] == created.stdout
    names = [line.split()[0] for line in said(run("queue", "list")).splitlines()[1:]]
    assert {"default", "myqueue"} <= set(names)
    assert names == sorted(names)
    assert said(run("queue", "close", "myqueue")).startswith("queue myqueue is closing")
    assert said(run("queue", "open", "--name", "myqueue")) == "queue myqueue is open\n"
    assert said(run("queue", "delete", "myqueue")).startswith("queue myqueue is being deleted")


def test_the_total_of_a_queue_with_a_foreign_controllers_group_is_the_same_wherever_it_is_shown(run, up):
    assert said(run("queue", "create", "totals"))
    seen = ("--for=jsonpath={.status.state}=Open", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", "queues.scheduling.volcano.sh/totals", *seen).returncode == 0
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "controller": True}
    uid = kubectl(up.kubeconfig, "get", "configmap", owner["name"], "-o", "jsonpath={.metadata.uid}").stdout
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "theirs", "ownerReferences": [owner | {"uid": uid}]},
        "spec": {"minMember": 1, "queue": "totals"},
    }
    assert kubectl(up.kubeconfig, "apply", "-f", "-", stdin=json.dumps(group)).returncode == 0
    counted = ("--for=jsonpath={.status.unknown}=1", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", "queues.scheduling.volcano.sh/totals", *counted).returncode == 0
    shown = kubectl(up.kubeconfig, "get", "queues.scheduling.volcano.sh", "totals").stdout.splitlines()
    status = json.loads(said(run("queue", "view", "totals", "-o", "json")))["status"]
    (listed,) = [line.split() for line in said(run("queue", "list")).splitlines() if line.startswith("totals ")]
    by_kubectl = dict(zip(shown[0].split(), shown[1].split(), strict=True))["TOTAL"]
    assert (by_kubectl, listed[2], status["total"]) == ("1", "1", 1)
    assert status["pending"] == status["inqueue"] == 0


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_queue_is_printed_as_a_document(run, form, read):
    document = read(said(run("queue", "view", "default", "-o", form)))
    assert document["metadata"]["name"] == "default"
    assert document["spec"]["weight"] == 1
    assert read(said(run("queue", "list", "-o", form)))["kind"] == "QueueList"


def test_names_alone_can_be_given_to_another_command(run):
    assert "queue.scheduling.volcano.sh/default" in said(run("queue", "list", "-o", "name")).splitlines()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["queue", "view", "nowhere"], "nowhere"),
        (["queue", "create", "default"], "default"),
        (["queue", "delete", "default"], "default"),
        (["queue", "create", "Not_A_Name"], "Not_A_Name"),
        (["queue", "create", "child", "--parent", "nowhere"], "nowhere"),
    ],
    ids=" ".join,
)
def test_what_can_not_be_done_is_one_line_that_names_it(run, words, complaint):
    result = run(*words)
    assert result.returncode == 1
    assert complaint in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.stderr
