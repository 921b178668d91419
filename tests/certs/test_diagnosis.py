"""What `muster certs verify` finds: each fault by its name, with the remedy, and nothing where nothing is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from certs import authority, bundle, diagnosis
from certs.bundle import KeyPair
from certs.observation import Observation
from certs.replicas import ProbeResult
from certs.state import RotationPhase
from certs.stored import ServerSecret, StoredKeys
from certs.targets import BundleTarget, WebhookEntry
from muster.model import kinds

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOST = "10.0.0.5"
HOSTS = (HOST, "muster-webhook.muster-system.svc")


@pytest.fixture(scope="module")
def ca() -> KeyPair:
    return authority.new_ca(NOW)


def holder(trusted: bytes, **changes: object) -> BundleTarget:
    return replace(
        BundleTarget(kinds.VALIDATING, "muster", "1", (WebhookEntry("jobs", None, HOST, trusted),)), **changes
    )


@pytest.fixture
def observation(ca: KeyPair) -> Observation:
    pair = authority.issue(ca, HOSTS, NOW)
    keys = StoredKeys(RotationPhase.STEADY, NOW, 1, ca, hosts=HOSTS)
    return Observation(
        now=NOW,
        targets=(holder(ca.certificate),),
        served=ServerSecret(pair, ca.certificate, "1"),
        keys=keys,
        shown={"10.0.0.5:9443": showing(pair)},
    )


def showing(pair: KeyPair, clock: datetime = NOW) -> ProbeResult:
    return ProbeResult(bundle.certificates(pair.certificate), clock)


def said(observation: Observation, now: datetime = NOW) -> list[str]:
    found = list(map(str, diagnosis.findings(observation, now, HOSTS)))
    assert not [each for each in found if "\n" in each]
    return found


def test_where_nothing_is_wrong_nothing_is_found(observation):
    assert said(observation) == []


def test_an_expired_certificate_is_found_in_the_secret_and_where_it_is_served(observation):
    found = said(observation, NOW + authority.LEAF_LIFE + timedelta(hours=1))
    text = "expired: the certificate expired at 2027-02-19 12:00 UTC; `muster certs renew` issues another"
    assert found == [f"Secret muster-webhook-tls: {text}", f"replica 10.0.0.5:9443: {text}"]


def test_a_certificate_that_is_not_yet_valid_is_found(observation):
    found = said(observation, NOW - timedelta(minutes=10))
    assert len(found) == 2
    assert "not yet valid: the certificate is valid from 2026-11-21 11:55 UTC only, and it is 11:50" in found[0]
    assert "set the clocks by NTP" in found[0]


def test_a_wrong_name_is_found_and_the_right_one_told(observation, ca):
    pair = authority.issue(ca, ("10.0.0.6",), NOW)
    found = said(replace(observation, shown={"r": showing(pair)}))
    about, _, remedy = found[0].partition("; ")
    assert about == "replica r: wrong name: 10.0.0.5 would be refused: the certificate is for 10.0.0.6"
    assert (remedy, len(found)) == ("`muster certs init --host 10.0.0.5` adds it", 1)


def test_a_certificate_of_another_ca_is_found(observation):
    other = authority.new_ca(NOW, 2)
    (found,) = said(replace(observation, shown={"r": showing(authority.issue(other, HOSTS, NOW))}))
    assert found.startswith("replica r: wrong CA: 10.0.0.5 would be refused: muster-webhook-ca-2-")
    assert "`muster certs inject` helps (ValidatingWebhookConfiguration muster)" in found


def test_a_key_of_another_certificate_is_found(observation, ca):
    mixed = KeyPair(observation.served.pair.certificate, authority.issue(ca, HOSTS, NOW).key)
    (found,) = said(replace(observation, served=replace(observation.served, pair=mixed)))
    assert found.startswith("Secret muster-webhook-tls: mismatched key: the private key doesn't belong")
    assert found.endswith("issue both together: `muster certs renew`")


@pytest.mark.parametrize(("minutes", "told"), [(10, "10 minutes ahead of"), (-10, "10 minutes behind")])
def test_a_clock_that_is_ten_minutes_off_is_found_wherever_it_is(observation, minutes, told):
    off = NOW + timedelta(minutes=minutes)
    assert said(replace(observation, clock=off)) == [
        f"API server: its clock is {told} this machine's: set the clocks by NTP"
    ]
    (found,) = said(replace(observation, shown={"r": showing(observation.served.pair, off)}))
    assert found == f"replica r: its clock is {told} this machine's: set the clocks by NTP"
    assert said(replace(observation, clock=NOW + timedelta(minutes=4))) == []


def test_a_ca_near_its_end_is_found_before_it_is_too_late(observation, ca):
    late = NOW + timedelta(days=650)
    pair = authority.issue(ca, HOSTS, late)
    renewed = replace(observation, served=replace(observation.served, pair=pair), shown={"r": showing(pair)})
    (found,) = said(renewed, late)
    assert found.startswith("Secret muster-webhook-ca: the CA ends at 2028-11-20")
    assert found.endswith("`muster certs rotate-ca` replaces it")


@pytest.mark.parametrize(
    ("trusted", "told"),
    [
        (b"", "it has no caBundle; `muster certs inject` writes it"),
        (b"not base64", "its caBundle isn't PEM; `muster certs inject` writes it"),
    ],
)
def test_a_webhook_without_a_bundle_is_found(observation, trusted, told):
    assert said(replace(observation, targets=(holder(trusted),))) == [
        f"ValidatingWebhookConfiguration muster jobs: {told}"
    ]


def test_a_webhook_that_trusts_too_much_is_found(observation, ca):
    both = ca.certificate + authority.new_ca(NOW, 2).certificate
    (found,) = said(replace(observation, targets=(holder(both),)))
    assert "it trusts something else than the Secret's bundle" in found


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (None, "name each with --probe HOST:PORT"),
        ({}, "none is ready; start the webhook server"),
        ({"r": ProbeResult(trouble="connection refused")}, "it doesn't answer (connection refused); start it"),
    ],
)
def test_replicas_that_can_not_be_seen_are_findings(observation, shown, told):
    (found,) = said(replace(observation, shown=shown))
    assert told in found


def test_no_configuration_and_no_secret_are_findings(observation):
    found = said(replace(observation, targets=(), served=ServerSecret(KeyPair(b"", b""))))
    assert found == [
        "Secret muster-webhook-tls: it doesn't exist; `muster certs renew` makes it",
        "webhook configurations: none of Muster's name; `muster install` makes them, --configuration says another name",
    ]


def test_certificates_from_files_need_no_secret_to_be_right(observation):
    assert said(replace(observation, keys=None, served=ServerSecret(KeyPair(b"", b"")))) == []


def test_a_bundle_that_would_refuse_a_replica_is_not_good_to_inject(observation, ca):
    assert diagnosis.refusals(observation, ca.certificate, NOW) == []
    (found,) = diagnosis.refusals(observation, authority.new_ca(NOW, 3).certificate, NOW)
    assert found.startswith("replica 10.0.0.5:9443: wrong CA: 10.0.0.5 would be refused")
    silent = replace(observation, shown={"r": ProbeResult(trouble="connection refused")})
    assert diagnosis.refusals(silent, ca.certificate, NOW) == ["replica r: connection refused"]
