"""The state of the certificates, as values: the signer, what is stored, trusted and served, and the phase. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from msgspec import Struct, field

from certs.bundle import Certificate


class RotationPhase(Enum):
    """Where a rotation from one CA ("old") to the next ("new") stands."""

    STEADY = "steady"
    PUBLISH = "publish"
    SPREAD = "spread"
    SWITCH = "switch"
    SOAK = "soak"
    RETIRE = "retire"
    ROLLBACK = "rollback"
    WITHDRAW = "withdraw"


ON_NEW: Final = frozenset({RotationPhase.SWITCH, RotationPhase.SOAK, RotationPhase.RETIRE})
"""Phases in which the new CA signs what is served."""
BOTH: Final = frozenset(RotationPhase) - {RotationPhase.STEADY, RotationPhase.RETIRE}
"""Phases in which both CAs are trusted."""
PROVING: Final = ON_NEW | {RotationPhase.ROLLBACK, RotationPhase.WITHDRAW}
"""Phases whose end depends on what replicas serve."""


class RotationWaits(Struct, frozen=True):
    """How long to wait for what nobody tells.

    Attributes:
        spread: after the configurations read back the new CA, until every API server uses it.
        soak: after the last replica serves the new certificate, until nobody comes up with the old one.
    """

    spread: timedelta = timedelta(minutes=2)
    soak: timedelta = timedelta(minutes=10)


class CertificateAuthority(Struct, frozen=True):
    """Who signs, or signed. Several certificates only where a bundle of others was found.

    ``signs`` is whether its key is at hand.
    """

    certificates: tuple[Certificate, ...]
    signs: bool = True

    @property
    def trusted(self) -> frozenset[str]:
        """The fingerprints that a bundle needs for it."""
        return frozenset(each.fingerprint for each in self.certificates)

    @property
    def not_after(self) -> datetime:
        """When the last of it expires."""
        return max(each.not_after for each in self.certificates)

    def can_sign(self, now: datetime) -> bool:
        """Whether it can issue something that is accepted."""
        return self.signs and now < self.not_after


class Leaf(Struct, frozen=True):
    """A certificate as stored or served; ``issuer`` is the fingerprint of who signed it, empty for a stranger."""

    certificate: Certificate
    issuer: str


class CertificateState(Struct, frozen=True):
    """What there is.

    Attributes:
        since: when the phase was entered.
        current: the CA, during a rotation the old one; ``following`` the new one, None outside a rotation.
        leaf: what the Secret holds for servers; None where that can't be served.
        hosts: the names that it has to be good for.
        stored: fingerprints of the bundle in the Secret; ``published`` those in each webhook, by its name.
        served: by address what each ready replica serves, None for one that can't be reached; None as a whole where
            nobody knows the replicas.
        hold: a phase that isn't left forward, until the CA is near its end.
        foreign: who else writes the bundle, a sentence; empty where we do.
        skew: how far the API server's clock is ahead of ours.
    """

    phase: RotationPhase
    since: datetime
    current: CertificateAuthority
    following: CertificateAuthority | None = None
    leaf: Leaf | None = None
    hosts: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    published: Mapping[str, frozenset[str]] = field(default_factory=dict)
    served: Mapping[str, Leaf | None] | None = None
    waits: RotationWaits = field(default_factory=RotationWaits)
    hold: RotationPhase | None = None
    foreign: str = ""
    skew: timedelta = timedelta()

    @property
    def issuer(self) -> CertificateAuthority:
        """Who signs what is served in this phase."""
        return self.following if self.phase in ON_NEW and self.following is not None else self.current

    @property
    def wanted(self) -> frozenset[str]:
        """What everybody has to trust in this phase."""
        if self.phase in BOTH and self.following is not None:
            return self.current.trusted | self.following.trusted
        return self.issuer.trusted

    @property
    def out_of_date(self) -> list[str]:
        """Which webhooks have another bundle."""
        return [name for name, found in self.published.items() if found != self.wanted]

    @property
    def proven(self) -> bool:
        """Whether every ready replica was seen to serve a certificate of this phase's CA."""
        return bool(self.served) and not self.lagging and not self.silent

    @property
    def lagging(self) -> list[str]:
        """Which replicas serve a certificate of another CA."""
        found = (self.served or {}).items()
        return [address for address, leaf in found if leaf is not None and leaf.issuer not in self.issuer.trusted]

    @property
    def silent(self) -> list[str]:
        """Which replicas can't be reached."""
        return [address for address, leaf in (self.served or {}).items() if leaf is None]
