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
        "AGE",
    ]
    assert row.split()[:-2] == ["myqueue", "10", *["0"] * 6, "Open"]
    created = kubectl(
        up.kubeconfig,
        "get",
        "queues.scheduling.volcano.sh",
        "myqueue",
        "-o",
        "jsonpath={.metadata.creationTimestamp}",
    )
    assert row.split()[-2] == created.stdout
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
    assert read(said(run("queue", "list", "-o", form)))["kind"] == "List"


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


GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: %s, namespace: default}
spec: {minMember: 1, queue: %s}
"""


def test_a_queue_with_groups_is_deleted_only_when_that_is_confirmed(run, up):
    said(run("queue", "create", "full"))
    wanted = ("--for=jsonpath={.status.state}=Open", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", "queues.scheduling.volcano.sh/full", *wanted).returncode == 0
    assert kubectl(up.kubeconfig, "create", "-f", "-", stdin=GROUP % ("inside", "full")).returncode == 0
    kept = run("queue", "delete", "full")
    assert (kept.returncode, kept.stdout) == (1, "")
    assert kept.stderr == (
        "Error: queue full has 1 PodGroup; these and their Jobs and pods are deleted with it: nothing was deleted; "
        "to delete them, say --yes\n"
    )
    told = said(run("queue", "delete", "full", "--dry-run"))
    assert told == "queue full is being deleted, with 1 PodGroup and their Jobs (dry run)\n"
    assert kubectl(up.kubeconfig, "get", "pg", "inside").returncode == 0
    assert said(run("queue", "delete", "full", "--yes")).startswith("queue full is being deleted, with 1 PodGroup")
    gone = kubectl(up.kubeconfig, "wait", "--for=delete", "queues.scheduling.volcano.sh/full", "--timeout=60s")
    assert gone.returncode == 0, gone.stdout
    assert kubectl(up.kubeconfig, "get", "pg", "inside").returncode == 1


def test_what_is_set_changes_and_the_rest_stays(run):
    assert said(run("queue", "create", "night", "--capability", "cpu=4", "--dry-run")).endswith("(dry run)\n")
    assert run("queue", "view", "night").returncode == 1
    said(run("queue", "create", "night", "--weight", "2", "--capability", "cpu=4", "--capability", "memory=1Gi"))
    changed = run(
        "queue", "set", "night", "--weight", "5", "--capability", "cpu=8", "--capability", "memory=", "--priority", "3"
    )
    assert said(changed) == "queue night changed\n"
    spec = json.loads(said(run("queue", "view", "night", "-o", "json")))["spec"]
    assert (spec["weight"], spec["capability"], spec["priority"]) == (5, {"cpu": "8"}, 3)
    assert run("queue", "set", "night").returncode == 2
    assert "much" in run("queue", "set", "night", "--capability", "cpu=much").stderr
    assert "memory" in run("queue", "create", "other", "--capability", "memory=").stderr
    said(run("queue", "delete", "night"))


def test_what_vcctl_calls_otherwise_is_the_same(run):
    said(run("queue", "create", "--name", "theirs"))
    assert said(run("queue", "get", "--name", "theirs")).splitlines()[1].split()[0] == "theirs"
    said(run("queue", "operate", "--name", "theirs", "--action", "update", "--weight", "7"))
    said(run("queue", "operate", "-n", "theirs", "-a", "close"))
    spec = json.loads(said(run("queue", "get", "-n", "theirs", "-o", "json")))["spec"]
    assert (spec["weight"], spec["desiredState"]) == (7, "Closed")
    assert run("queue", "operate", "-n", "theirs", "-a", "update").returncode == 2
    said(run("queue", "delete", "theirs"))


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: default, annotations: {scheduling.k8s.io/group-min-member: "%d"}}
spec:
  parallelism: %d
  completions: %d
  template:
    metadata: {annotations: {sandbox.muster.sh/run-seconds: "300"}}
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"""


NODE = """
apiVersion: v1
kind: Node
metadata: {name: job-node, labels: {kubernetes.io/hostname: job-node}}
status:
  capacity: {cpu: "4", memory: 16Gi, pods: "110"}
  allocatable: {cpu: "4", memory: 16Gi, pods: "110"}
"""


@pytest.fixture
def small_node(up):
    assert kubectl(up.kubeconfig, "create", "-f", "-", stdin=NODE).returncode == 0
    yield
    kubectl(up.kubeconfig, "delete", "node", "job-node")


def listed(run, name: str) -> list[str]:
    (row,) = [line.split() for line in said(run("job", "list", "-n", "default")).splitlines() if line.startswith(name)]
    return row


