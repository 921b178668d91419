"""Whom the scheduler evicts for a group that waits on a full cluster, or why it evicts nobody: `why` and `admit`."""

from __future__ import annotations

import pytest
from asked import POLICY, TAKEN, Json, asked, gang, held_job, key, made, node, of_actions, pod, queue, replaced, state

from muster.cli.answers.why import lines
from muster.cli.installation import crds
from muster.cli.output import UNBROKEN
from muster.model import names
from muster.model.manifests import Manifest
from muster.sandbox import virtual_time
from muster.whatif import admission, why
from scheduler.engine.policy import Policy

QUEUES = [queue("default"), queue("a"), queue("b")]
PREEMPTING = of_actions("enqueue, allocate, preempt, backfill")
BUDGET = {
    **made("policy/v1", "PodDisruptionBudget", {"name": "web", "namespace": "team"}),
    "spec": {"selector": {"matchLabels": {"app": "web"}}},
    "status": {"disruptionsAllowed": 0},
}


def lender(minimum: int = 1, *, pods: int = 4, place: str = "node-0", name: str = "lender") -> list[Json]:
    """Return a group of queue a with pods of 1 cpu each, as a Deployment has them; they fill a node of 4."""
    return replaced(gang(name, [1] * pods, "a", place, minimum=minimum))


def told(*objects: Json, policy: Policy = POLICY, of: str = "train") -> list[str]:
    return list(why.ask(asked([node("node-0", {"cpu": "4"}), *QUEUES, *objects], policy=policy), key(of)).evictions)


def labelled(objects: list[Json], **labels: str) -> list[Json]:
    for each in objects[1:]:
        each["metadata"]["labels"] = labels
    return objects


def began(objects: list[Json], moment: str) -> list[Json]:
    for each in objects[1:]:
        each["status"]["startTime"] = moment
    return objects


def bare(objects: list[Json]) -> list[Json]:
    for each in objects[1:]:
        del each["metadata"]["ownerReferences"]
    return objects


@pytest.mark.parametrize(
    ("lenders", "kept"),
    [
        (bare(lender()), "4 are bare: nobody makes them again, and barePods of reclaim isn't set"),
        (began(lender(), "2026-01-01T11:59:55Z"), "4 are running for less than 60 s"),
        (lender(4), "4 are in PodGroups that have no more than their minimum"),
        ([*labelled(lender(), app="web"), BUDGET], "4 are protected by PodDisruptionBudget web"),
        (
            labelled(lender(), **{"volcano.sh/preemptable": "false"}),
            "4 are not to be evicted (volcano.sh/preemptable, or an eviction that was refused just now)",
        ),
        (
            [*lender(3, pods=3), *began(lender(name="other", pods=1), "2026-01-01T11:59:55Z")],
            "3 are in PodGroups that have no more than their minimum and 1 is running for less than 60 s",
        ),
    ],
)
def test_why_reclaim_takes_nobody_is_told_with_how_many_pods_stay_for_it(lenders: list[Json], kept: str) -> None:
    assert told(*lenders, *gang("train", [1], "b")) == [
        f"reclaim takes no pod for it: of 4 pods of other queues {kept}"
    ]


def test_who_may_go_but_is_too_few_for_the_minimum_is_told() -> None:
    objects = [*lender(3), *gang("train", [1, 1], "b")]
    assert told(*objects) == [
        "reclaim takes no pod for it: of 4 pods of other queues 4 are free to go, which does not make room for its minimum"
    ]


def test_a_queue_that_has_what_it_deserves_is_told_what_that_is() -> None:
    assert told(*lender(), *gang("train", [3], "b")) == [
        "reclaim takes no pod for it: queue b deserves 2 cpu and has nothing, so that a pod of 3 cpu is not due to it"
    ]


def test_pods_of_queues_that_have_no_more_than_they_deserve_stay() -> None:
    strangers = pod({"name": "x", "namespace": "team", "uid": "x"}, 0, 2, "node-0", {})
    del strangers["metadata"]["annotations"]
    assert told(strangers, *lender(pods=2), *gang("train", [1, 1], "b")) == [
        "reclaim takes no pod for it: of 2 pods of other queues 2 are in queues that have no more than they deserve"
    ]


def test_queues_that_are_not_reclaimable_lend_nothing_back() -> None:
    closed = queue("a", reclaimable=False)
    objects = [node("node-0", {"cpu": "4"}), queue("default"), queue("b"), closed, *lender(), *gang("train", [1], "b")]
    assert why.ask(asked(objects), key("train")).evictions == (
        "reclaim takes no pod for it: of 4 pods of other queues 4 are in queues with reclaimable: false",
    )


def test_where_no_other_queue_has_pods_nothing_is_told() -> None:
    assert told(*gang("first", [4], "b", "node-0"), *gang("train", [1], "b")) == []


def test_pods_that_never_preempt_are_told_so() -> None:
    assert told(*lender(), *gang("train", [1], "b", preemptionPolicy="Never")) == [
        "reclaim takes no pod for it: its pods have preemptionPolicy Never"
    ]


@pytest.mark.parametrize(
    ("minimum", "kept"),
    [(1, "2 are not less important than it"), (2, "2 are in PodGroups that have no more than their minimum")],
)
def test_why_preempt_takes_nobody_of_its_queue_is_told(minimum: int, kept: str) -> None:
    there, high = lender(minimum, pods=2), made("scheduling.k8s.io/v1", "PriorityClass", {"name": "high"}, value=1000)
    there[0]["spec"]["priorityClassName"] = "high"
    assert told(*there, *gang("train", [3], "a"), high, policy=PREEMPTING) == [
        f"preempt takes no pod for it: of 2 pods of queue a {kept}"
    ]


