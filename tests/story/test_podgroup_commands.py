"""``muster podgroup`` against a running Muster, as its users type it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from running import Up, kubectl

GROUP = "podgroups.scheduling.volcano.sh/train"
WAITING = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: train}
spec: {minMember: 2, queue: default}
---
apiVersion: v1
kind: Pod
metadata: {name: train-0, annotations: {scheduling.k8s.io/group-name: train}}
spec:
  schedulerName: muster
  containers: [{name: main, image: busybox, resources: {requests: {cpu: 1000}}}]
"""


@pytest.fixture
def muster(up: Up, namespace: str) -> Callable[..., str]:
    """Runs a command in the namespace; gives what it says."""

    def ran(*words: str, fails: bool = False) -> str:
        command = [sys.executable, "-m", "muster.cli", "podgroup", *words, "-n", namespace]
        done = subprocess.run(
            [*command, "--kubeconfig", str(up.kubeconfig)], capture_output=True, text=True, check=False, timeout=120
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout or done.stderr

    return ran


def test_a_group_that_waits_is_listed_viewed_and_explained(up: Up, namespace: str, muster: Callable[..., str]) -> None:
    kubectl(up.kubeconfig, "-n", namespace, "apply", "-f", "-", stdin=WAITING)
    # What is said may be another thing before the scheduler has looked at it.
    judged = kubectl(up.kubeconfig, "-n", namespace, "wait", GROUP, "--for=condition=Unschedulable", "--timeout=60s")
    assert judged.returncode == 0, judged.stdout
    header, row = muster("list").splitlines()
    assert header.split() == ["NAME", "STATUS", "MINMEMBER", "RUNNING", "QUEUE", "OWNER", "AGE"]
    assert row.split()[:5] == ["train", "Pending", "2", "0", "default"]
    # Chosen by queue and by phase, by kubectl too.
    for chosen, found in (("spec.queue=default,status.phase=Pending", ["train"]), ("spec.queue=other", [])):
        words = (
            "get",
            "podgroups.scheduling.volcano.sh",
            "--field-selector",
            chosen,
            "-o",
            "jsonpath={.items[*].metadata.name}",
        )
        assert kubectl(up.kubeconfig, "-n", namespace, *words).stdout.split() == found
        assert ("train" in muster("list", "--field-selector", chosen)) is bool(found)
    assert muster("view", "train", "-o", "name") == "podgroup.scheduling.volcano.sh/train\n"
    assert json.loads(muster("view", "train", "-o", "json"))["spec"]["minMember"] == 2
    lines = muster("why", "train").splitlines()
    assert lines[0].startswith(f"PodGroup {namespace}/train is Pending: waiting for ")
    assert any(line.startswith("ahead ") for line in lines)
    said = json.loads(muster("why", "train", "-o", "json"))
    assert said["podGroup"] == f"{namespace}/train"
    assert said["message"] in " ".join(" ".join(lines).split())


def test_what_is_not_there_is_said_in_one_line(muster: Callable[..., str], namespace: str) -> None:
    assert muster("list") == f"No resources found in {namespace} namespace.\n"
    said = muster("why", "nowhere", fails=True)
    assert said.startswith("Error: ")
    assert "nowhere" in said
    assert len(said.splitlines()) == 1
