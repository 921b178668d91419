"""Rules for Jobs."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from muster.ledger.reservations import ReservationRequest
from muster.model import kinds
from muster.model.amounts import Resources
from webhooks.policies import jobs
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED

NEW = "scheduling.volcano.sh/"


# ── mutation ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_of_ours_is_suspended_and_marked_as_suspended_by_us(ask: Any, job: Any) -> None:
    asked = job(annotations={"mine": "kept"})
    patched = jsonpatch.apply_patch(asked, ask(jobs.mutate, asked).operations)
    assert patched["spec"] == asked["spec"] | {"suspend": True}
    assert patched["metadata"]["annotations"] == {"mine": "kept", "muster.sh/suspended": "true"}
    assert ask(jobs.mutate, patched) == ALLOWED


def test_a_job_without_annotations_gets_them(ask: Any, job: Any) -> None:
    asked = job()
    del asked["metadata"]["annotations"]
    patched = jsonpatch.apply_patch(asked, ask(jobs.mutate, asked).operations)
    assert patched["metadata"]["annotations"] == {"muster.sh/suspended": "true"}


@pytest.mark.parametrize(
    "fields", [{"scheduler": "default-scheduler"}, {"suspend": True}, {"annotations": {"muster.sh/delay": "off"}}]
)
def test_a_job_of_others_or_one_that_its_user_suspended_or_hurries_is_left_alone(
    ask: Any, job: Any, fields: Any
) -> None:
    assert ask(jobs.mutate, job(**fields)) == ALLOWED


def test_the_delay_is_off_where_the_queue_or_the_namespace_says_so_and_the_nearest_wins(
    ask: Any, job: Any, cluster: Any
) -> None:
    cluster.queue("research", metadata={"annotations": {"muster.sh/delay": "off"}})
    in_research = {NEW + "queue-name": "research"}
    assert ask(jobs.mutate, job(annotations=in_research)) == ALLOWED
    assert ask(jobs.mutate, job(annotations=in_research | {"muster.sh/delay": "suspend"})).operations
    assert ask(jobs.mutate, job()).operations
    cluster.namespace("dev", annotations={"muster.sh/delay": "off"})
    assert ask(jobs.mutate, job()) == ALLOWED


def test_nothing_is_delayed_where_the_scheduler_does_not_enqueue(ask: Any, job: Any) -> None:
    assert ask(jobs.mutate, job(), settings=WebhookSettings(delay=False)) == ALLOWED


# ── validation ───────────────────────────────────────────────────────────────────────────────────────────────────


def requested(amounts: Any) -> ReservationRequest:
    parsed = Resources.parse(amounts)
    return ReservationRequest(
        "dev", "Job", "scheduling.volcano.sh", "podgroup-uid-train", "uid-train", parsed, scope_facts=TRAITS
    )


TRAITS = "plain"


@pytest.mark.parametrize(
    ("fields", "amounts"),
    [
        ({}, {"cpu": "1"}),
        ({"annotations": {NEW + "group-min-member": "2"}}, {"cpu": "2"}),
        ({"pod": {"scheduling.k8s.io/group-min-member": "2"}}, {"cpu": "2"}),
        ({"annotations": {NEW + "group-min-resources": '{"cpu": "5", "x/y": "1"}'}}, {"cpu": "5", "x/y": "1"}),
    ],
)
def test_the_minimum_of_the_coming_group_is_reserved_under_its_name(
    ask: Any, job: Any, fields: Any, amounts: Any
) -> None:
    verdict = ask(jobs.validate, job(**fields))
    assert verdict.reservation == requested(amounts)
    assert verdict.warnings == ()


def test_the_queue_is_the_nearest_that_is_named(ask: Any, job: Any, cluster: Any) -> None:
    def refused(**fields: Any) -> str:
        return str(ask(jobs.validate, job(**fields)).message).partition(":")[0]

    cluster.namespace("dev", annotations={NEW + "queue-name": "of-namespace"})
    annotation = "(annotation scheduling.volcano.sh/queue-name)"
    assert refused() == f'queue "of-namespace" {annotation} does not exist'
    assert refused(annotations={NEW + "queue-name": "of-job"}) == f'queue "of-job" {annotation} does not exist'
    both = {"annotations": {NEW + "queue-name": "of-job"}, "pod": {"volcano.sh/queue-name": "of-pod"}}
    assert refused(**both) == f'queue "of-pod" {annotation} does not exist'


def test_the_default_queue_is_checked_too(ask: Any, job: Any, cluster: Any) -> None:
    cluster.queue("default", state="Closed")
    assert ask(jobs.validate, job()).message == (
        'queue "default" (where no annotation names another) is Closed and takes no new Job:'
        ' use one of the open queues (research) or open it with "muster queue open default"'
    )


def test_a_job_in_a_named_group_is_judged_by_that_groups_queue_and_reserves_nothing(
    ask: Any, job: Any, cluster: Any
) -> None:
    cluster.put(kinds.PODGROUPS, "gang", "dev", spec={"queue": "research"})
    asked = job(pod={NEW + "group-name": "gang"}, annotations={NEW + "queue-name": "nope"})
    assert ask(jobs.validate, asked) == ALLOWED
    cluster.queue("research", state="Closing")
    assert ask(jobs.validate, asked).message.startswith('queue "research" (of PodGroup "gang") is Closing and takes no')


def test_a_named_group_may_come_later(ask: Any, job: Any) -> None:
    verdict = ask(jobs.validate, job(pod={NEW + "group-name": "later"}))
    assert verdict.warnings == ('PodGroup "later" does not exist yet; the pods wait until it does',)


def test_a_job_of_others_passes_and_is_told_when_its_annotations_do_nothing(ask: Any, job: Any) -> None:
    assert ask(jobs.validate, job(scheduler="default-scheduler")) == ALLOWED
    asked = job(scheduler="default-scheduler", annotations={NEW + "queue-name": "nope"})
    assert ask(jobs.validate, asked).warnings == (
        'the queue and group annotations have no effect: the pods\' schedulerName is not "muster"',
    )


def test_annotations_that_say_nothing_legal_are_told(ask: Any, job: Any) -> None:
    asked = job(
        annotations={"muster.sh/delay": "later", NEW + "group-min-member": "two", NEW + "group-min-resources": "much"}
    )
    verdict = ask(jobs.validate, asked)
    assert verdict.reservation == requested({"cpu": "1"})
    assert verdict.warnings == (
        'muster.sh/delay "later" is ignored: write suspend or off',
        "scheduling.volcano.sh/group-min-member 'two' counts as 1: write a whole number from 0 to 2147483647",
        'scheduling.volcano.sh/group-min-resources \'much\' is ignored: write it like {"cpu": "2"}',
    )


@pytest.mark.parametrize(
    ("spec", "most"), [({"parallelism": 2}, 2), ({"completions": 1}, 1), ({"parallelism": None}, 1)]
)
def test_a_gang_that_its_job_can_never_fill_is_refused(ask: Any, job: Any, spec: Any, most: int) -> None:
    verdict = ask(jobs.validate, job(annotations={NEW + "group-min-member": "3"}, **spec))
    assert verdict.message == (
        f"the gang never starts: it needs 3 pods at once, parallelism and completions allow {most}:"
        f" raise them to 3 or lower annotation scheduling.k8s.io/group-min-member to {most}"
    )


def test_a_gang_of_a_job_that_makes_no_pods_for_now_passes(ask: Any, job: Any) -> None:
    verdict = ask(jobs.validate, job(annotations={NEW + "group-min-member": "3"}, parallelism=0))
    assert verdict.reservation == requested({"cpu": "3"})


def test_an_update_is_judged_by_the_queue_only_when_that_changes(ask: Any, job: Any) -> None:
    lost = job(annotations={NEW + "queue-name": "nope"})
    assert ask(jobs.validate, lost | {"spec": lost["spec"] | {"suspend": True}}, "UPDATE", old=lost) == ALLOWED
    assert ask(jobs.validate, lost, "UPDATE", old=job()).code == 403


def test_a_queue_changed_after_creation_points_to_the_group(ask: Any, job: Any) -> None:
    verdict = ask(jobs.validate, job(annotations={NEW + "queue-name": "research"}), "UPDATE", old=job())
    group = "the Job's PodGroup, which its annotation muster.sh/group names"
    assert verdict.warnings == (f"the queue was set at creation: change spec.queue of {group}",)


def test_a_minimum_changed_after_creation_points_to_the_group(ask: Any, job: Any) -> None:
    verdict = ask(jobs.validate, job(annotations={NEW + "group-min-member": "2"}), "UPDATE", old=job())
    assert verdict.warnings == (
        "the minimum was set at creation: change the Job's PodGroup, which its annotation muster.sh/group names",
    )


def test_a_job_that_is_being_deleted_can_always_be_changed(ask: Any, job: Any) -> None:
    gone = job(annotations={NEW + "queue-name": "nope"})
    gone["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    assert ask(jobs.validate, gone, "UPDATE", old=job()) == ALLOWED
