"""kube-batch's own example under a quota for four of its six pods, as its users apply it, on both control planes."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pages import clusters
from running import kubectl

pytestmark = pytest.mark.processes

PATIENCE = 90.0
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {requests.cpu: "4"}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: qj-1
spec:
  backoffLimit: 6
  completions: 6
  parallelism: 6
  template:
    metadata:
      annotations:
        scheduling.k8s.io/group-name: qj-1
    spec:
      containers:
      - image: busybox
        imagePullPolicy: IfNotPresent
        name: busybox
        resources:
          requests:
            cpu: "1"
      restartPolicy: Never
      schedulerName: kube-batch
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {scheduling.k8s.io/group-name: qj-1}
    spec:
      schedulerName: kube-batch
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"""
GROUP = """
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: PodGroup
metadata:
  name: qj-1
spec:
  minMember: 6
"""
PODGROUPS = "podgroups.scheduling.incubator.k8s.io"
_NUMBERS = itertools.count(1)
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(cluster: tuple[str, Path]) -> Iterator[Run]:
    """Runs kubectl in a namespace with a quota, in a cluster with room for more."""
    config, space = cluster[1], f"example-{os.getpid()}-{next(_NUMBERS)}"

    def ran(*words: str, stdin: str = "") -> tuple[int, str]:
        done = kubectl(config, "-n", space, *words, stdin=stdin)
        return done.returncode, done.stdout

    kubectl(config, "create", "namespace", space)
    code, said = ran("create", "-f", "-", stdin=QUOTA)
    assert code == 0, said
    # Before its controller has seen the quota, the API server admits no pod.
    code, said = ran("wait", "quota/team", "--for=jsonpath={.status.hard.requests\\.cpu}=4", "--timeout=60s")
    assert code == 0, said
    yield ran
    kubectl(config, "delete", "namespace", space, "--wait=false")


def until(run: Run, *words: str, holds: Callable[[int, str], bool], stdin: str = "") -> str:
    end, said = time.monotonic() + PATIENCE, ""
    while time.monotonic() < end:
        code, said = run(*words, stdin=stdin)
        if holds(code, said):
            return said
        time.sleep(0.5)
    raise AssertionError(said)


@clusters("--legacy-apis")
def test_applied_before_its_group_it_waits_without_one_pod_and_runs_when_the_quota_is_large_enough(run: Run):
    code, said = run("apply", "-f", "-", stdin=f"{JOB}---{GROUP}")
    assert (code, "created" in said) == (0, True), said
    shown = until(run, "get", PODGROUPS, "qj-1", holds=lambda _, said: "NotEnoughQuota" in said)
    assert "Pending" in shown
    _, said = run("get", PODGROUPS, "qj-1", "-o", "json")
    told = [each["message"] for each in json.loads(said)["status"]["conditions"] if each["status"] == "True"]
    assert any("short by 2 requests.cpu" in each for each in told), told
    _, said = run("get", "events", "-o", "jsonpath={.items[*].reason}")
    assert "SuccessfulCreate" not in said
    assert "No resources found" in run("get", "pods")[1]
    code, said = run("patch", "quota", "team", "--type=merge", "--patch", '{"spec": {"hard": {"requests.cpu": "6"}}}')
    assert code == 0, said
    code, said = run("wait", f"{PODGROUPS}/qj-1", "--for=jsonpath={.status.phase}=Running", "--timeout=90s")
    assert code == 0, said


@clusters("--legacy-apis")
def test_applied_after_its_group_it_is_refused_with_what_it_is_short_of(run: Run):
    code, said = run("apply", "-f", "-", stdin=GROUP)
    assert code == 0, said
    code, said = run("wait", f"{PODGROUPS}/qj-1", "--for=jsonpath={.status.phase}", "--timeout=60s")
    assert code == 0, said

    def refused(code: int, said: str) -> bool:
        if code == 0:  # The webhook hasn't seen the group yet.
            run("delete", "job", "qj-1", "--cascade=background")
        return code != 0

    said = until(run, "apply", "-f", "-", stdin=JOB, holds=refused)
    assert said.startswith("Error from server (Forbidden): error when creating"), said
    assert "requests 6 requests.cpu, but" in said
    assert "4 requests.cpu hard, 0 reserved, so 4 are free: short by 2 requests.cpu" in said
    assert "No resources found" in run("get", "pods")[1]


@clusters("--legacy-apis")
def test_a_deployment_of_such_a_group_is_refused_too_and_applied_when_the_quota_is_large_enough(run: Run):
    code, said = run("apply", "-f", "-", stdin=GROUP)
    assert code == 0, said
    # Admitted, since nothing is known yet that it needs.
    code, said = run("wait", f"{PODGROUPS}/qj-1", "--for=jsonpath={.status.phase}=Inqueue", "--timeout=60s")
    assert code == 0, said
    code, said = run("apply", "-f", "-", stdin=DEPLOYMENT)
    assert code == 1, said
    assert "Deployment web requests 6 requests.cpu, but" in said
    assert "4 requests.cpu hard, 0 reserved, so 4 are free: short by 2 requests.cpu" in said
    code, said = run("patch", "quota", "team", "--type=merge", "--patch", '{"spec": {"hard": {"requests.cpu": "6"}}}')
    assert code == 0, said
    until(run, "apply", "-f", "-", stdin=DEPLOYMENT, holds=lambda code, _: code == 0)
    code, said = run("wait", f"{PODGROUPS}/qj-1", "--for=jsonpath={.status.phase}=Running", "--timeout=90s")
    assert code == 0, said
