"""What was written for kube-batch and Volcano runs unchanged on the chart with `dropIn: true`, on a real control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chart
import pytest
from installation import SMALLER, SPACE, Installation
from plane import PATIENCE

from muster.kube import wait
from muster.kube.client import Client
from muster.model import kinds

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("installation")]

MANIFESTS = Path(__file__).parent / "manifests"
PAGE = chart.ROOT / "docs" / "migrating.md"
NODE = {
    "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "node-1"}},
    "status": {
        "capacity": {"cpu": "32", "memory": "64Gi", "pods": "110"},
        "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "is ready"}],
    },
}
NAMED: Any = dict(zip((*kinds.LEGACY_PODGROUPS, kinds.PODGROUPS), (["qj-1"], ["qj-2"], ["serving"]), strict=True))
JOB_OF_VOLCANO = 'no matches for kind "Job" in version "batch.volcano.sh/v1alpha1"'


@pytest.fixture(scope="module")
def installed(cluster: Installation) -> Installation:
    """Have the chart installed with the one line that the page has for it."""
    assert "`helm install … --set dropIn=true`" in PAGE.read_text()
    line = f"helm install muster deploy/helm/muster --namespace {SPACE} --create-namespace --set dropIn=true"
    cluster.done(line, *SMALLER)
    for name in ("muster-webhook", "muster-scheduler"):
        cluster.done(f"kubectl -n {SPACE} rollout status deployment/{name} --timeout=120s")
    # The leader has created it once a replica reviews, which is a moment after that one is ready.
    cluster.done("kubectl wait queue/default --for=create --timeout=60s")
    probe = f"kubectl apply --dry-run=server -f {MANIFESTS}/probe.yaml"
    cluster.done(f"for _ in $(seq 200); do {probe} && exit; sleep 0.1; done; exit 1")
    return cluster


async def test_manifests_of_both_run_as_they_are(installed: Installation, admin: Client):
    await admin.create(kinds.NODES, NODE)
    await admin.patch(kinds.NODES, "node-1", {"status": NODE["status"]}, subresource="status")
    for file in ("kube-batch", "volcano"):
        installed.done(f"kubectl apply -f {MANIFESTS}/{file}.yaml")

    # No kubelet starts them here, so what there is to see is that each has its node.
    # The groups of the StatefulSet and of the Job are made by Muster: theirs and `serving`.
    for kind in (*kinds.LEGACY_PODGROUPS, kinds.PODGROUPS):
        for name in NAMED[kind]:
            await wait.until(admin, kind, name, "default", holds=lambda one: one is not None, within=PATIENCE)
        line = f"kubectl wait {kind.plural}.{kind.group} --all --for=condition=Scheduled --timeout=90s"
        installed.done(line)
    installed.done("kubectl wait pods --all --for=condition=PodScheduled --timeout=90s")
    pods = (await admin.list(kinds.PODS, "default")).items
    assert {(each.spec.scheduler_name, each.spec.node_name) for each in pods} == {
        ("kube-batch", "node-1"),
        ("volcano", "node-1"),
    }
    assert len(pods) == 10
    queues = {each.name: each for each in (await admin.list(kinds.QUEUES)).items}
    assert queues["research"].spec.capability == {"cpu": "8", "memory": "16Gi"}
    generated = [each for each in (await admin.list(kinds.PODGROUPS, "default")).items if each.name != "serving"]
    assert {each.spec.queue for each in generated} == {"research"}


def test_a_job_of_volcano_is_answered_by_the_page(installed: Installation):
    done = installed.run(f"kubectl apply -f {MANIFESTS}/vcjob.yaml")
    assert done.returncode == 1
    assert JOB_OF_VOLCANO in done.stderr
    assert "| Job of `batch.volcano.sh`, JobFlow, Command | not served: use batch/v1 Jobs (below) |" in PAGE.read_text()
