"""The leader, who keeps the certificates by itself."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest
from plane import PATIENCE, running
from prometheus_client import CollectorRegistry

from certs import authority, stored
from certs.bundle import CertificateError, KeyPair
from certs.controller import CertificateController
from certs.metrics import CertificateMetrics
from certs.state import RotationPhase
from certs.stored import ServerSecret, StoredKeys
from muster.kube import wait
from muster.kube.clock import SystemClock
from muster.kube.transport import JSON_PATCH
from muster.model import kinds

HOSTS = ("muster-webhook.muster-system.svc", "muster-visibility.muster-system.svc")


@pytest.fixture
def keep(setting: Any) -> Callable[[], Any]:
    """Keep the certificates of a setting; its metrics are in ``setting.registry``."""

    def keeping() -> Any:
        setting.registry = CollectorRegistry()
        return CertificateController(
            setting.client, setting.clock, setting.target, CertificateMetrics(setting.registry), setting.fleet
        ).run()

    return keeping


async def trusting(setting: Any, kind: Any, holds: Callable[[list[bytes]], bool]) -> None:
    """Wait for a bundle; for ten seconds where only waiting takes time, since that is what is promised."""

    def bundles(found: Any) -> list[bytes]:
        return [base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in found.webhooks]

    name = setting.target.configuration
    within = PATIENCE if isinstance(setting.clock, SystemClock) else 10.0
    await wait.until(setting.client, kind, name, holds=lambda found: holds(bundles(found)), within=within)


async def eventually(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - logs and counters tell nobody
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", [kinds.VALIDATING, kinds.MUTATING])
async def test_a_bundle_that_is_taken_away_is_back_within_ten_seconds(setting, keep, kind):
    await setting.begun()
    trusted = (await setting.keys()).current.certificate
    async with running(keep()):
        await trusting(setting, kind, lambda found: set(found) == {trusted})
        other = base64.b64encode(authority.new_ca(setting.clock.now(), 9).certificate).decode()
        for change in (
            [{"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}],
            [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": other}],
        ):
            await setting.client.patch(kind, setting.target.configuration, change, content_type=JSON_PATCH)
            await trusting(setting, kind, lambda found: set(found) == {trusted})


async def test_it_begins_as_soon_as_there_is_something_to_keep(setting, keep, caplog):
    caplog.set_level("INFO", "certs.controller")
    await setting.configure()
    async with running(keep()):
        await eventually(lambda: caplog.messages)
        assert set(await setting.trusted()) == {b""}
        assert caplog.messages == ["there is no Secret muster-webhook-ca: run `muster certs init`"]
        await setting.init()
        trusted = (await setting.keys()).current.certificate
        for kind in (kinds.VALIDATING, kinds.MUTATING):
            await trusting(setting, kind, lambda found: set(found) == {trusted})


@pytest.mark.only("sandbox", reason="seconds pass")
async def test_webhooks_that_somebody_deletes_are_missed(setting, keep):
    await setting.begun()
    async with running(keep()):
        await asyncio.sleep(10)
        assert setting.registry.get_sample_value("muster_certificates_webhooks") == 4
        await setting.client.delete(kinds.VALIDATING, setting.target.configuration)
        await asyncio.sleep(10)
        assert setting.registry.get_sample_value("muster_certificates_webhooks") == 2
    assert setting.registry.get_sample_value("muster_certificates_webhooks") == 0


async def aged(setting: Any, ca_part: float, leaf_part: float) -> KeyPair:
    """Make everything as if CA and certificate had lived those parts of their lives; give the certificate."""
    now, space = setting.clock.now(), setting.target.namespace
    ca = authority.new_ca(now - authority.CA_LIFE * ca_part)
    pair = authority.issue(ca, HOSTS, now - authority.LEAF_LIFE * leaf_part)
    keys = StoredKeys(RotationPhase.STEADY, now, 1, ca, hosts=HOSTS, probes=tuple(setting.fleet.serving))
    await setting.client.create(kinds.SECRETS, stored.keys_manifest(keys, space), space)
    await setting.client.create(kinds.SECRETS, stored.served_manifest(ServerSecret(pair, ca.certificate), space), space)
    await setting.configure(ca.certificate)
    setting.fleet.take_up(pair)
    return pair


@pytest.mark.only("sandbox", reason="an hour passes")
async def test_left_alone_it_renews_and_rotates_what_is_due(setting, keep, check):
    pair = await aged(setting, 0.67, 0.67)
    async with running(keep()), setting.taking_up(60, look=5):
        for _ in range(60):
            await asyncio.sleep(60)
            await check(setting)
        keys, served = await setting.keys(), await setting.served()
        value = setting.registry.get_sample_value
        assert value("muster_certificates_phase", {"phase": "steady"}) == 1
        assert value("muster_certificates_bundle_size") == 1
        ends = value("muster_certificates_not_after_timestamp_seconds", {"certificate": "ca"})
        assert ends == stored.authority(keys.current).not_after.timestamp()
    assert (keys.phase, keys.generation) == (RotationPhase.STEADY, 2)
    assert served.pair != pair
    # Another process may lead from now on, whose certificates this one doesn't know.
    assert value("muster_certificates_not_after_timestamp_seconds", {"certificate": "ca"}) is None


@pytest.mark.only("sandbox", reason="minutes pass")
async def test_a_leader_that_comes_when_all_has_expired_does_not_wait_before_it_mends_it(setting, keep, check):
    await aged(setting, 1.2, 8)
    with pytest.raises(CertificateError, match="expired"):
        await check(setting)
    async with running(keep()), setting.taking_up(look=1):
        await asyncio.sleep(10)
        await check(setting)


@pytest.mark.only("sandbox", reason="an hour passes")
async def test_left_alone_it_does_nothing_that_is_not_due(setting, keep):
    await aged(setting, 0.55, 0.55)
    before = (await setting.keys(), await setting.served(), await setting.trusted())
    async with running(keep()):
        await asyncio.sleep(3600)
    assert (await setting.keys(), await setting.served(), await setting.trusted()) == before


async def test_what_can_not_be_done_is_logged_once_and_tried_again(setting, keep, caplog):
    await setting.begun()
    keys = await setting.keys()
    space = setting.target.namespace
    await setting.client.patch(kinds.SECRETS, stored.CA, {"data": {"ca.crt": None}}, space)
    async with running(keep()):
        await eventually(lambda: (setting.registry.get_sample_value("muster_certificates_failures_total") or 0) > 1)
        said = [record.getMessage() for record in caplog.records if record.name == "certs.controller"]
        (once,) = [text for text in said if "is damaged" in text]
        assert once.startswith(f"certificates can't be kept: Secret {stored.CA} is damaged (it holds no CA): restore")
        repaired = {"data": {"ca.crt": base64.b64encode(keys.current.certificate).decode()}}
        await setting.client.patch(kinds.SECRETS, stored.CA, repaired, space)
        changed = {"metadata": {"annotations": {"muster.sh/certificates-hosts": "other.example"}}}
        await setting.client.patch(kinds.SECRETS, stored.CA, changed, space)
        await wait.until(
            setting.client,
            kinds.SECRETS,
            stored.TLS,
            space,
            holds=lambda found: "other.example" in names_of(found),
            within=60,
        )
    assert (await setting.keys()).phase is RotationPhase.STEADY


def names_of(secret: Any) -> frozenset[str]:
    leaf = stored.leaf(stored.read_served(secret).pair)
    return leaf.certificate.names if leaf is not None else frozenset()
