"""Strategies of resource.k8s.io: claims on devices, their templates, classes of devices, and what drivers publish."""

from __future__ import annotations

from collections.abc import Iterator

from muster.sandbox.core.status import Cause, required, wrong
from muster.sandbox.strategies.base import Json, Strategy

_IMMUTABLE = "field is immutable"


class ResourceClaimStrategy(Strategy):
    """resource.k8s.io/v1 ResourceClaim: its spec doesn't change, its status is written apart."""

    has_status = True

    def default(self, obj: Json) -> None:
        """Ask for one device where nothing else is said."""
        _default_requests(obj.get("spec") or {})

    def prepare_create(self, obj: Json) -> None:
        """Begin without devices."""
        obj["status"] = {}

    def validate(self, obj: Json) -> list[Cause]:
        """Check the requests."""
        return _causes(obj.get("spec") or {}, "spec")

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Refuse another spec."""
        return _unchanged(obj, old)


class ResourceClaimTemplateStrategy(Strategy):
    """resource.k8s.io/v1 ResourceClaimTemplate: it doesn't change."""

    def default(self, obj: Json) -> None:
        """Ask for one device where nothing else is said."""
        _default_requests((obj.get("spec") or {}).get("spec") or {})

    def validate(self, obj: Json) -> list[Cause]:
        """Check the requests."""
        return _causes((obj.get("spec") or {}).get("spec") or {}, "spec.spec")

    def validate_update(self, obj: Json, old: Json) -> list[Cause]:
        """Refuse another spec."""
        return _unchanged(obj, old)


class DeviceClassStrategy(Strategy):
    """resource.k8s.io/v1 DeviceClass and ResourceSlice: kept, with generations."""

    counts_generations = True


def _unchanged(obj: Json, old: Json) -> list[Cause]:
    return [wrong("spec", obj.get("spec"), _IMMUTABLE)] if obj.get("spec") != old.get("spec") else []


def _requested(spec: Json) -> Iterator[Json]:
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def _default_requests(spec: Json) -> None:
    for each in _requested(spec):
        mode = each.setdefault("allocationMode", "ExactCount")
        if mode == "ExactCount" and not each.get("count"):
            each["count"] = 1


def _causes(spec: Json, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for number, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        at = f"{path}.devices.requests[{number}]"
        forms = [key for key in ("exactly", "firstAvailable") if request.get(key)]
        if len(forms) != 1:
            causes.append(required(at, "exactly one of `exactly` or `firstAvailable` is required"))
        if request.get("exactly") is not None and not request["exactly"].get("deviceClassName"):
            causes.append(required(f"{at}.exactly.deviceClassName", ""))
    return causes
