"""Steps taken on an API server: what is written, by whom, and that nobody's work is undone."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from certs import authority, bundle, stored, targets
from certs.observation import RefusedError
from certs.publish import CertificateSettings, Rotator
from certs.replicas import ProbeResult
from certs.rotation import RotationAction, RotationCommand, plan
from certs.state import RotationPhase
from certs.stored import StoredCAError
from muster.cli.installation import webhook_configurations
from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.transport import Request
from muster.model import kinds


def subjects(pem: bytes) -> list[str]:
    return [bundle.describe(each).subject for each in bundle.certificates(pem)]


async def test_init_makes_a_ca_a_certificate_and_the_bundles_and_does_so_once(setting, check):
    await setting.begun()
    served, keys = await setting.served(), await setting.keys()
    assert keys.phase is RotationPhase.STEADY
    assert set(await setting.trusted()) == {served.trusted} == {keys.current.certificate}
    assert bundle.describe(served.pair.parsed()).names == {
        "muster-webhook.muster-system.svc",
        "muster-visibility.muster-system.svc",
        "127.0.0.1",
    }
    setting.fleet.take_up(served.pair)
    await check(setting)
    assert await setting.rotator().begin(CertificateSettings()) == ""
    assert (await setting.drive()).step.why == "nothing to do"
    assert ((await setting.keys()).version, (await setting.served()).version) == (keys.version, served.version)


async def test_secrets_that_were_made_empty_are_filled_by_who_leads(setting):
    await setting.configure()
    empty = {"metadata": {"name": stored.CA}}, {"metadata": {"name": stored.TLS}, "type": "kubernetes.io/tls"}
    for manifest in (empty[0], empty[1] | {"data": {"tls.crt": "", "tls.key": ""}}):
        await setting.client.create(kinds.SECRETS, manifest, setting.target.namespace)
    await setting.drive()
    served, keys = await setting.served(), await setting.keys()
    assert set(await setting.trusted()) == {served.trusted} == {keys.current.certificate}
    assert bundle.describe(served.pair.parsed()).names == {"127.0.0.1"}
    assert (await setting.drive()).step.why == "nothing to do"


async def test_a_rotation_goes_through_its_phases_and_leaves_no_trace_of_the_old_ca(setting, check):
    await setting.begun()
    before = await setting.keys()
    async with setting.taking_up(0.5):
        await setting.drive(RotationPhase.SWITCH, RotationCommand.ROTATE, idle=False)
        assert {len(subjects(pem)) for pem in await setting.trusted()} == {2}
        await setting.drive()
    entered = [said.partition(" -> ")[2].partition(":")[0] for said in setting.said if " -> " in said]
    assert entered == ["publish", "spread", "switch", "soak", "retire", "steady"]
    after, served = await setting.keys(), await setting.served()
    assert (after.generation, after.following) == (before.generation + 1, None)
    assert subjects(after.current.certificate) != subjects(before.current.certificate)
    assert set(await setting.trusted()) == {after.current.certificate} == {served.trusted}
    secret = await setting.client.get(kinds.SECRETS, stored.CA, setting.target.namespace)
    assert sorted(secret.data) == ["ca.crt", "ca.key"]
    await check(setting)


@pytest.mark.parametrize(
    "phase", [RotationPhase.PUBLISH, RotationPhase.SPREAD, RotationPhase.SWITCH, RotationPhase.SOAK]
)
async def test_a_rotation_can_be_rolled_back_from_each_phase(setting, check, phase):
    await setting.begun()
    before = await setting.keys()
    async with setting.taking_up():
        await setting.drive(phase, RotationCommand.ROTATE, idle=False)
        await setting.drive(RotationPhase.STEADY, RotationCommand.ROLL_BACK)
    after = await setting.keys()
    assert (after.current, after.following, after.generation) == (before.current, None, before.generation)
    assert set(await setting.trusted()) == {before.current.certificate}
    await check(setting)


async def test_two_at_once_make_one_rotation(setting, check):
    await setting.begun()
    async with setting.taking_up():
        await asyncio.gather(*(setting.drive(RotationPhase.STEADY, RotationCommand.ROTATE) for _ in range(3)))
    assert (await setting.keys()).generation == 2
    await check(setting)


async def test_a_lagging_replica_is_waited_for_and_named(setting, check):
    await setting.begun()
    async with setting.taking_up():
        await setting.drive(RotationPhase.SWITCH, RotationCommand.ROTATE, idle=False)
        setting.fleet.lagging.add("b:1")
        waiting = asyncio.create_task(setting.drive())
        await setting.hears("1 of 3 replicas: b:1 serves the other certificate")
        await check(setting)
        assert (await setting.keys()).phase is RotationPhase.SWITCH
        setting.fleet.lagging.clear()
        await waiting
    await check(setting)


async def test_who_decided_by_what_was_then_writes_nothing(setting):
    await setting.begun()
    late = setting.rotator()
    seen = await late.look()
    state = seen.state()
    async with setting.taking_up():
        await setting.drive(RotationPhase.SPREAD, RotationCommand.ROTATE, idle=False)
    for requested in (RotationCommand.RENEW, RotationCommand.ROTATE):
        step = late_plan(state, seen.now, requested)
        with pytest.raises(errors.ConflictError):
            await late._perform(step, seen, state)
    out_of_date = replace(state, published=dict.fromkeys(state.published, frozenset()))
    with pytest.raises(errors.ConflictError):
        await late._perform(late_plan(out_of_date, seen.now, None), seen, out_of_date)
    assert (await setting.keys()).phase is RotationPhase.SPREAD


def late_plan(state: Any, now: Any, requested: Any) -> Any:
    step = plan(state, now, requested)
    assert step.action is not RotationAction.WAIT
    return step


async def test_only_the_bundles_are_ours_and_the_rest_stays_with_who_applied_it(setting):
    kind, name = kinds.VALIDATING, setting.target.configuration
    await setting.init()
    whole = {"metadata": {"name": name}, "webhooks": [setting.webhook("one.example.com")]}
    await setting.client.apply(kind, whole, manager="helm")
    await setting.drive()
    trusted = (await setting.keys()).current.certificate
    found = await fields(setting, kind)
    assert set(found) == {"helm", targets.MANAGER}
    entry = found[targets.MANAGER]["f:webhooks"]['k:{"name":"one.example.com"}']
    assert entry == {".": {}, "f:clientConfig": {"f:caBundle": {}}, "f:name": {}}
    whole["webhooks"][0]["timeoutSeconds"] = 7
    await setting.client.apply(kind, whole, manager="helm")
    changed = (await setting.client.get(kind, name)).webhooks[0]
    assert (changed["timeoutSeconds"], base64.b64decode(changed["clientConfig"]["caBundle"])) == (7, trusted)


async def fields(setting: Any, kind: Any) -> dict[str, Any]:
    answer = await setting.client.send(Request("GET", kind.path("", setting.target.configuration)))
    entries = json.loads(answer.body)["metadata"]["managedFields"]
    return {each["manager"]: each["fieldsV1"] for each in entries}


async def test_what_trusted_another_ca_is_rotated_to_ours_without_a_gap(setting, check):
    other = authority.new_ca(setting.clock.now(), 7)
    pair = authority.issue(other, ("muster-webhook.muster-system.svc", "127.0.0.1"), setting.clock.now())
    setting.fleet.take_up(pair)
    await setting.configure(other.certificate)
    await setting.init()
    assert (await setting.keys()).phase is RotationPhase.PUBLISH
    async with setting.taking_up():
        await setting.drive(RotationPhase.SWITCH, idle=False)
        assert {tuple(subjects(pem)) for pem in await setting.trusted()} == {
            (*subjects(other.certificate), *subjects((await setting.keys()).following.certificate))
        }
        await check(setting)
        await setting.drive()
    assert subjects(other.certificate)[0] not in subjects((await setting.trusted())[0])
    await check(setting)


async def test_where_cert_manager_writes_the_bundle_nothing_of_ours_does(setting):
    await setting.begun()
    mark = {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "muster-system/webhook"}}}
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        await setting.client.patch(kind, setting.target.configuration, mark)
    for requested in (None, *RotationCommand):
        turn = await setting.rotator().take_step(requested)
        assert (turn.step.action, turn.did) == (RotationAction.WAIT, "")
        assert "cert-manager writes the bundle of ValidatingWebhookConfiguration" in turn.step.why
    with pytest.raises(RefusedError, match="remove the annotation"):
        await setting.rotator().begin(CertificateSettings())


async def test_before_init_there_is_nothing_to_do_and_that_is_said(setting):
    with pytest.raises(RefusedError, match="there is no Secret muster-webhook-ca: run `muster certs init`"):
        await setting.rotator().take_step()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": {"ca.crt": None}}, "it holds no CA"),
        ({"data": {"ca.crt": "AAAA"}}, "not readable as PEM"),
        (
            {"metadata": {"annotations": {"muster.sh/certificates-phase": "later"}}},
            "'later' is not a phase of a rotation",
        ),
        ({"metadata": {"annotations": {"muster.sh/certificates-phase": "soak"}}}, "phase soak without a new CA"),
        ({"metadata": {"annotations": {"muster.sh/certificates-since": "yesterday"}}}, "Invalid isoformat string"),
    ],
)
async def test_a_damaged_secret_is_named_with_the_remedy_and_nothing_is_written(setting, change, said):
    await setting.begun()
    await setting.client.patch(kinds.SECRETS, stored.CA, change, setting.target.namespace)
    with pytest.raises(StoredCAError, match="restore it, or delete it and run `muster certs init`") as caught:
        await setting.rotator().take_step()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_pair_that_was_mixed_up_in_the_secret_is_issued_again(setting):
    await setting.begun()
    other = authority.issue((await setting.keys()).current, ("127.0.0.1",), setting.clock.now())
    key = base64.b64encode(other.key).decode()
    await setting.client.patch(kinds.SECRETS, stored.TLS, {"data": {"tls.key": key}}, setting.target.namespace)
    turn = await setting.rotator().take_step()
    assert turn.step.action is RotationAction.ISSUE
    assert "none that can be served" in turn.did


class NoSecretsMade:
    """A transport of an account that may not create Secrets."""

    def __init__(self, via: Any) -> None:
        self._via = via

    async def request(self, request: Request, *, within: float) -> Any:
        if (request.method, request.path.rpartition("/")[2]) == ("POST", "secrets"):
            raise errors.ForbiddenError(403, "Forbidden", "no")
        return await self._via.request(request, within=within)


async def test_who_may_not_make_a_secret_that_is_gone_says_who_may(setting):
    await setting.begun()
    await setting.client.delete(kinds.SECRETS, stored.TLS, setting.target.namespace)
    with pytest.raises(RefusedError, match=r"may not be made here \(no\): run `muster certs renew`"):
        await setting.rotator(Client(NoSecretsMade(setting.client.transport))).take_step()
    assert "issued a certificate" in (await setting.rotator().take_step()).did


async def test_a_replica_that_does_not_answer_is_no_proof(setting):
    await setting.begun()
    async with setting.taking_up():
        await setting.drive(RotationPhase.SWITCH, RotationCommand.ROTATE, idle=False)
        setting.fleet.silent.add("c:1")
        for _ in range(3):
            turn = await setting.rotator().take_step()
    assert (turn.state.phase, "c:1 doesn't answer" in turn.step.why) == (RotationPhase.SWITCH, True)
    assert await setting.fleet("c:1", "x") == ProbeResult(trouble="connection refused")


async def test_a_webhook_that_a_new_version_does_not_have_any_more_can_be_dropped(setting):
    name = setting.target.configuration
    both = [setting.webhook("one.example.com"), setting.webhook("two.example.com")]

    async def installed(webhooks: list[Any]) -> list[bytes]:
        manifest = {"metadata": {"name": name}, "webhooks": webhooks}
        await webhook_configurations.apply(setting.client, manifest, manifest)
        return await setting.trusted()

    await setting.init()
    await installed(both)
    await setting.drive()
    trusted = (await setting.keys()).current.certificate
    assert await installed(both[:1]) == [trusted] * 2
    assert await installed(both) == [trusted, b""] * 2


class Ahead:
    """A clock that is off, beside an API server's that is right."""

    def __init__(self, minutes: float) -> None:
        self._off = timedelta(minutes=minutes)

    def now(self) -> datetime:
        return SystemClock().now() + self._off


