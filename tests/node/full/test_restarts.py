"""The control plane under running Muster: its API server restarted, its etcd restored from a snapshot."""

from __future__ import annotations

import time

import pytest
from nodes import SPACE, Nodes
from platforms import decides, items, pods, refuses, settled, until
from test_gangs import apply, job

pytestmark = pytest.mark.processes

# What `etcdctl snapshot save` asks, as JSON.
_SAVE = """
import base64, json, sys, urllib.request
asked = urllib.request.Request("http://127.0.0.1:2379/v3/maintenance/snapshot", b"{}")
with urllib.request.urlopen(asked, timeout=60) as answer, open(sys.argv[1], "wb") as file:
    for line in answer:
        file.write(base64.b64decode(json.loads(line)["result"].get("blob", "")))
"""
_CLIENTS = ("kube-controller-manager", "kube-scheduler")
_QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: restored}
spec: {hard: {cpu: "5"}}
"""


def begun(nodes: Nodes) -> dict[str, int]:
    """Return how often each of Muster's containers was started again, by its pod's UID."""
    return {each["metadata"]["uid"]: each["status"]["containerStatuses"][0]["restartCount"] for each in pods(nodes)}


def answers(nodes: Nodes) -> None:
    """Wait until the API server is ready again."""
    until(lambda: nodes.run("kubectl", "get", "--raw", "/readyz").returncode == 0)


def test_after_the_api_server_was_killed_muster_refuses_and_starts_again_without_a_restart_of_its_own(dual):
    before = begun(dual)
    started = time.monotonic()
    dual.kill("kube-apiserver")
    assert dual.run("kubectl", "get", "--raw", "/readyz").returncode != 0
    dual.begin("kube-apiserver")
    answers(dual)
    until(lambda: refuses(dual))
    dual.figures["API server killed until Muster refuses again, s"] = time.monotonic() - started
    decides(dual, job("again", ["true"]), "again")
    dual.figures["API server killed until a gang has run, s"] = time.monotonic() - started
    settled(dual)
    assert begun(dual) == before


def restore(nodes: Nodes, snapshot: str) -> None:
    """Do as Kubernetes asks: no API server runs meanwhile, and its clients are started again; Muster is not."""
    kubelets = [f"{part}-{each[-1]}" for each in nodes.names for part in ("kubelet", "kube-proxy")]
    nodes.kill("kube-apiserver", "etcd")
    folder = nodes.folder / "etcd"
    nodes.inside("rm", "-rf", str(folder))
    peer = "http://127.0.0.1:2380"
    words = (f"--data-dir={folder}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}")
    nodes.inside(str(nodes.folder / "bin" / "etcdutl"), "snapshot", "restore", snapshot, *words)
    nodes.begin("etcd", "kube-apiserver")
    nodes.kill(*_CLIENTS, *kubelets)
    answers(nodes)
    nodes.begin(*_CLIENTS, *kubelets)


def sleeping(name: str, *, ranks: int = 2) -> str:
    manifest = job(name, ["sleep", "3600"], ranks=ranks, resources={"requests": {"cpu": "1"}})
    return manifest.replace("namespace: default", "namespace: restored")


def test_after_etcd_was_restored_the_quota_counts_what_is_there_and_gangs_start(dual):
    dual.kubectl("create", "namespace", "restored")
    dual.kubectl("apply", "-f", "-", stdin=_QUOTA)
    running = "--for=jsonpath={.status.ready}=2"
    apply(dual, sleeping("kept"))
    dual.kubectl("wait", "job/kept", running, "--namespace=restored", "--timeout=300s")
    snapshot = str(dual.folder / "snapshot")
    dual.inside("python3", "-c", _SAVE, snapshot)
    # It takes the rest of the quota, and after the restoration it never was.
    apply(dual, sleeping("lost", ranks=3))
    dual.kubectl("wait", "job/lost", "--for=jsonpath={.status.ready}=3", "--namespace=restored", "--timeout=300s")
    before = begun(dual)
    started = time.monotonic()
    restore(dual, snapshot)
    until(lambda: refuses(dual))
    dual.figures["etcd restored until Muster refuses again, s"] = time.monotonic() - started
    assert [each["metadata"]["name"] for each in items(dual, "jobs", "--namespace=restored")] == ["kept"]
    # Of the quota's 5 cpu 2 are reserved again: three pods more fit, and no fourth.
    until(lambda: dual.run("kubectl", "apply", "-f", "-", stdin=sleeping("after", ranks=3)).returncode == 0)
    dual.figures["etcd restored until a reservation is granted, s"] = time.monotonic() - started
    dual.kubectl("wait", "job/after", "--for=jsonpath={.status.ready}=3", "--namespace=restored", "--timeout=300s")
    said = dual.run("kubectl", "apply", "-f", "-", stdin=sleeping("beyond", ranks=1))
    assert 'quota "compute" has 5 cpu hard, 5 reserved' in said.stderr
    dual.kubectl("wait", "job/kept", running, "--namespace=restored", "--timeout=300s")
    settled(dual)
    assert begun(dual) == before
    told = "".join(dual.kubectl("logs", each["metadata"]["name"], "--namespace", SPACE) for each in pods(dual))
    assert "the cluster's state went back" in told
    dual.kubectl("delete", "namespace", "restored")
