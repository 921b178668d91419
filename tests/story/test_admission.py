"""What kubectl shows of the webhooks, on both control planes: refusals, warnings, and what they changed."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import Up, kubectl

QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: QUEUE}
"""
GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: gang}
spec: {minMember: 1, queue: QUEUE, minResources: {cpu: "3"}}
"""
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {cpu: "4"}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"""

Run = Callable[..., str]
_NUMBERS = itertools.count(1)


@pytest.fixture
def queue(up: Up) -> Iterator[str]:
    name = f"queue-{os.getpid()}-{next(_NUMBERS)}"
    assert kubectl(up.kubeconfig, "apply", "-f", "-", stdin=QUEUE.replace("QUEUE", name)).returncode == 0
    yield name
    kubectl(up.kubeconfig, "delete", "queue", name, "--ignore-not-found")


@pytest.fixture
def run(up: Up, namespace: str, tmp_path: Path) -> Run:
    """Runs kubectl in the namespace; gives all it says, and holds its status against what is expected."""

    def ran(*words: str, stdin: str = "", fails: bool = False) -> str:
        done = kubectl(up.kubeconfig, "-n", namespace, *words, stdin=stdin, cache=tmp_path / "cache")
        assert (done.returncode != 0) is fails, done.stdout
        return done.stdout

    return ran


def test_a_refusal_names_the_field_and_the_remedy_and_nothing_is_stored(run: Run):
    said = run("apply", "-f", "-", stdin=GROUP.replace("QUEUE", "nope"), fails=True)
    *warnings, refusal = said.strip().splitlines()
    assert "Warning: all nodes together have no cpu, the gang needs 3 cpu to start" in warnings
    assert refusal.startswith(
        'Error from server (Forbidden): error when creating "STDIN": admission webhook'
        ' "podgroupminresources.muster.sh" denied the request: queue "nope" (spec.queue) does not exist: '
    )
    assert "NotFound" in run("get", "pg", "gang", fails=True)


def test_the_second_group_is_told_what_the_first_one_holds(run: Run, queue: str):
    run("apply", "-f", "-", stdin=QUOTA)
    group = GROUP.replace("QUEUE", queue)
    run("apply", "-f", "-", stdin=group)
    # What exists already asks for nothing more.
    assert "unchanged" in run("apply", "-f", "-", stdin=group)
    said = run("apply", "-f", "-", stdin=group.replace("gang", "other"), fails=True)
    assert said.strip().endswith(
        'PodGroup "other" requests 3 cpu, but quota "quota" has 4 cpu hard, 3 reserved (gang 3), so 1 is free:'
        " short by 2 cpu; lower spec.minResources, wait for gang, or raise the quota"
    )
    tried = run("apply", "--dry-run=server", "-f", "-", stdin=group.replace("gang", "other"), fails=True)
    assert "short by 2 cpu" in tried


def test_applying_a_job_shows_what_its_group_would_be_short_of(run: Run, queue: str):
    run("apply", "-f", "-", stdin=QUOTA)
    run("apply", "-f", "-", stdin=GROUP.replace("QUEUE", queue))
    annotations = 'metadata: {name: train, annotations: {scheduling.k8s.io/group-min-member: "6"}}'
    job = JOB.replace("metadata: {name: train}", annotations).replace("spec:\n", "spec:\n  parallelism: 6\n", 1)
    said = run("apply", "-f", "-", stdin=job, fails=True)
    assert said.strip().endswith(
        'admission webhook "jobs.validate.muster.sh" denied the request: Job train requests 6 cpu, but quota'
        ' "quota" has 4 cpu hard, 3 reserved (gang 3), so 1 is free: short by 5 cpu; lower what its pods request or raise'
        " the quota"
    )
    assert "NotFound" in run("get", "job", "train", fails=True)


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {scheduling.k8s.io/group-min-member: "6"}}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: muster
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"""


def test_a_deployment_whose_gang_does_not_fit_is_refused_when_it_is_applied_or_grows(run: Run):
    run("apply", "-f", "-", stdin=QUOTA)
    said = run("apply", "-f", "-", stdin=DEPLOYMENT, fails=True)
    assert said.strip().endswith(
        'admission webhook "deployments.validate.muster.sh" denied the request: Deployment web requests 6 cpu, but quota'
        ' "quota" has 4 cpu hard, 0 reserved, so 4 are free: short by 2 cpu; lower what its pods request or raise the quota'
    )
    assert "NotFound" in run("get", "deployment", "web", fails=True)
    run("apply", "-f", "-", stdin=DEPLOYMENT.replace('"6"', '"3"'))
    assert "short by 2 cpu" in run("apply", "-f", "-", stdin=DEPLOYMENT, fails=True)


def test_the_ledger_is_seen_by_kubectl_and_by_the_command_for_it(run: Run, up: Up, namespace: str, queue: str):
    run("apply", "-f", "-", stdin=QUOTA)
    run("apply", "-f", "-", stdin=GROUP.replace("QUEUE", queue))
    header, row = run("get", "quotaledger").splitlines()
    assert header.split() == ["NAME", "RESERVED", "SEEDED", "AGE"]
    assert "quota cpu 3/4" in row
    command = [sys.executable, "-m", "muster.cli", "quota", "view", "-n", namespace, "--kubeconfig", str(up.kubeconfig)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "quota   cpu        4      3          0       1" in shown.splitlines()


def test_warnings_are_shown_and_the_write_goes_through(run: Run, queue: str):
    run("apply", "-f", "-", stdin=QUOTA)
    run("apply", "-f", "-", stdin=GROUP.replace("QUEUE", queue))
    said = run("apply", "-f", "-", stdin=QUOTA.replace('"4"', '"2"'))
    assert 'Warning: quota "quota" has 2 cpu hard, 3 reserved: short by 1 cpu' in said
    assert "resourcequota/quota configured" in said
    said = run("delete", "queue", queue, "--dry-run=server")
    assert f'Warning: deleting queue "{queue}" deletes 1 PodGroup in it' in said


def test_a_job_is_stored_suspended_and_applying_it_again_changes_nothing(run: Run):
    assert "job.batch/train created" in run("apply", "-f", "-", stdin=JOB)
    stored = json.loads(run("get", "job", "train", "-o", "json"))
    # There are no nodes: it waits for good.
    assert stored["spec"]["suspend"] is True
    assert "job.batch/train unchanged" in run("apply", "-f", "-", stdin=JOB)
    tried = run(
        "create", "--dry-run=server", "-o", "jsonpath={.spec.suspend}", "-f", "-", stdin=JOB.replace("train", "x")
    )
    assert tried.splitlines()[-1] == "true"


def test_of_a_job_of_a_thousand_pods_that_can_not_run_the_api_server_sees_none(run: Run):
    large = JOB.replace("spec:\n", "spec:\n  parallelism: 1000\n  completions: 1000\n", 1)
    assert "job.batch/train created" in run("apply", "-f", "-", stdin=large)
    run("wait", "job/train", "--for=condition=Suspended", "--timeout=60s")
    group = "pg/podgroup-" + run("get", "job", "train", "-o", "jsonpath={.metadata.uid}")
    for what in ("create", "condition=Unschedulable"):
        run("wait", group, f"--for={what}", "--timeout=60s")
    assert run("get", "pods").strip().startswith("No resources found")
    reasons = run("get", "events", "--field-selector=involvedObject.name=train", "-o", "jsonpath={.items[*].reason}")
    assert "Suspended" in reasons
    assert "SuccessfulCreate" not in reasons
