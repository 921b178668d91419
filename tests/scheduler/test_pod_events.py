"""Events on pods: how many, how fast, and after what."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from muster.kube.cache import ObjectCache
from muster.model import names
from muster.model.objects import Pod
from scheduler.leader.pod_events import EVENTS_A_SECOND, MOST_IN_LINE, PodEvents


class Recorded:
    """An `EventRecorder` that keeps what it is given, with the loop's time."""

    def __init__(self) -> None:
        self.told: list[tuple[float, str, str, str]] = []

    def record(self, _: Any, about: Any, reason: str, message: str, *, type_: str = "Normal") -> None:
        assert type_ == ("Warning" if reason == "FailedScheduling" else "Normal")
        self.told.append((asyncio.get_running_loop().time(), about.name, reason, message))


class Setting:
    def __init__(self, build: Any) -> None:
        self.build = build
        self.recorded = Recorded()
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.busy = False
        self.groups: set[str] = set()
        self.obstacles: dict[str, str] = {}
        self.events = PodEvents(
            self.recorded,  # type: ignore[arg-type]
            self.pods,
            [names.SCHEDULER_NAME],
            lambda: self.busy,
            lambda _, name: name if name in self.groups else None,
            lambda _, name: self.obstacles.get(name, ""),
        )

    def shows(self, name: str, group: str = "g", **more: Any) -> None:
        pod = self.build.a_pod(name, group, **more)
        self.pods.put(pod)
        self.build.cluster.pod(pod)

    def decides(self) -> None:
        snapshot = self.build.cluster.snapshot()
        self.events.observe(self.build.cycle(), snapshot)

    def reasons(self) -> list[tuple[str, str]]:
        return [(name, reason) for _, name, reason, _ in self.recorded.told]


@pytest.fixture
async def setting(build):
    setting = Setting(build)
    task = asyncio.create_task(setting.events.run())
    yield setting
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def bound(setting, count):
    for number in range(count):
        setting.shows(f"p-{number}")
    for number in range(count):
        setting.shows(f"p-{number}", node="a")


async def test_at_most_fifty_a_second_are_recorded_and_what_falls_behind_is_left_out(setting):
    bound(setting, MOST_IN_LINE + 40)
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(60)
    moments = [moment - began for moment, *_ in setting.recorded.told]
    assert len(moments) == MOST_IN_LINE
    assert setting.events.dropped == 40
    pairs = zip(moments, moments[EVENTS_A_SECOND:], strict=False)
    assert all(later - earlier > 0.999 for earlier, later in pairs)
    assert {reason for _, reason in setting.reasons()} == {"Scheduled"}


async def test_nothing_is_recorded_while_pods_are_bound(setting):
    setting.busy = True
    bound(setting, 3)
    await asyncio.sleep(5)
    assert setting.recorded.told == []
    setting.busy = False
    await asyncio.sleep(1)
    assert setting.reasons() == [("p-0", "Scheduled"), ("p-1", "Scheduled"), ("p-2", "Scheduled")]


async def test_a_pod_that_comes_later_is_told_what_its_group_waits_for_once(setting):
    setting.build.node("a", "1").group("g", 2, phase="Pending")
    setting.shows("early")
    setting.shows("other")
    for _ in range(5):
        setting.decides()
    await asyncio.sleep(1)
    assert setting.reasons() == [("early", "FailedScheduling"), ("other", "FailedScheduling")]
    setting.shows("late")
    for _ in range(5):
        setting.decides()
    await asyncio.sleep(1)
    assert setting.reasons()[2:] == [("late", "FailedScheduling")]
    assert setting.recorded.told[-1][3] == (
        "PodGroup g: 2 pods need 2 cpu; 1 cpu is free in the cluster: short by 1 cpu"
    )


async def test_a_pod_that_got_a_node_meanwhile_is_not_told_that_it_found_none(setting):
    setting.busy = True
    setting.build.node("a", "1").group("g", 2, phase="Pending")
    setting.shows("early")
    setting.shows("other")
    setting.decides()
    setting.shows("early", node="a")
    setting.busy = False
    await asyncio.sleep(1)
    assert setting.reasons() == [("other", "FailedScheduling"), ("early", "Scheduled")]


async def test_a_pod_of_another_scheduler_has_no_event_of_ours(setting):
    setting.shows("theirs", schedulerName="default-scheduler")
    setting.shows("theirs", schedulerName="default-scheduler", node="a")
    await asyncio.sleep(1)
    assert setting.recorded.told == []


async def test_a_pod_whose_group_is_not_there_is_told_so_once_it_was_given_time_to_come(setting):
    setting.build.node("a", "1")
    setting.shows("early")
    setting.shows("named", "podgroup-0b8e9d4e-5f5a-4f0e-9a58-5f6f0c5f4a11")
    setting.shows("late", "h")
    setting.decides()
    await asyncio.sleep(9)
    assert setting.recorded.told == []
    setting.groups.add("h")
    await asyncio.sleep(2)
    ((_, name, reason, message),) = setting.recorded.told
    assert (name, reason) == ("early", "FailedScheduling")
    assert message == "PodGroup g does not exist: create it, or remove the annotation scheduling.k8s.io/group-name"
    setting.decides()
    await asyncio.sleep(20)
    assert len(setting.recorded.told) == 1


async def test_a_pod_in_a_group_of_kubernetes_own_is_told_what_is_wrong_with_that(setting):
    setting.obstacles["workers"] = "PodGroup workers is not evaluated"
    setting.build.node("a", "1")
    native = {"podGroupName": "workers"}
    setting.shows("native", "", schedulingGroup=native)
    setting.shows("running", "", schedulingGroup=native, node="a")
    setting.shows("theirs", "", schedulingGroup=native, schedulerName="default-scheduler")
    setting.shows("plain", "")
    setting.shows("about-to-join", "", schedulingGroup={"podGroupName": "others"})
    setting.decides()
    setting.decides()
    await asyncio.sleep(20)
    ((_, name, reason, message),) = setting.recorded.told
    assert (name, reason) == ("native", "FailedScheduling")
    assert message == "PodGroup workers is not evaluated"
