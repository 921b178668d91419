"""Muster on the real control plane under its own accounts: what they may do is what they need, no less and no more."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import auditlog
import pytest
import yaml
from exercises import EXERCISES, Course, Stage, add_quota, group, story

from certs import path_secret, stored
from muster.cli.installation import namespaces, permissions
from muster.kube import auth
from muster.kube.client import Client
from muster.kube.errors import ForbiddenError
from muster.kube.http import HttpTransport
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.kinds import Kind

# A control plane of its own: all in one process, and not in the one that has the other.
pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("rbac")]

ROLES = permissions.roles(legacy_apis=True)
EXCUSED = {
    f"{account}: {each['right']}": each["reason"]
    for account, listed in yaml.safe_load((Path(__file__).parent / "unused.yaml").read_text()).items()
    for each in listed
}
WRITES: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / "writes.yaml").read_text())
UNPLAYED = {
    f"patch {resource}: {each}": listed["reason"]
    for resource, listed in yaml.safe_load((Path(__file__).parent / "unplayed.yaml").read_text()).items()
    for each in listed["fields"]
}


@pytest.fixture(scope="module")
def course() -> Course:
    return Course()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exercises")


@pytest.fixture
def stage(admin: Client, muster: Any, folder: Path) -> Stage:
    return Stage(admin, muster, folder)


def test_no_rule_has_a_wildcard_and_none_is_about_other_secrets_than_those_of_the_certificates():
    rules = [rule for role in ROLES for rule in role.get("rules", ())]
    named = [name for rule in rules for words in rule.values() for name in words]
    assert rules
    assert not [name for name in named if "*" in name or name.startswith("secrets/")]
    for rule in (rule for rule in rules if "secrets" in rule["resources"]):
        assert set(rule["resourceNames"]) == {stored.CA, stored.TLS, path_secret.PATH}
        assert "create" not in rule["verbs"]


def test_every_excuse_is_for_a_right_that_is_granted_and_gives_its_reason():
    assert set(EXCUSED) <= {str(right) for right in auditlog.granted(ROLES)}
    assert all(reason.strip() for reason in EXCUSED.values())


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.__name__)
async def test_under_its_own_accounts_muster_can(exercise, course: Course, stage: Stage):
    await course.upto(exercise, stage)


async def test_nothing_that_it_asks_for_is_forbidden(course: Course, stage: Stage):
    await course.upto(EXERCISES[-1], stage)
    assert auditlog.refused(await auditlog.read(stage.muster.plane.audit_log, stage.admin)) == set()


async def test_every_right_is_used_or_stands_in_the_list_with_its_reason(course: Course, stage: Stage):
    await course.upto(EXERCISES[-1], stage)
    unused = auditlog.granted(ROLES) - auditlog.used(await auditlog.read(stage.muster.plane.audit_log, stage.admin))
    assert {str(right) for right in unused} - set(EXCUSED) == set()


async def test_every_field_that_it_writes_in_objects_of_others_stands_in_the_list(course: Course, stage: Stage):
    await course.upto(EXERCISES[-1], stage)
    events = await auditlog.read(stage.muster.plane.audit_log, stage.admin)
    listed = {f"{_verb(resource)}: {each}" for resource, fields in WRITES.items() for each in fields}
    assert set(UNPLAYED) <= listed
    assert all(reason.strip() for reason in UNPLAYED.values())
    written = {each for each in auditlog.written(events) if each.split(":")[0] in set(map(_verb, WRITES))}
    assert written - listed == set()
    assert listed - written - set(UNPLAYED) == set()
    assert auditlog.denied(events) == set()


def _verb(resource: str) -> str:
    """Return a key of the list with its verb; where none stands there, it is patch."""
    return resource if " " in resource else f"patch {resource}"


async def test_a_tenant_with_every_right_to_ledgers_can_not_write_one(course: Course, stage: Stage):
    await course.upto(story, stage)
    admin, space = stage.admin, "tenant"
    await add_quota(admin, space)
    await admin.create(kinds.PODGROUPS, group("first", minResources={"cpu": "6"}), space)
    await _give_ledgers_to(admin, "mallory", space)
    config = await stage.muster.kubeconfig_of("mallory", space)
    async with HttpTransport(await auth.load(str(config))) as transport:
        tenant = Client(transport)
        ledger = await tenant.get(kinds.QUOTALEDGERS, names.LEDGER_NAME, space)
        said = rf"QuotaLedger {space}/{names.LEDGER_NAME} is written by Muster only, not by user .*:mallory: change"
        with pytest.raises(ForbiddenError, match=said):
            await tenant.patch(kinds.QUOTALEDGERS, ledger.name, {"data": {"rows": ["x"]}}, space)
        with pytest.raises(ForbiddenError, match="is written by Muster only"):
            await tenant.create(kinds.QUOTALEDGERS, {"metadata": {"name": "another"}}, space)
        # A label reserves nothing; and who may delete a ledger gets it made again.
        await tenant.patch(kinds.QUOTALEDGERS, ledger.name, {"metadata": {"labels": {"mine": "yes"}}}, space)
    assert (await admin.get(kinds.QUOTALEDGERS, ledger.name, space)).data == ledger.data


async def _give_ledgers_to(admin: Client, account: str, namespace: str) -> None:
    await admin.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": account}}, namespace)
    rule = {"apiGroups": [names.MUSTER_GROUP], "resources": ["*"], "verbs": ["*"]}
    await admin.create(kinds.ROLES, {"metadata": {"name": account}, "rules": [rule]}, namespace)
    binding = {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": kinds.ROLES.group, "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    await admin.create(kinds.ROLEBINDINGS, binding, namespace)


async def test_who_may_edit_a_namespace_may_make_podgroups_and_no_queues_and_write_no_ledger(admin: Client):
    space = "editors"
    await admin.create(kinds.NAMESPACES, {"metadata": {"name": space}})
    binding = {
        "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": kinds.ROLES.group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "editor", "apiGroup": kinds.ROLES.group}],
    }
    await admin.create(kinds.ROLEBINDINGS, binding, space)
    async with asyncio.timeout(60):
        while not await _may(admin, "create", kinds.PODGROUPS, space):  # noqa: ASYNC110 - a controller gathers the rights
            await asyncio.sleep(0.1)
    assert await _may(admin, "get", kinds.QUOTALEDGERS, space)
    assert not await _may(admin, "update", kinds.QUOTALEDGERS, space)
    assert not await _may(admin, "create", kinds.QUEUES, "")


async def _may(admin: Client, verb: str, kind: Kind[Any], namespace: str) -> bool:
    attributes = {"verb": verb, "group": kind.group, "resource": kind.plural, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "editor", "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = await admin.send(Request("POST", path, {}, json.dumps(review).encode()))
    return bool(json.loads(answer.body)["status"]["allowed"])


async def test_the_api_server_finds_nothing_wrong_with_the_types_in_the_policies(admin: Client):
    for name in {each["metadata"]["name"] for each in permissions.policies()}:
        policy = json.loads((await admin.send(Request("GET", kinds.POLICIES.path(name=name)))).body)
        checked = {"observedGeneration": policy["metadata"]["generation"], "typeChecking": {}}
        assert policy["status"] == checked, name


async def test_metrics_are_for_who_may_get_them(admin: Client, muster: Any):
    """The real API server says whose token it is, and what they may; the programs only ask."""
    await permissions.apply(
        admin, [each for each in permissions.roles(legacy_apis=True, metrics=True) if _of_metrics(each)]
    )
    space = "monitoring"
    await namespaces.ensure(admin, space)
    for account in ("prometheus", "stranger"):
        await admin.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": account}}, space)
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": space}
    role = {"apiGroup": kinds.CLUSTERROLES.group, "kind": "ClusterRole", "name": "muster-metrics-reader"}
    bound = {"metadata": {"name": "prometheus-reads-metrics"}, "roleRef": role, "subjects": [subject]}
    await admin.create(kinds.CLUSTERROLEBINDINGS, bound)
    tokens = {account: await _token(admin, account, space) for account in ("prometheus", "stranger")}
    async with asyncio.timeout(60):
        # The API server notices roles a moment after they were made: until then the program can't ask, or is told no.
        while await _scraped(muster, tokens["prometheus"]) != 200:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.5)
    assert await _scraped(muster, tokens["stranger"]) == 403
    assert await _scraped(muster, "nobody") == 401
    assert await _scraped(muster, "") == 401
    # Everybody may ask whether it is alive, over plain HTTP, and from this machine for metrics.
    async with aiohttp.request("GET", f"http://127.0.0.1:{muster.certificates.probes}/healthz") as answer:
        assert answer.status == 200


def _of_metrics(manifest: dict[str, Any]) -> bool:
    return "metrics" in manifest["metadata"]["name"]


async def _token(admin: Client, account: str, namespace: str) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = kinds.SERVICEACCOUNTS.path(namespace, account, "token")
    answer = await admin.send(Request("POST", path, {}, json.dumps(request).encode()))
    return str(json.loads(answer.body)["status"]["token"])


async def _scraped(muster: Any, token: str) -> int:
    """Read the metrics as Prometheus does; return the status."""
    trusted = ssl.create_default_context(cafile=str(muster.folder / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://127.0.0.1:{muster.metrics_port}/metrics"
    async with aiohttp.request("GET", url, ssl=trusted, headers=headers) as answer:
        text = await answer.text()
        assert ("muster_build_info" in text) is (answer.status == 200)
        return answer.status


async def test_uninstalled_it_has_no_right_and_holds_nothing_any_more(course: Course, stage: Stage):
    await course.upto(EXERCISES[-1], stage)
    said = stage.muster.uninstall()
    assert "accounts, roles and policies removed" in said
    for kind in (kinds.CLUSTERROLES, kinds.CLUSTERROLEBINDINGS, kinds.POLICIES, kinds.POLICYBINDINGS):
        assert not [one.name for one in (await stage.admin.list(kind)).items if "muster" in one.name]
    assert [one.name for one in (await stage.admin.list(kinds.SERVICEACCOUNTS, names.SYSTEM_NAMESPACE)).items] == [
        "default"
    ]
