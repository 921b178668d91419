from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import authority, bundle
from certs.bundle import CertificateError, KeyPair

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOSTS = ("127.0.0.1", "muster-webhook.muster-system.svc")


@pytest.fixture(scope="module")
def ca() -> KeyPair:
    return authority.new_ca(NOW)


def test_a_leaf_is_accepted_for_each_of_its_names_by_those_who_trust_its_ca(ca):
    leaf = authority.issue(ca, HOSTS, NOW)
    for host in HOSTS:
        bundle.check(leaf, ca.certificate, host, NOW)


def test_a_leaf_is_refused_for_another_name(ca):
    leaf = authority.issue(ca, HOSTS, NOW)
    with pytest.raises(CertificateError, match=r"^other\.example would be refused"):
        bundle.check(leaf, ca.certificate, "other.example", NOW)


def test_a_leaf_is_refused_by_those_who_trust_another_ca(ca):
    leaf = authority.issue(ca, HOSTS, NOW)
    with pytest.raises(CertificateError):
        bundle.check(leaf, authority.new_ca(NOW, 2).certificate, HOSTS[0], NOW)


def test_during_a_rotation_both_leaves_are_accepted_with_both_cas_trusted(ca):
    other = authority.new_ca(NOW, 2)
    both = ca.certificate + other.certificate
    for issuer in (ca, other):
        bundle.check(authority.issue(issuer, HOSTS, NOW), both, HOSTS[0], NOW)


def test_a_key_of_another_certificate_is_found(ca):
    first, second = (authority.issue(ca, HOSTS, NOW) for _ in range(2))
    with pytest.raises(CertificateError, match="doesn't belong to the certificate"):
        bundle.check(KeyPair(first.certificate, second.key), ca.certificate, HOSTS[0], NOW)


@pytest.mark.parametrize("damage", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff"])
def test_what_is_no_certificate_is_said_to_be_unreadable(ca, damage):
    leaf = authority.issue(ca, HOSTS, NOW)
    with pytest.raises(CertificateError, match="not readable as PEM"):
        bundle.check(KeyPair(damage, leaf.key), ca.certificate, HOSTS[0], NOW)


@settings(max_examples=30)
@given(st.integers(min_value=0, max_value=729))
def test_a_leaf_never_outlives_its_ca(days):
    ca = authority.new_ca(NOW)
    leaf = authority.issue(ca, HOSTS, NOW + timedelta(days=days))
    assert leaf.not_after <= ca.not_after


def test_an_expired_ca_issues_nothing(ca):
    with pytest.raises(CertificateError, match="the CA expired at 2028-11-20"):
        authority.issue(ca, HOSTS, NOW + authority.CA_LIFE)


def test_each_generation_has_a_subject_and_serial_of_its_own(ca):
    other = authority.new_ca(NOW, 2).parsed()
    assert other.subject != ca.parsed().subject
    assert other.serial_number != ca.parsed().serial_number


def test_a_leaf_can_be_used_by_clocks_that_are_five_minutes_slow(ca):
    leaf = authority.issue(ca, HOSTS, NOW)
    bundle.check(leaf, ca.certificate, HOSTS[0], NOW - timedelta(minutes=5))
    with pytest.raises(CertificateError):
        bundle.check(leaf, ca.certificate, HOSTS[0], NOW - timedelta(minutes=6))


def test_keys_are_linked_from_leaf_to_ca(ca):
    leaf = authority.issue(ca, HOSTS, NOW).parsed()
    authority_key = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    own_key = ca.parsed().extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert authority_key == own_key


async def test_python_s_own_tls_accepts_the_chain(tmp_path: Path):
    now = datetime.now(UTC)  # noqa: TID251 - OpenSSL looks at the machine's clock
    ca = authority.new_ca(now)
    leaf = authority.issue(ca, ("127.0.0.1",), now)
    (tmp_path / "crt").write_bytes(leaf.certificate)
    (tmp_path / "key").write_bytes(leaf.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "crt", tmp_path / "key")

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=serving)
    async with server:
        trusting = ssl.create_default_context(cadata=ca.certificate.decode())
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        assert await reader.read() == b"hello"
        writer.close()
        await writer.wait_closed()
