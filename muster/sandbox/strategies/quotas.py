"""The strategy of ResourceQuotas."""

from __future__ import annotations

from typing import Final

from muster.model.amounts import Quantity
from muster.sandbox.core import syntax
from muster.sandbox.core.status import Cause, wrong
from muster.sandbox.strategies.base import Json, Strategy

_QUOTA_RESOURCES: Final = frozenset({
    "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage",
    "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas",
    "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps", "services.nodeports",
    "services.loadbalancers",
})  # fmt: skip
_WHOLE_RESOURCES: Final = frozenset({
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps",
    "services.nodeports", "services.loadbalancers",
})  # fmt: skip
_SCOPES: Final = frozenset({
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
})  # fmt: skip


class ResourceQuotaStrategy(Strategy):
    """v1 ResourceQuota; its use is counted by admission and by the quota controller."""

    has_status = True
    returns_deleted = True

    def prepare_create(self, obj: Json) -> None:
        """Start with an empty status."""
        obj["status"] = {}

    def validate(self, obj: Json) -> list[Cause]:
        """Check what is limited, and by how much."""
        causes: list[Cause] = []
        for name, amount in ((obj.get("spec") or {}).get("hard") or {}).items():
            path = f"spec.hard[{name}]"
            causes += [wrong(path, name, text) for text in syntax.qualified_name(name)]
            # requests.<extended> and <class>.storageclass… have a slash or a dot-separated owner.
            if (
                "/" not in name
                and name not in _QUOTA_RESOURCES
                and not name.startswith(("requests.hugepages-", "hugepages-"))
            ):
                causes.append(wrong(path, name, "must be a standard resource type or fully qualified"))
                causes.append(wrong(path, name, "must be a standard resource for quota"))
            if Quantity.parse(amount).nano < 0:
                causes.append(wrong(path, amount, "must be greater than or equal to 0"))
            if name in _WHOLE_RESOURCES and Quantity.parse(amount).nano % 10**9:
                causes.append(wrong(path, amount, "must be an integer"))
        scopes = (obj.get("spec") or {}).get("scopes") or []
        if any(each not in _SCOPES for each in scopes):
            causes.append(wrong("spec.scopes", scopes, "unsupported scope"))
        return causes
