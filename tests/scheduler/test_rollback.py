"""From Inqueue back to Pending: when nothing comes of a group that was let in. On values, cycle by cycle."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from muster.model import kinds, names
from muster.model.objects import Condition
from scheduler.configuration import config
from scheduler.engine.cycle import decide
from scheduler.engine.requeue import recorded
from scheduler.leader.backoff import RequeueTimers
from scheduler.model.plan import Plan
from scheduler.model.snapshot import GroupKey

CONFIG = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: gang}}, {{name: predicates}}, {{name: overcommit, arguments: {{overcommit-factor: 1.0}}}}, {{name: proportion}}]
configurations:
- {{name: enqueue, arguments: {{{arguments}}}}}
"""


class Play:
    """Cycles over a cluster of values, each with its time; what a cycle decides on phases holds in the next."""

    def __init__(self, build: Any, arguments: str = "inqueueTimeoutSeconds: 60", autoscaler: str = "") -> None:
        self.build = build
        self.autoscaler = autoscaler
        self.policy = config.parse(CONFIG.format(arguments=arguments))
        self.timers = RequeueTimers()
        self.plan: Plan

    def at(self, seconds: float) -> Plan:
        now = self.build.now + timedelta(seconds=seconds)
        snapshot = msgspec.structs.replace(
            self.build.cluster.snapshot(), requeues=self.timers.requeues, autoscaler=self.autoscaler
        )
        self.plan = decide(snapshot, self.policy, now)
        self.timers.observe(self.plan, now.timestamp())
        for status in self.plan.statuses:
            group = self.build.cluster.find_group(status.key)
            changed = msgspec.structs.replace(group, status=status.struct())
            self.build.cluster.group(status.key.group, changed)
        return self.plan

    def phase(self, name: str) -> str:
        return str(self.plan.groups[self._key(name)].phase.value)

    def said(self, name: str) -> tuple[str, str]:
        found = self.plan.groups[self._key(name)].conditions
        return next(((each.reason, each.message) for each in found if each.status == "True"), ("", ""))

    def _key(self, name: str) -> GroupKey:
        return next(key for key in self.plan.groups if key.name == name)


@pytest.fixture
def scattered(build: Any) -> Any:
    """Two nodes with 2 cpu each: room for 4 cpu together, and for no pod of 3."""
    return build.node("a", "2").node("b", "2")


def test_a_group_whose_pods_find_no_nodes_goes_back_and_says_why(scattered):
    play = Play(scattered.gang("g", 1, 1, "3", phase="Pending", minResources={"cpu": "3"}))
    play.at(0)
    assert play.phase("g") == "Inqueue"
    play.at(59)
    assert play.phase("g") == "Inqueue"
    play.at(60)
    assert play.phase("g") == "Pending"
    reason, message = play.said("g")
    assert reason == "NotEnoughResources"
    assert message.startswith(
        "no place was found within 60 s: 1 pod of 3 cpu needs a node; the nodes have room for none"
    )


def test_it_is_not_let_in_again_before_nodes_change_and_a_while_has_passed(scattered):
    play = Play(scattered.gang("g", 1, 1, "3", phase="Pending", minResources={"cpu": "3"}))
    play.at(0)
    play.at(60)
    for seconds in (61, 70, 600, 86_400):
        play.at(seconds)
        assert play.phase("g") == "Pending"
    assert (
        play.said("g")[1]
        == "its pods found no nodes (1 attempt); the next is after 00:01:10 UTC, and when nodes, queues or the group change"
    )
    scattered.node("c", "4")
    assert play.at(86_401).binds
    assert play.phase("g") == "Inqueue"


@pytest.mark.parametrize("what", ["queue", "group"])
def test_another_weight_of_a_queue_or_another_need_is_reason_enough_to_try_again(scattered, what):
    play = Play(scattered.gang("g", 1, 1, "3", phase="Pending", minResources={"cpu": "3"}))
    play.at(0)
    play.at(60)
    play.at(600)
    assert play.phase("g") == "Pending"
    if what == "queue":
        scattered.queue("default", weight=5)
    else:
        (key,) = play.plan.groups
        old = scattered.cluster.find_group(key)
        spec = msgspec.structs.replace(old.spec, min_resources={"cpu": "2"})
        scattered.cluster.group(key.group, msgspec.structs.replace(old, spec=spec))
    play.at(601)
    assert play.phase("g") == "Inqueue"


def test_pods_that_come_late_are_let_in_at_once(build):
    play = Play(build.node("a", "4").group("g", 2, phase="Pending", minResources={"cpu": "2"}))
    play.at(0)
    play.at(60)
    build.pod("a", "g").pod("b", "g")
    assert len(play.at(61).binds) == 2