@pytest.mark.only("kubernetes", reason="the sandbox in this process has one clock with everybody")
@pytest.mark.parametrize(("minutes", "told"), [(10, "10 minutes behind"), (-10, "10 minutes ahead of")])
async def test_nothing_is_issued_by_a_clock_that_is_off(setting, minutes, told):
    await setting.begun()
    before = await setting.served()
    rotator = Rotator(setting.client, Ahead(minutes), setting.target, setting.fleet)
    for requested in (RotationCommand.RENEW, RotationCommand.ROTATE):
        turn = await rotator.take_step(requested)
        assert (turn.step.action, turn.did) == (RotationAction.WAIT, "")
        assert f"the API server's clock is {told} this machine's" in turn.step.why
    assert await setting.served() == before


@pytest.mark.only("kubernetes", reason="the sandbox converts by apiVersion only, and refuses such a CRD")
async def test_a_crd_that_converts_by_webhook_gets_the_bundle_and_keeps_the_rest(plane, setting):
    group = f"{plane.unique('certificates')}.example.com"
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    config = {"url": "https://127.0.0.1:9443/convert"}
    conversion = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": config}}
    named = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": group, "scope": "Namespaced", "names": named, "versions": versions, "conversion": conversion}
    made = await plane.create(kinds.CRDS, {"metadata": {"name": f"things.{group}"}, "spec": spec})
    setting.target = replace(setting.target, definitions=(made.name, "missing.example.com"))
    await setting.begun()
    found = (await plane.client.get(kinds.CRDS, made.name)).spec["conversion"]
    trusted = found["webhook"]["clientConfig"].pop("caBundle")
    assert base64.b64decode(trusted) == (await setting.keys()).current.certificate
    assert found == conversion
