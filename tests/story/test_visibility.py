"""The visibility API of `muster up`, asked with kubectl; behind a real API server tests/visibility asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Up, kubectl, muster_up

pytestmark = pytest.mark.processes

ROOT = "/apis/visibility.muster.sh/v1alpha1"
GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: train, namespace: default}
spec: {minMember: 1, queue: default, minResources: {cpu: 1000}}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    config = tmp_path_factory.mktemp("up") / "kubeconfig"
    with muster_up("--nodes", "1", "--kubeconfig-out", str(config), kubeconfig=config) as running:
        yield running


def test_kubectl_asks_why_and_where(up: Up, tmp_path: Path):
    assert kubectl(up.kubeconfig, "apply", "-f", "-", stdin=GROUP).returncode == 0
    asked = ("get", "--raw", f"{ROOT}/namespaces/default/podgroups/train/why?changes=true")
    done = kubectl(up.kubeconfig, *asked)
    told = json.loads(done.stdout)["status"]
    assert (told["stage"], told["position"], told["limit"]["kind"]) == ("enqueue", 1, "cluster")
    assert told["changes"][0]["kind"] == "node"
    objects = [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": {}}}]
    file = tmp_path / "admission.json"
    file.write_text(json.dumps({"spec": {"objects": objects}}))
    done = kubectl(up.kubeconfig, "create", "--raw", f"{ROOT}/namespaces/default/admissions", "-f", str(file))
    (verdict,) = json.loads(done.stdout)["status"]["objects"]
    assert (verdict["outcome"], verdict["code"]) == ("refused", 422)


def test_kubectl_lists_it_and_its_own_names_mean_what_they_did(up: Up):
    listed = kubectl(up.kubeconfig, "api-resources", "--no-headers").stdout
    assert [line.split()[0] for line in listed.splitlines() if "visibility.muster.sh" in line] == [
        "admissions",
        "queues",
        "starts",
    ]
    assert "Open" in kubectl(up.kubeconfig, "get", "queues").stdout
