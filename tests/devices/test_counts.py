"""Gangs whose claims request a number of like devices: counted per node, and decided as the search decides."""

from __future__ import annotations

import random

import pytest

from muster.model import names
from scheduler.configuration import config
from scheduler.simulator import state
from scheduler.topology.device_claims import DeviceClaims
from tests.devices.test_claims import NOW, PREDICATES, claim, device_class, group, node, offered, pod

POLICY = PREDICATES + "  - {name: binpack}\n"


def _cluster(seed):
    pick = random.Random(seed)
    nodes = [f"n{number}" for number in range(pick.randint(1, 4))]
    objects = [device_class(), *map(node, nodes)]
    for name in nodes:
        models = [pick.choice("ab") for _ in range(pick.randint(0, 5))]
        taints = [[{"key": "broken", "effect": "NoSchedule"}] if pick.random() < 0.1 else [] for _ in models]
        devices = [
            {"name": f"d{number}", "attributes": {"model": {"string": model}}, "taints": taint}
            for number, (model, taint) in enumerate(zip(models, taints, strict=True))
        ]
        objects.append(offered(name, *devices))
    for gang in range(pick.randint(1, 3)):
        size, count, model = pick.randint(1, 5), pick.randint(1, 2), pick.choice(["", "a", "b"])
        chosen = [{"cel": {"expression": f"device.attributes['gpu.example.com'].model == '{model}'"}}] if model else []
        own = {
            "metadata": {"name": f"g{gang}", "namespace": "ns", "creationTimestamp": f"2026-01-0{gang + 1}T00:00:00Z"}
        }
        objects.append(group(pick.randint(1, size)) | own)
        for number in range(size):
            name = f"g{gang}-{number}"
            objects.append(pod(name, own=True, group=f"g{gang}"))
            objects.append(claim(f"{name}-gpu", pod=name, count=count, selectors=chosen))
    return objects


def _decided(objects):
    cluster = state.load(objects, [names.SCHEDULER_NAME])
    plan = state.run(cluster, config.parse(POLICY, "a test's"), NOW, 1).plan
    return {bind.task.name: (bind.node, bind.devices) for bind in plan.binds}


@pytest.mark.parametrize("seed", range(60))
def test_what_is_counted_is_what_the_search_finds(seed, monkeypatch):
    objects = _cluster(seed)
    counted = _decided(objects)
    monkeypatch.setattr(DeviceClaims, "_counted", lambda *_: None)
    assert counted == _decided(objects)


def test_pods_of_a_template_are_one_class_and_decided_at_once(monkeypatch):
    gang = [pod(f"p{number}", own=True) for number in range(4)]
    claims = [claim(f"p{number}-gpu", pod=f"p{number}") for number in range(4)]
    searched = []
    monkeypatch.setattr(DeviceClaims, "_find", lambda *given: searched.append(given))
    cluster = [node("a"), node("b"), device_class(), group(4), *gang, *claims]
    given = _decided([*cluster, offered("a", "d1", "d2"), offered("b", "d3", "d4")])
    assert sorted(each.devices[0][1].name for _, (each,) in given.values()) == ["d1", "d2", "d3", "d4"]
    assert not _decided([*cluster, offered("a", "d1", "d2"), offered("b", "d3")])
    assert not searched


def test_pods_of_a_template_whose_claims_differ_are_told_apart():
    gang = [pod(f"p{number}", own=True) for number in range(3)]
    claims = [claim("p0-gpu", pod="p0", count=2), claim("p1-gpu", pod="p1"), claim("p2-gpu", pod="p2")]
    cluster = [node("a"), node("b"), device_class(), group(3), *gang, *claims]
    given = _decided([*cluster, offered("a", "d1", "d2"), offered("b", "d3", "d4")])
    assert {name: len(each.devices) for name, (_, (each,)) in given.items()} == {"p0": 2, "p1": 1, "p2": 1}


def test_a_device_without_the_value_that_a_selector_reads_is_left_to_the_search():
    chosen = [{"cel": {"expression": "device.attributes['gpu.example.com'].model == 'a'"}}]
    devices = [{"name": "d1", "attributes": {"model": {"string": "a"}}}, {"name": "d2"}]
    cluster = [node("a"), device_class(), pod("p", own=True), claim("p-gpu", pod="p", selectors=chosen)]
    assert set(_decided([*cluster, group(), offered("a", *devices)])) == {"p"}
