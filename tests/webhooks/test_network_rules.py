"""Gangs that the network between nodes can never hold are refused, as far as the scheduler has said what the network is."""

from __future__ import annotations

from typing import Any

import pytest

from muster.model import kinds
from muster.model.workloads import WORKLOADS
from webhooks.evaluation import HOOKS, ReadObjects, evaluate
from webhooks.policies import jobs, podgroups, workloads
from webhooks.settings import WebhookSettings
from webhooks.verdict import Allowed, Denied, ObjectRef

MODE, TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
MEMBERS = "scheduling.k8s.io/group-min-member"
BY_NAME = {each.kind.name: each.kind for each in WORKLOADS}
TIERS = [
    {"tier": 1, "name": "rack", "domains": 3, "largest": {"cpu": "64", "nvidia.com/gpu": "8", "pods": "220"}},
    {"tier": 2, "name": "zone", "domains": 2, "largest": {"cpu": "192", "nvidia.com/gpu": "16", "pods": "660"}},
]


@pytest.fixture
def network(cluster: Any) -> Any:
    """Has the scheduler say what the network is: ``network(tiers)``."""

    def told(tiers: Any) -> None:
        cluster.put(kinds.QUEUES, "default", status={"state": "Open", "networkTiers": tiers})

    told(TIERS)
    return told


def hard(tier: int | str | None = 1) -> dict[str, Any]:
    if tier is None:
        return {"mode": "hard"}
    return {"mode": "hard", "highestTierAllowed" if isinstance(tier, int) else "highestTierName": tier}


def text(verdict: Any) -> str:
    assert isinstance(verdict, Denied), verdict
    assert (verdict.code, verdict.evidence) == (403, (ObjectRef(kinds.QUEUES, "default"),))
    return verdict.message


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            hard(7),
            (
                "tier 7 (spec.networkTopology.highestTierAllowed) does not exist: the network has 1 (rack) and 2 (zone); "
                "use one of them, or mode soft"
            ),
        ),
        (
            hard("row"),
            (
                'tier "row" (spec.networkTopology.highestTierName) does not exist: the network has 1 (rack) and 2 (zone); '
                "use one of them, or mode soft"
            ),
        ),
    ],
)
def test_a_tier_that_does_not_exist_is_refused(ask: Any, podgroup: Any, network: Any, asked: Any, message: str) -> None:
    assert text(ask(podgroups.validate, podgroup(minMember=2, networkTopology=asked))) == message
    part = {"name": "stage", "subGroupSize": 1, "networkTopology": asked}
    told = text(ask(podgroups.validate, podgroup(minMember=2, subGroupPolicy=[part])))
    assert told == message.replace("spec.networkTopology", "spec.subGroupPolicy[0].networkTopology")


def test_where_nothing_describes_the_network_a_required_gang_is_refused(ask: Any, podgroup: Any, network: Any) -> None:
    network([])
    told = text(ask(podgroups.validate, podgroup(minMember=2, networkTopology=hard(None))))
    assert told == (
        "the gang never starts: its pods have to be in one domain of the network (spec.networkTopology), and nothing describes the "
        "network between nodes: ask an administrator for HyperNodes, or use mode soft"
    )


@pytest.mark.parametrize("asked", [hard(), hard(2), hard("zone"), hard("rack"), hard(None)])
def test_what_a_domain_may_hold_passes(ask: Any, podgroup: Any, network: Any, asked: Any) -> None:
    verdict = ask(
        podgroups.validate, podgroup(minMember=8, minResources={"nvidia.com/gpu": "8"}, networkTopology=asked)
    )
    assert isinstance(verdict, Allowed)


@pytest.mark.parametrize("tiers", [None, [{"tier": 1, "name": "rack", "domains": 3}]])
def test_where_nobody_has_said_how_large_domains_are_any_size_passes(
    ask: Any, podgroup: Any, network: Any, tiers: Any
) -> None:
    network(tiers)
    large = podgroup(minMember=900, minResources={"nvidia.com/gpu": "900"}, networkTopology=hard())
    assert isinstance(ask(podgroups.validate, large), Allowed)
    if tiers is None:
        assert isinstance(ask(podgroups.validate, podgroup(minMember=2, networkTopology=hard(7))), Allowed)


