"""What views remember of when groups came and went."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from muster.kube.cache import ObjectCache
from muster.ledger.conversion import limits_of, observed_pod
from muster.ledger.namespace_view import NamespaceView
from muster.ledger.observer import Observer
from muster.ledger.reservations import Exceeded
from muster.ledger.view import LedgerView, source
from muster.model.amounts import Resources
from muster.model.kinds import PODGROUPS
from muster.model.names import VOLCANO_GROUP
from muster.model.objects import (
    Meta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    ResourceClaim,
    ResourceQuota,
    ResourceQuotaSpec,
)

GROUPS = source(VOLCANO_GROUP)


def group(name: str, revision: int, cpu: str = "1", phase: str = "") -> PodGroup:
    meta = Meta(name=name, namespace="ns", uid=f"u-{name}", resource_version=str(revision))
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_resources={"cpu": cpu}), status=PodGroupStatus(phase=phase))


def observed() -> tuple[Observer, ObjectCache[PodGroup], ObjectCache[ResourceQuota]]:
    groups, quotas = ObjectCache[PodGroup](), ObjectCache[ResourceQuota]()
    return Observer({PODGROUPS: groups}, quotas, ObjectCache[Pod](), ObjectCache[ResourceClaim]()), groups, quotas


def born_after(view: LedgerView, revision: int) -> set[str]:
    return {shown.name for shown in view.born_after({GROUPS: revision})}


def test_a_watch_tells_exactly_when_a_group_came() -> None:
    observer, groups, _ = observed()
    groups.replace([], "10")
    observer.view("ns")
    groups.put(group("a", 15))
    assert born_after(observer.view("ns"), 14) == {"a"}
    assert born_after(observer.view("ns"), 15) == set()


def test_a_first_list_tells_nothing_about_when_its_groups_came() -> None:
    observer, groups, _ = observed()
    groups.replace([group("a", 10), group("b", 7)], "10")
    assert born_after(observer.view("ns"), 1) == set()


def test_a_later_list_tells_that_its_new_groups_came_after_the_view_before() -> None:
    observer, groups, _ = observed()
    groups.replace([group("old", 5)], "10")
    observer.view("ns")
    groups.replace([group("old", 19), group("a", 15), group("b", 16)], "20")
    assert born_after(observer.view("ns"), 10) == {"a", "b"}
    assert born_after(observer.view("ns"), 11) == set()


def test_totals_follow_every_change_and_a_completed_group_holds_nothing() -> None:
    observer, groups, _ = observed()
    groups.replace([group("a", 5, "2"), group("b", 6, "3")], "10")
    observer.view("ns").follow({"cpu"})
    assert observer.view("ns").total == Resources.parse({"cpu": "5"})
    groups.put(group("a", 11, "4"))
    assert observer.view("ns").total == Resources.parse({"cpu": "7"})
    groups.put(group("b", 12, "3", phase="Completed"))
    assert observer.view("ns").total == Resources.parse({"cpu": "4"})
    groups.drop(group("a", 13))
    assert not observer.view("ns").total


def test_a_group_that_came_and_went_is_remembered() -> None:
    observer, groups, _ = observed()
    groups.replace([], "10")
    groups.put(group("a", 11))
    groups.drop(group("a", 12))
    view = observer.view("ns")
    assert view.delivered("u-a")
    assert not view.group("u-a")
    assert not view.delivered("u-never")


def test_what_the_caches_saw_later_than_a_list_does_not_count_as_delivered_by_it() -> None:
    class Later:
        def last_seen(self, _: str) -> tuple[str, int]:
            return GROUPS, 15

    assert not NamespaceView({GROUPS: 14}, Later()).delivered("u-a")
    assert NamespaceView({GROUPS: 15}, Later()).delivered("u-a")


def test_limits_that_can_not_be_read_limit_nothing_and_hide_no_others() -> None:
    quota = ResourceQuota(spec=ResourceQuotaSpec(hard={"cpu": "4", "memory": "lots"}))
    assert limits_of(quota) == Resources.parse({"cpu": "4"})


async def test_a_fresh_read_waits_for_the_watch_to_tell_what_came_late(lab: Any, asking: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    await lab.create(one, "first", "6")
    await one.sees("first")
    one.network.slow_watch.clear()
    late = await lab.store("late", "6")
    asyncio.get_running_loop().call_later(0.1, one.network.slow_watch.set)
    answer = await asking(one, "next", "5")
    assert isinstance(answer, Exceeded)
    assert answer.holders[0][0] == "first"
    assert await lab.create(one, "small", "1")
    assert f"{late.metadata.uid} cpu=6 unreserved:" in "".join((await lab.ledger()).data.rows)
    assert "cpu 7/10" in (await lab.ledger()).data.summary


def test_a_pod_of_another_scheduler_is_no_member_of_the_group_that_it_names():
    named = {
        "name": "p",
        "namespace": "dev",
        "uid": "u",
        "resourceVersion": "1",
        "annotations": {"scheduling.k8s.io/group-name": "gang"},
    }
    for scheduler, group in (("muster", "gang"), ("theirs", ""), ("", "")):
        pod = msgspec.convert({"metadata": named, "spec": {"schedulerName": scheduler}}, Pod)
        assert observed_pod(pod, schedulers=("muster",)).group == group
        assert observed_pod(pod).group == "gang"
        noted = named | {"annotations": named["annotations"] | {"muster.sh/member-of": "gang"}}
        member = msgspec.convert({"metadata": noted, "spec": {"schedulerName": scheduler}}, Pod)
        assert observed_pod(member, schedulers=("muster",)).group == "gang"


def test_a_bare_pod_is_counted_with_its_own_group_before_it_names_it():
    bare = {"name": "p", "namespace": "dev", "uid": "u", "resourceVersion": "1"}
    for scheduler, group in (("muster", "podgroup-u"), ("theirs", "")):
        pod = msgspec.convert({"metadata": bare, "spec": {"schedulerName": scheduler}}, Pod)
        assert observed_pod(pod, schedulers=("muster",)).group == group
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
    owned = msgspec.convert({"metadata": bare | {"ownerReferences": [owner]}, "spec": {"schedulerName": "muster"}}, Pod)
    assert observed_pod(owned, schedulers=("muster",)).group == ""
