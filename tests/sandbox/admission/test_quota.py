"""ResourceQuotas at admission. The texts are those of kube-apiserver 1.36.3."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.amounts import NANO
from muster.sandbox.admission import usage

QUOTAS = ("", "resourcequotas")
PODS = "/api/v1/namespaces/team/pods"
MAPS = "/api/v1/namespaces/team/configmaps"


@pytest.fixture
def quota(api):
    """Make a ResourceQuota whose use is known, as its controller would."""

    async def make(hard, used=None, name="q", **spec):
        path = "/api/v1/namespaces/team/resourcequotas"
        await api.made(path, {"metadata": {"name": name}, "spec": {"hard": hard, **spec}})
        used = dict.fromkeys(hard, "0") | (used or {})
        status, body = await api.patch(f"{path}/{name}/status", {"status": {"hard": hard, "used": used}})
        assert status == 200, body

    return make


def used(api, name="q"):
    return api.server.store.get(QUOTAS, "team", name)["status"]["used"]


def pod(name="x", *requests, limits=None, **spec):
    containers = [
        {"name": f"c{number}", "image": "i", "resources": {"requests": each, "limits": limits or {}}}
        for number, each in enumerate(requests, 1)
    ]
    metadata = {"generateName": name} if name.endswith("-") else {"name": name}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


async def test_a_pod_over_the_quota_is_refused_and_nothing_counted(api, quota):
    await quota({"cpu": "10", "memory": "8Gi"}, {"cpu": "8", "memory": "1Gi"})
    status, body = await api.create(PODS, pod("x", {"cpu": "2500m", "memory": "1Gi"}))
    text = 'pods "x" is forbidden: exceeded quota: q, requested: cpu=2500m, used: cpu=8, limited: cpu=10'
    assert (status, body["reason"], body["message"]) == (403, "Forbidden", text)
    assert body["details"] == {"name": "x", "kind": "pods"}
    assert used(api) == {"cpu": "8", "memory": "1Gi"}


async def test_a_pod_within_the_quota_is_counted_at_once(api, quota):
    await quota({"requests.cpu": "10", "limits.memory": "8Gi", "pods": "5"}, {"requests.cpu": "8"})
    await api.made(PODS, pod("x", {"cpu": "500m"}, {"cpu": "1500m"}, limits={"memory": "1Gi", "cpu": "2"}))
    assert used(api) == {"requests.cpu": "10", "limits.memory": "2Gi", "pods": "1"}


async def test_a_dry_run_is_judged_and_not_counted(api, quota):
    await quota({"pods": "1"})
    assert (await api.create(PODS, pod("x", {}), dryRun="All"))[0] == 201
    assert used(api) == {"pods": "0"}
    await api.made(PODS, pod("x", {}))
    assert (await api.create(PODS, pod("y", {}), dryRun="All"))[0] == 403


async def test_of_many_at_once_only_as_many_as_fit_are_admitted(api, quota):
    await quota({"cpu": "10"})
    answers = await asyncio.gather(*(api.create(PODS, pod(f"p{n}", {"cpu": "3"})) for n in range(40)))
    assert sorted(status for status, _ in answers) == [201] * 3 + [403] * 37
    assert used(api) == {"cpu": "9"}


async def test_a_quota_on_cpu_or_memory_demands_that_containers_name_them(api, quota):
    await quota({"cpu": "10", "memory": "8Gi", "pods": "5"})
    _, body = await api.create(PODS, pod("a", {}, {"cpu": "1"}))
    assert body["message"] == 'pods "a" is forbidden: failed quota: q: must specify cpu for: c1; memory for: c1,c2'


async def test_a_generated_name_is_the_one_in_the_refusal(api, quota):
    await quota({"pods": "0"})
    _, body = await api.create(PODS, pod("gen-", {}))
    assert body["message"].startswith('pods "gen-')
    assert not body["message"].startswith('pods "gen-"')


async def test_use_that_nobody_has_counted_yet_lets_nothing_in(api, quota):
    path = "/api/v1/namespaces/team/resourcequotas"
    await api.made(path, {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "1"}}})
    await api.patch(f"{path}/q/status", {"status": {"hard": {"cpu": "1"}}})
    _, body = await api.create(PODS, pod("x", {"cpu": "1"}))
    assert body["message"] == 'pods "x" is forbidden: status unknown for quota: q, resources: cpu'


async def test_objects_are_counted_by_kind(api, quota, config_map):
    await quota({"count/configmaps": "1", "configmaps": "3", "count/jobs.batch": "0"})
    await api.made(MAPS, config_map("a"))
    _, body = await api.create(MAPS, config_map("b"))
    text = "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1"
    assert body["message"] == f'configmaps "b" is forbidden: {text}'
    container = {"name": "c", "image": "i"}
    job = {
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    _, body = await api.create("/apis/batch/v1/namespaces/team/jobs", job)
    text = "exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0"
    assert body["message"] == f'jobs.batch "j" is forbidden: {text}'
    assert used(api) == {"count/configmaps": "1", "configmaps": "1", "count/jobs.batch": "0"}


async def test_every_quota_has_to_agree_and_none_counts_what_another_refuses(api, quota):
    await quota({"pods": "5"}, name="a")
    await quota({"pods": "0"}, name="b")
    _, body = await api.create(PODS, pod("x", {}))
    assert "exceeded quota: b," in body["message"]
    assert used(api, "a") == {"pods": "0"}


async def test_devices_and_local_storage_are_counted(api, quota):
    await quota({"requests.nvidia.com/gpu": "1", "ephemeral-storage": "1Gi"})
    amounts = {"nvidia.com/gpu": "2", "ephemeral-storage": "2Gi"}
    _, body = await api.create(PODS, pod("x", amounts, limits=amounts))
    assert body["message"] == (
        'pods "x" is forbidden: exceeded quota: q, requested: ephemeral-storage=2Gi,requests.nvidia.com/gpu=2, '
        "used: ephemeral-storage=0,requests.nvidia.com/gpu=0, limited: ephemeral-storage=1Gi,requests.nvidia.com/gpu=1"
    )


@pytest.mark.parametrize(
    ("scope", "made", "counted"),
    [
        ({"scopes": ["Terminating"]}, pod("x", {}, activeDeadlineSeconds=5), True),
        ({"scopes": ["Terminating"]}, pod("x", {}), False),
        ({"scopes": ["NotTerminating"]}, pod("x", {}), True),
        ({"scopes": ["BestEffort"]}, pod("x", {}), True),
        ({"scopes": ["BestEffort"]}, pod("x", {"cpu": "1"}), False),
        ({"scopes": ["NotBestEffort"]}, pod("x", {"memory": "1"}), True),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
                }
            },
            pod("x", {}, priorityClassName="high"),
            True,
        ),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}},
            pod("x", {}, priorityClassName="high"),
            False,
        ),
    ],
)
async def test_a_quota_with_scopes_counts_the_pods_in_them(api, quota, scope, made, counted):
    await api.made("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 5})
    await quota({"pods": "5"}, **scope)
    await api.made(PODS, made)
    assert used(api) == {"pods": "1" if counted else "0"}


async def test_a_service_that_becomes_a_node_port_is_counted_then(api, quota):
    await quota({"services": "1", "services.nodeports": "1"})
    path = "/api/v1/namespaces/team/services"
    await api.made(path, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    assert used(api) == {"services": "1", "services.nodeports": "0"}
    status, body = await api.patch(f"{path}/s", {"spec": {"type": "NodePort"}})
    assert status == 200, body
    assert used(api) == {"services": "1", "services.nodeports": "1"}


# ── what a pod uses ──────────────────────────────────────────────────────────────────────────────────────────────


def container(cpu, **more):
    return {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container(1), container(2)]}, 3),
        ({"containers": [container(1)], "initContainers": [container(5), container(2)]}, 5),
        ({"containers": [container(1)], "initContainers": [container(1, restartPolicy="Always"), container(3)]}, 4),
        ({"containers": [container(1)], "initContainers": [container(3), container(1, restartPolicy="Always")]}, 3),
        ({"containers": [container(1)], "overhead": {"cpu": "1"}}, 2),
        ({"containers": [container(1)], "resources": {"requests": {"cpu": "7"}}}, 7),
    ],
)
def test_a_pod_is_charged_for_its_busiest_moment(spec, cpu):
    assert usage.charge(usage.PODS, {"spec": spec})["requests.cpu"].nano == cpu * NANO


def test_a_pod_that_has_ended_counts_as_an_object_only():
    ended = {"spec": {"containers": [container(1)]}, "status": {"phase": "Failed"}}
    assert list(usage.charge(usage.PODS, ended)) == ["count/pods"]


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["Running", "Succeeded"])), max_size=8))
def test_a_recount_gives_the_sum_of_what_was_charged(pods):
    objects = [{"spec": {"containers": [container(cpu)]}, "status": {"phase": phase}} for cpu, phase in pods]
    hard = ["requests.cpu", "pods", "count/pods", "count/configmaps"]
    counted = usage.used(
        {"spec": {}}, hard, lambda key: objects if key == usage.PODS else [], [usage.PODS, ("", "configmaps")]
    )
    running = [cpu for cpu, phase in pods if phase == "Running"]
    expected = {"requests.cpu": sum(running), "pods": len(running), "count/pods": len(pods), "count/configmaps": 0}
    assert {name: each.nano // NANO for name, each in counted.items()} == expected
