"""``muster podgroup why`` on a full cluster, by the name of whatever waits, as its users type it; and the same for `muster admit`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from running import Up, kubectl

PATIENCE = 90.0
NODE = """
apiVersion: v1
kind: Node
metadata: {name: NAMESPACE, labels: {story: NAMESPACE}, annotations: {kwok.x-k8s.io/node: fake}}
status:
  capacity: {cpu: "64", memory: 64Gi, pods: "110", example.com/slots: "2"}
  allocatable: {cpu: "64", memory: 64Gi, pods: "110", example.com/slots: "2"}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}, annotations: {scheduling.k8s.io/group-min-member: "MINIMUM", scheduling.volcano.sh/queue-name: QUEUE}}
    spec:
      schedulerName: muster
      nodeSelector: {story: NAMESPACE}
      tolerations: [{operator: Exists}]
      containers:
      - name: main
        image: busybox
        resources: {requests: {example.com/slots: 1}, limits: {example.com/slots: 1}}
"""
CRONJOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 0 1 1 *"
  suspend: true
  jobTemplate:
    spec:
      template:
        spec:
          schedulerName: muster
          restartPolicy: Never
          nodeSelector: {story: NAMESPACE}
          tolerations: [{operator: Exists}]
          containers:
          - name: main
            image: busybox
            resources: {requests: {example.com/slots: 1}, limits: {example.com/slots: 1}}
"""


@pytest.fixture
def muster(up: Up, namespace: str) -> Callable[..., str]:
    """Runs a command in the namespace; gives its output in one line."""

    def ran(*words: str, stdin: str = "") -> str:
        command = [sys.executable, "-m", "muster.cli", *words, "-n", namespace, "--kubeconfig", str(up.kubeconfig)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
        assert not done.returncode, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    return ran


@pytest.fixture
def apply(up: Up, namespace: str) -> Iterator[Callable[..., None]]:
    """Applies a Deployment to a cluster with a node for two of its pods."""
    made = kubectl(up.kubeconfig, "create", "-f", "-", stdin=NODE.replace("NAMESPACE", namespace))
    assert made.returncode == 0, made.stdout

    def applied(name: str, replicas: int, minimum: int, queue: str = "default") -> None:
        text = written(namespace, name, replicas, minimum, queue)
        done = kubectl(up.kubeconfig, "-n", namespace, "apply", "-f", "-", stdin=text)
        assert done.returncode == 0, done.stdout

    yield applied
    kubectl(up.kubeconfig, "delete", "node", namespace, "--wait=false")


def written(namespace: str, name: str, replicas: int, minimum: int, queue: str = "default") -> str:
    text = DEPLOYMENT.replace("NAMESPACE", namespace).replace("NAME", name).replace("QUEUE", queue)
    return text.replace("REPLICAS", str(replicas)).replace("MINIMUM", str(minimum))


def comes_to_say(muster: Callable[..., str], name: str, said: str) -> str:
    """Ask until the answer has a sentence: what is asked about is still on its way."""
    end, answer = time.monotonic() + PATIENCE, ""
    while time.monotonic() < end:
        answer = muster("podgroup", "why", name)
        if said in answer:
            return answer
        time.sleep(1)
    raise AssertionError(f"{said!r} is not in: {answer}")


def test_on_a_full_cluster_why_answers_for_whatever_waits(
    apply: Callable[..., None], muster: Callable[..., str], up: Up, namespace: str
) -> None:
    apply("web", 4, 2)
    answer = comes_to_say(muster, "deployment/web", "is Running: 2 pods run, 2 more wait for nodes (stage nodes)")
    assert "1 pod needs 1 example.com/slots; nothing is free " in answer
    assert ": short by 1 example.com/slots" in answer
    assert "would let one more of its pods start:" in answer
    assert "actions enqueue, allocate, reclaim, backfill (ConfigMap muster-system/muster-scheduler)" in answer

    apply("late", 2, 2)
    answer = comes_to_say(muster, "late", "would let it start:")
    assert f"Deployment {namespace}/late is " in answer
    assert f"the end of Deployment {namespace}/web, which holds 2 example.com/slots" in answer.replace("2 pods, ", "")
    pods = kubectl(up.kubeconfig, "-n", namespace, "get", "pods", "-l", "app=late", "-o", "name").stdout.split()
    assert f"It is a member of Deployment {namespace}/late:" in muster("podgroup", "why", pods[0])

    apply("short", 1, 2)
    # Room is what it waits for now; that it could never start all the same is told, too.
    comes_to_say(muster, "deployment/short", "pods Deployment short wants 1 pod, fewer than the minimum of 2")

    told = muster("admit", "-f", "-", stdin=written(namespace, "next", 2, 2))
    assert "deployment.apps/next admitted" in told
    # The one that waits goes first.
    both = f"Deployments {namespace}/web and {namespace}/late"
    assert f"Deployment {namespace}/next would start after the end of {both} Assumptions:" in told


def test_why_nobody_is_evicted_on_a_full_cluster_and_what_a_run_of_a_cron_job_waits_for(
    apply: Callable[..., None], muster: Callable[..., str], up: Up, namespace: str
) -> None:
    lab = f"lab-{namespace}"
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": lab}, "spec": {}}
    assert kubectl(up.kubeconfig, "create", "-f", "-", stdin=json.dumps(queue)).returncode == 0
    apply("web", 2, 2)
    comes_to_say(muster, "web", "does not wait: it is Running, 2 pods run, minMember 2")
    apply("due", 1, 1, lab)
    answer = comes_to_say(muster, "due", "evicts reclaim takes no pod for it: of ")
    assert "in PodGroups that have no more than their minimum" in answer
    assert f"the end of Deployment {namespace}/web, which holds 2 example.com/slots" in answer.replace("2 pods, ", "")
    # Neither queue has a capability, so that none is used up; and there is something that helps.
    assert "left of the capability" not in answer
    assert "No single change" not in answer

    assert (
        kubectl(
            up.kubeconfig, "-n", namespace, "create", "-f", "-", stdin=CRONJOB.replace("NAMESPACE", namespace)
        ).returncode
        == 0
    )
    run = kubectl(up.kubeconfig, "-n", namespace, "create", "job", "run-1", "--from=cronjob/nightly")
    assert run.returncode == 0, run.stdout
    comes_to_say(muster, "cronjob/nightly", f"Job {namespace}/run-1 is ")


QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {requests.cpu: "4"}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: train}
spec: {minMember: 3, minResources: {cpu: "3"}}
"""
OTHER = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: other}
spec: {minMember: 1, minResources: {cpu: "2"}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: STEP}
spec:
  parallelism: 3
  completions: 3
  template:
    metadata: {annotations: {scheduling.k8s.io/group-name: train, sandbox.muster.sh/run-seconds: "1"}}
    spec:
      schedulerName: muster
      restartPolicy: Never
      nodeSelector: {story: NAMESPACE}
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"""


