"""Each sentence about a group that waits and about a quota, whole, for one and for several: as somebody read it.

After a change: GOLDEN=write pytest tests/scheduler/test_message_goldens.py, and read the difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.ledger import wording
from muster.ledger.reservations import JOB, POD, PODGROUP, Exceeded, ReservationRequest, Shortage
from muster.model import kinds
from muster.model.amounts import NANO, Resources
from scheduler.configuration import config
from scheduler.engine import messages
from scheduler.engine.cycle import decide
from scheduler.model.snapshot import GroupKey

GOLDEN = Path(__file__).with_name("golden-messages.txt")
CAPACITY = config.DEFAULT.replace("proportion", "capacity")
Build = Any


def too_small_a_cluster(build: Build, n: int) -> Build:
    return build.node("a", str(n)).gang("g", n + 1, n + 1, phase="Pending")


def an_empty_cluster(build: Build, n: int) -> Build:
    return build.gang("g", n, n, phase="Pending")


def held_for_groups_admitted_earlier(build: Build, n: int) -> Build:
    build.node("a", str(n))
    for number in range(n):
        build.group(f"first-{number}", 2, age=20 + number, minResources={"cpu": "1"})
    return build.gang("g", n, n, phase="Pending", age=10)


def too_small_a_capability(build: Build, n: int) -> Build:
    build.queue("lab", capability={"cpu": str(n)}).node("a", "9")
    return build.gang("g", n + 1, n + 1, queue="lab", phase="Pending", minResources={"cpu": str(n + 1)})


def too_many_groups_of_a_queue(build: Build, n: int) -> Build:
    build.queue("few", maxPodGroups=n).node("a", "9")
    for number in range(n):
        name = f"there-{number}"
        build.group(name, 1, phase="Running", queue="few").pod(f"{name}-0", name, node="a")
    return build.gang("g", 1, 1, queue="few", phase="Pending")


def no_such_queue(build: Build, _: int) -> Build:
    return build.node("a").gang("g", 1, 1, queue="nowhere", phase="Pending")


def a_closed_queue(build: Build, _: int) -> Build:
    return build.queue("shut", state="Closed").node("a").gang("g", 1, 1, queue="shut", phase="Pending")


def pods_that_are_missing(build: Build, n: int) -> Build:
    return build.node("a").gang("g", n + 2, n)


def no_pods_at_all(build: Build, n: int) -> Build:
    return build.node("a").group("g", n, phase="Inqueue")


def nodes_that_are_full(build: Build, n: int) -> Build:
    for number in range(n):
        build.node(f"full-{number}", "4").group(f"there-{number}", 1, phase="Running")
        build.pod(f"there-{number}-0", f"there-{number}", "3", node=f"full-{number}")
    return build.gang("g", n, n, "2")


def nodes_that_are_cordoned(build: Build, n: int) -> Build:
    for number in range(n):
        build.node(f"shut-{number}", "4", unschedulable=True)
    return build.node("a", "1").gang("g", n, n, "2")


def nodes_that_do_not_match(build: Build, n: int) -> Build:
    for number in range(n):
        build.node(f"plain-{number}", "4")
    build.group("g", n)
    for number in range(n):
        build.pod(f"g-{number}", "g", nodeSelector={"disk": "fast"})
    return build


def pods_with_gates(build: Build, n: int) -> Build:
    build.node("a", "9").group("g", n)
    for number in range(n):
        build.pod(f"g-{number}", "g", schedulingGates=[{"name": "later"}])
    return build


def pods_that_were_given_nodes(build: Build, n: int) -> Build:
    return build.node("a", "9").gang("g", n, n)


def places_that_others_leave(build: Build, n: int) -> Build:
    build.node("a", str(n))
    for number in range(n):
        build.pod(f"leaving-{number}", node="a", leaving=True)
    return build.gang("g", n, n)


def pods_of_the_minimum_that_are_gone(build: Build, n: int) -> Build:
    build.node("a", "9").group("g", n + 1, phase="Running")
    for number in range(n):
        build.pod(f"g-{number}", "g", node="a")
    return build


WAITING: tuple[Callable[[Build, int], Build], ...] = (
    too_small_a_cluster,
    an_empty_cluster,
    held_for_groups_admitted_earlier,
    too_small_a_capability,
    too_many_groups_of_a_queue,
    no_such_queue,
    a_closed_queue,
    pods_that_are_missing,
    no_pods_at_all,
    nodes_that_are_full,
    nodes_that_are_cordoned,
    nodes_that_do_not_match,
    pods_with_gates,
    pods_that_were_given_nodes,
    places_that_others_leave,
    pods_of_the_minimum_that_are_gone,
)


def of_a_group(make: Callable[[Build, int], Build], build: Build, n: int) -> str:
    made = make(build.queue("default"), n)
    policy = config.parse(CAPACITY if make is too_small_a_capability else config.DEFAULT)
    plan = decide(made.cluster.snapshot(), policy, made.now)
    key = GroupKey(kinds.PODGROUPS.group, "ns", "g")
    told = [plan.records[key].message] if key in plan.records else []
    said = [
        each.message
        for each in plan.groups[key].conditions
        if each.type == "Unschedulable" and each.message not in told
    ]
    return " | ".join([*told, *said])


def shortage(hard: int, reserved: int, used: int, asked: int, resource: str = "requests.cpu") -> Shortage:
    amounts = (each * NANO for each in (hard, reserved, used, asked, reserved + used + asked - hard))
    return Shortage(resource, *amounts, "team")


def request(kind: str, cpu: int, group: str = kinds.PODGROUPS.group, **more: Any) -> ReservationRequest:
    return ReservationRequest(
        "ns", kind, group, "podgroup-u" if kind == JOB else "g", "u", Resources.parse({"cpu": str(cpu)}), **more
    )


def of_quotas(n: int) -> dict[str, str]:
    owners = {"podgroup-u": "Job train", "podgroup-v": "Job first"}
    short = shortage(2 * n, n, 0, 2 * n)
    holders = (("podgroup-v", Resources.parse({"cpu": str(n)})),)
    full = Exceeded("team", (short,), holders)
    beside = Exceeded("team", (shortage(2 * n, 0, n, 2 * n),))
    never = Exceeded("team", (shortage(n, 0, 0, n + 1),))
    several = Exceeded("team", (short, shortage(n, n, 0, n, "requests.nvidia.com/gpu")), holders)
    return {
        "a Job beside others": wording.refusal(request(JOB, 2 * n), full, owners),
        "a PodGroup beside others": wording.refusal(request(PODGROUP, 2 * n), full, owners),
        "a PodGroup that grows": wording.refusal(request(PODGROUP, 2 * n, revision="7"), full, owners),
        "a PodGroup beside single pods": wording.refusal(request(PODGROUP, 2 * n), beside, owners),
        "a Job that never fits": wording.refusal(request(JOB, n + 1), never, owners),
        "a PodGroup short of two resources": wording.refusal(request(PODGROUP, 2 * n), several, owners),
        "a single pod": wording.refusal(request(POD, 2 * n, ""), full, owners),
        "a pod beyond its group": wording.refusal(request(POD, 2 * n, "podgroup-v"), full, owners),
        "a pod of a group without a reservation": wording.refusal(
            request(POD, 2 * n, "podgroup-v"), Exceeded("team", (short,), of_group=True), owners
        ),
        "what a CronJob makes": wording.never_fits("a Job of CronJob nightly", never.shortages),
        "a group that holds nothing": wording.unreserved([short]),
        "a group that reserves late": wording.postponed([short]),
        "a quota that is lowered": wording.overcommitted("team", shortage(n, n, 1, 0)),
    }


def of_times(n: int) -> dict[str, str]:
    return {"places that are kept": messages.places(0, n), "places that are left": messages.places(n, 0)}


def test_each_sentence_is_as_somebody_read_it_for_one_and_for_several(make_build: Callable[[], Build]) -> None:
    lines = []
    for make in WAITING:
        title = make.__name__.replace("_", " ")
        lines += [f"{title}, {n}: {of_a_group(make, make_build(), n)}" for n in (1, 3)]
    for sentences in (of_quotas, of_times):
        one, several = sentences(1), sentences(3)
        for what in one:
            lines += [f"{what}, 1: {one[what]}", f"{what}, 3: {several[what]}"]
    text = "\n".join(lines) + "\n"
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize(
    "wrong", [r"\b1 (pods|nodes|places|groups|PodGroups)\b", r"\b1 cpu are\b", r"\b[2-9] cpu is\b", r"\b1 pod have\b"]
)
def test_no_sentence_has_a_verb_or_a_noun_that_does_not_agree(wrong: str) -> None:
    assert not re.findall(wrong, GOLDEN.read_text())
