"""Rules for PodGroups."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from muster.ledger.reservations import ReservationRequest
from muster.model import grouping, kinds
from muster.model.amounts import Resources
from muster.model.objects import Meta
from webhooks.policies import podgroups
from webhooks.verdict import ALLOWED, BUSY, Denied, ObjectRef

INCUBATOR = "scheduling.incubator.k8s.io"


def test_a_group_in_an_open_queue_passes_and_asks_the_ledger_for_its_minimum(ask: Any, podgroup: Any) -> None:
    verdict = ask(podgroups.validate, podgroup(minMember=2, minResources={"cpu": "3", "memory": "1Gi"}))
    amounts = Resources.parse({"cpu": 3, "memory": "1Gi"})
    assert verdict.reservation == ReservationRequest(
        "dev", "PodGroup", "scheduling.volcano.sh", "gang", "uid-gang", amounts
    )
    assert verdict.warnings == ()


OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}


WAITS = {"annotations": {"muster.sh/wanted-min-resources": '{"cpu": "12"}'}}


def test_what_a_group_waits_for_holds_nothing_until_the_group_states_it(ask: Any, podgroup: Any) -> None:
    waiting = podgroup("podgroup-uid-web", metadata=WAITS)
    assert ask(podgroups.validate, waiting) == ALLOWED
    # Whoever has it state that, Muster or not, is granted all of it or refused.
    for stated in ("12", "1"):
        asked = ask(
            podgroups.validate, podgroup("podgroup-uid-web", minResources={"cpu": stated}), "UPDATE", old=waiting
        )
        assert asked.reservation.asked == Resources.parse({"cpu": stated})
    noted = podgroup("podgroup-uid-web", metadata=WAITS) | {
        "status": {"phase": "Pending", "minResources": {"cpu": "2"}}
    }
    assert ask(podgroups.validate, noted, "UPDATE", old=waiting, sub_resource="status") == ALLOWED


@pytest.mark.parametrize("text", ["", "12", "{", '{"cpu": "x"}', '{"a b": "1"}', '{"cpu": "-1"}'])
def test_a_wanted_minimum_that_cannot_be_read_is_none(text: str) -> None:
    meta = Meta(annotations={"muster.sh/wanted-min-resources": text})
    assert grouping.wanted_resources(meta) is None


def test_a_group_without_a_minimum_costs_the_ledger_nothing(ask: Any, podgroup: Any) -> None:
    assert ask(podgroups.validate, podgroup(minMember=2)) == ALLOWED
    assert ask(podgroups.validate, podgroup(minResources={"cpu": "0"})) == ALLOWED


QUEUED = {"annotations": {"muster.sh/quota-policy": "Queue"}}


@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_a_group_of_a_namespace_that_queues_is_marked_so(ask: Any, podgroup: Any, cluster: Any, where: str) -> None:
    cluster.namespace("dev", **{where: {"muster.sh/quota-policy": "Queue"}})
    verdict = ask(podgroups.mutate, podgroup(queue="research"))
    patched = jsonpatch.apply_patch(podgroup(queue="research"), verdict.operations)
    assert patched["metadata"]["annotations"] == QUEUED["annotations"]
    assert verdict.audit == {"quota-policy": "Queue"}


@pytest.mark.parametrize("said", ["Reject", "Queue"])
def test_a_group_that_says_itself_when_it_reserves_is_left_as_it_is(
    ask: Any, podgroup: Any, cluster: Any, said: str
) -> None:
    cluster.namespace("dev", annotations={"muster.sh/quota-policy": "Queue"})
    group = podgroup(queue="research", metadata={"annotations": {"muster.sh/quota-policy": said}})
    assert ask(podgroups.mutate, group) == ALLOWED


def test_a_group_that_queues_reserves_nothing_at_its_creation(ask: Any, podgroup: Any, cluster: Any) -> None:
    assert ask(podgroups.validate, podgroup(metadata=QUEUED, minResources={"cpu": "3"})) == ALLOWED
    cluster.namespace("dev", annotations={"muster.sh/quota-policy": "Queue"})
    # What the group says counts: it was marked, or wasn't, by whoever saw the namespace then.
    assert ask(podgroups.validate, podgroup(minResources={"cpu": "3"})).reservation is not None


@pytest.mark.parametrize(
    ("before", "after", "asks"),
    [
        ("", "Inqueue", True),
        ("Pending", "Inqueue", True),
        ("Pending", "Running", True),
        ("Pending", "Completed", False),
        ("Inqueue", "Running", False),
        ("Inqueue", "Pending", False),
        ("Unknown", "Pending", False),
        ("Completed", "Running", True),
    ],
)
def test_a_group_that_queues_reserves_with_its_phase(
    ask: Any, podgroup: Any, before: str, after: str, *, asks: bool
) -> None:
    old, new = (
        podgroup(metadata=QUEUED, minResources={"cpu": "3"}, status={"phase": phase}) for phase in (before, after)
    )
    verdict = ask(podgroups.validate, new, "UPDATE", old=old, subResource="status")
    amounts = Resources.parse({"cpu": 3})
    request = ReservationRequest(
        "dev", "PodGroup", "scheduling.volcano.sh", "gang", "uid-gang", amounts, "7", Resources({})
    )
    assert verdict.reservation == (request if asks else None)


def test_the_mark_taken_off_a_pending_group_makes_it_reserve_at_once(ask: Any, podgroup: Any) -> None:
    old = podgroup(metadata={**QUEUED, "resourceVersion": "7"}, minResources={"cpu": "3"})
    verdict = ask(podgroups.validate, podgroup(minResources={"cpu": "3"}), "UPDATE", old=old)
    assert verdict.reservation.asked == Resources.parse({"cpu": 3})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nope",
            (
                'queue "nope" (spec.queue) does not exist: use one of the open queues (default, research)'
                ' or create it with "muster queue create --name nope"'
            ),
        ),
        (
            "closed",
            (
                'queue "closed" (spec.queue) is Closed and takes no new PodGroup: use one of the open queues'
                ' (default, research) or open it with "muster queue open closed"'
            ),
        ),
        (
            "closing",
            (
                'queue "closing" (spec.queue) is Closing and takes no new PodGroup: use one of the open queues'
                ' (default, research) or open it with "muster queue open closing"'
            ),
        ),
        (
            "asked",
            (
                'queue "asked" (spec.queue) is Closing and takes no new PodGroup: use one of the open queues'
                ' (default, research) or open it with "muster queue open asked"'
            ),
        ),
        (
            "gone",
            (
                'queue "gone" (spec.queue) is being deleted and takes no new PodGroup: use one of the open queues'
                " (default, research)"
            ),
        ),
        (
            "dept",
            (
                'queue "dept" (spec.queue) has children and takes no PodGroup itself: use one of the open queues'
                " (default, research)"
            ),
        ),
        (
            "root",
            (
                'queue "root" (spec.queue) holds the other queues and takes no PodGroup itself: use one of the open queues'
                " (default, research)"
            ),
        ),
        (
            "gpu",
            (
                'queue "gpu" (spec.queue) serves only namespaces with team=ml, not "dev": use one of the open queues'
                " (default, research) or label the namespace so"
            ),
        ),
    ],
)
def test_a_queue_that_takes_no_work_is_refused_with_the_way_out(
    ask: Any, podgroup: Any, cluster: Any, name: str, message: str
) -> None:
    cluster.queue("closed", state="Closed")
    cluster.queue("closing", state="Closing")
    cluster.queue("asked", desiredState="Closed")
    cluster.queue("gone", metadata={"deletionTimestamp": "2026-11-21T12:00:00Z"})
    cluster.queue("dept")
    cluster.queue("team-b", parent="dept", desiredState="Closed")
    cluster.queue("team-a", parent="dept", desiredState="Closed")
    cluster.queue("gpu", namespaceSelector={"matchLabels": {"team": "ml"}})
    verdict = ask(podgroups.validate, podgroup(queue=name))
    assert (verdict.code, verdict.reason, verdict.message) == (403, "Forbidden", message)
    assert verdict.causes == ()


def test_a_queue_that_is_being_reopened_takes_work_at_once(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.queue("back", state="Closed", desiredState="Open")
    assert ask(podgroups.validate, podgroup(queue="back")) == ALLOWED


def test_without_any_open_queue_the_way_out_is_to_make_one(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.objects.clear()
    verdict = ask(podgroups.validate, podgroup(queue="nope"))
    assert verdict.message == (
        'queue "nope" (spec.queue) does not exist: create it with "muster queue create --name nope"'
    )


def test_a_long_list_of_queues_is_cut(ask: Any, podgroup: Any, cluster: Any) -> None:
    for number in range(500):
        cluster.queue(f"q{number:03}")
    message = ask(podgroups.validate, podgroup(queue="nope")).message
    assert "(default, q000, q001, q002, q003, q004, q005, q006 and 494 more)" in message


def test_a_refusal_names_the_cached_objects_that_it_rests_on(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.queue("dept")
    cluster.queue("team", parent="dept")
    cluster.queue("gpu", namespaceSelector={"matchLabels": {"team": "ml"}})

    def rests_on(queue: str, **more: Any) -> Any:
        return ask(podgroups.validate, podgroup(queue=queue, **more)).evidence

    assert rests_on("nope") == (ObjectRef(kinds.QUEUES, "nope"),)
    assert rests_on("nope", group=INCUBATOR) == (
        ObjectRef(kinds.QUEUES, "nope"),
        ObjectRef(kinds.LEGACY_QUEUES[0], "nope"),
    )
    assert rests_on("dept") == (ObjectRef(kinds.QUEUES, "team"),)
    assert rests_on("gpu") == (ObjectRef(kinds.QUEUES, "gpu"), ObjectRef(kinds.NAMESPACES, "dev"))


def test_a_legacy_group_may_use_a_queue_of_its_own_api_group(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.put(kinds.LEGACY_QUEUES[0], "old")
    assert ask(podgroups.validate, podgroup(queue="old", group=INCUBATOR)) == ALLOWED


def test_malformed_amounts_alone_are_invalid_and_each_is_a_cause(ask: Any, podgroup: Any) -> None:
    resources = {"cpu": "-1", "memory": "lots", "nvidia.com/gpu": "1e30", "pods": "2"}
    verdict = ask(podgroups.validate, podgroup(minResources=resources))
    assert (verdict.code, verdict.reason) == (422, "Invalid")
    assert verdict.causes == (
        ("spec.minResources[cpu]", "'-1' is negative; an amount is zero or more"),
        ("spec.minResources[memory]", "'lots' is not a quantity; write it like 500m, 2 or 1.5Gi"),
        ("spec.minResources[nvidia.com/gpu]", "'1e30' is more than Kubernetes can count: write less than 9.2e18"),
    )


def test_every_reason_is_told_at_once(ask: Any, podgroup: Any) -> None:
    verdict = ask(podgroups.validate, podgroup(queue="nope", minResources={"cpu": "NaN"}))
    assert (verdict.code, verdict.reason) == (403, "Forbidden")
    assert verdict.message == (
        "spec.minResources[cpu]: 'NaN' is not a quantity; write it like 500m, 2 or 1.5Gi;"
        ' queue "nope" (spec.queue) does not exist: use one of the open queues (default, research)'
        ' or create it with "muster queue create --name nope"'
    )


def test_one_name_in_two_api_groups_is_refused(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.put(kinds.LEGACY_PODGROUPS[0], "gang", "dev")
    verdict = ask(podgroups.validate, podgroup())
    assert verdict.message == (
        'the name "gang" is taken by a PodGroup of scheduling.incubator.k8s.io in this namespace: choose another'
    )
    assert verdict.evidence == (ObjectRef(kinds.LEGACY_PODGROUPS[0], "gang", "dev"),)


# ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_update_elsewhere_passes_whatever_became_of_the_queue(ask: Any, podgroup: Any) -> None:
    old, new = podgroup(queue="nope"), podgroup(queue="nope", metadata={"labels": {"a": "b"}})
    assert ask(podgroups.validate, new, "UPDATE", old=old) is ALLOWED
    assert ask(podgroups.validate, podgroup(queue="nope", minMember=2), "UPDATE", old=old) == ALLOWED


def test_a_move_to_a_queue_that_takes_no_work_is_refused(ask: Any, podgroup: Any) -> None:
    verdict = ask(podgroups.validate, podgroup(queue="nope"), "UPDATE", old=podgroup())
    assert verdict.code == 403
    assert ask(podgroups.validate, podgroup(queue="research"), "UPDATE", old=podgroup()) == ALLOWED


def test_growth_is_reserved_against_the_revision_that_it_changes(ask: Any, podgroup: Any) -> None:
    old, new = podgroup(minResources={"cpu": "2"}), podgroup(minResources={"cpu": "3"})
    request = ask(podgroups.validate, new, "UPDATE", old=old).reservation
    assert (request.revision, request.previous) == ("7", Resources.parse({"cpu": 2}))
    assert request.amounts == Resources.parse({"cpu": 3})


def test_shrinking_and_respelling_cost_the_ledger_nothing(ask: Any, podgroup: Any) -> None:
    old = podgroup(minResources={"cpu": "100m", "memory": "2Gi"})
    new = podgroup(minResources={"cpu": "0.1", "memory": "1Gi"})
    assert ask(podgroups.validate, new, "UPDATE", old=old) == ALLOWED


def test_a_completed_groups_minimum_is_frozen(ask: Any, podgroup: Any) -> None:
    completed = {"phase": "Completed"}
    old = podgroup(minResources={"cpu": "2"}, status=completed)
    verdict = ask(podgroups.validate, podgroup(minResources={"cpu": "3"}, status=completed), "UPDATE", old=old)
    assert (verdict.code, verdict.causes) == (
        422,
        (
            (
                "spec.minResources",
                'can\'t change from "2 cpu" to "3 cpu": the PodGroup is Completed; create a new one',
            ),
        ),
    )
    respelled = podgroup(minResources={"cpu": "2000m"}, status=completed)
    assert ask(podgroups.validate, respelled, "UPDATE", old=old) == ALLOWED


def test_what_was_malformed_already_does_not_block_other_changes(ask: Any, podgroup: Any) -> None:
    old = podgroup(minResources={"cpu": "-1"})
    new = podgroup(minResources={"cpu": "-1"}, minMember=3)
    assert ask(podgroups.validate, new, "UPDATE", old=old) == ALLOWED


def test_a_group_that_is_being_deleted_can_lose_its_finalizers_whatever_became_of_its_queue(
    ask: Any, podgroup: Any
) -> None:
    going = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
    old = podgroup(queue="gone", minResources={"cpu": "-1"}, metadata={**going, "finalizers": ["example.com/mine"]})
    new = podgroup(queue="gone", minResources={"cpu": "-1"}, metadata=going)
    assert ask(podgroups.validate, new, "UPDATE", old=old) == ALLOWED


def test_a_finalizer_is_no_way_past_queue_and_quota(ask: Any, podgroup: Any) -> None:
    going = {"deletionTimestamp": "2026-11-21T12:00:00Z", "finalizers": ["example.com/mine"]}
    old = podgroup(minResources={"cpu": "1"}, metadata=going)
    moved = ask(podgroups.validate, podgroup(queue="nope", metadata=going), "UPDATE", old=old)
    assert isinstance(moved, Denied)
    grown = ask(podgroups.validate, podgroup(minResources={"cpu": "9"}, metadata=going), "UPDATE", old=old)
    assert grown.reservation is not None
    assert str(grown.reservation.asked) == "8 cpu"


# ── warnings ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gang_that_can_never_start_passes_with_a_warning(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.size = Resources.parse({"cpu": "16", "memory": "64Gi", "pods": "440"})
    cluster.put(kinds.RESOURCEQUOTAS, "team", "dev", spec={"hard": {"pods": "3", "count/pods": "5"}})
    asked = podgroup(minMember=441, minResources={"requests.cpu": "17", "x/y": "1", "limits.cpu": "99"})
    assert ask(podgroups.validate, asked).warnings == (
        "all nodes together have 16 cpu, the gang needs 17 cpu to start",
        "all nodes together have no x/y, the gang needs 1 x/y to start",
        "all nodes together have 440 pods, the gang needs 441 pods to start",
        'minMember is 441, ResourceQuota "team" allows 3 pods',
    )


def test_task_minimums_above_the_gangs_are_pointed_out(ask: Any, podgroup: Any) -> None:
    asked = podgroup(minMember=2, minTaskMember={"master": 1, "worker": 2})
    assert ask(podgroups.validate, asked).warnings == (
        (
            "spec.minTaskMember adds up to 3, more than minMember 2: the gang starts with any 2 of its pods; raise spec.minMember"
            " to 3 to wait for each task"
        ),
    )


# ── mutation ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spec", [{}, {"queue": ""}, {"queue": "default"}])
def test_a_group_that_names_no_queue_goes_to_its_namespaces(ask: Any, podgroup: Any, cluster: Any, spec: Any) -> None:
    cluster.namespace("dev", annotations={"scheduling.volcano.sh/queue-name": "research"})
    asked = podgroup() | {"spec": spec}
    patched = jsonpatch.apply_patch(asked, ask(podgroups.mutate, asked).operations)
    assert patched == asked | {"spec": {"queue": "research"}}
    assert ask(podgroups.mutate, patched) == ALLOWED


@pytest.mark.parametrize("spec", [{}, {"queue": ""}, {"queue": "default"}])
def test_a_group_that_was_not_moved_yet_is_asked_to_come_again(
    ask: Any, podgroup: Any, cluster: Any, spec: Any
) -> None:
    cluster.namespace("dev", annotations={"scheduling.volcano.sh/queue-name": "research"})
    refused = ask(podgroups.validate, podgroup() | {"spec": spec})
    assert (refused.code, refused.retry_after) == (BUSY, 1)
    assert refused.message == 'namespace dev names the queue "research", which isn\'t known everywhere yet: try again'


def test_a_group_that_names_the_default_queue_itself_stays_there(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.namespace("dev", annotations={"scheduling.volcano.sh/queue-name": "research"})
    group = podgroup(metadata={"annotations": {"scheduling.volcano.sh/queue-name": "default"}})
    assert ask(podgroups.mutate, group | {"spec": {"queue": "default"}}) == ALLOWED
    assert ask(podgroups.validate, group | {"spec": {"queue": "default"}}) == ALLOWED


def test_a_group_without_spec_gets_one(ask: Any, podgroup: Any) -> None:
    asked = podgroup()
    del asked["spec"]
    assert ask(podgroups.mutate, asked).operations == ({"op": "add", "path": "/spec", "value": {"queue": "default"}},)


def test_a_chosen_queue_is_left_alone(ask: Any, podgroup: Any, cluster: Any) -> None:
    cluster.namespace("dev", annotations={"volcano.sh/queue-name": "research"})
    assert ask(podgroups.mutate, podgroup(queue="team-a")) == ALLOWED


def test_a_queue_that_is_full_is_told_of_and_refuses_nobody(ask: Any, podgroup: Any, cluster: Any) -> None:
    counts = {"state": "Open", "total": 9, "completed": 3, "pending": 4}
    cluster.put(kinds.QUEUES, "small", spec={"maxPodGroups": 2}, status=counts)
    verdict = ask(podgroups.validate, podgroup(queue="small"))
    assert verdict.warnings == ('queue "small" has 2 PodGroups past Pending and its maxPodGroups is 2: this one waits',)
    cluster.put(kinds.QUEUES, "small", spec={"maxPodGroups": 3}, status=counts)
    assert ask(podgroups.validate, podgroup(queue="small")).warnings == ()


def test_a_queue_below_a_closed_one_takes_no_new_work_and_nobody_is_sent_there(
    ask: Any, podgroup: Any, cluster: Any
) -> None:
    cluster.queue("division", desiredState="Closed")
    cluster.queue("team", parent="division")
    cluster.queue("leaf", parent="team")
    verdict = ask(podgroups.validate, podgroup(queue="leaf"))
    assert verdict.message == (
        'queue "leaf" (spec.queue) is below queue "division", which is Closing, and takes no new PodGroup: use one of the'
        ' open queues (default, research) or open that with "muster queue open division"'
    )


def test_who_names_a_queue_with_queues_below_is_sent_to_those_that_take_work(
    ask: Any, podgroup: Any, cluster: Any
) -> None:
    cluster.queue("division")
    cluster.queue("team", parent="division")
    cluster.queue("leaf", parent="team")
    cluster.queue("shut", parent="division", desiredState="Closed")
    verdict = ask(podgroups.validate, podgroup(queue="division"))
    assert verdict.message.endswith("has children and takes no PodGroup itself: use one of them (leaf)")


def test_who_misspells_a_queue_as_none_can_be_called_is_not_told_to_make_it(ask: Any, podgroup: Any) -> None:
    verdict = ask(podgroups.validate, podgroup(queue="Bad Name"))
    assert verdict.message.endswith("use one of the open queues (default, research) or correct the name")
