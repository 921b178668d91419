"""Evicting, and what happens when the server says something else than yes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from muster.kube import errors
from muster.kube.client import Client
from muster.kube.clock import LoopClock
from muster.kube.events import EventRecorder
from muster.kube.transport import Request, Response
from muster.model.amounts import NOTHING
from scheduler.configuration import config
from scheduler.leader.backoff import EvictionPauses, EvictionTally
from scheduler.leader.events import EvictionRefused, EvictionRetryDue
from scheduler.leader.evictor import Evictor
from scheduler.leader.state import SchedulerState
from scheduler.model.affinity import CountingRule, PodSelection, PodSet
from scheduler.model.constraints import Constraints
from scheduler.model.plan import Eviction
from scheduler.model.snapshot import GroupKey, Phase, RequeueState, Task, TaskClass, TaskStatus

GROUP = GroupKey("scheduling.volcano.sh", "ns", "g")
EVICTION = Eviction(
    Task("uid-p", "ns", "p", TaskClass(NOTHING, Constraints()), TaskStatus.RUNNING, "node-0"),
    GROUP,
    GROUP._replace(name="urgent"),
    "PodGroup ns/urgent",
)


def status(code: int, **more: Any) -> Response:
    return Response(code, msgspec.json.encode({"kind": "Status", "code": code, **more}))


def shown(uid: str = "uid-p", **more: Any) -> Response:
    return Response(200, msgspec.json.encode({"metadata": {"name": "p", "namespace": "ns", "uid": uid, **more}}))


class Server:
    """Answers evictions and reads as told; keeps what it was asked."""

    def __init__(self, evicting: Response | Exception, reading: Response | None = None) -> None:
        self.evicting, self.reading = evicting, reading or status(404)
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[Any] = []

    async def request(self, request: Request, *, within: float) -> Response:  # noqa: ARG002 - a Transport
        self.asked.append((request.method, request.path))
        if request.body:
            self.bodies.append(msgspec.json.decode(request.body))
        answer = self.evicting if request.method == "POST" else self.reading
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, request: Request, *, idle: float) -> Any:  # noqa: ARG002 - a Transport
        raise AssertionError("an evictor watches nothing")


class Told:
    """Keeps of whom it was told that they can't be evicted, and since when they may be tried again."""

    def __init__(self) -> None:
        self.spared: list[str] = []
        self.again: list[str] = []

    def __call__(self, event: EvictionRefused | EvictionRetryDue) -> None:
        (self.spared if isinstance(event, EvictionRefused) else self.again).append(event.uid)


def untold(key: GroupKey, reason: str, message: str) -> None:
    """Leave events of groups out."""


async def evicted(server: Server, seconds: float = 60) -> Told:
    told, client = Told(), Client(server)
    evictor = Evictor(
        client, EventRecorder(client, LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), "muster"), told, untold
    )
    evictor.start([EVICTION])
    await asyncio.sleep(seconds)
    await evictor.close()
    return told


