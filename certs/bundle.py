"""Key pairs and what must hold of them before anybody serves or trusts one. Pure: times are given.

Certificates and keys are PEM bytes, as Secrets and files hold them.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes, PublicKeyTypes
from cryptography.x509 import verification


class CertificateError(ValueError):
    """A certificate or key that must not be served or trusted. The text says which rule it breaks, and the remedy."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: bytes
    key: bytes

    def parsed(self) -> x509.Certificate:
        """Give the certificate as an object."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def not_after(self) -> datetime:
        """When the certificate expires."""
        return self.parsed().not_valid_after_utc


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
    try:
        leaf = pair.parsed()
        key = serialization.load_pem_private_key(pair.key, password=None)
        roots = x509.load_pem_x509_certificates(trusted)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"not readable as PEM: {error}; issue it again") from error
    if _public_bytes(key.public_key()) != _public_bytes(leaf.public_key()):
        raise CertificateError("the private key doesn't belong to the certificate; issue both together")
    verifier = verification.PolicyBuilder().store(verification.Store(roots)).time(now.replace(tzinfo=None))
    try:
        verifier.build_server_verifier(subject_name(host)).verify(leaf, [])
    except verification.VerificationError as error:
        raise CertificateError(f"{host} would be refused with this certificate: {error}") from error


def _public_bytes(key: CertificatePublicKeyTypes | PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
