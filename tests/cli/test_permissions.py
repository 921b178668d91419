from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click
import pytest

from muster.cli.installation import crds, namespaces, permissions
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.errors import ForbiddenError
from muster.kube.transport import Request, Response
from muster.model import kinds, names
from muster.sandbox.compose import Sandbox
from muster.sandbox.core.users import User
from muster.sandbox.inprocess import InProcessTransport

SPACE = names.SYSTEM_NAMESPACE


@pytest.fixture
async def sandbox():
    running = Sandbox(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)))
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def client(sandbox: Sandbox) -> Client:
    one = Client(sandbox.transport())
    await crds.apply(one, legacy_apis=False, adopt=False)
    await namespaces.ensure(one, SPACE)
    return one


def names_of(manifests: list[Any]) -> set[str]:
    return {manifest["metadata"]["name"] for manifest in manifests}


def test_rights_to_legacy_groups_are_given_on_request():
    more = names_of(permissions.roles(legacy_apis=True)) - names_of(permissions.roles(legacy_apis=False))
    assert more == {"muster-webhook-legacy", "muster-scheduler-legacy"}
    said = json.dumps(permissions.roles(legacy_apis=False))
    assert not [group for group in names.LEGACY_GROUPS if group in said]


def test_every_role_is_bound_to_an_account_that_exists():
    manifests = permissions.roles(legacy_apis=True)
    accounts = {each["metadata"]["name"] for each in manifests if each["kind"] == "ServiceAccount"}
    bindings = [each for each in manifests if each["kind"].endswith("Binding")]
    roles = [each for each in manifests if "rules" in each or "aggregationRule" in each]
    # Some are gathered into others by a label.
    assert {each["roleRef"]["name"] for each in bindings} == names_of(roles) - {
        "muster-edit",
        "muster-view",
    }
    assert {subject["name"] for each in bindings for subject in each["subjects"]} == accounts


def test_no_role_of_muster_s_collects_another_since_what_collects_comes_back_when_a_part_goes():
    manifests = permissions.roles(legacy_apis=True, metrics=True)
    selectors = [one for each in manifests for one in each.get("aggregationRule", {}).get("clusterRoleSelectors", ())]
    assert selectors == [{"matchLabels": {names.OWNER_READER: "true"}}]
    assert not [each for each in manifests if names.OWNER_READER in each["metadata"]["labels"]]


async def test_only_those_whom_the_policy_names_write_ledgers(client: Client, sandbox: Sandbox):
    await permissions.apply(client, permissions.policies('o"neill'))
    for user, refused in (
        ('o"neill', False),
        ("system:serviceaccount:muster-system:muster-webhook", False),
        ("eve", True),
    ):
        writer = Client(InProcessTransport(sandbox.server, User(user)))
        ledger = {"metadata": {"name": f"ledger-{len(user)}"}}
        if refused:
            with pytest.raises(ForbiddenError, match="is written by Muster only, not by user eve: change PodGroups"):
                await writer.create(kinds.QUOTALEDGERS, ledger, SPACE)
        else:
            await writer.create(kinds.QUOTALEDGERS, ledger, SPACE)


async def test_all_of_it_is_applied_twice_and_removed_twice(client: Client):
    everything = [*permissions.roles(legacy_apis=True), *permissions.policies()]
    for _ in range(2):
        await permissions.apply(client, everything)
    assert names_of(permissions.policies()) == {one.name for one in (await client.list(kinds.POLICIES)).items}
    for _ in range(2):
        await permissions.remove(client, everything)
    assert not (await client.list(kinds.POLICIES)).items
    assert not [one for one in (await client.list(kinds.CLUSTERROLES)).items if one.name.startswith("muster")]


class Old:
    """An API server that doesn't know policies."""

    async def request(self, _: Request, **_deadline: float) -> Response:
        status = {"kind": "Status", "code": 404, "message": "the server could not find the requested resource"}
        return Response(404, json.dumps(status | {"reason": "NotFound"}).encode(), {})


async def test_a_cluster_that_is_too_old_is_told_which_it_takes():
    with pytest.raises(click.ClickException) as caught:
        await permissions.apply(Client(Old()), permissions.policies())
    assert caught.value.message == (
        "this cluster doesn't serve ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1): "
        "Muster needs Kubernetes 1.30 or newer"
    )