class Recorder:
    """Keeps the texts of events."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def record(self, *about: Any) -> None:
        self.texts.append(about[-1])


@pytest.mark.parametrize(
    ("namespace", "text"),
    [
        ("ns", "Preempted by PodGroup ns/urgent (priority 0)"),
        ("other", "Preempted by a PodGroup of another namespace (priority 0)"),
    ],
)
async def test_an_event_names_who_gets_the_place_within_a_namespace_only(namespace: str, text: str):
    recorder: Any = Recorder()
    evictor = Evictor(Client(Server(status(201))), recorder, Told(), untold)
    evictor.start([replace(EVICTION, beneficiary=GROUP._replace(namespace=namespace, name="urgent"))])
    await asyncio.sleep(1)
    await evictor.close()
    assert recorder.texts == [text]


async def test_only_the_very_pod_that_was_chosen_is_evicted():
    server = Server(status(201))
    assert (await evicted(server)).spared == []
    assert server.asked == [("POST", "/api/v1/namespaces/ns/pods/p/eviction")]
    assert server.bodies[0]["deleteOptions"]["preconditions"] == {"uid": "uid-p"}


@pytest.mark.parametrize("code", [404, 409])
async def test_a_pod_that_is_gone_leaves_its_place_in_any_case(code):
    server = Server(status(code))
    assert (await evicted(server)).spared == []
    assert len(server.asked) == 1


async def test_a_pod_that_a_budget_protects_is_spared_for_as_long_as_the_server_says():
    server = Server(status(429, details={"retryAfterSeconds": 30}))
    assert (await evicted(server, 29)).again == []
    told = await evicted(server, 31)
    assert (told.spared, told.again) == (["uid-p"], ["uid-p"])


@pytest.mark.parametrize(
    "outcome", [errors.UnreachableError("lost", maybe_applied=True), status(504)], ids=["no answer", "gateway"]
)
@pytest.mark.parametrize(
    ("reading", "spared"),
    [
        (shown(deletionTimestamp="2026-01-01T00:00:00Z"), []),
        (shown(), ["uid-p"]),
        (shown("another"), []),
        (status(404), []),
    ],
    ids=["applied", "not applied", "another pod", "gone"],
)
async def test_an_unknown_outcome_is_read_back_and_never_repeated_blind(outcome, reading, spared):
    server = Server(outcome, reading)
    assert (await evicted(server)).spared == spared
    assert [method for method, _ in server.asked] == ["POST", "GET"]


async def test_an_eviction_that_was_never_sent_is_not_read_back():
    server = Server(errors.UnreachableError("refused", maybe_applied=False))
    assert (await evicted(server)).spared == ["uid-p"]
    assert len(server.asked) == 1


def victim(name: str, *, budget: bool = False) -> Eviction:
    peers = (
        frozenset({PodSet.of(CountingRule.BUDGET, PodSelection(frozenset({"ns"}), None))}) if budget else frozenset()
    )
    task = Task(f"uid-{name}", "ns", name, TaskClass(NOTHING, Constraints(peers=peers)), TaskStatus.RUNNING, "node-0")
    return replace(EVICTION, task=task)


class Choosy(Server):
    """Refuses the evictions, or the dry runs, of some pods."""

    def __init__(self, refused: set[str], *, dry: bool) -> None:
        super().__init__(status(201))
        self.refused, self.dry = refused, dry
        self.evicted: list[str] = []

    async def request(self, request: Request, *, within: float) -> Response:
        name, dry = request.path.split("/")[-2], request.query.get("dryRun") == "All"
        if name in self.refused and (dry or not self.dry):
            return status(429, message="the budget is spent", details={"retryAfterSeconds": 5})
        if not dry:
            self.evicted.append(name)
        return await super().request(request, within=within)


class Spent(Choosy):
    """Its budget lets one go; dry runs spend nothing."""

    async def request(self, request: Request, *, within: float) -> Response:
        self.refused = {"a", "b", "c"} if self.evicted and request.query.get("dryRun") != "All" else set()
        return await super().request(request, within=within)


class Heard(Told):
    """Keeps the events as well."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.groups: list[tuple[str, str, str]] = []

    def __call__(self, event: Any) -> None:
        self.events.append(event)

    def on_group(self, key: GroupKey, reason: str, message: str) -> None:
        self.groups.append((key.name, reason, message))


async def heard_of(server: Server, *victims: Eviction) -> Heard:
    heard, client = Heard(), Client(server)
    recorder = EventRecorder(client, LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), "muster")
    evictor = Evictor(client, recorder, heard, heard.on_group)
    evictor.start(victims)
    await asyncio.sleep(4)
    await evictor.close()
    return heard


async def evicted_together(server: Server, *victims: Eviction) -> list[Any]:
    return (await heard_of(server, *victims)).events


async def test_each_group_that_loses_pods_is_told_for_whom_and_how_many():
    other = replace(victim("c"), group=GROUP._replace(name="h"), reclaimed_by="research")
    heard = await heard_of(Choosy(set(), dry=False), victim("a"), victim("b"), other)
    assert sorted(heard.groups) == [
        ("g", "Preempted", "Preempted by PodGroup ns/urgent (priority 0): 2 pods are evicted"),
        ("h", "Reclaimed", "Reclaimed by queue research for PodGroup ns/urgent: pod c is evicted"),
    ]


async def test_a_group_is_told_of_the_pods_that_were_evicted_before_a_refusal_only():
    heard = await heard_of(Spent(set(), dry=False), victim("a", budget=True), victim("b", budget=True))
    assert heard.groups == [("g", "Preempted", "Preempted by PodGroup ns/urgent (priority 0): pod a is evicted")]
    assert (await heard_of(Choosy({"b"}, dry=True), victim("a"), victim("b"))).groups == []


async def test_a_gang_that_is_undone_is_not_told_that_it_lost_pods_to_another():
    heard = await heard_of(Choosy(set(), dry=False), replace(victim("a"), beneficiary=GROUP))
    assert heard.groups == []