def test_why_a_completed_group_does_not_start_again_and_what_admit_says_of_it(
    apply: Callable[..., None], muster: Callable[..., str], up: Up, namespace: str
) -> None:
    def create(text: str) -> None:
        done = kubectl(up.kubeconfig, "-n", namespace, "create", "-f", "-", stdin=text.replace("NAMESPACE", namespace))
        assert done.returncode == 0, done.stdout

    create(QUOTA)
    create(JOB.replace("STEP", "first"))
    comes_to_say(muster, "train", "is Completed")
    group = "podgroups.scheduling.volcano.sh/train"
    for last in ("jobs/first", "pods -l job-name=first"):
        gone = kubectl(up.kubeconfig, "-n", namespace, "delete", *last.split(), "--wait=true")
        assert gone.returncode == 0, gone.stdout
    create(OTHER)
    create(JOB.replace("STEP", "second"))
    answer = comes_to_say(muster, "train", "short by 1 ")
    assert "is Completed: " in answer
    assert 'quota "team" has 4 requests.cpu hard, 2 reserved (other 2)' in answer
    told = muster("admit", "-f", "-", stdin=JOB.replace("NAMESPACE", namespace).replace("STEP", "third"))
    assert "short by 1 " in told
    assert "would start now" not in told
    listed = kubectl(up.kubeconfig, "-n", namespace, "get", group, "-o", "wide").stdout
    assert "NotEnoughQuota" in listed
    deleted = kubectl(up.kubeconfig, "-n", namespace, "delete", "podgroups.scheduling.volcano.sh", "other")
    assert deleted.returncode == 0, deleted.stdout
    done = kubectl(up.kubeconfig, "-n", namespace, "wait", "job/second", "--for=condition=Complete", "--timeout=120s")
    assert done.returncode == 0, done.stdout


def test_why_answers_for_a_statefulset_by_its_name_and_its_pods(
    apply: Callable[..., None], muster: Callable[..., str], up: Up, namespace: str
) -> None:
    apply("web", 2, 2)
    comes_to_say(muster, "web", "does not wait: it is Running, 2 pods run, minMember 2")
    text = written(namespace, "db", 2, 2).replace("kind: Deployment", "kind: StatefulSet")
    text = text.replace("  replicas: 2", "  replicas: 2\n  podManagementPolicy: Parallel\n  serviceName: db")
    done = kubectl(up.kubeconfig, "-n", namespace, "apply", "-f", "-", stdin=text)
    assert done.returncode == 0, done.stdout
    answer = comes_to_say(muster, "statefulset/db", "would let it start:")
    assert f"StatefulSet {namespace}/db is " in answer
    assert f"the end of Deployment {namespace}/web, which holds 2 example.com/slots" in answer.replace("2 pods, ", "")
    assert f"It is a member of StatefulSet {namespace}/db:" in comes_to_say(muster, "pod/db-0", "short by")
    gone = kubectl(up.kubeconfig, "-n", namespace, "delete", "deployment", "web")
    assert gone.returncode == 0, gone.stdout
    comes_to_say(muster, "statefulset/db", "does not wait: it is Running, 2 pods run, minMember 2")