def test_pods_that_come_at_the_last_moment_are_looked_at_before_the_group_goes_back(build):
    play = Play(build.node("a", "4").group("g", 2, phase="Pending", minResources={"cpu": "2"}))
    play.at(0)
    build.pod("a", "g").pod("b", "g")
    assert len(play.at(60).binds) == 2
    assert play.phase("g") == "Inqueue"


def test_each_attempt_in_vain_makes_the_next_wait_longer(scattered):
    play = Play(scattered.gang("g", 1, 1, "3", phase="Pending", minResources={"cpu": "3"}))
    let_in, now, before = [], 0, ""
    while now < 3000:
        play.at(now)
        if play.phase("g") == "Inqueue" != before:
            let_in.append(now)
        before = play.phase("g")
        # Nodes change all the time, and never so that it helps.
        scattered.node("a", f"{1900 + now % 90}m")
        now += 1
    requeues = [later - earlier - 60 for earlier, later in itertools.pairwise(let_in)]
    assert requeues == sorted(requeues)
    assert requeues[:3] == [10, 20, 40]
    assert max(requeues) == 300


def test_while_it_is_back_others_use_what_it_held(scattered):
    play = Play(scattered.gang("g", 1, 1, "3", phase="Pending", minResources={"cpu": "3"}))
    play.at(0)
    scattered.gang("other", 4, 4, "1", phase="Pending", minResources={"cpu": "4"})
    play.at(1)
    assert play.phase("other") == "Pending"
    play.at(60)
    assert len(play.at(61).binds) == 4


def test_a_group_whose_pods_never_come_goes_back_and_has_another_try_later(build):
    play = Play(build.node("a", "4").group("g", 2, phase="Pending", minResources={"cpu": "2"}))
    play.at(0)
    assert play.phase("g") == "Inqueue"
    play.at(60)
    assert (play.phase("g"), play.said("g")) == ("Pending", ("NotEnoughTasks", "none of 2 pods came within 60 s"))
    play.at(69)
    assert play.said("g")[1] == "its pods did not come (1 attempt); the next is after 00:01:10 UTC"
    play.at(70)
    assert play.phase("g") == "Inqueue"


def test_whoever_makes_progress_is_left_alone(build):
    play = Play(build.node("a", "1").group("g", 9, phase="Pending"))
    for number in range(8):
        play.at(number * 50)
        build.pod(f"p-{number}", "g", "100m")
    assert play.phase("g") == "Inqueue"


def test_nothing_goes_back_that_has_its_minimum(build):
    play = Play(build.node("a", "2").gang("g", 2, 3, "1", phase="Pending"))
    assert len(play.at(0).binds) == 2
    for number in range(2):
        build.pod(f"g-{number}", "g", "1", node="a", phase="Pending")
    for seconds in (1, 100, 1000):
        play.at(seconds)
        assert play.phase("g") == "Inqueue"


@pytest.mark.parametrize("phase", ["Pending", "Inqueue", "Running"])
def test_the_group_of_a_workload_without_pods_waits_in_pending(build, phase):
    play = Play(build.node("a", "4").group("podgroup-0a1b", 1, phase=phase, minResources={"cpu": "1"}))
    play.at(0)
    play.at(1)
    assert (play.phase("podgroup-0a1b"), play.said("podgroup-0a1b")[1]) == ("Pending", "its workload has no pods now")
    build.pod("web-1", "podgroup-0a1b")
    assert play.at(2).binds


def test_a_group_whose_user_suspends_its_job_after_it_ran_goes_back_at_once(build):
    play = Play(build.node("a", "4").group("g", 1, phase="Running", minResources={"cpu": "1"}))
    template = {"metadata": {"annotations": {names.GROUP_NAME: "g"}}, "spec": {"schedulerName": names.SCHEDULER_NAME}}
    meta = {"name": "train", "namespace": "ns", "uid": "train"}
    stopped = {"metadata": meta, "spec": {"suspend": True, "template": template}}
    build.cluster.batch_job(msgspec.convert(stopped, kinds.JOBS.struct))
    for second in (0, 1):
        play.at(second)
    said = "Job train is suspended by its user; set its spec.suspend to false to let it start"
    assert (play.phase("g"), play.said("g")) == ("Pending", ("NotEnoughTasks", said))


def test_a_restarted_worker_counts_anew(scattered):
    play = Play(scattered.gang("g", 1, 1, "3", phase="Pending", minResources={"cpu": "3"}))
    play.at(0)
    play.timers = RequeueTimers()
    play.at(60)
    assert play.phase("g") == "Inqueue"
    play.at(120)
    assert play.phase("g") == "Pending"


