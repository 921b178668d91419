"""Which devices claims get on a node, where upstream's own answer isn't compared: errors, limits and speed's bound."""

from __future__ import annotations

import msgspec
import pytest

from muster.model.objects import Node
from scheduler.model import devices
from scheduler.model.devices import DeviceId, UnsupportedDevicesError
from scheduler.topology import device_allocation
from scheduler.topology.device_allocation import AllocationError, DeviceState, allocate
from scheduler.topology.device_budget import DeviceBudget
from scheduler.topology.device_pools import pools
from scheduler.topology.device_selectors import Selectors

NODE = msgspec.convert({"metadata": {"name": "n1"}}, Node)


def offered(*names, generation=1, of=1, **spec):
    stated = [{"name": each} if isinstance(each, str) else each for each in names]
    pool = {"name": "p", "generation": generation, "resourceSliceCount": of}
    return devices.read_slice(
        f"s{generation}", {"driver": "d", "pool": pool, "nodeName": "n1", "devices": stated, **spec}
    )


def state(*slices, taken=(), expressions=()):
    away = {DeviceId("d", "p", each) for each in taken}
    return DeviceState(pools(slices), {"gpu": expressions}, away, Selectors(), DeviceBudget(tuple).of("ns"))


def claim(**exactly):
    return devices.claimed(
        {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]}}, "ns"
    )


def names(chosen):
    return chosen and [each.device.id.name for part in chosen for each in part]


def test_claims_of_a_pod_get_different_devices():
    assert names(allocate(state(offered("a", "b")), NODE, [claim(), claim()])) == ["a", "b"]
    assert allocate(state(offered("a")), NODE, [claim(), claim()]) is None
    assert allocate(state(offered("a", "b"), taken="a"), NODE, [claim(count=2)]) is None


def test_only_the_newest_generation_counts():
    assert names(allocate(state(offered("old"), offered("new", generation=2)), NODE, [claim()])) == ["new"]
    assert allocate(state(offered("old"), offered("new", generation=2, of=2)), NODE, [claim()]) is None


def test_a_selector_without_a_value_is_said():
    with pytest.raises(AllocationError, match="no such key: healthy"):
        allocate(state(offered("a"), expressions=("device.attributes['x'].healthy",)), NODE, [claim()])


def test_a_selector_that_is_not_known_is_said():
    with pytest.raises(AllocationError, match="is not evaluated: function 'lowerAscii'"):
        allocate(state(offered("a"), expressions=("device.driver.lowerAscii() == 'd'",)), NODE, [claim()])


def test_a_class_that_does_not_exist_is_said():
    with pytest.raises(AllocationError, match="device class none doesn't exist"):
        allocate(state(offered("a")), NODE, [claim(deviceClassName="none")])


@pytest.mark.parametrize("spec", [{"capacity": {"requests": {"memory": "1Gi"}}}, {"allocationMode": "Some"}])
def test_what_is_not_evaluated_is_said(spec):
    with pytest.raises(UnsupportedDevicesError):
        claim(**spec)


@pytest.mark.parametrize("field", ["allowMultipleAllocations", "bindsToNode"])
def test_a_device_that_is_not_evaluated_is_not_offered(field):
    assert names(allocate(state(offered({"name": "a", field: True}, "b")), NODE, [claim()])) == ["b"]
    with pytest.raises(AllocationError, match="not all can be evaluated"):
        allocate(state(offered({"name": "a", field: True}, "b")), NODE, [claim(allocationMode="All")])


def test_a_search_is_bounded(monkeypatch):
    tried = []
    monkeypatch.setattr(device_allocation, "MOST_ATTEMPTS", 500)
    odd = [{"name": f"d{each}", "attributes": {"a": {"int": each}}} for each in range(30)]
    rules = [{"matchAttribute": "d/a"}]
    requests = [{"name": f"r{each}", "exactly": {"deviceClassName": "gpu"}} for each in range(10)]
    loose = devices.claimed({"devices": {"requests": requests}}, "ns")
    strict = devices.claimed({"devices": {"requests": requests[:2], "constraints": rules}}, "ns")
    with pytest.raises(AllocationError, match="too many ways"):
        tried.append(allocate(state(offered(*odd)), NODE, [loose, strict]))
    assert not tried
