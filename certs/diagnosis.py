"""Faults of a cluster's certificates, and the remedy of each. Pure.

The judgement is an API server's: whether what a replica shows would be accepted by whom a webhook trusts, under the
name by which it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from certs import bundle, rotation, stored
from certs.bundle import CertificateError, CertificateFault
from certs.observation import Observation
from certs.replicas import ProbeResult
from certs.state import RotationPhase
from certs.targets import BundleTarget, WebhookEntry

_SOON: Final = 5 / 6
"""Part of its life after which a certificate should have been replaced long ago."""


class Finding(Struct, frozen=True):
    """Something wrong: with what, and in one sentence what it is and what helps."""

    about: str
    text: str

    def __str__(self) -> str:
        """Write both."""
        return f"{self.about}: {self.text}"


def findings(observation: Observation, now: datetime, hosts: Iterable[str]) -> list[Finding]:
    """Say all that is wrong; each thing once, the causes before what follows from them."""
    found = [
        *_clocks(observation),
        *_secrets(observation, now, tuple(hosts)),
        *_targets(observation),
        *_replicas(observation, now),
    ]
    return list(dict.fromkeys(found))


def _clocks(observation: Observation) -> Iterator[Finding]:
    if abs(observation.skew) > rotation.TOLERANCE:
        yield Finding(
            "API server", f"its clock is {_skew_text(observation.skew)} this machine's: set the clocks by NTP"
        )
    for address, shown in (observation.shown or {}).items():
        skew = shown.clock - observation.now if shown.clock is not None else timedelta()
        if abs(skew) > rotation.TOLERANCE:
            yield Finding(
                f"replica {address}", f"its clock is {_skew_text(skew)} this machine's: set the clocks by NTP"
            )


def _secrets(observation: Observation, now: datetime, hosts: tuple[str, ...]) -> Iterator[Finding]:
    keys, served = observation.keys, observation.served
    if keys is None:
        # Without a CA of ours everything may still be right: certificates from files, or from cert-manager.
        return
    if (authority := stored.authority(keys.current)).signs and keys.phase is RotationPhase.STEADY:
        ca = authority.certificates[0]
        if now >= ca.not_before + (ca.not_after - ca.not_before) * _SOON:
            text = f"the CA ends at {ca.not_after:%Y-%m-%d %H:%M} UTC; `muster certs rotate-ca` replaces it"
            yield Finding(f"Secret {stored.CA}", text)
    about = f"Secret {stored.TLS}"
    if not served.version:
        yield Finding(about, "it doesn't exist; `muster certs renew` makes it")
        return
    for host in hosts:
        try:
            bundle.check(served.pair, served.trusted, host, now)
        except CertificateError as error:
            yield Finding(about, _said(error))
    trusted = bundle.certificates(keys.current.certificate if keys.following is None else b"")
    if trusted and (leaf := stored.leaf(served.pair, keys.current)) is not None and not leaf.issuer:
        yield Finding(about, "the CA of Secret muster-webhook-ca didn't sign it; `muster certs renew` issues another")


def _targets(observation: Observation) -> Iterator[Finding]:
    if not observation.targets:
        text = "none of Muster's name; `muster install` makes them, --configuration says another name"
        yield Finding("webhook configurations", text)
    for target, entry in _entries(observation):
        about = f"{target} {entry.name}"
        try:
            found = bundle.certificates(entry.trusted)
        except CertificateError:
            yield Finding(about, "its caBundle isn't PEM; `muster certs inject` writes it")
            continue
        if not found:
            yield Finding(about, "it has no caBundle; `muster certs inject` writes it")
        elif observation.keys is not None and not target.injector and entry.fingerprints != observation.state().wanted:
            yield Finding(about, "it trusts something else than the Secret's bundle; `muster certs inject` writes it")


def _replicas(observation: Observation, now: datetime) -> Iterator[Finding]:
    if observation.shown is None:
        text = "nobody knows them: webhooks are called by URL; name each with --probe HOST:PORT"
        yield Finding("replicas", text)
        return
    if not observation.shown:
        yield Finding("replicas", "none is ready; start the webhook server")
    for address, shown in observation.shown.items():
        about = f"replica {address}"
        if not shown.chain:
            yield Finding(about, f"it doesn't answer ({shown.trouble}); start it, or leave its --probe out")
            continue
        faults = {text for target, entry in _entries(observation) if (text := _refusal(shown, target, entry, now))}
        yield from (Finding(about, text) for text in sorted(faults))


def refusals(observation: Observation, trusted: bytes, now: datetime) -> list[str]:
    """Say which replicas would be refused, for which reason, if every webhook trusted a bundle (PEM)."""
    with_it = [(target, replace(entry, trusted=trusted)) for target, entry in _entries(observation)]
    found = [
        f"replica {address}: {text}"
        for address, shown in (observation.shown or {}).items()
        for target, entry in with_it
        if (text := _refusal(shown, target, entry, now) if shown.chain else shown.trouble)
    ]
    return list(dict.fromkeys(found))


def _refusal(shown: ProbeResult, target: BundleTarget, entry: WebhookEntry, now: datetime) -> str:
    """Say why the API server would refuse a replica for a webhook, nothing when it wouldn't."""
    try:
        trusted = bundle.certificates(entry.trusted)
    except CertificateError:
        return ""  # reported with the target
    if not trusted or not entry.host:
        return ""
    try:
        bundle.accepted(shown.chain, trusted, entry.host, now)
    except CertificateError as error:
        return f"{_said(error)} ({target})" if error.fault is CertificateFault.CA else _said(error)
    return ""


def _entries(observation: Observation) -> Iterator[tuple[BundleTarget, WebhookEntry]]:
    return ((target, entry) for target in observation.targets for entry in target.entries)


def _said(error: CertificateError) -> str:
    return f"{error.fault.value}: {error}"


def _skew_text(skew: timedelta) -> str:
    minutes = round(abs(skew).total_seconds() / 60)
    return f"{minutes} minutes {'ahead of' if skew > timedelta() else 'behind'}"
