"""The chain itself: the order in which a write is admitted."""

from __future__ import annotations

from typing import Any, Protocol

from muster.sandbox.admission.attributes import Attributes
from muster.sandbox.admission.calls import WebhookCaller
from muster.sandbox.registry import Registry
from muster.sandbox.store import Store


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
        self.caller = caller

    async def admit(self, attributes: Attributes, warnings: list[str]) -> dict[str, Any] | None:  # noqa: ARG002 - the interface, whose other side is being built now
        """Give the object as it may be stored, None on DELETE. Append what the user should be warned of.

        Raises:
            StatusError: the write is refused.
        """
        if attributes.object is None:
            return None
        return self._server.complete(attributes, attributes.object)