@pytest.mark.usefixtures("small_node")
def test_a_job_is_listed_suspended_and_resumed_and_one_that_muster_holds_is_told(run, up):
    assert kubectl(up.kubeconfig, "create", "-f", "-", stdin=JOB % ("train", 2, 2, 2)).returncode == 0
    running = ("job/train", "--for=jsonpath={.status.active}=2", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", *running).returncode == 0
    group = listed(run, "train")[4]
    assert listed(run, "train")[:4] == ["train", "Running", "0/2", "default"]
    assert said(run("job", "suspend", "--name", "train", "-n", "default")).startswith("job train is suspended")
    paused = ("job/train", "--for=condition=Suspended", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", *paused).returncode == 0
    assert listed(run, "train")[1] == "Suspended"
    assert (
        said(run("job", "resume", "train", "-n", "default")) == "job train is resumed: it starts when it is admitted\n"
    )
    assert kubectl(up.kubeconfig, "wait", *running).returncode == 0
    # By the name that every message has for its group, and first as kubectl's users try it.
    dry = ("podgroup", "suspend", "job/train", "-n", "default", "--dry-run=server")
    assert said(run(*dry, program="main")) == "job train is suspended (dry run)\n"
    assert listed(run, "train")[1] == "Running"
    assert said(run("podgroup", "suspend", "job/train", "-n", "default", program="main")) == "job train is suspended\n"
    assert listed(run, "train")[1] == "Suspended"
    assert said(run("podgroup", "view", "job/train", "-n", "default", "-o", "name", program="main")).endswith(
        f"/{group}\n"
    )
    missing = run("podgroup", "suspend", "job/nope", "-n", "default", program="main")
    assert missing.stderr == "Error: job/nope has no PodGroup in namespace default\n"

    assert kubectl(up.kubeconfig, "create", "-f", "-", stdin=JOB % ("large", 99, 99, 99)).returncode == 0
    held = ("job/large", "--for=jsonpath={.spec.suspend}=true", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", *held).returncode == 0
    assert listed(run, "large")[1] == "Held"
    assert said(run("job", "resume", "large", "-n", "default")) == (
        "job large isn't suspended by its user: Muster holds it until it is admitted; `muster why job/large` says why\n"
    )
    assert kubectl(up.kubeconfig, "delete", "jobs", "train", "large").returncode == 0


def test_a_group_is_moved_to_another_queue_with_the_job_that_it_was_made_for(run, up):
    said(run("queue", "create", "there"))
    wanted = ("--for=jsonpath={.status.state}=Open", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", "queues.scheduling.volcano.sh/there", *wanted).returncode == 0
    assert kubectl(up.kubeconfig, "create", "-f", "-", stdin=JOB % ("moves", 99, 99, 99)).returncode == 0
    noted = ("job/moves", r"--for=jsonpath={.metadata.annotations.muster\.sh/group}", "--timeout=60s")
    assert kubectl(up.kubeconfig, "wait", *noted).returncode == 0
    group = listed(run, "moves")[4]
    refused = run("podgroup", "move", group, "--to", "nowhere", "-n", "default", program="main")
    assert (refused.returncode, "nowhere" in refused.stderr) == (1, True)
    dry = ("podgroup", "move", "job/moves", "--queue", "there", "-n", "default", "--dry-run=client")
    assert said(run(*dry, program="main")) == "podgroup job/moves is in queue there (dry run)\n"
    assert listed(run, "moves")[3] != "there"
    moved = said(run("podgroup", "move", group, "--to", "there", "-n", "default", program="main"))
    assert moved == f"podgroup {group} is in queue there\n"
    assert listed(run, "moves")[3] == "there"
    shown = kubectl(up.kubeconfig, "get", "pg", group, "-o", "jsonpath={.spec.queue}").stdout
    assert shown == "there"
    assert kubectl(up.kubeconfig, "delete", "job", "moves").returncode == 0
    said(run("queue", "delete", "there", "--yes"))


def test_a_group_without_jobs_can_not_be_suspended(run, up):
    assert kubectl(up.kubeconfig, "create", "-f", "-", stdin=GROUP % ("alone", "default")).returncode == 0
    result = run("podgroup", "suspend", "alone", "-n", "default", program="main")
    assert result.returncode == 1
    assert result.stderr == (
        "Error: podgroup alone has no Job: only Jobs can be suspended; scale other workloads to 0 instead\n"
    )
    assert kubectl(up.kubeconfig, "delete", "pg", "alone").returncode == 0
