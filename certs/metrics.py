"""The leader's metrics of certificates and paths."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from certs.paths import PathState
from certs.state import CertificateState, RotationPhase
from muster.model.names import NO_SEGMENT

_PREFIX: Final = "muster_certificates_"
_PATHS: Final = "muster_webhook_paths_"


class CertificateMetrics:
    """Gauges of one process; on one that doesn't lead there is nothing to show, or 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ends = Gauge(
            f"{_PREFIX}not_after_timestamp_seconds",
            "When the CA and the servers' certificate in the Secret end, in seconds since 1970.",
            ["certificate"],
            registry=registry,
        )
        self._phase = Gauge(
            f"{_PREFIX}phase", "1 for the phase of the rotation, 0 for the others.", ["phase"], registry=registry
        )
        self._bundle = Gauge(f"{_PREFIX}bundle_size", "CAs that are to be trusted.", registry=registry)
        self._webhooks = Gauge(f"{_PREFIX}webhooks", "Webhooks that are registered.", registry=registry)
        self._out_of_date = Gauge(f"{_PREFIX}webhooks_astray", "Webhooks with another bundle.", registry=registry)
        self._failures = Counter(f"{_PREFIX}failures", "Steps that could not be taken.", registry=registry)

    def seen(self, state: CertificateState) -> None:
        """Note what was seen."""
        self._ends.labels("ca").set(state.current.not_after.timestamp())
        if state.leaf is not None:
            self._ends.labels("leaf").set(state.leaf.certificate.not_after.timestamp())
        for phase in RotationPhase:
            self._phase.labels(phase.value).set(phase is state.phase)
        self._bundle.set(len(state.wanted))
        self._webhooks.set(len(state.published))
        self._out_of_date.set(len(state.out_of_date))

    def forget(self) -> None:
        """Show nothing that another process may change from now on."""
        self._ends.clear()
        self._phase.clear()
        self._bundle.set(0)
        self._webhooks.set(0)
        self._out_of_date.set(0)

    def failed(self) -> None:
        """Count a step that could not be taken."""
        self._failures.inc()


class PathMetrics:
    """What the leader knows of the webhooks' paths; on a process that doesn't lead there is nothing to show."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._since = Gauge(
            f"{_PATHS}since_timestamp_seconds",
            "Since when the webhooks' paths end in what they end in, in seconds since 1970; secret is false where that is nothing.",
            ["secret"],
            registry=registry,
        )
        self._failures = Counter(f"{_PATHS}failures", "Steps that could not be taken.", registry=registry)

    def seen(self, state: PathState | None) -> None:
        """Note what was seen; nothing where nobody keeps paths, or callers are known by certificates."""
        self._since.clear()
        if state is not None and not state.certified:
            secret = str(state.segments.current != NO_SEGMENT).lower()
            self._since.labels(secret).set(state.segments.since.timestamp())

    def forget(self) -> None:
        """Show nothing that another process may change from now on."""
        self._since.clear()

    def failed(self) -> None:
        """Count a step that could not be taken."""
        self._failures.inc()
