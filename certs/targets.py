"""The places of bundles: the entries of webhook configurations, and the conversion of a CRD. Pure.

Ours is the field ``caBundle`` of each and nothing else: it is written by server-side apply under a field manager of its
own, so that whoever applies the rest and this never undo each other's work.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from certs import bundle
from certs.bundle import CertificateError
from muster.model import kinds
from muster.model.kinds import Kind
from muster.model.objects import CustomResourceDefinition, Json, WebhookConfiguration

MANAGER: Final = "muster-certs"
INJECTOR: Final = "cert-manager.io/inject-"
"""Annotations that begin like this ask cert-manager to write the bundle."""
UNREADABLE: Final = frozenset({"unreadable"})

_CONVERSION: Final = "conversion"


class WebhookService(Struct, frozen=True):
    """A Service through which webhooks are called."""

    namespace: str
    name: str


class WebhookEntry(Struct, frozen=True):
    """One webhook: how the API server reaches it, whom it trusts there (PEM), and the name that it asks for."""

    name: str
    service: WebhookService | None
    host: str
    trusted: bytes

    @property
    def fingerprints(self) -> frozenset[str]:
        """What is trusted; something that never occurs, where it can't be read."""
        try:
            return frozenset(bundle.describe(each).fingerprint for each in bundle.certificates(self.trusted))
        except CertificateError:
            return UNREADABLE


class BundleTarget(Struct, frozen=True):
    """An object that holds bundles, at a version."""

    kind: Kind[Any]
    name: str
    version: str
    entries: tuple[WebhookEntry, ...]
    injector: str = ""

    def __str__(self) -> str:
        """Name it as people do."""
        return f"{self.kind.name} {self.name}"

    def key(self, entry: WebhookEntry) -> str:
        """Return the name of an entry among those of all targets."""
        return f"{self.kind.plural.removesuffix('webhookconfigurations')}/{self.name}/{entry.name}"

    def manifest(self, trusted: bytes) -> dict[str, Any]:
        """Write the bundle of every entry, for server-side apply; refused where the object is at another version."""
        config = {"caBundle": base64.b64encode(trusted).decode()}
        meta = {"name": self.name, "resourceVersion": self.version}
        if self.kind is kinds.CRDS:
            return {"metadata": meta, "spec": {"conversion": {"webhook": {"clientConfig": config}}}}
        webhooks = [{"name": entry.name, "clientConfig": config} for entry in self.entries]
        return {"metadata": meta, "webhooks": webhooks}


def without(target: BundleTarget, names: frozenset[str]) -> dict[str, Any]:
    """Write what is ours of a configuration but for entries that go: an entry that we own part of can't be dropped."""
    kept = [{"name": each.name, "clientConfig": {"caBundle": base64.b64encode(each.trusted).decode()}}
            for each in target.entries if each.name not in names and each.trusted]  # fmt: skip
    return {"metadata": {"name": target.name, "resourceVersion": target.version}, "webhooks": kept}


def of_configuration(kind: Kind[Any], found: WebhookConfiguration) -> BundleTarget:
    """Read a webhook configuration of either kind."""
    entries = tuple(_entry(each.get("name", ""), each.get("clientConfig") or {}) for each in found.webhooks or ())
    return _target(kind, found, entries)


def of_definition(found: CustomResourceDefinition) -> BundleTarget:
    """Read a CRD; without a conversion webhook it holds nothing."""
    conversion = found.spec.get("conversion") or {}
    webhook = (conversion.get("webhook") or {}) if conversion.get("strategy") == "Webhook" else None
    entries = (_entry(_CONVERSION, webhook.get("clientConfig") or {}),) if webhook is not None else ()
    return _target(kinds.CRDS, found, entries)


def _target(
    kind: Kind[Any], found: WebhookConfiguration | CustomResourceDefinition, entries: tuple[WebhookEntry, ...]
) -> BundleTarget:
    annotations = found.metadata.annotations or {}
    injector = next((key for key in annotations if key.startswith(INJECTOR)), "")
    return BundleTarget(kind, found.name, found.metadata.resource_version, entries, injector)


def _entry(name: str, config: Mapping[str, Json]) -> WebhookEntry:
    try:
        trusted = base64.b64decode(config.get("caBundle") or "", validate=True)
    except binascii.Error:
        trusted = b"not base64"
    service = config.get("service")
    if service:
        called = WebhookService(service.get("namespace", ""), service.get("name", ""))
        return WebhookEntry(name, called, f"{called.name}.{called.namespace}.svc", trusted)
    return WebhookEntry(name, None, urlsplit(config.get("url") or "").hostname or "", trusted)
