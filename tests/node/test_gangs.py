"""Gangs in real containers: ranks that meet, and gangs that fail as real ones do."""

from __future__ import annotations

import json
from typing import Any

import images
import pytest
import yaml

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("quiet")]

RANKS = 4
PORT = 7000
# Rank 0 waits for a number of each other rank, and answers all of them with the sum: nobody goes on before all have met.
_MEET = f"""
import os, socket, time
rank, ranks = int(os.environ["JOB_COMPLETION_INDEX"]), {RANKS}
def line(meeting):
    with meeting.makefile() as file:
        return int(file.readline())
if rank == 0:
    listening = socket.create_server(("", {PORT}))
    met = [listening.accept()[0] for _ in range(ranks - 1)]
    total = sum(line(each) for each in met)
    for each in met:
        each.sendall(b"%d\\n" % total)
else:
    while True:
        try:
            meeting = socket.create_connection((os.environ["MEET_SERVICE_HOST"], {PORT}), timeout=5)
            break
        except OSError:
            time.sleep(0.2)
    meeting.settimeout(120)
    meeting.sendall(b"%d\\n" % rank ** 2)
    total = line(meeting)
print("sum", total, flush=True)
"""
_SERVICE = f"""
apiVersion: v1
kind: Service
metadata: {{name: meet, namespace: default}}
spec:
  selector: {{batch.kubernetes.io/job-name: meet, batch.kubernetes.io/job-completion-index: "0"}}
  ports: [{{port: {PORT}}}]
"""


def job(name: str, command: list[str], *, ranks: int = 2, image: str = "busybox:1.37", **container: Any) -> str:
    """Return the manifest of an indexed Job whose pods start together, and of which none is tried again."""
    resources = {"requests": {"cpu": "100m"}}
    main = {"name": "main", "image": image, "command": command, "resources": resources} | container
    main["imagePullPolicy"] = "Never"
    spec = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [main]}
    metadata = {"name": name, "namespace": "default"}
    metadata["annotations"] = {"scheduling.k8s.io/group-min-member": str(ranks)}
    work = {"completionMode": "Indexed", "parallelism": ranks, "completions": ranks, "backoffLimit": 0}
    template = {"template": {"spec": spec}}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": work | template})


def apply(nodes, manifest: str) -> None:
    nodes.kubectl("apply", "-f", "-", stdin=manifest)


@pytest.fixture
def clean(nodes):
    yield
    nodes.kubectl("delete", "jobs", "--all", "--wait")
    nodes.kubectl("delete", "service", "meet", "--ignore-not-found")


def test_all_ranks_of_a_gang_meet_and_compute(nodes, clean):
    apply(nodes, _SERVICE)
    apply(nodes, job("meet", ["python", "-c", _MEET], ranks=RANKS, image=images.MUSTER))
    nodes.kubectl("wait", "job/meet", "--for=condition=Complete", "--timeout=300s")
    said = nodes.kubectl("logs", "--selector=batch.kubernetes.io/job-name=meet", "--tail=-1").split("\n")
    assert [each for each in said if each] == [f"sum {sum(rank**2 for rank in range(RANKS))}"] * RANKS
    nodes.kubectl("wait", "pg", "--all", "--for=jsonpath={.status.phase}=Completed", "--timeout=300s")


def test_a_gang_of_which_one_fails_is_a_failed_job(nodes, clean):
    # The other rank ends as soon as it is told to.
    apply(
        nodes,
        job("fails", ["sh", "-c", '[ "$JOB_COMPLETION_INDEX" = 0 ] && exit 3; trap "exit 0" TERM; sleep 300 & wait']),
    )
    nodes.kubectl("wait", "job/fails", "--for=condition=Failed", "--timeout=300s")
    assert codes(nodes, "fails") >= {3}
    said = trouble(nodes, "fails", "PodsFailed")
    assert "Job fails failed: " in said
    assert "ended with exit code 3" in said


def test_a_gang_that_takes_more_memory_than_its_limit_is_killed_by_the_kernel(nodes, clean):
    resources = {"requests": {"cpu": "100m", "memory": "16Mi"}, "limits": {"memory": "16Mi"}}
    apply(nodes, job("grows", ["dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"], resources=resources))
    nodes.kubectl("wait", "job/grows", "--for=condition=Failed", "--timeout=300s")
    assert 137 in codes(nodes, "grows")
    assert "ended with exit code 137 (OOMKilled)" in trouble(nodes, "grows", "PodsFailed")
    free(nodes)


def test_a_gang_whose_image_is_nowhere_holds_its_share_until_it_is_deleted(nodes, clean):
    apply(nodes, job("imageless", ["sleep", "300"], image="localhost/nowhere:1"))
    waiting = "{.status.containerStatuses[0].state.waiting.reason}"
    pods = ("pods", "--selector=batch.kubernetes.io/job-name=imageless")
    nodes.kubectl("wait", "job/imageless", "--for=jsonpath={.status.active}=2", "--timeout=300s")
    nodes.kubectl("wait", *pods, f"--for=jsonpath={waiting}=ErrImageNeverPull", "--timeout=300s")
    trouble(
        nodes, "imageless", "PodsNotStarting", "2 of 2 pods can't pull image localhost/nowhere:1: ErrImageNeverPull"
    )
    events = nodes.kubectl("get", "events", "--field-selector=reason=PodsNotStarting")
    assert "can't pull image localhost/nowhere:1: ErrImageNeverPull" in events
    assert group(nodes, "imageless")["status"]["phase"] != "Running"
    nodes.kubectl("delete", "job", "imageless", "--wait")
    free(nodes)


def group(nodes, name: str) -> dict[str, Any]:
    """Return the PodGroup of a Job."""
    owner = nodes.kubectl("get", "job", name, "--output=jsonpath={.metadata.uid}")
    return json.loads(nodes.kubectl("get", "podgroups.scheduling.volcano.sh", f"podgroup-{owner}", "--output=json"))


def trouble(nodes, name: str, reason: str, message: str = "") -> str:
    """Return what a Job's PodGroup says is wrong with its pods, once that has this reason, and this message where one is given."""
    found = f"podgroups.scheduling.volcano.sh/{group(nodes, name)['metadata']['name']}"
    condition = "jsonpath={.status.conditions[?(@.type=='Failing')]"
    for field, said in (("reason", reason), ("message", message)):
        if said:
            nodes.kubectl("wait", found, f"--for={condition}.{field}}}={said}", "--timeout=300s")
    return nodes.kubectl("get", found, f"--output={condition}.message}}")


def codes(nodes, name: str) -> set[int]:
    """Return the exit statuses of a Job's containers."""
    pods = nodes.kubectl("get", "pods", f"--selector=batch.kubernetes.io/job-name={name}", "--output=json")
    statuses = [status for each in json.loads(pods)["items"] for status in each["status"].get("containerStatuses", ())]
    return {each["state"]["terminated"]["exitCode"] for each in statuses if "terminated" in each["state"]}


def free(nodes) -> None:
    """Have a gang as large as the cluster's free processors admit start: nothing is held by what has ended."""
    apply(nodes, job("after", ["true"]))
    nodes.kubectl("wait", "job/after", "--for=condition=Complete", "--timeout=300s")
