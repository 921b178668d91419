"""Committer and keeper against an API server, over a network that can fail."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from muster.kube.decoding import Unreadable
from muster.kube.errors import InvalidError
from muster.kube.transport import Request
from muster.ledger import wording
from muster.ledger.reservations import JOB, POD, PODGROUP, Exceeded, ReservationRequest, Reserved, Unavailable
from muster.model import kinds, names
from muster.model.amounts import NANO, Resources
from muster.model.objects import Meta, Object


def puts_ledger(request: Request) -> bool:
    return request.method == "PUT" and "quotaledgers" in request.path


async def test_without_a_quota_a_group_costs_one_read_and_no_ledger(lab: Any, asking: Any) -> None:
    one = await lab.process()
    assert await asking(one, "train", "6") == Reserved(recorded=False)
    assert [(each.method, each.path.rsplit("/", 1)[1]) for each in one.network.sent] == [("GET", "resourcequotas")]


async def test_a_group_that_asks_for_nothing_costs_no_call(lab: Any, asking: Any) -> None:
    one = await lab.process()
    assert await asking(one, "train", "0") == Reserved(recorded=False)
    assert one.network.sent == []


async def test_a_quota_that_limits_none_of_what_is_asked_makes_no_row(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, memory="1Gi")
    assert await asking(one, "train", "6") == Reserved(recorded=False)
    assert not [row for row in (await lab.ledger()).data.rows if row.startswith(PODGROUP)]


async def test_the_story_of_the_demo_deleting_a_group_frees_what_it_held(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    assert await lab.create(one, "train-a", "6") == Reserved()
    refused = await lab.create(one, "train", "6")
    assert isinstance(refused, Exceeded)
    request = ReservationRequest(
        lab.namespace, PODGROUP, names.VOLCANO_GROUP, "train", "u", Resources.parse({"cpu": "6"})
    )
    assert wording.refusal(request, refused) == (
        'PodGroup "train" requests 6 cpu, but quota "quota" has 10 cpu hard, 6 reserved (train-a 6), so 4 are free:'
        " short by 2 cpu; lower spec.minResources, wait for train-a, or raise the quota"
    )
    await lab.client.delete(kinds.PODGROUPS, "train-a", lab.namespace)
    assert await lab.create(one, "train", "6") == Reserved()


async def test_case_14_a_refusal_is_confirmed_live_where_the_watch_is_behind(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.create(one, "train-a", "6")
    await one.sees("train-a")
    one.network.slow_watch.clear()
    await lab.client.delete(kinds.PODGROUPS, "train-a", lab.namespace)
    assert await lab.create(one, "train", "6") == Reserved()
    one.network.slow_watch.set()


async def test_case_01_64_at_once_for_the_last_slots_get_exactly_what_there_is(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    one.network.sent.clear()
    answers = await asyncio.gather(*(lab.decided(partial(lab.create, one, f"g{n}", "3")) for n in range(64)))
    assert [type(answer) for answer in answers].count(Reserved) == 3
    assert [type(answer) for answer in answers].count(Exceeded) == 61
    if lab.virtual:  # where all of them come in at one moment
        assert one.network.count("PUT", "quotaledgers") <= 2


async def test_case_02_two_replicas_never_grant_more_than_there_is_and_both_progress(lab: Any, asking: Any) -> None:
    clients, room = (64, 100) if lab.virtual else (16, 25)
    replicas = [await lab.process(), await lab.process()]
    await lab.quota(replicas[0], cpu=str(room))
    started = asyncio.get_running_loop().time()
    done: list[tuple[int, float]] = []

    async def client(number: int) -> None:
        for turn in range(4):
            answer = await lab.decided(partial(lab.create, replicas[number % 2], f"g{number}-{turn}", "1"))
            done.append((number % 2, asyncio.get_running_loop().time()))
            granted.append(isinstance(answer, Reserved))

    granted: list[bool] = []
    await asyncio.gather(*(client(number) for number in range(clients)))
    assert granted.count(True) == room
    assert len((await lab.client.list(kinds.PODGROUPS, lab.namespace)).items) == room
    if lab.virtual:  # where only waiting takes time
        assert max(moment for _, moment in done) - started < 2.5


@pytest.mark.only("sandbox", reason="who is slower by how much is set, and told, in virtual time")
async def test_case_02_a_replica_that_is_slower_than_another_has_its_turn_too(lab: Any, asking: Any) -> None:
    fast, slow = await lab.process(), await lab.process()
    await lab.quota(fast, cpu="100000")
    slow.network.latency = 10 * slow.network.latency
    numbers = itertools.count()

    async def client() -> None:
        while isinstance(await asking(fast, f"g{next(numbers)}", "1"), Reserved):
            pass

    for _ in range(4):
        lab.run(client())
    await asyncio.sleep(0.05)
    for number in range(3):
        assert await asking(slow, f"mine{number}", "1") == Reserved()
    # Two that come too late, and then its turn.
    assert slow.network.count("PUT", "quotaledgers") <= 9


async def test_case_03_put_applied_response_lost_is_read_back_and_granted_once(
    lab: Any, asking: Any, fault: Any
) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    one.network.faults.append(fault(puts_ledger, applied=True))
    assert await lab.create(one, "train-a", "6") == Reserved()
    assert isinstance(await lab.create(one, "train-b", "6"), Exceeded)
    assert await lab.create(one, "train-c", "4") == Reserved()


async def test_case_04_a_write_that_never_arrived_is_made_again(lab: Any, asking: Any, fault: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    one.network.faults.append(fault(puts_ledger, applied=False))
    assert await lab.create(one, "train-a", "6") == Reserved()
    assert any("train-a" in row for row in (await lab.ledger()).data.rows)


@pytest.mark.only("sandbox", reason="waits until a review's time is up, to the tenth of a second: in virtual time")
async def test_case_06_whoever_can_not_be_answered_in_time_is_told_that_the_ledger_is_busy(
    lab: Any, asking: Any, fault: Any
) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    one.network.faults.append(fault(puts_ledger, times=1000, applied=False))
    answer = await asking(one, "train", "6")
    assert answer == Unavailable(
        f"the quota ledger of namespace {lab.namespace} is busy (the reply was lost); try again"
    )
    assert 4.4 < asyncio.get_running_loop().time() < 5


async def test_case_07_a_retry_with_a_new_uid_is_not_charged_twice(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    assert await asking(one, "train", "6", uid="first") == Reserved()
    assert await asking(one, "train", "6", uid="second") == Reserved()
    assert (await lab.ledger()).data.summary == "quota cpu 6/10"


async def test_case_08_the_same_review_sent_twice_is_one_row(lab: Any, asking: Any) -> None:
    one, two = await lab.process(), await lab.process()
    await lab.quota(one, cpu="10")
    assert await asyncio.gather(asking(one, "train", "6"), asking(two, "train", "6")) == [Reserved(), Reserved()]
    assert sum("train" in row for row in (await lab.ledger()).data.rows) == 1


@pytest.mark.only("sandbox", reason="waits for a reservation's 45 seconds: in virtual time")
async def test_cases_05_and_09_what_is_never_stored_is_let_go_after_its_deadline(lab: Any, asking: Any) -> None:
    one, leader = await lab.process(), await lab.process()
    lab.run(leader.controller.run())
    await lab.quota(one, cpu="10")
    assert await asking(one, "vetoed", "6") == Reserved()
    await asyncio.sleep(40)
    assert isinstance(await asking(one, "train", "6"), Exceeded)
    await asyncio.sleep(10)
    assert await asking(one, "train", "6") == Reserved()
    assert leader.metrics.registry.get_sample_value("muster_ledger_expiries_total") >= 1


async def test_case_11_a_name_that_exists_is_charged_once_so_that_the_api_server_can_say_so(
    lab: Any, asking: Any
) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.create(one, "train", "6")
    await one.sees("train")
    assert await asking(one, "train", "6", uid="again") == Reserved()
    assert (await lab.ledger()).data.summary == "quota cpu 6/10"


async def test_case_15_dry_run_answers_and_writes_nothing(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(None, cpu="10")
    assert await asking(one, "train", "6", dry_run=True) == Reserved()
    assert isinstance(await asking(one, "train", "12", dry_run=True), Exceeded)
    assert {each.method for each in one.network.sent} == {"GET"}


async def test_case_18_growth_is_charged_on_top_and_shrinking_when_it_is_seen(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.create(one, "train", "6")
    assert isinstance(await lab.resize(one, "train", "11"), Exceeded)
    assert await lab.resize(one, "train", "9") == Reserved()
    assert isinstance(await asking(one, "other", "2"), Exceeded)
    # Nobody is asked whether something may be given back.
    assert await lab.resize(one, "train", "1") is None
    assert await asking(one, "other", "9") == Reserved()


async def test_case_20_a_group_that_a_finalizer_holds_still_holds_its_amounts(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.create(one, "train", "6")
    finalizer = {"metadata": {"finalizers": ["example.com/hold"]}}
    await lab.client.patch(kinds.PODGROUPS, "train", finalizer, lab.namespace)
    await lab.client.delete(kinds.PODGROUPS, "train", lab.namespace)
    assert isinstance(await asking(one, "next", "6"), Exceeded)
    await lab.client.patch(kinds.PODGROUPS, "train", {"metadata": {"finalizers": None}}, lab.namespace)
    assert await asking(one, "next", "6") == Reserved()


async def test_a_completed_group_holds_nothing(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.create(one, "train", "6")
    await lab.client.patch(
        kinds.PODGROUPS, "train", {"status": {"phase": "Completed"}}, lab.namespace, subresource="status"
    )
    assert await asking(one, "next", "10") == Reserved()


async def test_case_21_delete_and_recreate_under_one_name(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    for _ in range(5):
        assert await lab.create(one, "train", "10") == Reserved()
        await lab.client.delete(kinds.PODGROUPS, "train", lab.namespace)


async def test_case_26_a_raised_quota_admits_at_once_and_a_lowered_one_admits_nothing_more(
    lab: Any, asking: Any
) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.create(one, "a", "8")

    await lab.change_quota(one, cpu="20")
    assert await lab.create(one, "b", "8") == Reserved()
    learned = await lab.change_quota(one, cpu="10")
    (shortage,) = learned.overcommitted
    assert wording.overcommitted("quota", shortage) == (
        'quota "quota" has 10 cpu hard, 16 reserved: short by 6 cpu; no more is admitted until it fits'
    )
    assert isinstance(await asking(one, "c", "1"), Exceeded)
    await lab.client.delete(kinds.RESOURCEQUOTAS, "quota", lab.namespace)
    assert await asking(one, "c", "1") == Reserved(recorded=False)


async def test_case_36_a_quota_that_no_webhook_saw_is_noticed_by_a_committer_and_by_the_leader(
    lab: Any, asking: Any
) -> None:
    one, leader = await lab.process(), await lab.process()
    await lab.quota(None, cpu="10")
    assert isinstance(await asking(one, "train", "11"), Exceeded)
    await lab.client.delete(kinds.QUOTALEDGERS, names.LEDGER_NAME, lab.namespace)
    lab.run(leader.controller.run())
    await lab.ledger_says(lambda ledger: ledger.data.seeded_at)


async def test_case_37_a_quota_over_existing_groups_counts_them(lab: Any, asking: Any) -> None:
    await lab.store("old-a", "8")
    await lab.store("old-b", "8")
    one = await lab.process()
    await lab.quota(one, cpu="10")
    assert (await lab.ledger()).data.summary == "quota cpu 16/10"
    assert isinstance(await asking(one, "new", "1"), Exceeded)


async def test_caches_that_are_older_than_the_ledger_neither_seed_it_anew_nor_let_pods_of_a_late_group_in(
    lab: Any, asking: Any
) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    # One that starts later lists at a revision to which the other's watches of idle kinds come within a minute.
    await lab.client.create(kinds.CONFIGMAPS, {"metadata": {"name": "other"}}, lab.namespace)
    assert await asking(await lab.process(), "first", "1") == Reserved()
    late = await lab.store("late", "12")
    await one.view.cache(kinds.PODGROUPS).reached(late.metadata.resource_version)
    assert await lab.pod(one, "outside", "4") == Reserved()
    member = await lab.pod(one, "member", "1", "late")
    assert isinstance(member, Exceeded)
    assert member.of_group
    assert (await lab.ledger()).data.summary == "quota cpu 5/10"


@pytest.mark.only("sandbox", reason="waits for a reservation's 45 seconds: in virtual time")
async def test_a_group_under_way_when_the_quota_came_is_unreserved_where_it_does_not_fit(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    assert await lab.create(one, "first", "6") == Reserved()
    late = await lab.store("late", "6")
    assert isinstance(await asking(one, "next", "5"), Exceeded)
    assert await asking(one, "next", "4") == Reserved()
    assert any(late.metadata.uid in row and "unreserved" in row for row in (await lab.ledger()).data.rows)
    await lab.client.delete(kinds.PODGROUPS, "first", lab.namespace)
    leader = await lab.process()
    lab.run(leader.controller.run())
    await asyncio.sleep(60)
    assert (await lab.ledger()).data.summary == "quota cpu 6/10"


@pytest.mark.only("sandbox", reason="waits for the 45 seconds in which requests may be under way: in virtual time")
async def test_a_guaranteed_namespace_reserves_nothing_before_all_that_was_under_way_has_come(lab: Any) -> None:
    replica = await lab.process()
    lab.run(replica.controller.run())
    labels = {"metadata": {"labels": {names.QUOTA_MODE: names.GUARANTEED}}}
    await lab.client.patch(kinds.NAMESPACES, lab.namespace, labels)
    seen = replica.view.cache(kinds.NAMESPACES)
    await lab.until(lambda: seen.get(lab.namespace).metadata.label(names.QUOTA_MODE) == names.GUARANTEED)
    await lab.quota(replica, cpu="4")
    early = await lab.create(replica, "early", "1")
    assert isinstance(early, Unavailable)
    assert "is guaranteed, so nothing is reserved until everything that was under way" in early.reason
    await asyncio.sleep(30)
    # These were admitted before there was a quota, and took their time.
    await lab.store("late", "2")
    await lab.pod(None, "stray", "1")
    assert not (await lab.ledger()).data.seeded_at
    await asyncio.sleep(20)
    assert isinstance(await lab.create(replica, "gang", "2"), Exceeded)
    assert await lab.create(replica, "small", "1") == Reserved()
    assert (await lab.ledger()).data.summary == "quota cpu 4/4"


@pytest.mark.only("sandbox", reason="waits for the 45 seconds in which requests may be under way: in virtual time")
async def test_what_a_guaranteed_quota_comes_to_limit_waits_and_the_rest_goes_on(lab: Any) -> None:
    replica = await lab.process()
    lab.run(replica.controller.run())
    await lab.quota(replica, memory="100Gi")
    assert await lab.create(replica, "unlimited", "1") == Reserved(recorded=False)
    labels = {"metadata": {"labels": {names.QUOTA_MODE: names.GUARANTEED}}}
    await lab.client.patch(kinds.NAMESPACES, lab.namespace, labels)
    seen = replica.view.cache(kinds.NAMESPACES)
    await lab.until(lambda: seen.get(lab.namespace).metadata.label(names.QUOTA_MODE) == names.GUARANTEED)
    await lab.change_quota(replica, memory="100Gi", cpu="4")
    early = await lab.create(replica, "early", "1")
    assert isinstance(early, Unavailable)
    assert "a quota has come to limit cpu" in early.reason
    await asyncio.sleep(30)
    await lab.store("late", "1")  # admitted before cpu had a limit
    await asyncio.sleep(20)
    assert isinstance(await lab.create(replica, "gang", "3"), Exceeded)
    assert await lab.create(replica, "small", "2") == Reserved()
    assert (await lab.ledger()).data.summary == "quota cpu 4/4, quota memory 0/100Gi"


async def test_a_deleted_ledger_is_made_again_from_what_exists(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.create(one, "train", "6")
    await lab.client.delete(kinds.QUOTALEDGERS, names.LEDGER_NAME, lab.namespace)
    assert isinstance(await asking(one, "next", "6"), Exceeded)
    assert await asking(one, "next", "4") == Reserved()


async def test_a_ledger_that_can_not_be_read_admits_nothing_and_says_where(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.client.patch(kinds.QUOTALEDGERS, names.LEDGER_NAME, {"data": {"rows": ["nonsense"]}}, lab.namespace)
    answer = await asking(one, "train", "1", within=1.0)
    assert isinstance(answer, Unavailable)
    assert f"QuotaLedger {lab.namespace}/default: data.rows[0] 'nonsense': it isn't of the form" in answer.reason
    assert "delete it, and it is made again from what exists" in answer.reason


async def test_a_name_is_refused_in_a_second_api_group(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    assert await asking(one, "train", "1") == Reserved()
    answer = await asking(one, "train", "1", uid="other", group=names.SIGS_GROUP)
    assert answer == Exceeded("", taken_in=names.VOLCANO_GROUP)


async def test_the_leader_folds_when_nobody_else_writes(lab: Any, asking: Any) -> None:
    one, leader = await lab.process(), await lab.process()
    lab.run(leader.controller.run())
    await lab.quota(one, cpu="10")
    assert await lab.create(one, "train", "6") == Reserved()
    await lab.ledger_says(lambda ledger: ledger.data.rows == () and ledger.data.summary == "quota cpu 6/10")
    await lab.client.delete(kinds.PODGROUPS, "train", lab.namespace)
    await lab.ledger_says(lambda ledger: ledger.data.summary == "quota cpu 0/10")


@pytest.mark.only("sandbox", reason="waits for a reservation's 45 seconds, and then some: in virtual time")
async def test_a_living_job_keeps_its_reservation_until_its_group_is_there_and_a_deleted_one_does_not(
    lab: Any, asking: Any
) -> None:
    one, leader = await lab.process(), await lab.process()
    lab.run(leader.controller.run())
    await lab.quota(one, cpu="10")
    pod = {"containers": [{"name": "main", "image": "example"}], "restartPolicy": "Never"}
    body = {"metadata": {"name": "job"}, "spec": {"suspend": True, "template": {"spec": pod}}}
    job = await lab.client.create(kinds.JOBS, body, lab.namespace)
    assert await asking(one, f"podgroup-{job.metadata.uid}", "6", uid=job.metadata.uid, kind=JOB) == Reserved()
    await asyncio.sleep(200)
    assert (await lab.ledger()).data.summary == "quota cpu 6/10"
    await lab.client.delete(kinds.JOBS, "job", lab.namespace)
    await asyncio.sleep(100)
    assert (await lab.ledger()).data.summary == "quota cpu 0/10"


async def test_case_12_and_34_200_at_once_are_answered_by_a_handful_of_writes(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="1k")
    one.network.sent.clear()
    answers = await asyncio.gather(*(asking(one, f"g{n}", "1") for n in range(300)))
    assert set(answers) == {Reserved()}
    assert one.network.count("PUT", "quotaledgers") == 2


@pytest.mark.only("sandbox", reason="waits for a reservation's 45 seconds: in virtual time")
async def test_case_13_a_group_stored_after_its_reservation_expired_is_unreserved_where_it_does_not_fit(
    lab: Any, asking: Any
) -> None:
    one, leader = await lab.process(), await lab.process()
    lab.run(leader.controller.run())
    await lab.quota(one, cpu="10")
    assert await asking(one, "slow", "6") == Reserved()
    await asyncio.sleep(60)
    assert await lab.create(one, "quick", "6") == Reserved()
    slow = await lab.store("slow", "6")
    await asyncio.sleep(5)
    assert f"{slow.metadata.uid} cpu=6 unreserved:" in "".join((await lab.ledger()).data.rows)


@pytest.mark.only("sandbox", reason="waits for a reservation's 45 seconds: in virtual time")
async def test_case_23_a_second_leader_and_a_replica_can_not_undo_each_other(lab: Any, asking: Any) -> None:
    one, *leaders = [await lab.process() for _ in range(3)]
    for leader in leaders:
        lab.run(leader.controller.run())
    await lab.quota(one, cpu="10")
    answers = [await lab.create(one, f"g{n}", "3") for n in range(5)]
    await asyncio.sleep(100)
    assert [type(answer) for answer in answers].count(Reserved) == 3
    assert (await lab.ledger()).data.summary == "quota cpu 9/10"


async def test_case_25_a_partitioned_replica_says_busy_and_recovers(lab: Any, asking: Any, fault: Any) -> None:
    one, two = await lab.process(), await lab.process()
    await lab.quota(one, cpu="10")
    one.network.faults.append(fault(lambda _: True, times=50, applied=False))
    cut_off, served = await asyncio.gather(asking(one, "a", "6", within=2.0), lab.create(two, "b", "6"))
    assert isinstance(cut_off, Unavailable)
    assert served == Reserved()
    one.network.faults.clear()
    assert isinstance(await asking(one, "a", "6"), Exceeded)


async def test_whoever_waits_when_a_replica_stops_is_told(lab: Any, asking: Any, fault: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    one.network.faults.append(fault(puts_ledger, times=1000, applied=False))
    waiting = asyncio.create_task(asking(one, "a", "6"))
    await asyncio.sleep(0.1)
    await one.committer.close()
    answer = await waiting
    assert isinstance(answer, Unavailable)
    assert "this replica is shutting down" in answer.reason


async def test_a_group_that_says_nothing_of_its_pods_is_in_no_scope(lab: Any) -> None:
    one = await lab.process()
    await lab.quota(one, scopes=["NotTerminating"], cpu="1")
    assert await lab.create(one, "train", "6") == Reserved(recorded=False)


async def test_case_27_quotas_of_disjoint_scopes_each_count_what_is_in_theirs(lab: Any) -> None:
    one, two = await lab.process(), await lab.process()
    await lab.quota(one, "batch", scopes=["Terminating"], **{"requests.cpu": "6"})
    await lab.quota(one, "services", scopes=["NotTerminating"], **{"requests.cpu": "2"})
    assert await lab.create(one, "train", "4", "terminating") == Reserved()
    refused = await lab.create(two, "tune", "3", "terminating")
    assert isinstance(refused, Exceeded)
    assert (refused.quota, [each.short // NANO for each in refused.shortages]) == ("batch", [1])
    assert await lab.create(two, "web", "1", "plain") == Reserved()
    # Pods of both kinds; a member's first four are what its group has reserved.
    assert await lab.pod(one, "service", "1") == Reserved()
    assert isinstance(await lab.pod(two, "service-2", "1"), Exceeded)
    assert await lab.pod(two, "task", "2", activeDeadlineSeconds=60) == Reserved()
    assert isinstance(await lab.pod(one, "task-2", "1", activeDeadlineSeconds=60), Exceeded)
    assert await lab.pod(one, "train-0", "4", "train", activeDeadlineSeconds=60) == Reserved()
    assert isinstance(await lab.pod(two, "train-1", "1", "train", activeDeadlineSeconds=60), Exceeded)
    assert (await lab.ledger()).data.summary == "batch requests.cpu 6/6, services requests.cpu 2/2"


async def test_a_quota_of_a_scope_that_is_made_over_what_runs_counts_it(lab: Any) -> None:
    one = await lab.process()
    lab.run(one.controller.run())
    await lab.quota(one, cpu="100")
    assert await lab.create(one, "train", "4", "terminating") == Reserved()
    assert await lab.pod(one, "task", "1", activeDeadlineSeconds=60) == Reserved()
    await lab.quota(one, "batch", scopes=["Terminating"], cpu="6")
    assert isinstance(await lab.pod(one, "task-2", "2", activeDeadlineSeconds=60), Exceeded)
    assert await lab.pod(one, "service", "2") == Reserved()
    assert await lab.pod(one, "task-3", "1", activeDeadlineSeconds=60) == Reserved()


async def test_traits_edited_after_admission_are_charged_in_the_scope_that_they_lead_to(lab: Any) -> None:
    one = await lab.process()
    await lab.quota(one, scopes=["NotTerminating"], cpu="10")
    # In the scope nothing is asked of a group that says it terminates; so it is free to be as large as it likes.
    assert await lab.create(one, "vast", "999", "terminating") == Reserved(recorded=False)
    assert await lab.create(one, "train", "10", "plain") == Reserved()
    refused = await lab.annotate(one, "vast", "plain")
    assert isinstance(refused, Exceeded)
    assert [each.short // NANO for each in refused.shortages] == [999]
    # The other way it gives up what it held; what is left of the scope is others', and no more than that.
    assert await lab.annotate(one, "train", "terminating") == Reserved(recorded=False)
    assert isinstance(await lab.annotate(one, "vast", "plain"), Exceeded)
    assert await lab.create(one, "tune", "4", "plain") == Reserved()
    assert isinstance(await lab.annotate(one, "train", "plain"), Exceeded)


async def test_a_deadline_set_on_a_pod_that_runs_is_charged_in_the_scope_that_it_leads_to(lab: Any) -> None:
    one, two = await lab.process(), await lab.process()
    await lab.quota(one, scopes=["Terminating"], cpu="10")
    assert await lab.pod(one, "task", "10", activeDeadlineSeconds=600) == Reserved()
    assert await lab.pod(one, "service", "3") == Reserved(recorded=False)
    refused = await lab.deadline(two, "service", 600)
    assert isinstance(refused, Exceeded)
    assert [(each.quota, each.short // NANO) for each in refused.shortages] == [("quota", 3)]


async def test_a_deadline_and_growth_in_one_update_are_charged_by_scope(lab: Any) -> None:
    one = await lab.process()
    await lab.quota(one, "all", cpu="10")
    await lab.quota(one, "short", scopes=["Terminating"], cpu="5")
    assert await lab.create(one, "train", "4", "plain") == Reserved()
    await one.sees("train")
    assert isinstance(
        await lab.annotate(one, "train", "terminating", cpu="6"), Exceeded
    )  # 6 of 5 there, 6 of 10 in all
    assert await lab.annotate(one, "train", "terminating", cpu="5") == Reserved()
    assert (await lab.ledger()).data.summary == "all cpu 5/10, short cpu 5/5"
    assert isinstance(await lab.create(one, "more", "1", "terminating"), Exceeded)
    assert await lab.create(one, "else", "5", "plain") == Reserved()


@pytest.mark.only("sandbox", reason="that nothing happens is shown by waiting: in virtual time")
async def test_a_late_group_that_does_not_fit_is_marked_once_and_the_leader_rests(lab: Any) -> None:
    leader = await lab.process()
    lab.run(leader.controller.run())
    await lab.quota(leader, cpu="4")
    await asyncio.sleep(5)
    await lab.store("late", "5")
    await asyncio.sleep(5)
    (reasons,) = [reasons for _, reasons in leader.controller.unreserved_groups.news()]
    assert "short by 1 cpu" in reasons["scheduling.volcano.sh", "late"]
    writes = leader.network.count("PUT", "quotaledgers")
    await asyncio.sleep(30)
    assert leader.network.count("PUT", "quotaledgers") == writes


# ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_a_group_reserved_stays_free_for_its_pods_through_two_replicas(lab: Any) -> None:
    first, second = await lab.process(), await lab.process()
    await lab.quota(first, cpu="10")
    assert await lab.create(first, "gang", "6") == Reserved()
    pods = [lab.pod((first, second)[n % 2], f"out{n}", "1") for n in range(8)]
    assert sorted(type(each).__name__ for each in await asyncio.gather(*pods)) == ["Exceeded"] * 4 + ["Reserved"] * 4
    members = [lab.pod((first, second)[n % 2], f"m{n}", "2", "gang") for n in range(4)]
    given = await asyncio.gather(*members)
    assert sorted(type(each).__name__ for each in given) == ["Exceeded"] + ["Reserved"] * 3
    assert (await lab.ledger()).data.summary == "quota cpu 10/10"


async def test_case_29_pods_and_groups_that_race_never_get_more_than_there_is(lab: Any) -> None:
    first, second = await lab.process(), await lab.process()
    await lab.quota(first, cpu="10")
    asks = [
        each
        for n in range(8)
        for each in (
            lab.decided(partial(lab.pod, (first, second)[n % 2], f"p{n}", "1")),
            lab.decided(partial(lab.create, (second, first)[n % 2], f"g{n}", "2")),
        )
    ]
    given = await asyncio.gather(*asks)
    units = sum((1, 2)[n % 2] for n, answer in enumerate(given) if isinstance(answer, Reserved))
    assert units in {9, 10}
    assert (await lab.ledger()).data.summary == f"quota cpu {units}/10"


@pytest.mark.only("sandbox", reason="waits for a reservation's 45 seconds: in virtual time")
async def test_a_pod_that_was_never_stored_gives_back_what_was_reserved_for_it(lab: Any, asking: Any) -> None:
    replica = await lab.process()
    lab.run(replica.controller.run())
    await lab.quota(replica, cpu="4")
    assert await asking(replica, "ghost", "4", kind=POD, group="") == Reserved()
    await asyncio.sleep(30)
    assert isinstance(await lab.pod(replica, "a", "1"), Exceeded)
    await asyncio.sleep(30)
    assert await lab.pod(replica, "b", "4") == Reserved()


async def test_a_pod_that_no_webhook_saw_is_counted_once_it_is_shown(lab: Any) -> None:
    replica = await lab.process()
    lab.run(replica.controller.run())
    await lab.quota(replica, cpu="4")
    await lab.pod(None, "stray", "3")
    await lab.ledger_says(lambda ledger: ledger.data.summary == "quota cpu 3/4")
    assert isinstance(await lab.create(replica, "gang", "2"), Exceeded)
    await lab.client.delete(kinds.PODS, "stray", lab.namespace)
    assert await lab.create(replica, "gang", "2") == Reserved()


async def test_a_group_that_comes_after_its_pods_needs_no_second_place_for_them(lab: Any) -> None:
    replica = await lab.process()
    await lab.quota(replica, cpu="6")
    assert await lab.pod(replica, "m0", "2", "gang") == Reserved()
    assert await lab.create(replica, "gang", "6") == Reserved()
    assert isinstance(await lab.pod(replica, "out", "1"), Exceeded)
    assert await lab.pod(replica, "m1", "4", "gang") == Reserved()


@pytest.mark.parametrize("name", ["a b", "a,b", "a=b", "a/b/c", "-", "x" * 400])
async def test_a_resource_that_has_no_name_is_refused_without_a_webhook_too(lab: Any, name: str) -> None:
    group = {"metadata": {"name": "train"}, "spec": {"minMember": 1, "minResources": {"cpu": "1", name: "1"}}}
    lab.front.replica = None
    with pytest.raises(InvalidError, match="must be a qualified name"):
        await lab.client.create(kinds.PODGROUPS, group, lab.namespace)
    group["spec"] |= {"minResources": {"nvidia.com/gpu": "1", "limits.cpu": "2", "hugepages-2Mi": "4Mi"}}  # type: ignore[operator]
    await lab.client.create(kinds.PODGROUPS, group, lab.namespace)


@pytest.mark.parametrize("kind", [kinds.PODS, kinds.PODGROUPS], ids=["pod", "group"])
async def test_a_quota_grants_nothing_while_nobody_knows_what_an_object_takes_of_it(
    lab: Any, asking: Any, kind: Any
) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    about = Object(metadata=Meta(name="strange", namespace=lab.namespace, uid="u-strange"))
    cache = one.view.cache(kind)
    cache.set_aside(Unreadable(Object(metadata=replace(about.metadata, resource_version=cache.revision)), "no text"))
    refused = await asking(one, "train", "6")
    assert isinstance(refused, Unavailable)
    assert f"{kind.name} strange can't be read" in refused.reason
    cache.unreadable.clear()
    assert isinstance(await asking(one, "train", "6"), Reserved)