def test_the_next_leader_knows_how_often_a_group_was_taken_back_and_until_when(scattered):
    play = Play(scattered.gang("g", 1, 1, "3", phase="Pending", minResources={"cpu": "3"}))
    play.at(0)
    play.at(60)
    (postponed,) = [each for each in play.plan.statuses[0].conditions if each.type == "Postponed"]
    words = "1 attempt came to nothing; the next is after 2026-01-01T00:01:10Z"
    assert (postponed.status, postponed.reason, postponed.message) == ("True", "NotEnoughResources", words)
    play.timers = RequeueTimers()
    for seconds in (61, 69):
        assert not play.at(seconds).statuses or seconds == 61
        assert play.phase("g") == "Pending"
    play.at(70)
    assert play.phase("g") == "Inqueue", "it saw another leader's nodes, and tries again"
    play.timers = RequeueTimers()
    play.at(71)
    play.at(131)
    assert play.phase("g") == "Pending"
    text = "2 attempts came to nothing; the next is after 2026-01-01T00:02:31Z"
    assert text in {each.message for each in play.plan.statuses[0].conditions}


def test_what_came_to_something_is_no_longer_postponed(scattered):
    play = Play(scattered.gang("g", 1, 1, "3", phase="Pending", minResources={"cpu": "3"}))
    play.at(0)
    play.at(60)
    scattered.node("c", "4")
    assert play.at(70).binds
    scattered.pod("g-0", "g", "3", node="c")
    play.at(71)
    assert play.phase("g") == "Running"
    assert {each.type: each.status for each in play.plan.statuses[0].conditions}["Postponed"] == "False"


@pytest.mark.parametrize(
    "message", ["soon", "99 attempts came to nothing; the next is after 2026-99-01T00:00:00Z", "1 attempt"]
)
def test_a_condition_that_somebody_else_wrote_postpones_nothing(message):
    assert recorded([Condition(type="Postponed", status="True", message=message)]) is None


# ── what an autoscaler is shown ──────────────────────────────────────────────────────────────────────────────────


def shown(plan: Plan) -> set[str]:
    return {task.name for tasks in plan.unplaced.values() for task in tasks}


def test_pods_of_gangs_that_lack_nodes_are_shown_and_no_others(build):
    build.node("a", "4").queue("capped", capability={"cpu": "2"}).queue("shut", state="Closed")
    build.gang("fits", 2, 2, "1", phase="Pending", minResources={"cpu": "2"})
    build.gang("large", 6, 6, "1", phase="Pending", minResources={"cpu": "6"})
    build.gang("bound", 3, 3, "1", phase="Pending", minResources={"cpu": "3"}, queue="capped")
    build.gang("both", 9, 9, "1", phase="Pending", minResources={"cpu": "9"}, queue="capped")
    build.gang("closed", 9, 9, "1", phase="Pending", minResources={"cpu": "9"}, queue="shut")
    build.gang("early", 9, 3, "1", phase="Pending", minResources={"cpu": "9"})
    build.gang("lost", 9, 9, "1", phase="Pending", queue="no-such-queue")
    assert shown(Play(build).at(0)) == {f"large-{number}" for number in range(6)}


def test_pods_beyond_the_minimum_that_lack_nodes_are_shown(build):
    build.node("a", "2").gang("web", 1, 4, "1", phase="Running")
    plan = Play(build).at(0)
    assert len(plan.binds) == 2
    assert len(shown(plan)) == 2


def test_what_muster_does_not_evaluate_makes_no_nodes(build):
    build.node("a", "1").group("g", 1)
    build.pod("odd", "g", "1", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    plan = Play(build).at(0)
    assert not plan.binds
    assert shown(plan) == set()


@pytest.mark.parametrize(
    ("arguments", "seen", "scales"),
    [
        ("autoscaling: true", "", True),
        ("autoscaling: auto", "Karpenter", True),
        ("inqueueTimeoutSeconds: 900", "Cluster Autoscaler", True),
        ("inqueueTimeoutSeconds: 900", "", False),
        ("autoscaling: false", "Karpenter", False),
    ],
)
def test_with_autoscaling_a_job_that_lacks_only_nodes_is_let_in_one_per_queue_at_a_time(build, arguments, seen, scales):
    build.node("a", "1").queue("other").queue("capped", capability={"cpu": "2"})
    for name, queue in (("first", "default"), ("second", "default"), ("third", "other"), ("bound", "capped")):
        build.group(name, 4, phase="Pending", minResources={"cpu": "4"}, queue=queue)
        job = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"job-{name}",
                "annotations": {names.SUSPENDED: "true"},
            },
            "spec": {
                "suspend": True,
                "parallelism": 4,
                "completions": 4,
                "template": {
                    "metadata": {"annotations": {names.GROUP_NAME: name}},
                    "spec": {"schedulerName": "muster", "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
                },
            },
        }
        build.cluster.batch_job(msgspec.convert(job, kinds.JOBS.struct))
    play = Play(build, arguments, autoscaler=seen)
    admitted = {"first", "third"} if scales else set()
    for seconds in (0, 1, 600):
        play.at(seconds)
        assert {name for name in ("first", "second", "third", "bound") if play.phase(name) == "Inqueue"} == admitted
        assert play.plan.released == {f"job-{name}" for name in admitted}


