"""The two Secrets of the certificates: what they hold, as values, and how it is written. Pure.

``muster-webhook-tls`` is what servers mount: certificate, key, and the bundle that is to be trusted. ``muster-webhook-ca``
holds the CAs with their keys, and the state of a rotation in its annotations; only who rotates may read it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from certs import bundle
from certs.bundle import CertificateError, KeyPair
from certs.state import CertificateAuthority, Leaf, RotationPhase, RotationWaits
from muster.model.objects import Secret

TLS: Final = "muster-webhook-tls"
CA: Final = "muster-webhook-ca"

_PREFIX: Final = "muster.sh/certificates-"
_PHASE: Final = _PREFIX + "phase"
_SINCE: Final = _PREFIX + "since"
_GENERATION: Final = _PREFIX + "generation"
_HOSTS: Final = _PREFIX + "hosts"
_PROBES: Final = _PREFIX + "probes"
_SPREAD: Final = _PREFIX + "publish-wait"
_SOAK: Final = _PREFIX + "soak"
_HOLD: Final = _PREFIX + "hold"
_LABELS: Final = {"app.kubernetes.io/part-of": "muster"}


class StoredCAError(Exception):
    """The Secret of the CA doesn't make sense. The text says what, and the remedy."""


class StoredKeys(Struct, frozen=True):
    """What the Secret of the CA holds.

    Attributes:
        current: the CA; an empty key where it is another's, of whom only the certificates are known.
        following: the new CA, during a rotation.
        hosts: names that the servers' certificate has to be good for; ``probes`` where the servers are, as HOST:PORT,
            when no Service says so.
        version: the Secret's resourceVersion; empty before it is written.
    """

    phase: RotationPhase
    since: datetime
    generation: int
    current: KeyPair
    following: KeyPair | None = None
    hosts: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    waits: RotationWaits = field(default_factory=RotationWaits)
    hold: RotationPhase | None = None
    version: str = ""

    def entered(self, phase: RotationPhase, now: datetime, new: KeyPair | None) -> StoredKeys:
        """Return what it holds in the next phase; ``new`` is the CA that a rotation begins with."""
        after = replace(self, phase=phase, since=now)
        match self.phase, phase:
            case RotationPhase.STEADY, RotationPhase.PUBLISH:
                return replace(after, following=new, hold=None if self.hold is RotationPhase.STEADY else self.hold)
            case RotationPhase.RETIRE, RotationPhase.STEADY if self.following is not None:
                return replace(after, current=self.following, following=None, generation=self.generation + 1, hold=None)
            case RotationPhase.WITHDRAW, RotationPhase.STEADY:
                # Else what is due anyway would begin again at once.
                return replace(after, following=None, hold=RotationPhase.STEADY)
            case RotationPhase.RETIRE, RotationPhase.SWITCH:
                # The old CA isn't trusted everywhere any more: it has to be impossible to go back to it.
                return replace(after, current=replace(self.current, key=b""))
        return after


class ServerSecret(Struct, frozen=True):
    """What the Secret for servers holds; ``version`` is its resourceVersion, empty where there is none."""

    pair: KeyPair
    trusted: bytes = b""
    version: str = ""


def authority(pair: KeyPair) -> CertificateAuthority:
    """Say who a CA is."""
    found = bundle.certificates(pair.certificate)
    return CertificateAuthority(tuple(map(bundle.describe, found)), signs=bool(pair.key))


def leaf(pair: KeyPair, *authorities: KeyPair) -> Leaf | None:
    """Say what a pair is and who of the authorities signed it; None where it can't be served."""
    try:
        chain = bundle.matched(pair)
    except CertificateError:
        return None
    known = [each for one in authorities for each in bundle.certificates(one.certificate)]
    signer = bundle.signed_by(chain[-1], known)
    return Leaf(bundle.describe(chain[0]), bundle.describe(signer).fingerprint if signer is not None else "")


def read_keys(secret: Secret) -> StoredKeys:
    """Read the Secret of the CA.

    Raises:
        StateError: something in it is missing or wrong.
    """
    data, annotations = _data(secret), secret.metadata.annotations or {}
    try:
        keys = StoredKeys(
            _phase(annotations.get(_PHASE, RotationPhase.STEADY.value)),
            _moment(annotations[_SINCE]) if _SINCE in annotations else secret.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC),
            int(annotations.get(_GENERATION, "1")),
            KeyPair(data.get("ca.crt", b""), data.get("ca.key", b"")),
            KeyPair(data["next.crt"], data["next.key"]) if data.get("next.crt") and data.get("next.key") else None,
            _words(annotations.get(_HOSTS, "")),
            _words(annotations.get(_PROBES, "")),
            _waits(annotations),
            _phase(annotations[_HOLD]) if _HOLD in annotations else None,
            secret.metadata.resource_version,
        )  # fmt: skip
    except ValueError as error:
        raise StoredCAError(_damaged(str(error))) from error
    _validate(keys)
    return keys


