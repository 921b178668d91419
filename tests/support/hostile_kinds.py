"""Hostile objects of kinds that not every cluster has: claims of devices, PodGroups of Kubernetes' own, and parts of gangs in the network.

As in `hostile`, a species is a function that returns requests. Which kinds a tenant may write, the cluster decides.
"""

from __future__ import annotations

import itertools
from typing import Any

import hostile_claims
from hostile import ODD, Tenant, create, group, meta, pod, spec

from muster.kube.transport import Request
from muster.model import kinds, names
from muster.model.kinds import Kind
from muster.model.objects import Object

TEMPLATES: Kind[Object] = Kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", Object)
DEVICE_CLASS = "gpu"


def costly_claims(tenant: Tenant) -> list[Request]:
    """Claims whose expressions take as long as an API server lets them, or that can be met in thousands of ways; and pods for them."""
    made = []
    expressions = [*itertools.islice(hostile_claims.costly(), 25)]
    for number, expression in enumerate(expressions):
        own = f"{expression} || device.driver == 'x{tenant.chance.randrange(1 << 30)}'"
        made += _claimed(tenant, {"requests": [hostile_claims.exactly("r", own)]}, template=number % 5 == 0)
    for number in range(10):
        requests = [hostile_claims.exactly(f"r{each}", f"{number} == {number}") for each in range(6)]
        rule = {"matchAttribute": f"{hostile_claims.DRIVER}/a", "requests": ["r0", "r5"]}
        made += _claimed(tenant, {"requests": requests, "constraints": [rule]}, template=False)
    return made


def odd_claims_of_devices(tenant: Tenant) -> list[Request]:
    """Claims of every form that is odd: classes that aren't there, all devices, counts at the ends, expressions that are none."""
    every: list[dict[str, Any]] = [
        hostile_claims.exactly("r", allocationMode="All"),
        hostile_claims.exactly("r", count=2**31 - 1),
        hostile_claims.exactly("r", *(f"device.driver == '{number}'" for number in range(32))),
        hostile_claims.exactly("r", "device.attributes['nobody'].nothing == 1"),
        hostile_claims.exactly("r", f"device.driver == '{'x' * 10_000}'"),
        hostile_claims.exactly("r", tolerations=[{"key": f"k{number}", "operator": "Exists"} for number in range(16)]),
        {"name": "r", "exactly": {"deviceClassName": "none"}},
        {
            "name": "r",
            "firstAvailable": [{"name": f"a{number}", "deviceClassName": DEVICE_CLASS} for number in range(8)],
        },
    ]
    made = [each for request in every for each in _claimed(tenant, {"requests": [request]}, template=False)]
    many = [hostile_claims.exactly(f"r{number}") for number in range(32)]
    return [*made, *_claimed(tenant, {"requests": many}, template=True)]


def _claimed(tenant: Tenant, devices: dict[str, Any], *, template: bool) -> list[Request]:
    """Return a claim, or a template of one, and a pod that uses it."""
    name = tenant.name("devices")
    if template:
        body = {"metadata": meta(name), "spec": {"spec": {"devices": devices}}}
        claim, source = create(TEMPLATES, tenant, body), "resourceClaimTemplateName"
    else:
        claim = create(kinds.RESOURCECLAIMS, tenant, {"metadata": meta(name), "spec": {"devices": devices}})
        source = "resourceClaimName"
    used = spec(resourceClaims=[{"name": "c", source: name}])
    used["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    return [claim, pod(tenant, name, used)]


def odd_networks(tenant: Tenant) -> list[Request]:
    """Groups whose parts have selectors and tiers that are none, and counts at the ends of what can be written."""
    most = 2**31 - 1
    values = [f"v{number}" for number in range(256)]
    many = [{"key": f"k{number}", "operator": "NotIn", "values": values[:32]} for number in range(32)]
    policies: list[dict[str, Any]] = [
        {"name": "a", "subGroupSize": most, "minSubGroups": most},
        {"name": "b", "subGroupSize": 1, "minSubGroups": 1, "labelSelector": {"matchExpressions": many}},
        {"name": "c", "subGroupSize": 1, "matchLabelKeys": [f"k{number}" for number in range(8)]},
        *({"name": sign, "subGroupSize": 1, "labelSelector": {"matchLabels": {sign: sign}}} for sign in ODD),
    ]
    tiers: list[dict[str, Any]] = [
        {"mode": "soft", "highestTierAllowed": 0},
        {"mode": "hard", "highestTierAllowed": most},
        *({"mode": "hard", "highestTierName": f"a{sign}b"} for sign in ODD),
        {"highestTierName": "x" * 317},
    ]
    made = [
        group(tenant, tenant.name("part"), {"minMember": 1, "subGroupPolicy": [{**each, "networkTopology": tiers[0]}]})
        for each in policies
    ]
    every = [{**policies[1], "name": f"p{number}"} for number in range(32)]
    made.append(group(tenant, tenant.name("part"), {"minMember": most, "subGroupPolicy": every}))
    made += [group(tenant, tenant.name("tier"), {"minMember": 1, "networkTopology": each}) for each in tiers]
    for sign in ODD:
        said = {names.TOPOLOGY_MODE: "hard", names.TOPOLOGY_TIER: sign}
        made.append(pod(tenant, tenant.name("tier"), spec(), **said))
    return made


def native_groups(tenant: Tenant) -> list[Request]:
    """PodGroups of Kubernetes' own with minimums and keys at the ends of what can be written, and pods that name them."""
    made = []
    policies: list[dict[str, Any]] = [{"gang": {"minCount": count}} for count in (1, 3, 2**31 - 1)] + [{"basic": {}}]
    keys = ("kubernetes.io/hostname", "example.com/" + "k" * 63, "a")
    for policy, key in itertools.product(policies, (*keys, "")):
        name = tenant.name("native")
        about: dict[str, Any] = {"schedulingPolicy": policy}
        if key:
            about["schedulingConstraints"] = {"topology": [{"key": key}]}
        made.append(create(kinds.NATIVE_PODGROUPS, tenant, {"metadata": meta(name), "spec": about}))
        made += [pod(tenant, tenant.name("native"), spec(schedulingGroup={"podGroupName": name})) for _ in range(3)]
    made += [
        pod(tenant, tenant.name("native"), spec(schedulingGroup={"podGroupName": each}))
        for each in ("none", "n" * 253, "a.b")
    ]
    return made


KINDS = (costly_claims, odd_claims_of_devices, odd_networks, native_groups)
"""Those of this module."""
