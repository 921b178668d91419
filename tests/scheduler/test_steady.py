"""Nothing stays in memory of what has come and gone."""

from __future__ import annotations

import gc

from scheduler.configuration import config
from scheduler.engine.plugin import Plugin
from scheduler.engine.session import Session
from scheduler.engine.states import JobState

POLICY = config.DEFAULT + "configurations: [{name: allocate, arguments: {reserveAfter: 5m}}]\n"


def a_day(build, day):
    """Groups and Jobs and pods of other names each day, placed, run and deleted, all but the nodes."""
    names = [f"d{day}-{number}" for number in range(60)]
    for number, name in enumerate(names):
        build.gang(name, 2, 3, f"{100 + number % 7}m", phase="Pending", age=400)
    for _ in range(3):
        build.cycle(POLICY)
    for name in names:
        for pod in range(3):
            build.pod(f"{name}-{pod}", name, f"{100 + pod}m", node="a", phase="Running")
    build.cycle(POLICY)
    for name in names:
        for pod in range(3):
            build.gone(f"{name}-{pod}")
        build.without(name)
    build.cycle(POLICY)


def test_a_cluster_that_has_seen_much_is_no_larger_than_one_that_has_seen_little(build):
    build.node("a", "8").node("b", "8")
    sizes = []
    for day in range(8):
        a_day(build, day)
        gc.collect()
        sizes.append(len(gc.get_objects()))
    assert build.cluster.snapshot().jobs == ()
    # The first days fill what is kept for good: classes of resources, answers of regular expressions.
    assert sizes[-1] - sizes[2] < 60, f"objects after each day: {sizes}"


def test_a_cycle_leaves_nothing_to_the_garbage_collector(build):
    build.node("a", "2").gang("g", 1, 1, phase="Pending").gang("h", 4, 4, phase="Pending")
    gc.collect()
    gc.disable()
    try:
        before = of_sessions()
        assert build.cycle(POLICY).binds
        left = of_sessions()
    finally:
        gc.enable()
    assert len(left) == len(before)


def of_sessions():
    """What cycles are made of; other tests may have kept some."""
    return [each for each in gc.get_objects() if isinstance(each, (Session, Plugin, JobState))]


def test_objects_that_never_belonged_to_anything_leave_nothing_either(build):
    build.node("a", "8")
    for number in range(50):
        build.cluster.assume(f"unknown-{number}", "a")
        build.cluster.forget(f"unknown-{number}")
        build.cluster.spare(f"unknown-{number}")
        build.cluster.unspare(f"unknown-{number}")
        build.gone(f"unknown-{number}").without(f"unknown-{number}")
    build.cycle(POLICY)
    held = [each for each in vars(build.cluster).values() if isinstance(each, (dict, set)) and len(each) > 10]
    assert held == []
