"""An observation of a cluster's certificates at one moment, and its meaning. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from msgspec import Struct

from certs import bundle, stored, targets
from certs.bundle import KeyPair
from certs.replicas import ProbeResult
from certs.state import CertificateState, Leaf
from certs.stored import ServerSecret, StoredKeys
from certs.targets import BundleTarget

SERVICE: Final = "muster-webhook"
VISIBILITY: Final = "muster-visibility"


class RefusedError(Exception):
    """What was asked for can't be done here. The text says why, and the remedy."""


class Observation(Struct, frozen=True):
    """What was seen at once.

    Attributes:
        keys: None before `muster certs init`.
        unfilled_version: resourceVersion of a Secret of the CA that is there and empty: made by who installed, for the leader to fill.
        shown: by address; None where nobody knows the replicas, or they weren't asked for.
        clock: the API server's time, and when it was read; None where it doesn't say it.
    """

    now: datetime
    targets: tuple[BundleTarget, ...]
    served: ServerSecret
    keys: StoredKeys | None
    shown: dict[str, ProbeResult] | None = None
    clock: datetime | None = None
    unfilled_version: str = ""

    @property
    def skew(self) -> timedelta:
        """How far the API server's clock is ahead of ours; nothing where it is within what its header tells."""
        apart = self.clock - self.now if self.clock is not None else timedelta()
        return apart if abs(apart) > timedelta(seconds=2) else timedelta()

    def state(self) -> CertificateState:
        """Return it as what is decided upon.

        Raises:
            RefusedError: there is none: `muster certs init` wasn't run.
        """
        keys = self.keys
        if keys is None:
            raise RefusedError(f"there is no Secret {stored.CA}: run `muster certs init`")
        pairs = [keys.current, *([keys.following] if keys.following is not None else [])]
        return CertificateState(
            phase=keys.phase,
            since=keys.since,
            current=stored.authority(keys.current),
            following=stored.authority(keys.following) if keys.following is not None else None,
            leaf=stored.leaf(self.served.pair, *pairs),
            hosts=frozenset(_with_visibility(keys.hosts)),
            stored=fingerprints(self.served.trusted),
            published={target.key(entry): entry.fingerprints for target in self.targets for entry in target.entries},
            served=self._replicas(pairs),
            waits=keys.waits,
            hold=keys.hold,
            foreign=foreign(self.targets),
            skew=self.skew,
        )

    def _replicas(self, pairs: Iterable[KeyPair]) -> dict[str, Leaf | None] | None:
        if self.shown is None:
            return None
        known = [each for pair in pairs for each in bundle.certificates(pair.certificate)]
        return {address: _leaf(shown, known) for address, shown in self.shown.items()}


def hosts(observation: Observation, namespace: str) -> tuple[str, ...]:
    """Return the names that servers are called by: as was said, as the configurations have it, or as we deploy them."""
    return _with_visibility(_hosts(observation, namespace))


def _hosts(observation: Observation, namespace: str) -> tuple[str, ...]:
    if observation.keys is not None and observation.keys.hosts:
        return observation.keys.hosts
    called = [entry for target in observation.targets for entry in target.entries if entry.host]
    services = {each.service for each in called if each.service is not None}
    names = {f"{one.name}.{one.namespace}{end}" for one in services for end in (".svc", ".svc.cluster.local")}
    usual = f"{SERVICE}.{namespace}.svc"
    return tuple(sorted(names | {each.host for each in called})) or (usual, f"{usual}.cluster.local")


def _with_visibility(called: tuple[str, ...]) -> tuple[str, ...]:
    """Return names with that of the visibility API's Service, which stands beside the webhooks' and serves the same certificate."""
    beside = (each.replace(SERVICE, VISIBILITY, 1) for each in called if each.startswith(f"{SERVICE}."))
    return tuple(dict.fromkeys((*called, *(each for each in beside if each.endswith(".svc")))))


def trusted_before(observation: Observation) -> bytes:
    """Return what is trusted at present, as far as it can be read: the bundle of a CA that isn't ours yet."""
    found = [observation.served.trusted, *(entry.trusted for target in observation.targets for entry in target.entries)]
    readable: list[x509.Certificate] = []
    for pem in found:
        try:
            readable += bundle.certificates(pem)
        except bundle.CertificateError:
            continue
    return bundle.joined(readable)


def foreign(found: Iterable[BundleTarget]) -> str:
    """Say who else writes the bundles; nothing when nobody does."""
    for target in found:
        if target.injector:
            return (
                f"cert-manager writes the bundle of {target} (annotation {target.injector}…), so Muster doesn't; "
                "remove the annotation to have Muster do it"
            )
    return ""


def fingerprints(pem: bytes) -> frozenset[str]:
    """Name the certificates of a PEM text; something that never occurs, where it can't be read."""
    try:
        return frozenset(bundle.describe(each).fingerprint for each in bundle.certificates(pem))
    except bundle.CertificateError:
        return targets.UNREADABLE


def _leaf(shown: ProbeResult, known: Iterable[x509.Certificate]) -> Leaf | None:
    if not shown.chain:
        return None
    signer = bundle.signed_by(shown.chain[-1], known)
    issuer = bundle.describe(signer).fingerprint if signer is not None else ""
    return Leaf(bundle.describe(shown.chain[0]), issuer)


def trusted(state: CertificateState, keys: StoredKeys) -> bytes:
    """Return the bundle that a state's phase wants, as PEM."""
    pairs = [keys.current, *([keys.following] if keys.following is not None else [])]
    known = [each for pair in pairs for each in bundle.certificates(pair.certificate)]
    return bundle.joined(each for each in known if bundle.describe(each).fingerprint in state.wanted)
