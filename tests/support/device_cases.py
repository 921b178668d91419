"""Cases of allocation by chance: slices, classes, claims and devices that are taken, as the API has them."""

from __future__ import annotations

from random import Random
from typing import Any, Final

DRIVERS: Final = ("gpu.example.com", "nic.example.com")
NODE: Final = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"zone": "a"}},
    "spec": {},
    "status": {},
}
_EXPRESSIONS: Final = (
    "device.driver == 'gpu.example.com'",
    "device.driver.startsWith('gpu')",
    "device.attributes['gpu.example.com'].model == 'a100'",
    "'model' in device.attributes['gpu.example.com'] && device.attributes['gpu.example.com'].model != 'h100'",
    "device.attributes['gpu.example.com'].?numa.orValue(0) < 1",
    "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
    "device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.5.0'))",
    "device.attributes['gpu.example.com'].model.matches('^[ah]1?00$')",
    "device.attributes['none.example.com'].model == 'x'",
)


def case(random: Random) -> dict[str, Any]:
    """Return one case; its pools are one for each driver, so that their order decides nothing."""
    drivers = DRIVERS if random.random() < 0.3 else DRIVERS[:1]
    slices = [each for driver in drivers for each in _slices(random, driver)]
    devices = [
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
        for each in slices
        for device in each["spec"].get("devices", ())
    ]
    return {
        "node": NODE,
        "slices": slices,
        "classes": [
            _class("any", []),
            _class("gpu", ["device.driver == 'gpu.example.com'"]),
            _class("odd", [random.choice(_EXPRESSIONS)]),
        ],
        "claims": [_claim(random, number) for number in range(random.choice((1, 1, 2)))],
        "taken": [{"driver": each[0], "pool": each[1], "name": each[2]} for each in devices if random.random() < 0.15],
    }


def _class(name: str, expressions: list[str]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selectors": _selectors(expressions)}}


def _selectors(expressions: list[str]) -> list[dict[str, Any]]:
    return [{"cel": {"expression": each}} for each in expressions]


def _slices(random: Random, driver: str) -> list[dict[str, Any]]:
    counted = random.random() < 0.3
    number = random.choice((1, 1, 2))
    parts = [_part(random, driver, part, counted=counted) for part in range(number)]
    if counted:
        counters = {"memory": {"value": "80Gi"}, "engines": {"value": str(random.randint(1, 4))}}
        parts.append({"nodeName": "n1", "sharedCounters": [{"name": "card", "counters": counters}]})
    of = len(parts) + (random.random() < 0.08)
    slices = [_slice(driver, index, {**each, "pool": _pool(driver, 2, of)}) for index, each in enumerate(parts)]
    if random.random() < 0.1:
        slices.append(_slice(driver, 9, {**_part(random, driver, 9, counted=False), "pool": _pool(driver, 1, 99)}))
    return slices


def _slice(driver: str, index: int, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": f"{driver}-{index}"}, "spec": {"driver": driver, **spec}}


def _pool(name: str, generation: int, of: int) -> dict[str, Any]:
    return {"name": name, "generation": generation, "resourceSliceCount": of}


def _part(random: Random, driver: str, part: int, *, counted: bool) -> dict[str, Any]:
    names = [f"d{part}-{number}" for number in range(random.randint(1, 4))]
    if random.random() < 0.03:
        names.append(names[0])
    devices = [_device(random, driver, name, counted=counted) for name in names]
    way = random.random()
    if way < 0.6:
        return {"nodeName": random.choice(("n1", "n1", "n1", "n2")), "devices": devices}
    if way < 0.75:
        return {"allNodes": True, "devices": devices}
    if way < 0.9:
        values = [random.choice(("a", "b"))]
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}]
        return {"nodeSelector": {"nodeSelectorTerms": terms}, "devices": devices}
    each = [{**device, "nodeName": random.choice(("n1", "n2"))} for device in devices]
    return {"perDeviceNodeSelection": True, "devices": each}


def _device(random: Random, driver: str, name: str, *, counted: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "numa": {"int": random.randint(0, 1)},
        "version": {"version": random.choice(("1.4.2", "1.10.0", "2.0.0-rc.1"))},
    }
    if random.random() < 0.8:
        attributes["model"] = {"string": random.choice(("a100", "h100", "t4"))}
    if random.random() < 0.5:
        attributes["topology.example.com/root"] = {"string": random.choice(("r0", "r1"))}
    device: dict[str, Any] = {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": random.choice(("20Gi", "40Gi", "80Gi"))}},
    }
    if random.random() < 0.15:
        device["taints"] = [
            {"key": "sick", "value": "yes", "effect": random.choice(("NoSchedule", "NoExecute", "None"))}
        ]
    if counted and random.random() < 0.9:
        missing = random.random() < 0.02
        counters = {
            "lost" if missing else "memory": {"value": random.choice(("20Gi", "40Gi"))},
            "engines": {"value": "1"},
        }
        device["consumesCounters"] = [{"counterSet": "card", "counters": counters}]
    return device


def _claim(random: Random, number: int) -> dict[str, Any]:
    requests = [_request(random, f"r{index}") for index in range(random.choice((1, 1, 2, 3)))]
    devices: dict[str, Any] = {"requests": requests}
    if random.random() < 0.35:
        attribute = random.choice(("gpu.example.com/numa", "gpu.example.com/model", "topology.example.com/root"))
        rule: dict[str, Any] = {"matchAttribute": attribute}
        if random.random() < 0.3:
            rule["requests"] = ["r0"]
        devices["constraints"] = [rule]
    return {"metadata": {"name": f"c{number}", "namespace": "ns"}, "spec": {"devices": devices}}


def _request(random: Random, name: str) -> dict[str, Any]:
    if random.random() < 0.2:
        return {"name": name, "firstAvailable": [{"name": f"s{each}", **_exactly(random)} for each in range(2)]}
    exactly = _exactly(random)
    if random.random() < 0.1:
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def _exactly(random: Random) -> dict[str, Any]:
    stated: dict[str, Any] = {"deviceClassName": random.choice(("any", "gpu", "gpu", "odd"))}
    if random.random() < 0.15:
        stated["allocationMode"] = "All"
    else:
        stated |= {"allocationMode": "ExactCount", "count": random.choice((1, 1, 2, 3))}
    if random.random() < 0.5:
        stated["selectors"] = _selectors([random.choice(_EXPRESSIONS)])
    if random.random() < 0.3:
        stated["tolerations"] = [{"key": "sick", "operator": "Exists"}]
    return stated
