"""Muster's ClusterRoles on the real control plane: deleted in whatever order, none comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs
from plane import PATIENCE

from muster.cli.installation import permissions
from muster.kube import wait
from muster.kube.client import Client
from muster.model import kinds, names
from muster.model.objects import Object

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("rbac")]


class ClusterRole(Object, frozen=True, kw_only=True):
    """With its rules, which Muster itself never reads."""

    rules: tuple[Any, ...] | None = None


WITH_RULES = structs.replace(kinds.CLUSTERROLES, struct=ClusterRole)
COLLECTED = {"matchLabels": {names.OWNER_READER: "true"}}
OWN = [each for each in permissions.roles(legacy_apis=True, metrics=True) if each["kind"] == "ClusterRole"]
ORDERS = (list, lambda names: names[::-1], sorted, lambda names: sorted(names, reverse=True))
"""A file's, kubectl's and Helm's, and whatever prunes backwards."""


def role(name: str, resource: str) -> dict[str, Any]:
    """Return a ClusterRole that Muster collects, as people write one for their operators."""
    rules = [{"apiGroups": ["example.com"], "resources": [resource], "verbs": ["get"]}]
    return {"metadata": {"name": name, "labels": {names.OWNER_READER: "true"}}, "rules": rules}


def collecting(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "aggregationRule": {"clusterRoleSelectors": [COLLECTED]}, "rules": []}


async def collected(admin: Client, name: str, resource: str) -> None:
    """Wait until the controller that collects has written a role."""
    await wait.until(
        admin,
        WITH_RULES,
        name,
        holds=lambda found: found is not None and resource in str(found.rules),
        within=PATIENCE,
    )


async def test_in_whatever_order_they_are_deleted_none_of_muster_s_roles_comes_back(admin: Client) -> None:
    await admin.create(kinds.CLUSTERROLES, role("team-reads", "things"))
    for number, order in enumerate(ORDERS):
        # Under other names: those of the Muster that other tests have here stay.
        mine = [{**each, "metadata": {**each["metadata"], "name": f"own-{each['metadata']['name']}"}} for each in OWN]
        for each in mine:
            await admin.create(kinds.CLUSTERROLES, each)
        await collected(admin, "own-muster-owner-reader", "things")
        for name in order([each["metadata"]["name"] for each in mine]):
            await admin.delete(kinds.CLUSTERROLES, name)
        # When it has collected for another role what came later, it has seen all of this.
        marker = f"marker-{number}"
        await admin.create(kinds.CLUSTERROLES, role(f"{marker}-part", marker))
        await admin.create(kinds.CLUSTERROLES, collecting(marker))
        await collected(admin, marker, marker)
        await asyncio.sleep(0.2)
        left = [each.name for each in (await admin.list(kinds.CLUSTERROLES)).items if each.name.startswith("own-")]
        assert left == []
        for name in (marker, f"{marker}-part"):
            await admin.delete(kinds.CLUSTERROLES, name)
