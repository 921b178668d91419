"""Key pairs and what must hold of them before anybody serves or trusts one. Pure: times are given.

Certificates and keys are PEM bytes, as Secrets and files hold them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes, PublicKeyTypes
from cryptography.x509 import verification
from cryptography.x509.verification import Criticality, ExtensionPolicy
from msgspec import Struct


class CertificateFault(Enum):
    """What is wrong with a certificate; the value says it in a word or two."""

    UNREADABLE = "unreadable"
    KEY = "mismatched key"
    EXPIRED = "expired"
    EARLY = "not yet valid"
    NAME = "wrong name"
    CA = "wrong CA"


class CertificateError(ValueError):
    """A certificate or key that must not be served or trusted. The text says which rule it breaks, and the remedy."""

    def __init__(self, fault: CertificateFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class Certificate(Struct, frozen=True):
    """What is said of a certificate.

    Attributes:
        fingerprint: SHA-256 of its DER form, in hexadecimal.
        subject: its subject, as people write it.
        names: host names and IP addresses that it is good for.
    """

    fingerprint: str
    subject: str
    not_before: datetime
    not_after: datetime
    names: frozenset[str] = frozenset()


class KeyPair(Struct, frozen=True):
    """A certificate (or a chain, the leaf first) and the leaf's private key."""

    certificate: bytes
    key: bytes

    def parsed(self) -> x509.Certificate:
        """Return the certificate as an object."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def not_after(self) -> datetime:
        """When the certificate expires."""
        return self.parsed().not_valid_after_utc


def describe(certificate: x509.Certificate) -> Certificate:
    """Say what a certificate is."""
    return Certificate(
        certificate.fingerprint(hashes.SHA256()).hex(),
        certificate.subject.rfc4514_string().removeprefix("CN="),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        frozenset(_names(certificate)),
    )


def certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Read all certificates of a PEM text, none of an empty one.

    Raises:
        CertificateError: it isn't PEM.
    """
    if not pem.strip():
        return ()
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise CertificateError(CertificateFault.UNREADABLE, f"not readable as PEM: {error}; issue it again") from error


def joined(parsed: Iterable[x509.Certificate]) -> bytes:
    """Write certificates as one PEM text, each once."""
    once = {each.fingerprint(hashes.SHA256()): each for each in parsed}
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in once.values())


def signed_by(leaf: x509.Certificate, authorities: Iterable[x509.Certificate]) -> x509.Certificate | None:
    """Return the authority whose key signed ``leaf``, None where it was none of these."""
    for each in authorities:
        try:
            leaf.verify_directly_issued_by(each)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return each
    return None


def subject_name(host: str) -> x509.DNSName | x509.IPAddress:
    """Turn a host name or IP address into a subject alternative name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def check(pair: KeyPair, trusted: bytes, host: str, now: datetime) -> None:
    """Check that a client which trusts ``trusted`` would accept ``pair`` for ``host`` at ``now``.

    Raises:
        CertificateError: the key doesn't belong to the certificate, or the chain, the name or the time is wrong.
    """
    chain = matched(pair)
    accepted(chain, certificates(trusted), host, now)


def matched(pair: KeyPair) -> tuple[x509.Certificate, ...]:
    """Return the chain of a pair whose key belongs to its leaf.

    Raises:
        CertificateError: it can't be read, or the key is another's.
    """
    chain = certificates(pair.certificate)
    if not chain:
        raise CertificateError(CertificateFault.UNREADABLE, "not readable as PEM: it is empty; issue it again")
    try:
        key = serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(CertificateFault.UNREADABLE, f"not readable as PEM: {error}; issue it again") from error
    if _public_bytes(key.public_key()) != _public_bytes(chain[0].public_key()):
        text = "the private key doesn't belong to the certificate; issue both together: `muster certs renew`"
        raise CertificateError(CertificateFault.KEY, text)
    return chain


def accepted(chain: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate], host: str, now: datetime) -> None:
    """Check that a client which trusts ``trusted`` would accept ``chain`` (the leaf first) for ``host`` at ``now``.

    Raises:
        CertificateError: it wouldn't, with the reason and the remedy.
    """
    leaf = chain[0]
    _timely("the certificate", leaf, now, "`muster certs renew` issues another")
    if _trusts(chain, trusted, host, now):
        return
    if any(_trusts(chain, trusted, own, now) for own in sorted(_names(leaf))):
        named = ", ".join(sorted(_names(leaf)))
        text = f"{host} would be refused: the certificate is for {named}; `muster certs init --host {host}` adds it"
        raise CertificateError(CertificateFault.NAME, text)
    if (issuer := signed_by(chain[-1], trusted)) is not None:
        _timely(f"the CA {describe(issuer).subject}", issuer, now, "`muster certs rotate-ca` makes another")
    by = leaf.issuer.rfc4514_string().removeprefix("CN=")
    known = ", ".join(describe(each).subject for each in trusted) or "nobody"
    text = f"{host} would be refused: {by} signed the certificate, but {known} is trusted; `muster certs inject` helps"
    raise CertificateError(CertificateFault.CA, text)


def _timely(what: str, certificate: x509.Certificate, now: datetime, remedy: str) -> None:
    if now > certificate.not_valid_after_utc:
        text = f"{what} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; {remedy}"
        raise CertificateError(CertificateFault.EXPIRED, text)
    if now < certificate.not_valid_before_utc:
        begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        text = f"{what} is valid from {begins} only, and it is {now:%H:%M}: set the clocks by NTP, or wait"
        raise CertificateError(CertificateFault.EARLY, text)


def _trusts(chain: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate], host: str, now: datetime) -> bool:
    if not trusted:
        return False
    # What other people's authorities leave out, API servers don't miss.
    leaves = ExtensionPolicy.webpki_defaults_ee().may_be_present(
        x509.AuthorityKeyIdentifier, Criticality.AGNOSTIC, None
    )
    authorities = ExtensionPolicy.webpki_defaults_ca().may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, None)
    policy = (
        verification.PolicyBuilder()
        .store(verification.Store(list(trusted)))
        .time(now.replace(tzinfo=None))
        .extension_policies(ee_policy=leaves, ca_policy=authorities)
    )
    try:
        policy.build_server_verifier(subject_name(host)).verify(chain[0], list(chain[1:]))
    except (verification.VerificationError, ValueError):
        return False
    return True


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    addresses = [str(each) for each in found.get_values_for_type(x509.IPAddress)]
    return found.get_values_for_type(x509.DNSName) + addresses


def _public_bytes(key: CertificatePublicKeyTypes | PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