def test_who_leaves_for_it_in_the_next_cycle_is_named_and_that_it_starts_then() -> None:
    objects = [node("node-0", {"cpu": "4"}), *QUEUES, *lender(), *gang("train", [1, 1], "b")]
    answer = why.ask(asked(objects), key("train"))
    assert answer.evictions == ("the scheduler's next cycle evicts 2 pods of PodGroup team/lender for it",)
    assert [each.text for each in answer.changes] == [
        "time: the scheduler evicts 2 pods of PodGroup team/lender for it, and starts it once they are gone"
    ]
    assert answer.data()["changes"][0]["evicts"] == ["team/lender-2", "team/lender-3"]
    shown = list(lines(answer, UNBROKEN, TAKEN))
    assert "evicts  the scheduler's next cycle evicts 2 pods of PodGroup team/lender for it" in shown


def test_who_may_be_evicted_once_it_has_run_for_long_enough_is_named() -> None:
    answer = why.ask(
        asked(
            [node("node-0", {"cpu": "4"}), *QUEUES, *began(lender(), "2026-01-01T11:59:55Z"), *gang("train", [1], "b")]
        ),
        key("train"),
    )
    assert [each.text for each in answer.changes] == [
        "time: the scheduler evicts 1 pod of PodGroup team/lender for it, and starts it once they are gone"
    ]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("2026-01-01T12:00:30Z", "gone by 12:00:30 UTC at the latest"),
        (
            "2026-01-01T11:58:00Z",
            "due to be gone since 11:58:00 UTC: a finalizer, or a node that does not answer, holds them",
        ),
    ],
)
def test_a_group_that_was_admitted_by_evictions_waits_for_those_that_leave_until_they_have_to_be_gone(
    end: str, said: str
) -> None:
    there = lender()
    for each in there[3:]:
        each["metadata"]["deletionTimestamp"] = end
    assert told(*there, *gang("train", [1, 1], "b", phase="Inqueue")) == [
        f"2 pods leave node-0 (PodGroup team/lender), {said}"
    ]


def test_a_pause_after_an_eviction_that_was_refused_is_read_from_the_condition_and_told_while_it_lasts() -> None:
    train = gang("train", [1], "b")
    words = "evictions for it wait until {} UTC, since one was refused: Cannot evict pod as it would violate the budget"
    condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "x; "}

    def asked_with(moment: str) -> why.Explanation:
        train[0]["status"]["conditions"] = [condition | {"message": f"1 pod needs 1 cpu; {words.format(moment)}"}]
        return why.ask(asked([node("node-0", {"cpu": "4"}), *QUEUES, *lender(), *train]), key("train"))

    paused = asked_with("12:00:40")
    assert paused.record is not None
    assert paused.record.message.endswith(words.format("12:00:40"))
    assert not any("next cycle" in each for each in paused.evictions)
    assert [each.data["kind"] for each in paused.changes] == ["time"]
    assert asked_with("11:59:50").evictions == (
        "the scheduler's next cycle evicts 1 pod of PodGroup team/lender for it",
    )


def test_a_group_waits_for_other_things_than_evictions_is_told_nothing_of_them() -> None:
    assert told(*lender(), *gang("train", [1], "nowhere")) == []
    assert told(*lender(), *gang("train", [1], "b", minimum=3)) == []


@pytest.mark.parametrize(("since", "said"), [("2026-01-01T11:59:30Z", " (Inqueue since 11:59:30 UTC)"), (None, "")])
def test_when_a_group_that_was_admitted_goes_back_is_told(since: str | None, said: str) -> None:
    train = gang("train", [8], "b", phase="Inqueue")
    train[0]["status"] |= {"lastPhaseTransitionTime": since} if since else {}
    answer = why.ask(asked([node("node-0", {"cpu": "4"}), *QUEUES, *train]), key("train"))
    assert answer.timeout == f"60 s after something last happened to it; then it returns to Pending{said}"
    assert f"until  {answer.timeout}" in list(lines(answer, UNBROKEN, TAKEN))
    waits = why.ask(asked([node("node-0", {"cpu": "4"}), *QUEUES, *gang("train", [8], "b")]), key("train"))
    assert waits.timeout == ""


def test_admit_names_the_pods_that_are_evicted_for_a_workload_and_does_not_say_that_it_starts_now() -> None:
    there = [node("node-0", {"cpu": "4"}), *QUEUES, *lender(), made("v1", "Namespace", {"name": "team"})]
    objects = state([each | {"metadata": each["metadata"] | {"resourceVersion": "1"}} for each in there])
    job = held_job("train", 1, 1)
    template = job["spec"]["template"]
    template["metadata"]["annotations"] = {names.QUEUE_NAME_KEYS[0]: "b"}
    template["spec"]["containers"][0]["image"] = "example.com/train"
    job = made("batch/v1", "Job", {"name": "train", "namespace": "team"}, spec=job["spec"] | {"suspend": False})
    found = virtual_time.run(
        admission.find_out(
            objects, [Manifest(job, "job.yaml", "team")], [], POLICY, ["muster"], crds.manifests(legacy_apis=False)
        )
    )
    assert [(each.outcome, each.answer.status) for each in found.verdicts] == [("admitted", None)]
    (start,) = found.starts
    assert (start.kind, start.evicts) == ("soon", ("team/lender-3",))
    assert start.text == "the scheduler evicts 1 pod of PodGroup team/lender for it"
