"""Whether claims can be met, and by how many devices, as Kubernetes' own allocator has it."""

from __future__ import annotations

import json
import subprocess
from random import Random

import device_cases
import msgspec
import pytest

from muster.model.objects import Node
from scheduler.model import devices
from scheduler.model.devices import DeviceId
from scheduler.topology.device_allocation import AllocationError, DeviceState, allocate
from scheduler.topology.device_budget import DeviceBudget
from scheduler.topology.device_pools import pools
from scheduler.topology.device_selectors import Selectors


def ours(case):
    state = DeviceState(
        pools(devices.read_slice(each["metadata"]["name"], each["spec"]) for each in case["slices"]),
        {each["metadata"]["name"]: devices.selectors(each["spec"]["selectors"]) for each in case["classes"]},
        {DeviceId(**each) for each in case["taken"]},
        Selectors(),
        DeviceBudget(tuple).of("ns"),
    )
    claims = [devices.claimed(each["spec"], "ns") for each in case["claims"]]
    try:
        chosen = allocate(state, msgspec.convert(case["node"], Node), claims)
    except AllocationError as error:
        return {"feasible": False, "why": str(error)}
    return {"feasible": chosen is not None, "counts": [len(each) for each in chosen or ()]}


@pytest.mark.processes
def test_upstream_decides_alike(upstream):
    random = Random(24)
    cases = [device_cases.case(random) for _ in range(1000)]
    text = "".join(json.dumps(each) + "\n" for each in cases)
    answers = subprocess.run([upstream], input=text, capture_output=True, text=True, check=True, timeout=300).stdout
    feasible = 0
    for number, (case, line) in enumerate(zip(cases, answers.splitlines(), strict=True)):
        theirs, mine = json.loads(line), ours(case)
        feasible += theirs["feasible"]
        several = len({each["spec"]["driver"] for each in case["slices"]}) > 1
        elsewhere = any("perDeviceNodeSelection" in each["spec"] for each in case["slices"])
        if (several or elsewhere) and "CEL runtime error" in theirs.get("error", ""):
            # Upstream takes pools in an order by chance, and evaluates expressions for devices that the node doesn't reach.
            continue
        said = (number, theirs, mine)
        assert mine["feasible"] == theirs["feasible"], said
        if theirs["feasible"] and not several:
            assert mine["counts"] == theirs["counts"], said
    assert 100 < feasible < 900
