"""What the scheduler tells of its decisions: log lines and metrics."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from muster.model.amounts import NOTHING, Resources
from scheduler.leader import metrics as counted
from scheduler.leader import queue_waits
from scheduler.leader.cycle_report import CycleReport
from scheduler.leader.metrics import SchedulerMetrics
from scheduler.model.constraints import Constraints
from scheduler.model.plan import Eviction, QueueShare
from scheduler.model.snapshot import GroupKey, Task, TaskClass, TaskStatus


@pytest.fixture
def metrics() -> SchedulerMetrics:
    return SchedulerMetrics()


@pytest.fixture
def teller(metrics: SchedulerMetrics) -> CycleReport:
    return CycleReport(metrics)


@pytest.fixture
def tell(build: Any, teller: CycleReport) -> Any:
    """Runs cycles on the cluster, each told of ``later`` seconds after the start."""

    def told(later: float = 0) -> None:
        teller.report(build.cycle(later=later), build.now.timestamp() + later, 0.002)

    return told


@pytest.fixture
def lines(caplog: Any) -> Any:
    caplog.set_level(logging.DEBUG, "muster.scheduler")

    def at(level: int) -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name == "muster.scheduler" and record.levelno == level]

    return at


def test_a_group_that_must_wait_is_one_line_however_many_cycles_say_so(build: Any, tell: Any, lines: Any) -> None:
    build.node("a", "2").gang("g", 3, 3, phase="Pending")
    for second in range(5):
        tell(second)
    (refused,) = lines(logging.INFO)
    assert (
        refused.getMessage() == "PodGroup ns/g waits: 3 pods need 3 cpu; 2 cpu are free in the cluster: short by 1 cpu"
    )
    assert (refused.object, refused.verdict) == ("podgroups.scheduling.volcano.sh ns/g", "waiting")
    assert (refused.uid, refused.stage) == ("group-000001", "enqueue")


def test_a_generated_group_is_called_by_its_workload(build: Any, tell: Any, lines: Any) -> None:
    build.node("a", "1").gang("podgroup-u1", 2, 2, phase="Pending", owner="train")
    build.gang("podgroup-u2", 1, 1, phase="Pending", owner="small")
    tell()
    (refused,) = lines(logging.INFO)
    assert refused.getMessage() == "Job ns/train waits: 2 pods need 2 cpu; 1 cpu is free in the cluster: short by 1 cpu"
    (entered,) = (record for record in lines(logging.DEBUG) if record.verdict == "Inqueue")
    assert entered.getMessage() == "Job ns/small was Pending"
    assert not [record for record in lines(logging.DEBUG) if "podgroup-" in record.getMessage()]


def test_of_many_that_begin_to_wait_at_once_a_few_have_lines_and_the_others_are_counted(
    build: Any, tell: Any, lines: Any
) -> None:
    for number in range(50):
        build.gang(f"g{number}", 2, 1, phase="Pending")
    tell()
    tell(1)
    *some, last = lines(logging.INFO)
    assert len(some) == 20
    assert last.getMessage().startswith("30 more PodGroups wait since this cycle; ")
    told = [record for record in lines(logging.DEBUG) if getattr(record, "verdict", "") == "waiting"]
    assert len({record.object for record in (*some, *told)}) == len(some) + len(told) == 50


def test_each_decision_is_a_line_at_debug(build: Any, tell: Any, lines: Any) -> None:
    build.node("a", "2").gang("g", 1, 1, phase="Pending")
    tell()
    entered, bound = sorted(lines(logging.DEBUG), key=lambda record: record.verdict)
    assert (entered.object, entered.verdict) == ("podgroups.scheduling.volcano.sh ns/g", "Inqueue")
    assert (bound.object, bound.verdict, bound.uid, bound.ms) == ("pods ns/g-0", "bind", "uid-g-0", 2.0)
    assert bound.getMessage() == "goes to node a"
    assert lines(logging.INFO) == []


def test_the_ledgers_no_is_told_once(build: Any, teller: CycleReport, tell: Any, lines: Any) -> None:
    build.node("a", "4").gang("g", 1, 1, phase="Inqueue", queue="nowhere")
    tell()
    tell(1)
    before = len(lines(logging.INFO))
    key = GroupKey("scheduling.volcano.sh", "ns", "g")
    for _ in range(3):
        teller.refused(key, "group-000001", "Job ns/train", "quota team is short by 1 cpu")
    said = "Job ns/train waits: quota team is short by 1 cpu"
    assert [record.getMessage() for record in lines(logging.INFO)[before:]] == [said]


def test_waiting_is_measured_by_stage(build: Any, metrics: SchedulerMetrics, tell: Any) -> None:
    value = metrics.registry.get_sample_value
    stage = {"stage": "enqueue"}
    build.node("a", "2").gang("g", 3, 3, phase="Pending").gang("gone", 3, 3, phase="Pending")
    tell()
    tell(30)
    assert value("muster_scheduler_waiting_podgroups", stage) == 2
    assert value("muster_scheduler_longest_wait_seconds", stage) == 30
    assert value("muster_scheduler_podgroup_wait_seconds_count", stage) == 0
    # One is deleted, the other gets its node: only that one has waited to the end.
    build.without("gone").node("b", "2")
    tell(40)
    assert value("muster_scheduler_podgroup_wait_seconds_count", stage) == 1
    assert value("muster_scheduler_podgroup_wait_seconds_sum", stage) == 40
    assert value("muster_scheduler_longest_wait_seconds", stage) == 0


def test_waiting_is_measured_by_queue_and_bounded(
    build: Any, metrics: SchedulerMetrics, teller: CycleReport, tell: Any
) -> None:
    value = metrics.registry.get_sample_value
    build.queue("lab").node("a", "2")
    build.gang("g", 3, 3, phase="Pending").gang("h", 3, 3, phase="Pending").gang(
        "x", 3, 3, phase="Pending", queue="lab"
    )
    tell()
    tell(30)
    default, lab = {"queue": "default"}, {"queue": "lab"}
    assert value("muster_scheduler_queue_waiting_podgroups", default) == 2
    assert value("muster_scheduler_queue_longest_wait_seconds", default | {"namespace": "ns", "podgroup": "g"}) == 30
    assert value("muster_scheduler_queue_waiting_podgroups", lab) == 1
    many = [
        (f"queue-{number}", GroupKey("", "team", "g"), float(number)) for number in range(queue_waits.MAX_QUEUES + 5)
    ]
    metrics.queue_waits.observe(many)
    assert value("muster_scheduler_queue_waiting_podgroups", {"queue": "queue-4"}) is None
    assert (
        value("muster_scheduler_queue_longest_wait_seconds", {"queue": "queue-5", "namespace": "team", "podgroup": "g"})
        == 5
    )
    teller.close()
    assert value("muster_scheduler_queue_waiting_podgroups", {"queue": "queue-5"}) is None


def test_evictions_are_counted_by_the_queue_that_loses_the_pod(
    build: Any, metrics: SchedulerMetrics, teller: CycleReport
) -> None:
    build.queue("lab").node("a", "2").gang("g", 3, 3, phase="Pending", queue="lab")
    plan = build.cycle()
    task = Task("uid-p", "ns", "p", TaskClass(NOTHING, Constraints()), TaskStatus.RUNNING, "a")
    (group,) = plan.groups
    evictions = tuple(Eviction(task, key, group, "") for key in (group, group._replace(name="gone")))
    teller.report(replace(plan, evictions=evictions), build.now.timestamp(), 0.002)
    value = metrics.registry.get_sample_value
    assert value("muster_scheduler_queue_evictions_total", {"queue": "lab"}) == 1


def test_queues_show_what_they_have_and_deserve(
    build: Any, metrics: SchedulerMetrics, teller: CycleReport, tell: Any
) -> None:
    build.node("a", "4", memory="8Gi").gang("g", 2, 2)
    tell()
    tell(1)
    value = metrics.registry.get_sample_value
    assert value("muster_scheduler_queue_allocated", {"queue": "default", "resource": "cpu"}) == 2
    assert value("muster_scheduler_queue_share", {"queue": "default"}) == 1
    teller.close()
    assert value("muster_scheduler_queue_allocated", {"queue": "default", "resource": "cpu"}) is None


def test_of_many_queues_and_resources_only_so_many_are_shown(
    build: Any, metrics: SchedulerMetrics, teller: CycleReport
) -> None:
    hostile = Resources({f'example.com/"{number}\n': 10**9 for number in range(100)})
    shares = {
        f"queue-{number}": QueueShare(Resources({"cpu": 10**9}), None, 0.1) for number in range(counted.MAX_QUEUES)
    }
    shares |= {f"big-{number}": QueueShare(hostile, None, 1.5) for number in range(3)}
    teller.report(replace(build.decide(), queues=shares), 0, 0)
    value = metrics.registry.get_sample_value
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    shown = {sample.labels["queue"] for sample in samples if "queue" in sample.labels}
    assert (len(shown), {"big-0", "big-1", "big-2"} <= shown) == (counted.MAX_QUEUES, True)
    assert value("muster_scheduler_queues_left_out") == 3
    assert (
        len({sample.labels["resource"] for sample in samples if "resource" in sample.labels}) <= counted.MAX_RESOURCES
    )


def test_the_state_says_who_waits_and_is_bounded(build: Any, teller: CycleReport, tell: Any) -> None:
    build.node("a", "1")
    for number in range(250):
        build.gang(f"g{number}", 2, 1, phase="Pending")
    assert teller.state()["waiting"] == {"items": [], "leftOut": 0}
    tell()
    waiting = teller.state()["waiting"]
    assert (len(waiting["items"]), waiting["leftOut"]) == (200, 50)
    assert waiting["items"][0]["podGroup"] == "ns/g0"


def test_what_is_wrong_with_hypernodes_is_a_line_once_and_again_when_it_comes_back(
    build: Any, teller: CycleReport, lines: Any
) -> None:
    build.node("a", "2")
    fault, plan = "HyperNodes are members of each other: x > y > x; one of them has to go", build.cycle()
    for faults in ((fault,), (fault,), (), (fault,)):
        teller.report(replace(plan, network_faults=faults), build.now.timestamp(), 0.002)
        assert teller.state()["networkFaults"] == list(faults)
    assert [each.getMessage() for each in lines(logging.WARNING)] == [fault, fault]
