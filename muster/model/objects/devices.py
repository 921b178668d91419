"""Devices that drivers publish, and the claims on them."""

from __future__ import annotations

from msgspec import field

from muster.model.objects.metadata import ApiStruct, Json, Object


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """What a claim got, and which pods may use it."""

    allocation: dict[str, Json] | None = None
    reserved_for: tuple[dict[str, Json], ...] | None = None


class ResourceClaim(Object, frozen=True, kw_only=True):
    """resource.k8s.io/v1 ResourceClaim."""

    spec: dict[str, Json] | None = None
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplate(Object, frozen=True, kw_only=True):
    """resource.k8s.io/v1 ResourceClaimTemplate: what the claims say that are made for pods; it never changes."""

    spec: dict[str, Json] | None = None


class DeviceClass(Object, frozen=True, kw_only=True):
    """resource.k8s.io/v1 DeviceClass."""

    spec: dict[str, Json] | None = None


class ResourceSlice(Object, frozen=True, kw_only=True):
    """resource.k8s.io/v1 ResourceSlice: a part of a pool of devices."""

    spec: dict[str, Json] | None = None
