"""Issues the CA and the leaves that webhook servers show.

ECDSA P-256, random serials, key identifiers on both, a CA subject of its own for each generation, so that two CAs in
one bundle can never be taken for each other.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs import bundle
from certs.bundle import KeyPair

CA_LIFE: Final = timedelta(days=730)
LEAF_LIFE: Final = timedelta(days=90)
# Clocks differ; a certificate that is valid only from this very second is refused by half the cluster.
_BACKDATE: Final = timedelta(minutes=5)


def new_ca(now: datetime, generation: int = 1) -> KeyPair:
    """Make a certificate authority, valid from 5 minutes before ``now`` for two years."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"muster-webhook-ca-{generation}-{now:%Y%m%d%H%M%S}")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, subject, key, now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue(ca: KeyPair, hosts: tuple[str, ...], now: datetime) -> KeyPair:
    """Issue a server certificate for ``hosts`` (names or IP addresses), never outliving ``ca``.

    Raises:
        CertificateError: the CA has expired, or the result would not be accepted by those who trust it.
    """
    issuer = ca.parsed()
    if now >= issuer.not_valid_after_utc:
        text = (
            f"the CA expired at {issuer.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; `muster certs rotate-ca` makes another"
        )
        raise bundle.CertificateError(bundle.CertificateFault.EXPIRED, text)
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(ca.key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    life = min(LEAF_LIFE, issuer.not_valid_after_utc - now)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _builder(subject, issuer.subject, key, now, life)
        .add_extension(x509.SubjectAlternativeName([bundle.subject_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(signer, hashes.SHA256())
    )
    pair = _pair(certificate, key)
    for host in hosts:
        bundle.check(pair, ca.certificate, host, now)
    return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + life)
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
