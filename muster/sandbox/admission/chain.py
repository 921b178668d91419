"""The chain itself: the order in which a write is admitted."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from muster.sandbox.admission import quota
from muster.sandbox.admission.attributes import Attributes
from muster.sandbox.admission.calls import WebhookCaller
from muster.sandbox.admission.definitions import DEFINITIONS, check_definition
from muster.sandbox.admission.policies import Policies
from muster.sandbox.admission.registrations import check_registration
from muster.sandbox.admission.webhooks import Webhooks
from muster.sandbox.core.registry import Registry
from muster.sandbox.core.status import invalid
from muster.sandbox.core.store import Store


class Server(Protocol):
    """What the chain needs of the API server."""

    store: Store
    registry: Registry

    def complete(self, attributes: Attributes, obj: dict[str, Any]) -> dict[str, Any]:
        """Make the mutated object what would be stored, and validate it; raises StatusError."""
        ...


class AdmissionChain:
    """Admits writes in the order of the real server. ``caller`` reaches the webhooks."""

    def __init__(self, server: Server, caller: WebhookCaller | None = None) -> None:
        self._server = server
        self._webhooks = Webhooks(server.store, server.registry)
        self._policies = Policies(server.store, server.registry)
        self.caller = caller

    async def admit(self, attributes: Attributes, warnings: list[str]) -> dict[str, Any] | None:
        """Return the object as it may be stored, None on DELETE. Append what the user should be warned of.

        Raises:
            StatusError: the write is refused.
        """
        # 1  mutating webhooks
        obj = await self._webhooks.mutate(attributes, self.caller, warnings)
        # 2  names, defaults and validation by kind
        if obj is not None:
            obj = self._server.complete(attributes, obj)
            # A generated name is known from here on, to validating webhooks as `request.name` too.
            attributes = replace(
                attributes, object=obj, name=attributes.name or obj.get("metadata", {}).get("name", "")
            )
            _check(attributes)
        # 3  policies, then validating webhooks
        self._policies.check(attributes, warnings)
        await self._webhooks.validate(attributes, self.caller, warnings)
        # 4  quota, last: what it counts is going to be stored
        quota.check(self._server.store, attributes)
        return obj


def _check(attributes: Attributes) -> None:
    """Hold what configures the server itself to more than its kind's own rules."""
    obj, resource = attributes.object, attributes.resource
    if attributes.subresource or obj is None:
        return
    causes = check_definition(obj) if resource.key == DEFINITIONS else check_registration(resource.key, obj)
    if causes:
        raise invalid(resource, obj["metadata"]["name"], causes)
