"""The registered webhooks, compiled and indexed by what they are for."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from muster.sandbox.admission.matching import Conditions, Scope, ScopeIndex, Targets
from muster.sandbox.core.registry import Registry, Resource
from muster.sandbox.core.store import Key, Object, Store

MUTATING: Final[Key] = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
VALIDATING: Final[Key] = ("admissionregistration.k8s.io", "validatingwebhookconfigurations")


class Hook(Struct, frozen=True, eq=False):
    """One webhook of a configuration.

    Attributes:
        service: (namespace, name) when it is reached through a Service.
        ignores: whether a failure to call it is passed over.
        timeout: in seconds.
        versions: of AdmissionReview, the one to use first.
        dry: whether it may be called for a dry run.
        again: whether it is called again when a later one changed the object.
    """

    name: str
    scope: Scope
    conditions: Conditions
    url: str
    service: tuple[str, str] | None
    ca_bundle: bytes
    ignores: bool
    timeout: int
    version: str
    dry: bool
    again: bool

    @staticmethod
    def of(webhook: Mapping[str, Any]) -> Hook:
        """Compile a webhook that was found valid when it was written."""
        config = webhook["clientConfig"]
        service = config.get("service")
        known = [each for each in webhook["admissionReviewVersions"] if each in {"v1", "v1beta1"}]
        return Hook(
            name=webhook["name"],
            scope=Scope.of(webhook),
            conditions=Conditions.of(webhook.get("matchConditions")),
            url=config["url"] if service is None else service_url(service),
            service=(service["namespace"], service["name"]) if service else None,
            ca_bundle=base64.b64decode(config.get("caBundle") or ""),
            ignores=webhook.get("failurePolicy") == "Ignore",
            timeout=webhook.get("timeoutSeconds", 10),
            version=known[0],
            dry=webhook.get("sideEffects") in {"None", "NoneOnDryRun"},
            again=webhook.get("reinvocationPolicy") == "IfNeeded",
        )


def service_url(service: Mapping[str, Any]) -> str:
    """Return the URL under which a webhook behind a Service is called."""
    path = service.get("path") or "/"
    return f"https://{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}{path}"


Candidate = tuple[Hook, Targets]


class Hooks:
    """The webhooks of one kind of configuration, ordered by its name and their place in it.

    Compiles a configuration when it changes.
    """

    def __init__(self, store: Store, registry: Registry, key: Key) -> None:
        self._store = store
        self._key = key
        self._compiled: dict[str, tuple[str, tuple[Hook, ...]]] = {}
        self._index = ScopeIndex(store, registry, {key}, self._compile)

    def candidates(self, resource: Resource, subresource: str) -> tuple[Candidate, ...]:
        """Return the webhooks whose rules take a resource, each with those rules."""
        return self._index.candidates(resource, subresource)

    def _compile(self) -> tuple[Hook, ...]:
        objects = self._store.list(self._key)
        self._compiled = {each["metadata"]["name"]: self._hooks(each) for each in objects}
        return tuple(hook for _, hooks in self._compiled.values() for hook in hooks)

    def _hooks(self, configuration: Object) -> tuple[str, tuple[Hook, ...]]:
        metadata = configuration["metadata"]
        known = self._compiled.get(metadata["name"])
        if known is not None and known[0] == metadata["resourceVersion"]:
            return known
        return metadata["resourceVersion"], tuple(map(Hook.of, configuration.get("webhooks") or ()))
