"""Objects that set up and run a cluster: namespaces, configuration, leases, events, webhooks and CRDs."""

from __future__ import annotations

from datetime import datetime

from msgspec import field

from muster.model.objects.metadata import ApiStruct, Json, Object


class NamespaceStatus(ApiStruct, frozen=True, kw_only=True):
    """A namespace's status."""

    phase: str = ""


class Namespace(Object, frozen=True, kw_only=True):
    """core/v1 Namespace."""

    status: NamespaceStatus = field(default_factory=NamespaceStatus)


class ConfigMap(Object, frozen=True, kw_only=True):
    """core/v1 ConfigMap."""

    data: dict[str, str] | None = None


class Secret(Object, frozen=True, kw_only=True):
    """core/v1 Secret; values are base64 text."""

    data: dict[str, str] | None = None


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    """A Lease's spec. Times are MicroTime text: the API server insists on exactly six decimals."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    """coordination.k8s.io/v1 Lease. Whole: Muster writes its own."""

    spec: LeaseSpec = field(default_factory=LeaseSpec)


class Event(Object, frozen=True, kw_only=True):
    """core/v1 Event, as far as a test or a command reads it."""

    type: str = ""
    reason: str = ""
    message: str = ""
    involved_object: dict[str, Json] | None = None
    count: int | None = None
    last_timestamp: datetime | None = None


class WebhookConfiguration(Object, frozen=True, kw_only=True):
    """Either kind of webhook configuration; the entries stay raw."""

    webhooks: tuple[dict[str, Json], ...] | None = None


class CustomResourceDefinition(Object, frozen=True, kw_only=True):
    """A CRD, as far as installing and waiting for it goes."""

    spec: dict[str, Json] = field(default_factory=dict)
    status: dict[str, Json] | None = None
