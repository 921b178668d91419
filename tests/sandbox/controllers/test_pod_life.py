"""How a pod lives on a simulated node, on values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.model import names
from muster.sandbox.controllers.plans import pod_lifecycle
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.times import stamp

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def pod(*, policy: str = "Never", owner: str = "", spec: dict[str, Any] | None = None, **annotations: str) -> Any:
    metadata: dict[str, Any] = {"name": "a", "namespace": "default", "uid": "1", "creationTimestamp": stamp(START)}
    metadata["annotations"] = {
        f"sandbox.muster.sh/{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "2", "controller": True}]
    whole = {"nodeName": "n1", "restartPolicy": policy, "containers": [{"name": "c", "image": "x"}], **(spec or {})}
    return {"metadata": metadata, "spec": whole, "status": {"phase": "Pending"}}


class Life:
    """A pod and a clock that jumps to its next step."""

    def __init__(self, the_pod: Any) -> None:
        self.pod = the_pod
        self.now = START
        self.removed = False

    def step(self) -> pod_lifecycle.Step:
        step = pod_lifecycle.step(self.pod, self.now, host_ip="10.0.0.1", pod_ip="10.128.0.7")
        if step.status is not None:
            self.pod = {**self.pod, "status": step.status}
        self.removed = step.remove
        return step

    def run_until(self, seconds: float) -> None:
        end = START + timedelta(seconds=seconds)
        while True:
            step = self.step()
            if step.status is not None:
                continue
            if step.wake is None or self.now + timedelta(seconds=step.wake) > end:
                self.now = end
                return
            self.now += timedelta(seconds=step.wake)

    def delete(self, grace: int = 30) -> None:
        at = stamp(self.now + timedelta(seconds=grace))
        metadata = {**self.pod["metadata"], "deletionTimestamp": at, "deletionGracePeriodSeconds": grace}
        self.pod = {**self.pod, "metadata": metadata}

    @property
    def status(self) -> Any:
        return self.pod["status"]

    @property
    def container(self) -> Any:
        return self.status["containerStatuses"][0]


def test_a_bound_pod_creates_its_containers_for_a_second_and_runs() -> None:
    life = Life(pod())

    assert life.step().wake == 1
    assert life.status["phase"] == "Pending"
    assert life.container["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert life.status["startTime"] == stamp(START)
    assert not p.ready(life.pod)

    life.run_until(1)
    assert life.status["phase"] == "Running"
    assert life.status["podIP"] == "10.128.0.7"
    assert life.status["hostIP"] == "10.0.0.1"
    assert life.container["ready"]
    assert p.ready(life.pod)


def test_a_pod_runs_until_it_is_deleted_unless_it_says_for_how_long() -> None:
    life = Life(pod())
    life.run_until(100_000)
    assert life.status["phase"] == "Running"

    life.delete()
    assert life.step().wake == pod_lifecycle.STOP_SECONDS
    life.now += timedelta(seconds=1)
    life.step()

    assert life.removed
    assert life.status["phase"] == "Failed"
    assert life.container["state"]["terminated"]["exitCode"] == 143


@pytest.mark.parametrize(
    ("code", "phase", "reason"), [("0", "Succeeded", "Completed"), ("3", "Failed", "Error"), ("255", "Failed", "Error")]
)
def test_a_pod_ends_after_its_seconds_with_its_exit_code(code: str, phase: str, reason: str) -> None:
    life = Life(pod(run_seconds="30", exit_code=code))
    life.run_until(30.9)
    assert life.status["phase"] == "Running"

    life.run_until(31)

    assert life.status["phase"] == phase
    terminated = life.container["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (int(code), reason)
    assert not p.ready(life.pod)


def test_a_pod_of_a_job_runs_five_seconds_unless_it_says_otherwise() -> None:
    life = Life(pod(owner="Job"))
    life.run_until(6)
    assert life.status["phase"] == "Succeeded"

    longer = Life(pod(owner="Job", run_seconds="60"))
    longer.run_until(60)
    assert longer.status["phase"] == "Running"


def test_a_pod_that_always_restarts_backs_off_longer_each_time() -> None:
    life = Life(pod(policy="Always", run_seconds="1", exit_code="1"))
    started = []
    for second in range(200):
        life.run_until(second)
        if "running" in life.container["state"]:
            started.append(second)

    assert started[:5] == [1, 2, 13, 34, 75]
    assert life.container["restartCount"] == 5
    assert life.container["lastState"]["terminated"]["exitCode"] == 1


def test_a_pod_in_back_off_says_so() -> None:
    life = Life(pod(policy="OnFailure", run_seconds="1", exit_code="1"))
    life.run_until(5)

    assert life.status["phase"] == "Running"
    assert life.container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert life.container["state"]["waiting"]["message"] == "back-off 10s restarting failed container=c pod=a_default"


def test_a_pod_that_restarts_on_failure_succeeds_with_exit_code_zero() -> None:
    life = Life(pod(policy="OnFailure", run_seconds="1"))
    life.run_until(10)
    assert life.status["phase"] == "Succeeded"


def test_a_pod_past_its_own_deadline_fails_wherever_it_is() -> None:
    life = Life(pod(spec={"activeDeadlineSeconds": 10}))
    life.run_until(10)
    assert (life.status["phase"], life.status["reason"]) == ("Failed", "DeadlineExceeded")


def test_init_containers_are_done_and_sidecars_run() -> None:
    init = [{"name": "i", "image": "x"}, {"name": "s", "image": "x", "restartPolicy": "Always"}]
    life = Life(pod(spec={"initContainers": init}))
    life.run_until(1)

    first, second = life.status["initContainerStatuses"]
    assert first["state"]["terminated"]["reason"] == "Completed"
    assert "running" in second["state"]


def test_a_pod_with_a_closed_readiness_gate_runs_but_is_not_ready() -> None:
    life = Life(pod(spec={"readinessGates": [{"conditionType": "x.io/open"}]}))
    life.run_until(1)

    assert life.status["phase"] == "Running"
    assert not p.ready(life.pod)
    assert p.holds(life.pod, "ContainersReady")


def test_a_pod_that_is_deleted_before_it_ran_fails_and_goes() -> None:
    life = Life(pod())
    life.delete(grace=0)
    assert life.step() == pod_lifecycle.Step(), "without grace the API server needs no kubelet"

    life = Life(pod())
    life.delete(grace=30)
    life.now += timedelta(seconds=1)
    life.step()
    assert life.removed
    assert life.status["phase"] == "Failed"


def test_a_pod_without_room_fails_with_the_reason() -> None:
    status = pod_lifecycle.rejected(pod(), START, "OutOfcpu", "Pod was rejected: too little")
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "OutOfcpu",
        "Pod was rejected: too little",
    )


@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({"run_seconds": "soon"}, '"soon" is not a number of seconds'),
        ({"run_seconds": "-1"}, '"-1" is not a number of seconds'),
        ({"exit_code": "256"}, '"256" is not an exit code'),
        ({"exit_code": "x"}, '"x" is not an exit code'),
        ({"run_seconds": "0.5", "exit_code": "255"}, ""),
    ],
)
def test_a_wrong_annotation_is_named_with_its_value_and_ignored(annotations: dict[str, str], named: str) -> None:
    life = Life(pod(**annotations))
    text = pod_lifecycle.wrong_annotation(life.pod)

    assert named in text
    assert bool(text) == bool(named)
    life.run_until(100)
    assert life.status["phase"] in {"Running", "Failed"}


def test_the_names_of_the_annotations_are_those_of_the_documentation() -> None:
    assert (names.RUN_SECONDS, names.EXIT_CODE) == ("sandbox.muster.sh/run-seconds", "sandbox.muster.sh/exit-code")