@pytest.mark.parametrize("asked", [{"mode": "soft", "highestTierAllowed": 7}, {"mode": "soft"}])
def test_what_is_preferred_is_never_refused(ask: Any, podgroup: Any, network: Any, asked: Any) -> None:
    large = podgroup(minMember=900, minResources={"nvidia.com/gpu": "900"}, networkTopology=asked)
    assert isinstance(ask(podgroups.validate, large), Allowed)


def test_a_gang_larger_than_any_domain_is_refused_and_told_which_tier_holds_it(
    ask: Any, podgroup: Any, network: Any
) -> None:
    large = podgroup(minMember=12, minResources={"nvidia.com/gpu": "12"}, networkTopology=hard())
    assert text(ask(podgroups.validate, large)) == (
        "the gang never starts: it needs 12 nvidia.com/gpu in one rack (spec.networkTopology), the largest has 8 nvidia.com/gpu: make "
        "it smaller, allow tier 2 (zone), or use mode soft"
    )
    larger = podgroup(minMember=1000, networkTopology=hard(2))
    assert text(ask(podgroups.validate, larger)) == (
        "the gang never starts: it needs 1000 pods in one zone (spec.networkTopology), the largest has 660 pods: make it smaller, or "
        "use mode soft"
    )


def test_what_no_node_has_is_not_the_networks_affair(ask: Any, podgroup: Any, network: Any) -> None:
    asked = {"requests.storage": "1Ti", "limits.cpu": "4000", "example.com/unknown": "3"}
    assert isinstance(
        ask(podgroups.validate, podgroup(minMember=2, minResources=asked, networkTopology=hard())), Allowed
    )


def parts(size: int, count: int, tier: int = 1) -> list[dict[str, Any]]:
    keys = ["example.com/stage"]
    return [
        {
            "name": "stage",
            "matchLabelKeys": keys,
            "subGroupSize": size,
            "minSubGroups": count,
            "networkTopology": hard(tier),
        }
    ]


def test_a_subgroup_larger_than_any_domain_is_refused(ask: Any, podgroup: Any, network: Any) -> None:
    told = text(ask(podgroups.validate, podgroup(minMember=300, subGroupPolicy=parts(300, 1))))
    assert told == (
        'a subgroup "stage" never starts: it needs 300 pods in one rack (spec.subGroupPolicy[0].networkTopology), the largest has '
        "220 pods: make it smaller, allow tier 2 (zone), or use mode soft"
    )


def test_subgroups_that_need_more_than_as_many_domains_have_are_refused(ask: Any, podgroup: Any, network: Any) -> None:
    def asked(gpus: int, member: int = 8) -> Any:
        spec = {"minMember": member, "minResources": {"nvidia.com/gpu": str(gpus)}, "subGroupPolicy": parts(4, 2)}
        return ask(podgroups.validate, podgroup(**spec))

    assert text(asked(17)) == (
        "the gang never starts: it needs 17 nvidia.com/gpu in 2 subgroups, each in one domain (spec.subGroupPolicy), and 2 of the "
        "largest have 16 nvidia.com/gpu: make it smaller, or use mode soft"
    )
    assert isinstance(asked(16), Allowed)
    assert isinstance(asked(17, member=9), Allowed), "one pod may be anywhere"


def test_an_update_is_judged_by_what_it_adds(ask: Any, podgroup: Any, network: Any) -> None:
    large = podgroup(minMember=12, minResources={"nvidia.com/gpu": "12"}, networkTopology=hard())
    smaller = podgroup(minMember=10, minResources={"nvidia.com/gpu": "10"}, networkTopology=hard())
    assert isinstance(ask(podgroups.validate, smaller, "UPDATE", old=large), Allowed)
    assert "it needs 12 nvidia.com/gpu in one rack" in text(ask(podgroups.validate, large, "UPDATE", old=smaller))
    free = podgroup(minMember=10, minResources={"nvidia.com/gpu": "10"})
    assert "it needs 10 nvidia.com/gpu in one rack" in text(ask(podgroups.validate, smaller, "UPDATE", old=free))
    moved = podgroup(minMember=12, minResources={"nvidia.com/gpu": "12"}, networkTopology=hard(), queue="research")
    assert isinstance(ask(podgroups.validate, moved, "UPDATE", old=large), Allowed)