def _validate(keys: StoredKeys) -> None:
    """Check what every reader relies on.

    Raises:
        StateError: it isn't so.
    """
    pairs = [keys.current, *([keys.following] if keys.following is not None else [])]
    for pair in pairs:
        try:
            if not bundle.certificates(pair.certificate):
                raise StoredCAError(_damaged("it holds no CA"))
            if pair.key:
                bundle.matched(pair)
        except CertificateError as error:
            raise StoredCAError(_damaged(str(error))) from error
    if (keys.following is None) is not (keys.phase is RotationPhase.STEADY):
        raise StoredCAError(
            _damaged(f"phase {keys.phase.value} with{'out a' if keys.following is None else ' a'} new CA")
        )


def _damaged(why: str) -> str:
    return f"Secret {CA} is damaged ({why}): restore it, or delete it and run `muster certs init`"


def keys_manifest(keys: StoredKeys, namespace: str) -> dict[str, Any]:
    """Write the Secret of the CA: whole, or as a merge patch on the version it was read at."""
    following = keys.following or KeyPair(b"", b"")
    data = {
        "ca.crt": keys.current.certificate,
        "ca.key": keys.current.key,
        "next.crt": following.certificate,
        "next.key": following.key,
    }
    annotations = {
        _PHASE: keys.phase.value,
        _SINCE: keys.since.isoformat(),
        _GENERATION: str(keys.generation),
        _HOSTS: ",".join(keys.hosts),
        _PROBES: ",".join(keys.probes),
        _SPREAD: f"{keys.waits.spread.total_seconds():g}",
        _SOAK: f"{keys.waits.soak.total_seconds():g}",
        _HOLD: keys.hold.value if keys.hold is not None else "",
    }
    return _manifest(CA, namespace, keys.version, "Opaque", data, annotations)


def read_served(secret: Secret | None) -> ServerSecret:
    """Read the Secret for servers; an empty pair where there is none."""
    if secret is None:
        return ServerSecret(KeyPair(b"", b""))
    try:
        data = _data(secret)
    except StoredCAError:
        data = {}
    pair = KeyPair(data.get("tls.crt", b""), data.get("tls.key", b""))
    return ServerSecret(pair, data.get("ca.crt", b""), secret.metadata.resource_version)


def served_manifest(served: ServerSecret, namespace: str) -> dict[str, Any]:
    """Write the Secret for servers, likewise."""
    data = {"tls.crt": served.pair.certificate, "tls.key": served.pair.key, "ca.crt": served.trusted}
    return _manifest(TLS, namespace, served.version, "kubernetes.io/tls", data, {})


def _manifest(
    name: str, namespace: str, version: str, type_: str, data: Mapping[str, bytes], annotations: Mapping[str, str]
) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value).decode() or None for key, value in data.items()}
    changes = {key: value or None for key, value in annotations.items()}
    if version:
        # What others wrote on it stays; the type can't change.
        return {"metadata": {"resourceVersion": version, "annotations": changes}, "data": encoded}
    present = {key: value for key, value in changes.items() if value is not None}
    metadata = {"name": name, "namespace": namespace, "labels": _LABELS, "annotations": present}
    # The API server wants tls.crt and tls.key to be there, if empty.
    return {"metadata": metadata, "type": type_, "data": {key: value or "" for key, value in encoded.items()}}


def _data(secret: Secret) -> dict[str, bytes]:
    try:
        return {name: base64.b64decode(value, validate=True) for name, value in (secret.data or {}).items()}
    except binascii.Error as error:
        raise StoredCAError(_damaged(str(error))) from error


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return moment


def _phase(text: str) -> RotationPhase:
    try:
        return RotationPhase(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a phase of a rotation") from error


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for each in text.split(",") if (word := each.strip()))


def _waits(annotations: Mapping[str, str]) -> RotationWaits:
    usual = RotationWaits()
    spread, soak = annotations.get(_SPREAD), annotations.get(_SOAK)
    return RotationWaits(
        timedelta(seconds=float(spread)) if spread else usual.spread,
        timedelta(seconds=float(soak)) if soak else usual.soak,
    )
