"""The attributes of a request that admission knows."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.sandbox.core.registry import Resource
from muster.sandbox.core.status import StatusError, forbidden
from muster.sandbox.core.users import ADMIN, User


class Attributes(msgspec.Struct, frozen=True):
    """One write, as every part of admission sees it.

    Attributes:
        operation: ``CREATE``, ``UPDATE``, ``DELETE`` or ``CONNECT``.
        resource: in the version of the request.
        subresource: ``status``, ``scale``, ``resize``, …, or empty.
        name: may be empty on a create with ``generateName``, until the object has one.
        object: the new object; None on DELETE.
        old_object: the stored object; None on CREATE.
        options: the request's CreateOptions, UpdateOptions or DeleteOptions, with kind and apiVersion.
        uid: of the request; empty: the chain makes one when a webhook needs it.
    """

    operation: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    user: User = ADMIN
    dry_run: bool = False
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    uid: str = ""

    def forbidden(self, why: str) -> StatusError:
        """Return the 403 of an admission plugin; an object without a name yet is called by its prefix."""
        metadata = (self.object or {}).get("metadata") or {}
        name = self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
        return forbidden(self.resource, name, why)

    @property
    def scope(self) -> str:
        """The namespace as admission sees it: a Namespace is in itself."""
        return self.name if self.resource.key == ("", "namespaces") else self.namespace