def test_a_group_that_was_generated_was_judged_with_its_workload(ask: Any, podgroup: Any, network: Any) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}
    generated = podgroup(
        "podgroup-uid-web", metadata={"ownerReferences": [owner]}, minMember=2, networkTopology=hard(7)
    )
    assert isinstance(ask(podgroups.validate, generated), Allowed)


def test_a_job_is_judged_by_its_annotations(ask: Any, job: Any, network: Any) -> None:
    def asked(pods: int, tier: str, mode: str = "hard") -> Any:
        near = {MODE: mode, TIER: tier, MEMBERS: str(pods)}
        return ask(jobs.validate, job(pod=near, parallelism=pods, completions=pods))

    assert isinstance(asked(64, "1"), Allowed)
    assert text(asked(65, "rack")) == (
        "the gang never starts: it needs 65 cpu in one rack (annotation volcano.sh/network-topology-mode), the largest has 64 cpu: make "
        "it smaller, allow tier 2 (zone), or use mode soft"
    )
    assert text(asked(2, "row")) == (
        'tier "row" (annotation volcano.sh/network-topology-highest-tier) does not exist: the network has 1 (rack) and 2 (zone); use one '
        "of them, or mode soft"
    )
    assert isinstance(asked(65, "row", "soft"), Allowed)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "CronJob"])
def test_other_workloads_are_judged_like_jobs(ask: Any, network: Any, kind: str) -> None:
    def made(pods: int, tier: str) -> dict[str, Any]:
        near = {MODE: "hard", TIER: tier, MEMBERS: str(pods)}
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}
        template = {"metadata": {"annotations": near}, "spec": spec}
        inner: dict[str, Any] = {"replicas": pods, "podManagementPolicy": "Parallel", "template": template}
        if kind == "CronJob":
            inner = {"jobTemplate": {"spec": {"parallelism": pods, "completions": pods, "template": template}}}
        metadata = {"name": "web", "namespace": "dev", "uid": "uid-web", "resourceVersion": "7"}
        return {"apiVersion": BY_NAME[kind].api_version, "kind": kind, "metadata": metadata, "spec": inner}

    def asked(one: Any, old: Any = None) -> Any:
        about = BY_NAME[kind]
        resource = {"group": about.group, "version": about.version, "resource": about.plural}
        return ask(workloads.validate, one, "UPDATE" if old else "CREATE", old=old, resource=resource)

    assert isinstance(asked(made(64, "1")), Allowed)
    assert "never starts: it needs 65 cpu in one rack" in text(asked(made(65, "1")))
    assert "tier 3 (annotation volcano.sh/network-topology-highest-tier) does not exist" in text(asked(made(1, "3")))
    # What is too large already may be changed otherwise, and be made smaller.
    assert isinstance(asked(made(65, "1"), old=made(66, "1")), Allowed)
    assert "it needs 66 cpu in one rack" in text(asked(made(66, "1"), old=made(65, "1")))


def test_a_refusal_is_confirmed_by_a_fresh_read_of_what_the_scheduler_says(
    cluster: Any, review_of: Any, podgroup: Any, network: Any
) -> None:
    from webhooks import review

    request = review.parse(
        review_of(podgroup(minMember=12, minResources={"nvidia.com/gpu": "12"}, networkTopology=hard()))
    )
    steps = evaluate(HOOKS["/validate/podgroups"], request, cluster, WebhookSettings())
    where = ObjectRef(kinds.QUEUES, "default")
    assert next(steps) == ReadObjects((where,))
    stale = cluster.get(kinds.QUEUES, "default")
    grown = [TIERS[0] | {"largest": {"cpu": "64", "nvidia.com/gpu": "12", "pods": "220"}}]
    network(grown)
    fresh = cluster.get(kinds.QUEUES, "default")
    cluster.objects[kinds.QUEUES, "", "default"] = stale
    asked = steps.send({where: fresh})
    assert asked.name == "gang", "admitted: the ledger is asked"
