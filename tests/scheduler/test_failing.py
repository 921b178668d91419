"""Pods that can't start, and pods that failed for good: their group says so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from muster.model import kinds, names
from muster.model.objects import Pod
from scheduler.configuration import config
from scheduler.simulator import state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "pods": "99"}},
}


def group(phase: str, least: int) -> dict[str, Any]:
    meta = {"name": "train", "namespace": "ns"}
    spec, status = {"minMember": least}, {"phase": phase}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def pod(number: int, phase: str, state: dict[str, Any] | None = None, *, job: str = "", init: bool = False) -> Any:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}] if job else []
    annotations = {"scheduling.k8s.io/group-name": "train"}
    meta = {"name": f"train-{number}", "namespace": "ns", "annotations": annotations, "ownerReferences": owners}
    container = {"name": "main", "image": "registry.example/nothing:1", "resources": {"requests": {"cpu": "1"}}}
    statuses = [{"name": "main", "image": container["image"], "state": state or {}, "ready": False, "restartCount": 0}]
    status = {"phase": phase, ("initContainerStatuses" if init else "containerStatuses"): statuses}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "n", "containers": [container]},
        "status": status,
    }


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": "long " * 999}}


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


def job(name: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"scheduling.k8s.io/group-name": "train"}},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": []},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"parallelism": 2, "template": template},
        "status": {"conditions": list(conditions)},
    }


def failing(*objects: dict[str, Any]) -> dict[str, str] | None:
    """Return the first condition that is true, as tables show it, where it says that pods fail."""
    cluster = state.load([NODE, *objects], [names.SCHEDULER_NAME])
    found = state.run(cluster, config.parse(config.DEFAULT), NOW, 1).json()["podgroups"]["ns/train"]["conditions"]
    true = [each for each in found if each["status"] == "True"]
    return true[0] if true and true[0]["type"] == "Failing" else None


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        (
            [pod(0, "Pending", waiting("ErrImagePull")), pod(1, "Pending", waiting("ImagePullBackOff"))],
            "2 of 2 pods can't pull image registry.example/nothing:1: ErrImagePull",
        ),
        (
            [pod(0, "Running"), pod(1, "Pending", waiting("ErrImagePull"))],
            "1 of 2 pods can't pull image registry.example/nothing:1: ErrImagePull",
        ),
        (
            [
                pod(0, "Pending", waiting("InvalidImageName"), init=True),
                pod(1, "Pending", waiting("ContainerCreating")),
            ],
            "1 of 2 pods can't pull image registry.example/nothing:1: InvalidImageName",
        ),
        (
            [pod(0, "Pending", waiting("CreateContainerConfigError")), pod(1, "Running", waiting("CrashLoopBackOff"))],
            (
                "1 of 2 pods can't start container main: CrashLoopBackOff; "
                "1 of 2 pods can't start container main: CreateContainerConfigError"
            ),
        ),
    ],
)
def test_a_gang_whose_pods_cannot_start_says_so_in_the_first_condition(pods, words):
    found = failing(group("Inqueue", 2), *pods)
    assert found is not None
    assert (found["reason"], found["message"]) == ("PodsNotStarting", words)


@pytest.mark.parametrize("states", [[{}, {}], [waiting("ContainerCreating"), waiting("PodInitializing")]])
def test_a_gang_whose_pods_are_on_their_way_says_nothing(states):
    assert failing(group("Inqueue", 2), *[pod(at, "Pending", each) for at, each in enumerate(states)]) is None


FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        (
            [pod(at, "Failed", ended(137, "OOMKilled"), job="train") for at in range(4)],
            "Job train failed: 4 pods ended with exit code 137 (OOMKilled)",
        ),
        ([pod(0, "Failed", ended(3), job="train")], "Job train failed: 1 pod ended with exit code 3"),
        ([], "Job train failed: BackoffLimitExceeded"),
    ],
)
def test_a_job_that_failed_for_good_leaves_its_word(pods, words):
    found = failing(group("Running", 1), job("train", FAILED), *pods)
    assert found is not None
    assert (found["reason"], found["message"]) == ("PodsFailed", words)


def test_pods_that_a_job_tries_again_are_no_failure():
    assert (
        failing(group("Running", 1), job("train"), pod(0, "Failed", ended(3), job="train"), pod(1, "Running")) is None
    )


def test_a_job_that_succeeded_after_all_says_nothing():
    done = {"type": "Complete", "status": "True"}
    assert failing(group("Running", 1), job("train", done), pod(0, "Failed", ended(3), job="train")) is None


def test_pods_without_a_job_that_all_ended_say_how():
    found = failing(group("Running", 2), pod(0, "Failed", ended(3)), pod(1, "Succeeded"))
    assert found is not None
    assert found["message"] == "1 pod ended with exit code 3"


def test_of_a_pod_that_runs_nothing_of_its_containers_is_kept():
    raw = pod(0, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    assert msgspec.convert(raw, Pod).status.container_statuses is None
    assert kinds.PODS.struct is Pod


def test_what_a_tenant_writes_into_a_status_is_bounded():
    raw = pod(0, "Pending", waiting("E" * 100_000))
    raw["status"]["containerStatuses"][0]["image"] = "i" * 100_000
    found = failing(group("Inqueue", 1), raw)
    assert found is not None
    assert len(found["message"]) < 400