def test_an_autoscaler_that_is_no_word_of_ours_is_refused():
    with pytest.raises(config.ConfigurationError, match="autoscaling"):
        config.parse(CONFIG.format(arguments="autoscaling: karpenter"))


def test_the_arguments_of_enqueue_are_checked():
    with pytest.raises(config.ConfigurationError, match="inqueueTimeoutSeconds is 0: write more than 0"):
        config.parse(CONFIG.format(arguments="inqueueTimeoutSeconds: 0"))


def test_a_group_of_which_too_few_pods_came_says_that_though_nodes_have_room(build):
    # As a StatefulSet that makes its next pod once the one before it runs.
    play = Play(build.node("a", "8").gang("g", 3, 1, phase="Pending"))
    play.at(0)
    play.at(60)
    assert (play.phase("g"), play.said("g")) == ("Pending", ("NotEnoughTasks", "1 of 3 pods came within 60 s"))


HELD = "; what it lacks was held for it for 60 s, and others may use it now"


def broken_gang(build: Any) -> Play:
    """A gang of two that ran on the whole of a node, and failed; one pod is replaced."""
    build.node("a", "6").group("g", 2, phase="Pending", minResources={"cpu": "6"})
    build.pod("g-0", "g", "3", node="a").pod("g-1", "g", "3", node="a")
    play = Play(build)
    play.at(0)
    assert play.phase("g") == "Running"
    build.gone("g-0").pod("g-1", "g", "3", node="a", phase="Failed").pod("g-2", "g", "3")
    build.gang("small", 1, 1, "1", phase="Pending", minResources={"cpu": "1"})
    return play


def test_what_a_gang_lacks_that_is_not_whole_again_is_held_for_it_for_a_while(build):
    play = broken_gang(build)
    assert not play.at(1).binds
    assert (play.phase("g"), play.phase("small")) == ("Unknown", "Pending")
    assert "6 cpu are held for PodGroup ns/g" in play.said("small")[1]
    assert play.plan.next_deadline == play.build.now.timestamp() + 61
    play.at(60)
    assert play.phase("small") == "Pending"
    assert [bind.task.name for bind in play.at(61).binds] == ["small-0"]
    reason, words = play.said("g")
    assert (play.phase("g"), reason) == ("Unknown", "NotEnoughTasks")
    assert words.endswith(f"waiting for 1 more{HELD}")


def test_a_gang_that_is_whole_again_runs_and_has_its_time_anew_when_it_breaks_again(build):
    play = broken_gang(build)
    play.at(1)
    play.at(61)
    build.gone("small-0").without("small").pod("g-3", "g", "3")
    assert {bind.task.name for bind in play.at(100).binds} == {"g-2", "g-3"}
    build.pod("g-2", "g", "3", node="a").pod("g-3", "g", "3", node="a")
    play.at(101)
    assert play.phase("g") == "Running"
    build.pod("g-2", "g", "3", node="a", phase="Failed").gone("g-3").pod("g-4", "g", "3")
    build.gang("late", 1, 1, "1", phase="Pending", minResources={"cpu": "1"})
    play.at(200)
    assert (play.phase("g"), play.phase("late")) == ("Unknown", "Pending")
    assert HELD not in play.said("g")[1]
    play.at(260)
    assert play.phase("late") == "Inqueue"


def test_a_pod_that_waits_for_the_room_of_its_broken_gang_has_its_time(build):
    play = broken_gang(build)
    play.at(1)
    young = build.a_pod("g-3", "g", "9")
    meta = msgspec.structs.replace(young.metadata, creation_timestamp=build.now + timedelta(seconds=50))
    build.cluster.pod(msgspec.structs.replace(young, metadata=meta))
    play.at(61)
    assert play.phase("small") == "Pending"
    play.at(110)
    assert play.phase("small") == "Inqueue"
    assert play.said("g")[1].endswith(HELD)