async def test_where_a_dry_run_is_refused_nobody_is_evicted():
    server = Choosy({"b"}, dry=True)
    (refused,) = await evicted_together(server, victim("a"), victim("b"), victim("c"))
    assert server.evicted == []
    assert (refused.uid, sorted(refused.others), refused.beneficiary) == (
        "uid-b",
        ["uid-a", "uid-c"],
        EVICTION.beneficiary,
    )
    assert refused.reason == "pod b may not be evicted now: the budget is spent"


async def test_the_first_refusal_stops_the_rest_of_those_that_have_a_budget():
    server = Spent(set(), dry=False)
    first, refused = await evicted_together(server, *[victim(name, budget=True) for name in "abc"], victim("free"))
    assert server.evicted == ["a"]
    assert (first.uid, refused.uid, sorted(refused.others)) == ("uid-a", "uid-b", ["uid-c", "uid-free"])


async def test_another_namespace_s_pod_is_not_named_to_the_beneficiary():
    server = Choosy({"a"}, dry=False)
    far = replace(victim("a"), beneficiary=GROUP._replace(namespace="other", name="urgent"))
    (refused,) = await evicted_together(server, far)
    assert refused.reason == "a pod of another namespace may not be evicted now"


def test_after_a_refusal_a_group_is_left_alone_for_longer_each_time_until_it_starts(build):
    state = SchedulerState({"muster"})
    plan = build.group("urgent", 1, phase="Pending").decide()
    (uid,) = [each.uid for each in plan.groups.values()]
    pauses = EvictionPauses()
    for seconds in (1.0, 2.0, 4.0):
        pauses.observe(plan, 100.0)
        pauses.refused(uid, "no")
        assert pauses.by_uid[uid].until == 100.0 + seconds
    build.group("urgent", 1, phase="Running").pod("p", "urgent", node="n").node("n", "1")
    pauses.observe(build.decide(), 101.0)
    assert state.snapshot().eviction_pauses == {}
    # Another group of the same name is another.
    assert pauses.by_uid == {}


def test_who_left_for_a_group_that_goes_back_left_in_vain(build):
    tally = EvictionTally()
    plan = build.group("urgent", 1, phase="Inqueue").decide()
    (key,) = plan.groups
    tally.evicted(key)
    tally.evicted(key)
    assert tally.in_vain(plan) == {}
    assert tally.in_vain(replace(plan, rolled_back={plan.groups[key].uid: RequeueState(0.0)})) == {key: 2}
    assert tally.in_vain(replace(plan, groups={})) == {}


def test_who_left_before_an_eviction_was_refused_left_in_vain(build):
    plan = build.group("urgent", 1, phase="Inqueue").decide()
    (key,) = plan.groups
    tally = EvictionTally()
    tally.evicted(key)
    # It goes back at once, and nothing is postponed by that.
    back = replace(plan.groups[key], before=Phase.INQUEUE, phase=Phase.PENDING)
    assert tally.in_vain(replace(plan, groups={key: back})) == {key: 1}
    # Where groups don't queue, one that is Pending may still wait for its victims to leave.
    tally.evicted(key)
    stays = replace(plan.groups[key], before=Phase.PENDING, phase=Phase.PENDING)
    assert tally.in_vain(replace(plan, groups={key: stays})) == {}


async def test_an_event_of_what_was_reclaimed_names_the_queue_that_it_was_reclaimed_by():
    recorder: Any = Recorder()
    evictor = Evictor(Client(Server(status(201))), recorder, Told(), untold)
    evictor.start([replace(EVICTION, beneficiary=GROUP._replace(name="urgent"), reclaimed_by="research")])
    await asyncio.sleep(1)
    await evictor.close()
    assert recorder.texts == ["Reclaimed by queue research for PodGroup ns/urgent"]


@pytest.mark.parametrize(("queue", "by"), [("mine", "mine"), ("default", "")])
def test_what_is_taken_from_another_queue_is_reclaimed(build, queue, by):
    build.priority("high", 9).queue("mine").node("n", "2").group("runs", 1, phase="Running")
    build.pod("r-0", "runs", node="n").pod("r-1", "runs", node="n")
    build.gang("waits", 1, 1, "1", queue=queue, priorityClassName="high")
    plan = build.decide(config.DEFAULT.replace("reclaim", "preempt, reclaim"))
    assert [each.reclaimed_by for each in plan.evictions] == [by]
