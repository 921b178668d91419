"""What the Job controller decides, on values: tables, and a model of a cluster in which anything may happen."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster.sandbox.controllers.plans import job_plan
from muster.sandbox.controllers.plans import pods as p
from muster.sandbox.controllers.plans.job_counts import TRACKING, Backoff, format_indexes, index_of, parse_indexes
from muster.sandbox.controllers.plans.times import stamp

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
TEMPLATE = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}


def job(**spec: Any) -> dict[str, Any]:
    whole = {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "template": TEMPLATE} | spec
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "uid": "job"},
        "spec": whole,
        "status": {},
    }


class World:
    """Performs plans on plain dictionaries, as the shell does through the API."""

    def __init__(self, the_job: dict[str, Any]) -> None:
        self.job = the_job
        self.pods: dict[str, dict[str, Any]] = {}
        self.now = START
        self.backoff = Backoff()
        self.notes: list[str] = []
        self._numbers = itertools.count(1)
        self.removed = False

    @property
    def status(self) -> dict[str, Any]:
        return self.job["status"]

    def active(self) -> list[dict[str, Any]]:
        return [pod for pod in self.pods.values() if p.active(pod)]

    def look(self, *, releases: bool = True) -> job_plan.Plan:
        """Perform a plan; without ``releases`` as if every removal of a finalizer had been refused."""
        plan = job_plan.plan(self.job, list(self.pods.values()), self.now, self.backoff)
        for pod in plan.delete:
            if plan.forget:
                self._release(pod)
            self.delete(pod["metadata"]["uid"])
        for index in plan.create:
            self._create(index)
        active = plan.status.get("active", 0) + len(plan.create)
        self.job = {**self.job, "status": plan.status | ({"active": active} if active else {})}
        self.backoff = plan.backoff
        self.notes += [note.reason for note in plan.notes]
        for pod in plan.release if releases else ():
            self._release(pod)
        self.removed = plan.remove
        return plan

    def settle(self) -> None:
        """Look until nothing changes any more."""
        for _ in range(50):
            before = (self.job, dict(self.pods))
            self.look()
            if (self.job, self.pods) == before:
                return
        pytest.fail("the plans never come to rest")

    def _create(self, index: int | None) -> None:
        pod = job_plan.new_pod(self.job, index)
        name = f"p{next(self._numbers)}"
        metadata = pod["metadata"] | {"name": name, "uid": name, "creationTimestamp": stamp(self.now)}
        self.pods[name] = {**pod, "metadata": metadata, "status": {"phase": "Pending"}}

    def _release(self, pod: dict[str, Any]) -> None:
        current = self.pods.get(pod["metadata"]["uid"])
        if current is not None:
            self._with_metadata(current, finalizers=[])

    def _with_metadata(self, pod: dict[str, Any], **change: Any) -> None:
        changed = {**pod, "metadata": pod["metadata"] | change}
        self.pods[pod["metadata"]["uid"]] = changed
        if p.leaving(changed) and not changed["metadata"]["finalizers"]:
            del self.pods[pod["metadata"]["uid"]]

    def delete(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is not None and not p.leaving(pod):
            self._with_metadata(pod, deletionTimestamp=stamp(self.now), deletionGracePeriodSeconds=0)

    def end(self, uid: str, phase: str) -> None:
        finished = {"exitCode": 0, "finishedAt": stamp(self.now)}
        statuses = [{"name": "c", "restartCount": 0, "state": {"terminated": finished}}]
        self.pods[uid] = {**self.pods[uid], "status": {"phase": phase, "containerStatuses": statuses}}

    def suspend(self, *, suspend: bool) -> None:
        self.job = {**self.job, "spec": self.job["spec"] | {"suspend": suspend}}

    def conditions(self) -> dict[str, str]:
        return {each["type"]: each["status"] for each in self.status.get("conditions", ())}

    def condition(self, kind: str) -> dict[str, Any]:
        found = p.condition(self.job, kind)
        assert found is not None
        return found


def test_a_job_makes_no_more_pods_than_its_parallelism_allows() -> None:
    world = World(job(parallelism=2, completions=5))

    world.settle()

    assert len(world.active()) == world.status["active"] == 2
    assert world.status["startTime"] == stamp(START)


def test_the_last_pods_of_a_job_are_as_many_as_completions_are_missing() -> None:
    world = World(job(parallelism=2, completions=3))
    world.settle()
    for uid in list(world.pods):
        world.end(uid, "Succeeded")

    world.settle()

    assert (len(world.active()), world.status["succeeded"]) == (1, 2)


def test_a_job_completes_when_enough_pods_succeeded_and_all_are_counted() -> None:
    world = World(job(completions=1))
    world.settle()
    world.end("p1", "Succeeded")

    world.look()
    assert world.status["uncountedTerminatedPods"] == {"succeeded": ["p1"]}
    assert "Complete" not in world.conditions()

    world.settle()
    assert world.conditions() == {"SuccessCriteriaMet": "True", "Complete": "True"}
    assert world.status["succeeded"] == 1
    assert world.status["uncountedTerminatedPods"] == {}
    assert world.status["completionTime"] == stamp(START)
    assert world.notes == ["Completed"]


def test_a_pod_whose_finalizer_could_not_be_removed_is_not_counted_twice() -> None:
    world = World(job(parallelism=2, completions=2, backoffLimit=1))
    world.settle()
    world.end("p1", "Succeeded")
    world.end("p2", "Failed")
    for _ in range(3):
        world.look(releases=False)
        assert world.status["uncountedTerminatedPods"] == {"succeeded": ["p1"], "failed": ["p2"]}
        assert {"succeeded", "failed"}.isdisjoint(world.status)

    world.settle()

    assert (world.status["succeeded"], world.status["failed"]) == (1, 1)


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_pods_that_ended_are_not_replaced_while_they_wait_to_be_counted(mode: str) -> None:
    world = World(job(parallelism=1200, completions=1200, completionMode=mode))
    world.settle()
    for uid in list(world.pods):
        world.end(uid, "Succeeded")

    world.settle()

    assert len(world.pods) == 1200
    assert world.status["succeeded"] == 1200
    assert world.conditions()["Complete"] == "True"


def test_a_work_queue_job_makes_no_pod_after_the_first_success_and_completes_when_the_others_end() -> None:
    world = World(job(parallelism=3))
    world.settle()
    world.end("p1", "Succeeded")
    world.settle()
    assert len(world.active()) == 2

    world.end("p2", "Failed")
    world.end("p3", "Succeeded")
    world.settle()

    assert world.conditions()["Complete"] == "True"
    assert (world.status["succeeded"], world.status["failed"]) == (2, 1)


def test_a_failed_pod_is_replaced_after_ten_seconds_and_after_twice_as_long_each_further_time() -> None:
    world = World(job(completions=1))
    world.settle()
    for failures, pause in enumerate((10, 20, 40), start=1):
        world.end(world.active()[0]["metadata"]["uid"], "Failed")
        world.settle()
        assert not world.active()
        assert world.look().wake == pause
        world.now += timedelta(seconds=pause)
        world.settle()
        assert len(world.active()) == 1
        assert world.status["failed"] == failures


def test_a_success_lets_the_next_failure_cost_ten_seconds_again() -> None:
    backoff = Backoff(failures=5, last=START)
    world = World(job(parallelism=2, completions=3))
    world.backoff = backoff
    world.now += timedelta(hours=1)
    world.settle()
    first, second = world.active()
    world.end(first["metadata"]["uid"], "Succeeded")
    world.now += timedelta(seconds=5)
    world.end(second["metadata"]["uid"], "Failed")

    world.look()

    assert world.backoff == Backoff(failures=1, last=world.now)


def test_a_job_fails_when_more_pods_failed_than_its_backoff_limit() -> None:
    world = World(job(backoffLimit=0, parallelism=2, completions=2))
    world.settle()
    world.end("p1", "Failed")

    world.settle()

    assert world.conditions() == {"FailureTarget": "True", "Failed": "True"}
    assert world.condition("Failed")["reason"] == "BackoffLimitExceeded"
    assert world.condition("Failed")["message"] == "Job has reached the specified backoff limit"
    assert not world.active()
    assert world.status["failed"] == 2, "the pod that was stopped for it counts as failed too"
    assert world.notes == ["BackoffLimitExceeded"]


def test_a_job_fails_when_containers_restarted_as_often_as_its_backoff_limit() -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "OnFailure"}}
    world = World(job(completions=1, backoffLimit=2, template=template))
    world.settle()
    world.pods["p1"]["status"] = {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 2}]}

    world.settle()

    assert world.condition("Failed")["reason"] == "BackoffLimitExceeded"


def test_a_job_that_takes_longer_than_its_deadline_fails_with_its_pods_stopped() -> None:
    world = World(job(completions=1, activeDeadlineSeconds=30))
    assert world.look().wake == 30
    world.now += timedelta(seconds=30)

    world.settle()

    assert world.condition("Failed")["reason"] == "DeadlineExceeded"
    assert world.condition("Failed")["message"] == "Job was active longer than specified deadline"
    assert not world.active()


def test_the_deadline_does_not_run_while_a_job_is_suspended() -> None:
    world = World(job(completions=1, activeDeadlineSeconds=30))
    world.settle()
    world.suspend(suspend=True)
    world.settle()
    world.now += timedelta(seconds=60)
    world.settle()
    world.suspend(suspend=False)

    world.settle()

    assert "Failed" not in world.conditions()
    assert world.status["startTime"] == stamp(world.now)


def test_a_job_that_is_made_suspended_has_no_pod_and_no_start_time() -> None:
    world = World(job(suspend=True))

    world.settle()

    assert world.conditions() == {"Suspended": "True"}
    assert world.condition("Suspended")["reason"] == "JobSuspended"
    assert not world.pods
    assert "startTime" not in world.status
    assert world.notes == ["Suspended"]


def test_suspending_deletes_the_active_pods_without_counting_them_and_clears_the_start_time() -> None:
    world = World(job(parallelism=2, completions=2))
    world.settle()
    world.suspend(suspend=True)

    world.settle()

    assert not world.pods
    assert "failed" not in world.status
    assert "startTime" not in world.status
    world.suspend(suspend=False)
    world.settle()
    assert world.condition("Suspended")["status"] == "False"
    assert world.condition("Suspended")["reason"] == "JobResumed"
    assert len(world.active()) == 2
    assert world.notes == ["Suspended", "Resumed"]


def test_a_deleted_pod_counts_as_failed_and_is_replaced() -> None:
    world = World(job(completions=1))
    world.settle()
    world.delete("p1")
    world.settle()
    assert world.status["failed"] == 1

    world.now += timedelta(seconds=10)
    world.settle()

    assert len(world.active()) == 1


def test_a_deleted_pod_waits_to_end_where_only_failed_pods_are_replaced() -> None:
    world = World(job(completions=1, podReplacementPolicy="Failed"))
    world.settle()
    world.delete("p1")
    world.settle()
    assert (world.status["terminating"], world.status.get("failed", 0), len(world.active())) == (1, 0, 0)

    world.end("p1", "Failed")
    world.settle()
    world.now += timedelta(seconds=10)
    world.settle()

    assert (world.status["failed"], len(world.active())) == (1, 1)


def test_less_parallelism_deletes_pods_that_got_least_far_without_counting_them() -> None:
    world = World(job(parallelism=3, completions=5))
    world.settle()
    world.pods["p2"]["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    world.job = {**world.job, "spec": world.job["spec"] | {"parallelism": 1}}

    world.settle()

    assert [pod["metadata"]["name"] for pod in world.active()] == ["p2"]
    assert "failed" not in world.status


def test_each_index_gets_one_pod_with_its_name_annotation_label_and_variable() -> None:
    world = World(job(parallelism=2, completions=3, completionMode="Indexed"))
    world.settle()

    pod = world.pods["p2"]
    assert [index_of(each) for each in world.active()] == [0, 1]
    assert pod["metadata"]["generateName"] == "j-1-"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert pod["spec"]["hostname"] == "j-1"
    assert pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    assert pod["metadata"]["finalizers"] == [TRACKING]


def test_an_index_that_failed_is_tried_again_and_completed_indexes_are_listed() -> None:
    world = World(job(parallelism=3, completions=3, completionMode="Indexed"))
    world.settle()
    world.end("p1", "Succeeded")
    world.end("p2", "Failed")
    world.end("p3", "Succeeded")
    world.settle()
    assert world.status["completedIndexes"] == "0,2"

    world.now += timedelta(seconds=10)
    world.settle()
    assert [index_of(pod) for pod in world.active()] == [1]
    world.end(world.active()[0]["metadata"]["uid"], "Succeeded")
    world.settle()

    assert world.status["completedIndexes"] == "0-2"
    assert world.conditions()["Complete"] == "True"


def test_fewer_completions_of_an_elastic_indexed_job_take_the_pods_of_the_indexes_that_went() -> None:
    world = World(job(parallelism=4, completions=4, completionMode="Indexed"))
    world.settle()
    world.job = {**world.job, "spec": world.job["spec"] | {"parallelism": 2, "completions": 2}}

    world.settle()

    assert [index_of(pod) for pod in world.active()] == [0, 1]


def test_a_finished_job_goes_when_its_time_to_live_is_over() -> None:
    world = World(job(completions=0, ttlSecondsAfterFinished=60))
    world.settle()
    assert world.conditions()["Complete"] == "True"
    assert world.look().wake == 60

    world.now += timedelta(seconds=60)
    world.look()

    assert world.removed


IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("policy", "failed"), [({"rules": [IGNORED]}, False), (None, True)], ids=["ignored", "counted"]
)
def test_a_disrupted_pod_does_not_count_as_failed_where_the_job_says_so(policy: Any, failed: bool) -> None:  # noqa: FBT001
    fields = {"podFailurePolicy": policy, "podReplacementPolicy": "Failed"} if policy else {}
    world = World(job(backoffLimit=0, **fields))
    world.settle()
    (pod,) = world.pods.values()
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    pod["status"] = {"phase": "Failed", "conditions": [disrupted]}
    world.settle()
    assert ("Failed" in world.conditions()) is failed
    assert world.job["status"].get("failed", 0) == int(failed)
    assert any(each["status"].get("phase") != "Failed" for each in world.pods.values()) is not failed


@pytest.mark.parametrize("field", ["podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes"])
def test_a_job_that_asks_for_what_the_sandbox_cannot_do_fails_and_says_so(field: str) -> None:
    world = World(job(**{field: {}}))

    world.settle()

    assert world.condition("Failed")["reason"] == "NotSupportedBySandbox"
    assert f"spec.{field}: not supported" in world.condition("Failed")["message"]
    assert not world.pods


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0,1"), ([0, 1, 2], "0-2"), ([0, 2, 3, 4, 7], "0,2-4,7")],
)
def test_indexes_are_written_as_the_api_writes_them(indexes: list[int], text: str) -> None:
    assert format_indexes(indexes) == text
    assert parse_indexes(text) == indexes


class AnyJob(RuleBasedStateMachine):
    """Pods end, users suspend, resume, delete and resize, time passes, looks come whenever: a Job still adds up."""

    @initialize(
        parallelism=st.integers(0, 4),
        completions=st.none() | st.integers(0, 5),
        indexed=st.booleans(),
        limit=st.integers(0, 3),
        policy=st.sampled_from(["TerminatingOrFailed", "Failed"]),
    )
    def begin(self, *, parallelism: int, completions: int | None, indexed: bool, limit: int, policy: str) -> None:
        mode = "Indexed" if indexed and completions is not None else "NonIndexed"
        spec: dict[str, Any] = {"parallelism": parallelism, "completionMode": mode, "backoffLimit": limit}
        if completions is not None:
            spec["completions"] = completions
        self.world = World(job(podReplacementPolicy=policy, **spec))
        self.succeeded: set[str] = set()
        self.failed: set[str] = set()
        self.highest = (0, 0)

    @property
    def finished(self) -> bool:
        return any(self.world.conditions().get(kind) == "True" for kind in ("Complete", "Failed"))

    @rule(releases=st.booleans(), seconds=st.sampled_from([0, 0, 10, 700]))
    def look(self, *, releases: bool, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)
        before = len(self.world.active())
        created = len(self.world.look(releases=releases).create)
        # More are active than parallelism allows only where a user lowered it and nobody looked yet.
        assert not created or len(self.world.active()) <= max(before, self.world.job["spec"]["parallelism"])

    @precondition(lambda self: self.world.active())
    @rule(data=st.data(), phase=st.sampled_from(["Succeeded", "Succeeded", "Failed"]))
    def end(self, data: st.DataObject, phase: str) -> None:
        pod = data.draw(st.sampled_from(self.world.active()))
        uid = pod["metadata"]["uid"]
        (self.succeeded if phase == "Succeeded" else self.failed).add(uid)
        self.world.end(uid, phase)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.world.delete(data.draw(st.sampled_from(sorted(self.world.pods))))

    @precondition(lambda self: any(p.leaving(pod) and not p.ended(pod) for pod in self.world.pods.values()))
    @rule()
    def kubelets_finish(self) -> None:
        for uid, pod in list(self.world.pods.items()):
            if p.leaving(pod) and not p.ended(pod):
                self.world.end(uid, "Failed")

    @rule(suspend=st.booleans())
    def suspend(self, *, suspend: bool) -> None:
        self.world.suspend(suspend=suspend)

    @rule(parallelism=st.integers(0, 4))
    def resize(self, parallelism: int) -> None:
        self.world.job = {**self.world.job, "spec": self.world.job["spec"] | {"parallelism": parallelism}}

    @rule()
    def settle(self) -> None:
        self.world.settle()
        spec = self.world.job["spec"]
        active = self.world.active()
        assert len(active) <= spec["parallelism"] or "completions" not in spec
        assert not (active and spec.get("suspend"))
        assert len(active) == self.world.status.get("active", 0)
        assert not any(self.world.status["uncountedTerminatedPods"].values())

    @invariant()
    def never_counts_a_pod_twice_or_one_that_did_not_end_so(self) -> None:
        status = self.world.status
        uncounted = status.get("uncountedTerminatedPods", {})
        assert status.get("succeeded", 0) + len(uncounted.get("succeeded", ())) <= len(self.succeeded)
        completions = self.world.job["spec"].get("completions")
        indexed = self.world.job["spec"]["completionMode"] == "Indexed"
        if completions is not None:
            assert status.get("succeeded", 0) <= completions
        if indexed:
            assert len(parse_indexes(status.get("completedIndexes", ""))) == status.get("succeeded", 0)

    @invariant()
    def counts_only_grow(self) -> None:
        now = (self.world.status.get("succeeded", 0), self.world.status.get("failed", 0))
        assert now[0] >= self.highest[0]
        assert now[1] >= self.highest[1]
        self.highest = now

    @invariant()
    def active_pods_of_an_indexed_job_have_different_indexes_after_a_look(self) -> None:
        if self.world.job["spec"]["completionMode"] == "Indexed":
            indexes = [index_of(pod) for pod in self.world.active()]
            assert len(set(indexes)) == len(indexes)

    @invariant()
    def a_finished_job_is_finished_for_good_and_in_one_way(self) -> None:
        conditions = self.world.conditions()
        if not self.finished:
            return
        assert not self.world.active()
        assert not (conditions.get("Complete") == "True" and conditions.get("Failed") == "True")
        completions = self.world.job["spec"].get("completions")
        if conditions.get("Complete") == "True" and completions is not None:
            assert self.world.status.get("succeeded", 0) >= completions

    def teardown(self) -> None:
        """Left alone, with every pod succeeding and nobody interfering, the Job comes to an end."""
        if not hasattr(self, "world"):
            return
        self.world.suspend(suspend=False)
        self.world.job = {**self.world.job, "spec": self.world.job["spec"] | {"parallelism": 2}}
        for _ in range(20):
            self.kubelets_finish()
            for pod in self.world.active():
                self.world.end(pod["metadata"]["uid"], "Succeeded")
            self.world.now += timedelta(seconds=600)
            self.world.settle()
            if self.finished:
                return
        pytest.fail(f"never finished: {self.world.job}")


AnyJob.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestAnyJob = AnyJob.TestCase
