"""Gangs whose pods claim devices, on nodes whose kubelets have a driver prepare them: it prepares nothing, and says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from go_programs import built
from machine import SECONDS

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("quiet")]

API = "resource.k8s.io/v1"
DRIVER = "nothing.example.com"
EACH = 2
"""Devices of a node."""


def manifests() -> str:
    """Return a class of the driver's devices, and a template for one of them."""
    chosen = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    requests = [{"name": "one", "exactly": {"deviceClassName": "nothing"}}]
    template = {"spec": {"devices": {"requests": requests}}}
    class_ = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "nothing"}, "spec": {"selectors": chosen}}
    meta = {"name": "one", "namespace": "default"}
    return yaml.safe_dump_all(
        [class_, {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": meta, "spec": template}]
    )


def job(name: str, pods: int, command: str) -> str:
    container = {
        "name": "main",
        "image": "busybox:1.37",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "resources": {"requests": {"cpu": "50m"}, "claims": [{"name": "device"}]},
    }
    spec = {
        "schedulerName": "muster",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "one"}],
        "containers": [container],
    }
    meta = {"name": name, "namespace": "default", "annotations": {"scheduling.k8s.io/group-min-member": str(pods)}}
    work = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": spec}}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": work})


@pytest.fixture
def drivers(nodes) -> Iterator[dict[str, Path]]:
    """A driver beside each kubelet, and what each says."""
    program = built(Path(__file__).parent / "driver", "driver-of-nothing")
    said = {each: nodes.folder / "logs" / f"driver-{each}.log" for each in nodes.names}
    running = []
    for name, log in said.items():
        words = ["--kubeconfig", str(nodes.folder / "inside.kubeconfig"), "--node", name, "--name", DRIVER]
        words += ["--kubelet", str(nodes.folder / name / "kubelet"), "--devices", str(EACH)]
        with log.open("wb") as file:
            command = nodes.command(str(program), *words, node=name)
            # A group of its own: what enters the namespaces forks there, and is not what it runs.
            running.append(subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True))
    nodes.kubectl("apply", "-f", "-", stdin=manifests())
    awaited(lambda: len(items(nodes, "resourceslices")) == len(nodes.names))
    yield said
    nodes.kubectl("delete", "jobs", "--all", "--wait")
    for process in running:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    nodes.kubectl("delete", "resourceslices", "--all")
    nodes.kubectl("delete", "deviceclass/nothing", "resourceclaimtemplate/one")


def items(nodes, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(nodes.kubectl("get", kind, "--output=json"))["items"]
    return found


def awaited(so) -> None:
    deadline = time.monotonic() + SECONDS
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def lines(said: dict[str, Path], word: str) -> list[list[str]]:
    """Return the rest of each driver's lines that begin with a word, each once: kubelet may ask again. In the order of the nodes."""
    return [
        sorted({line.removeprefix(f"{word} ") for line in log.read_text().splitlines() if line.startswith(f"{word} ")})
        for log in said.values()
    ]


def test_a_gang_runs_with_all_its_devices_and_the_next_once_they_are_free(nodes, drivers):
    pods = EACH * len(nodes.names)
    nodes.kubectl("apply", "-f", "-", stdin=job("first", pods, "sleep 3600"))
    nodes.kubectl("wait", "job/first", f"--for=jsonpath={{.status.ready}}={pods}", "--timeout=300s")
    claims = items(nodes, "resourceclaims")
    results = [result for each in claims for result in each["status"]["allocation"]["devices"]["results"]]
    devices = {(result["pool"], result["device"]) for result in results}
    assert devices == {(node, f"device-{number}") for node in nodes.names for number in range(EACH)}
    assert {each["status"]["reservedFor"][0]["name"] for each in claims} == {
        each["metadata"]["name"] for each in items(nodes, "pods")
    }
    assert [len(each) for each in lines(drivers, "prepared")] == [EACH] * len(nodes.names)
    # One more than is free: nobody starts, and it is said what is short.
    nodes.kubectl("apply", "-f", "-", stdin=job("second", 2, "true"))
    short = "2 of 2 pods lack devices: each claims 1 device of class nothing, of which there are 4, 0 of them free"
    awaited(lambda: short in json.dumps(items(nodes, "podgroups.scheduling.volcano.sh")))
    nodes.kubectl("delete", "job/first", "--wait")
    nodes.kubectl("wait", "job/second", "--for=condition=Complete", "--timeout=300s")
    # The claims of pods that are gone, or over, go with what they had.
    nodes.kubectl("delete", "job/second", "--wait")
    awaited(lambda: not items(nodes, "resourceclaims"))
    awaited(lambda: sum(len(each) for each in lines(drivers, "unprepared")) == pods + 2)
    assert lines(drivers, "error") == [[]] * len(nodes.names)
