"""The failure cases that come from outside the ledger: other webhooks, other writers, a server that restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controlplane import ControlPlane
from plane import PATIENCE

from muster.kube import errors
from muster.ledger.reservations import Exceeded, Reserved
from muster.model import kinds, names
from webhooks.verdict import Patched


async def test_case_10_a_pod_that_kubernetes_own_quota_rejects_after_us_is_charged_once_for_all_its_tries(
    lab: Any,
) -> None:
    replica = await lab.process()
    # A quota of limits wants every container to have one; the ledger counts nothing where there is none.
    await lab.quota(replica, **{"requests.cpu": "4", "limits.cpu": "4"})
    await _rejected_after_us(lab, "main", "3")
    limited = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}
    assert await lab.pod(replica, "main", "3", containers=[limited]) == Reserved()
    assert isinstance(await lab.pod(replica, "more", "2", containers=[limited]), Exceeded)
    assert (await lab.ledger()).data.summary == "quota limits.cpu 3/4, quota requests.cpu 3/4"


@pytest.mark.only("sandbox", reason="waits for a reservation's 45 seconds: in virtual time")
async def test_case_10_what_was_reserved_for_it_is_dropped_where_it_is_not_tried_again(lab: Any) -> None:
    replica = await lab.process()
    lab.run(replica.controller.run())
    await lab.quota(replica, **{"requests.cpu": "4", "limits.cpu": "4"})
    await _rejected_after_us(lab, "main", "3")
    assert isinstance(await lab.create(replica, "gang", "2"), Exceeded)
    await asyncio.sleep(60)
    assert await lab.create(replica, "gang", "2") == Reserved()


async def test_case_16_what_other_webhooks_make_of_a_group_is_what_it_reserves(lab: Any) -> None:
    replica = await lab.process()
    await lab.quota(replica, cpu="10")
    enlarged = {"op": "replace", "path": "/spec/minResources/cpu", "value": "6"}
    lab.front.patches |= {name: Patched((enlarged,)) for name in ("probe", "first", "second")}
    await lab.plane.register_sibling(lab.server, "/mutate/sibling", namespace=lab.namespace)

    async def enlarges() -> bool:
        tried = await lab.client.create(kinds.PODGROUPS, _group("probe", "1"), lab.namespace, dry_run=True)
        return bool(tried.spec.min_resources == {"cpu": "6"})

    async with asyncio.timeout(PATIENCE):
        while not await enlarges():  # noqa: ASYNC110 - the API server notices a configuration when it does
            await asyncio.sleep(0.05)
    assert await lab.create(replica, "first", "1") == Reserved()
    assert (await lab.ledger()).data.summary == "quota cpu 6/10"
    refused = await lab.create(replica, "second", "1")
    assert isinstance(refused, Exceeded)
    assert str(refused.shortages[0].asked) == "6000000000"


async def test_case_19_a_minimum_applied_from_the_server_s_side_asks_and_a_subresource_changes_none(lab: Any) -> None:
    replica = await lab.process()
    await lab.quota(replica, cpu="10")
    assert await lab.create(replica, "gang", "4") == Reserved()
    lab.front.replica = replica
    for cpu, fits in (("12", False), ("9", True)):
        manifest = {"metadata": {"name": "gang"}, "spec": {"minResources": {"cpu": cpu}}}
        try:
            await lab.client.apply(kinds.PODGROUPS, manifest, manager="kubectl", namespace=lab.namespace, force=True)
            stored = True
        except errors.ForbiddenError:
            stored = False
        assert stored is fits
    group = await lab.client.patch(
        kinds.PODGROUPS,
        "gang",
        {"spec": {"minResources": {"cpu": "10"}}, "status": {"running": 1}},
        lab.namespace,
        subresource="status",
    )
    assert (group.spec.min_resources, group.status.running) == ({"cpu": "9"}, 1)
    assert isinstance(await lab.create(replica, "other", "2"), Exceeded)
    assert await lab.create(replica, "small", "1") == Reserved()


async def test_case_22_a_namespace_takes_its_ledger_along_and_a_new_one_of_its_name_begins_anew(lab: Any) -> None:
    replica = await lab.process()
    task = lab.run(replica.controller.run())
    await lab.quota(replica, cpu="4")
    assert await lab.create(replica, "gang", "3") == Reserved()
    lab.front.replica = replica
    await lab.client.delete(kinds.NAMESPACES, lab.namespace)
    await lab.plane.until(kinds.NAMESPACES, lab.namespace, holds=lambda found: found is None)
    labels = {names.QUOTA_MODE: "guarded"}
    await lab.client.create(kinds.NAMESPACES, {"metadata": {"name": lab.namespace, "labels": labels}})
    await lab.quota(replica, cpu="4")
    assert await lab.create(replica, "gang", "4") == Reserved()
    assert isinstance(await lab.create(replica, "more", "1"), Exceeded)
    assert not task.done()


@pytest.mark.only("sandbox", reason="waits for a reservation's 45 seconds: in virtual time")
async def test_case_24_a_leader_that_restarts_as_itself_counts_each_deadline_from_its_own_first_look(
    lab: Any, asking: Any
) -> None:
    replica, former = await lab.process(), await lab.process()
    working = lab.run(former.controller.run())
    await lab.quota(replica, cpu="4")
    assert await asking(replica, "ghost", "4") == Reserved()
    await asyncio.sleep(30)
    working.cancel()
    lab.tasks.remove(working)
    again = await lab.process()
    lab.run(again.controller.run())
    await asyncio.sleep(30)
    # A minute old, but nobody who leads has known it for longer than the API server may take.
    assert isinstance(await lab.create(replica, "gang", "4"), Exceeded)
    await asyncio.sleep(30)
    assert await lab.create(replica, "gang", "4") == Reserved()


async def test_case_32_a_watch_that_has_to_begin_anew_forgets_nothing_that_was_reserved(lab: Any) -> None:
    first, second = await lab.process(), await lab.process()
    lab.run(first.controller.run())
    await lab.quota(first, cpu="10")
    assert await lab.create(first, "gang", "6") == Reserved()
    for process in lab.processes:
        await process.sees("gang")
        process.network.expired_watches = 3
    await lab.client.delete(kinds.PODGROUPS, "gang", lab.namespace)
    given = await asyncio.gather(*(lab.create((first, second)[n % 2], f"g{n}", "2") for n in range(8)))
    assert sum(isinstance(answer, Reserved) for answer in given) <= 5
    for process in lab.processes:
        await process.forgets("gang")
    for n in range(5):
        assert isinstance(await lab.create(second, f"late{n}", "2"), Reserved | Exceeded)
    groups = (await lab.client.list(kinds.PODGROUPS, lab.namespace)).items
    assert sum(int(group.spec.min_resources["cpu"]) for group in groups) == 10


@pytest.mark.only("kubernetes", reason="the sandbox is in this process and doesn't restart alone")
async def test_case_33_an_api_server_that_is_killed_and_comes_back_has_reserved_no_more_than_there_is(
    lab: Any, real_control_plane: ControlPlane
) -> None:
    first, second = await lab.process(), await lab.process()
    lab.run(first.controller.run())
    await lab.quota(first, cpu="10")
    assert await lab.create(first, "gang", "4") == Reserved()
    lab.front.replica = second
    crowd = [asyncio.create_task(_tried(lab, f"g{n}")) for n in range(16)]
    await lab.ledger_says(lambda ledger: ledger.data.rows)
    real_control_plane.kill("kube-apiserver")
    await asyncio.gather(*crowd)
    # Not in another thread: the server would end with it.
    real_control_plane.start_apiserver()

    async def asks_again(n: int) -> Any:
        async with asyncio.timeout(120):
            while True:
                lab.front.replica = (first, second)[n % 2]
                if (answer := await _tried(lab, f"again{n}")) is not None:
                    return answer

    answers = await asyncio.gather(*(asks_again(n) for n in range(4)))
    assert set(answers) <= {"stored", "refused"}
    groups = (await lab.client.list(kinds.PODGROUPS, lab.namespace)).items
    assert 8 <= sum(int(group.spec.min_resources["cpu"]) for group in groups) <= 10


async def test_case_35_a_certificate_that_changes_while_reviews_are_under_way_fails_none(lab: Any) -> None:
    replica = await lab.process()
    await lab.quota(replica, cpu="64")
    crowd = [asyncio.create_task(lab.create(replica, f"g{n}", "1")) for n in range(64 if lab.virtual else 16)]
    for _ in range(3):
        lab.plane.renew_certificate()
        lab.certificate.refresh()
        await asyncio.sleep(0.02)
    assert all(answer == Reserved() for answer in await asyncio.gather(*crowd))
    assert not lab.certificate.problems()


async def _rejected_after_us(lab: Any, name: str, cpu: str) -> None:
    """Create a pod to which the ledger says yes and Kubernetes' own quota no."""
    lab.front.replica = lab.processes[-1]
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    pod = {"metadata": {"name": name}, "spec": {"containers": [main], "schedulerName": "nobody"}}
    with pytest.raises(errors.ForbiddenError, match=r"must specify limits\.cpu"):
        await lab.client.create(kinds.PODS, pod, lab.namespace)
    assert lab.answers[name] == Reserved()


async def _tried(lab: Any, name: str) -> str | None:
    """Create a group of 2 cpu; what came of it, None where nobody knows."""
    try:
        await lab.client.create(kinds.PODGROUPS, _group(name, "2"), lab.namespace)
    except errors.ForbiddenError:
        return "refused"
    except (errors.KubeError, TimeoutError):
        return None
    return "stored"


def _group(name: str, cpu: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"minMember": 1, "minResources": {"cpu": cpu}}}
