"""What becomes of owned objects and of namespaces, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muster.kube import errors

Cluster = Any
New = Callable[..., dict[str, Any]]


def owned(name: str, *owners: Any, block: bool = False, kind: str = "ConfigMap", **metadata: Any) -> dict[str, Any]:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "ownerReferences": references, **metadata}}


async def test_an_object_goes_when_its_owner_is_deleted_in_the_background(cluster: Cluster) -> None:
    owner = await cluster.create(owned("owner"))
    middle = await cluster.create(owned("middle", owner))
    await cluster.create(owned("leaf", middle))

    await cluster.delete("configmaps", "owner")
    assert await cluster.get("configmaps", "owner") is None
    await asyncio.sleep(1)

    assert await cluster.get("configmaps", "middle") is None
    assert await cluster.get("configmaps", "leaf") is None


async def test_an_object_stays_and_forgets_the_owner_while_another_owner_is_there(cluster: Cluster) -> None:
    first, second = await cluster.create(owned("first")), await cluster.create(owned("second"))
    await cluster.create(owned("leaf", first, second))

    await cluster.delete("configmaps", "first")
    await asyncio.sleep(1)

    owners = (await cluster.get("configmaps", "leaf"))["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == ["second"]


async def test_an_object_whose_owner_never_was_goes(cluster: Cluster) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "1-2-3"}}
    await cluster.create(owned("leaf", ghost))
    await asyncio.sleep(1)
    assert await cluster.get("configmaps", "leaf") is None


async def test_an_owner_of_the_same_name_made_anew_is_another_one(cluster: Cluster) -> None:
    first = await cluster.create(owned("owner"))
    await cluster.delete("configmaps", "owner")
    await cluster.create(owned("owner"))

    await cluster.create(owned("leaf", first))
    await asyncio.sleep(1)

    assert await cluster.get("configmaps", "leaf") is None
    assert await cluster.get("configmaps", "owner") is not None


async def test_an_owner_of_an_unknown_kind_is_left_for_others_to_judge(cluster: Cluster) -> None:
    ghost = {"apiVersion": "x.io/v1", "kind": "Unknown", "metadata": {"name": "ghost", "uid": "1-2-3"}}
    await cluster.create(owned("leaf", ghost))
    await asyncio.sleep(100)
    assert await cluster.get("configmaps", "leaf") is not None


async def test_an_owner_deleted_in_the_foreground_waits_for_what_blocks_it(cluster: Cluster) -> None:
    owner = await cluster.create(owned("owner"))
    await cluster.create(owned("blocks", owner, block=True, finalizers=["x.io/held"]))
    await cluster.create(owned("other", owner))

    await cluster.delete("configmaps", "owner", propagation="Foreground")
    await asyncio.sleep(1)

    waiting = await cluster.get("configmaps", "owner")
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert (await cluster.get("configmaps", "blocks"))["metadata"]["deletionTimestamp"]

    await cluster.patch("configmaps", "blocks", {"metadata": {"finalizers": None}})
    await asyncio.sleep(1)
    assert {"owner", "blocks", "other"}.isdisjoint(await cluster.names("configmaps"))


async def test_foreground_deletion_goes_all_the_way_down(cluster: Cluster) -> None:
    owner = await cluster.create(owned("owner"))
    middle = await cluster.create(owned("middle", owner, block=True))
    await cluster.create(owned("leaf", middle, block=True, finalizers=["x.io/held"]))

    await cluster.delete("configmaps", "owner", propagation="Foreground")
    await asyncio.sleep(1)
    assert {"owner", "middle", "leaf"} <= set(await cluster.names("configmaps"))

    await cluster.patch("configmaps", "leaf", {"metadata": {"finalizers": None}})
    await asyncio.sleep(1)
    assert {"owner", "middle", "leaf"}.isdisjoint(await cluster.names("configmaps"))


async def test_an_owner_deleted_as_orphan_lets_its_dependents_go(cluster: Cluster) -> None:
    owner = await cluster.create(owned("owner"))
    await cluster.create(owned("leaf", owner))

    await cluster.delete("configmaps", "owner", propagation="Orphan")
    await asyncio.sleep(1)

    assert await cluster.get("configmaps", "owner") is None
    assert "ownerReferences" not in (await cluster.get("configmaps", "leaf"))["metadata"]


# ── namespaces ───────────────────────────────────────────────────────────────────────────────────────────────────


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def test_every_namespace_gets_an_account_and_the_certificate_and_gets_them_again(cluster: Cluster) -> None:
    await cluster.create(namespace("n"))
    await asyncio.sleep(1)
    assert await cluster.names("serviceaccounts", "n") == ["default"]
    assert (await cluster.get("configmaps", "kube-root-ca.crt", "n"))["data"].keys() == {"ca.crt"}

    await cluster.delete("serviceaccounts", "default", "n")
    await cluster.patch("configmaps", "kube-root-ca.crt", {"data": {"ca.crt": "mine"}}, "n")
    await asyncio.sleep(1)

    assert await cluster.names("serviceaccounts", "n") == ["default"]
    assert (await cluster.get("configmaps", "kube-root-ca.crt", "n"))["data"]["ca.crt"] == ""


async def test_the_system_namespaces_are_there(cluster: Cluster) -> None:
    assert await cluster.names("namespaces") == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_a_deleted_namespace_takes_all_that_is_in_it(running: Cluster, new_job: New) -> None:
    await running.create(namespace("n"))
    await asyncio.sleep(1)
    job = new_job(parallelism=2, completions=2, annotations={"sandbox.muster.sh/run-seconds": "1000"})
    job["metadata"]["namespace"] = "n"
    await running.create(job)
    await asyncio.sleep(5)
    assert len(await running.names("pods", "n")) == 2

    await running.delete("namespaces", "n")
    await asyncio.sleep(10)

    assert await running.get("namespaces", "n") is None
    assert await running.names("pods", "n") == []
    assert await running.names("configmaps", "n") == []


async def test_a_namespace_says_what_holds_it_up_and_goes_when_that_is_gone(cluster: Cluster) -> None:
    await cluster.create(namespace("n"))
    await cluster.create(owned("held", finalizers=["x.io/held"], namespace="n"))
    await cluster.delete("namespaces", "n")
    await asyncio.sleep(5)

    status = (await cluster.get("namespaces", "n"))["status"]
    assert status["phase"] == "Terminating"
    messages = {each["type"]: (each["status"], each["message"]) for each in status["conditions"]}
    assert messages["NamespaceContentRemaining"] == (
        "True",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert messages["NamespaceFinalizersRemaining"] == (
        "True",
        "Some content in the namespace has finalizers remaining: x.io/held in 1 resource instances",
    )
    with pytest.raises(errors.ForbiddenError, match="because it is being terminated"):
        await cluster.create(owned("late", namespace="n"))

    await cluster.patch("configmaps", "held", {"metadata": {"finalizers": None}}, "n")
    await asyncio.sleep(5)

    assert await cluster.get("namespaces", "n") is None
