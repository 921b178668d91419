"""Requests and their answers, without HTTP: what is asked for, what is refused, and how many may wait."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from asked import POLICY, TAKEN, asked, gang, made, node, queue
from msgspec.structs import replace

from muster.cli.installation import crds
from muster.kube import errors
from muster.kube.transport import Request, Response
from muster.visibility import questions as asking
from muster.visibility.access import Access, Attributes
from muster.visibility.api import VisibilityApi
from muster.visibility.forecasts import StartForecasts
from muster.visibility.paths import GROUP, ROOT, VERSION
from muster.visibility.questions import Asked, Questions, TooManyQuestionsError
from muster.visibility.requestheader import Caller
from muster.whatif.cluster_view import ClusterObjects

ALICE = Caller("alice", groups=("system:authenticated",))
TEAM = f"{ROOT}/namespaces/team"
RIVAL = [{**each, "metadata": {**each["metadata"], "namespace": "rival"}} for each in gang("zebra", [2], "lab")]
OBJECTS = [
    node("node-1", {"cpu": "4"}),
    queue("lab"),
    *gang("runs", [4], "lab", "node-1"),
    *gang("train", [2, 2], "lab"),
    *RIVAL,
    made("batch/v1", "Job", {"name": "done", "namespace": "team", "uid": "done"}, spec={}, status={}),
]
SPACES = [made("v1", "Namespace", {"name": name, "uid": name, "resourceVersion": "1"}) for name in ("team", "rival")]


def stored(*objects: Any) -> ClusterObjects:
    """Return a cluster with objects, each with a version as API servers give them."""
    versioned = [
        {**each, "metadata": {**each["metadata"], "resourceVersion": str(number)}}
        for number, each in enumerate((*SPACES, *objects), 1)
    ]
    return asked(versioned).state


STATE = stored(*OBJECTS)
NO_STARTS = StartForecasts(lambda: None, lambda: TAKEN, POLICY, ("muster",))


class Permissions(Access):
    """What the API server would say; ``asked`` are the questions that it was asked."""

    def __init__(self, *, allowed: bool = True, down: bool = False) -> None:
        self.asked: list[Attributes] = []
        self._yes = allowed
        self._down = down

    async def allowed(self, caller: Caller, attributes: Attributes) -> bool:
        assert caller == ALICE
        self.asked.append(attributes)
        if self._down:
            raise errors.UnreachableError("no answer", maybe_applied=False)
        return self._yes


Answering = Callable[..., VisibilityApi]


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    """Make an API over a state, or over none yet."""
    opened: list[Questions] = []

    def make(access: Access | None = None, state: ClusterObjects | None = STATE) -> VisibilityApi:
        opened.append(Questions(lambda: state, POLICY, ("muster",), lambda: ["the first list of pods"]))
        return VisibilityApi(opened[-1], NO_STARTS, access or Permissions(), crds.manifests(legacy_apis=False))

    yield make
    for each in opened:
        each.close()


async def got(api: VisibilityApi, path: str, method: str = "GET", body: bytes = b"", **query: str) -> tuple[int, Any]:
    answer = await api.handle(Request(method, path, query, body), ALICE)
    assert answer.headers["content-type"] == "application/json"
    return answer.status, json.loads(answer.body)


async def test_why_position_and_queues(answering):
    api = answering()
    status, told = await got(api, f"{TEAM}/podgroups/train/why")
    assert (status, told["kind"], told["metadata"]) == (
        200,
        "PodGroupExplanation",
        {"name": "train", "namespace": "team"},
    )
    assert told["status"]["limit"]["kind"] == "cluster"
    assert "changes" not in told["status"]
    _, told = await got(api, f"{TEAM}/podgroups/train/why", changes="true")
    assert told["status"]["changes"][0] == {"kind": "node", "free": {"cpu": "4", "pods": "2"}}
    _, told = await got(api, f"{TEAM}/podgroups/train/position")
    assert told["status"]["waiting"] == 2
    _, told = await got(api, f"{ROOT}/queues")
    assert [(each["metadata"]["name"], each["status"]["waiting"]) for each in told["items"]] == [("lab", 2)]
    _, told = await got(api, f"{ROOT}/queues/lab")
    assert told["status"]["allocated"]["cpu"] == "4"


async def test_a_workload_is_asked_about_by_its_kind_and_name(answering):
    status, told = await got(answering(), f"{TEAM}/workloads/job:done/why")
    assert (status, told["status"]["podGroup"]) == (200, "")
    assert told["status"]["message"]


async def test_each_question_is_asked_of_rbac_by_its_resource(answering):
    access = Permissions(allowed=False)
    api = answering(access)
    for method, path in (
        ("GET", f"{TEAM}/podgroups/train/why"),
        ("GET", f"{TEAM}/podgroups/train/position"),
        ("GET", f"{TEAM}/workloads/job:train/why"),
        ("POST", f"{TEAM}/admissions"),
        ("GET", f"{ROOT}/queues"),
        ("GET", f"{ROOT}/queues/lab"),
    ):
        status, told = await got(api, path, method)
        assert (status, told["reason"]) == (403, "Forbidden")
    assert access.asked == [
        Attributes("get", "podgroups", "why", "team", "train"),
        Attributes("get", "podgroups", "position", "team", "train"),
        Attributes("get", "workloads", "why", "team", "job:train"),
        Attributes("create", "admissions", "", "team"),
        Attributes("list", "queues"),
        Attributes("get", "queues", name="lab"),
    ]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{TEAM}/podgroups/none/why", 404),
        ("GET", f"{TEAM}/podgroups/zebra/why", 404),
        ("GET", f"{TEAM}/podgroups/zebra/position", 404),
        ("GET", f"{TEAM}/podgroups/runs/position", 404),
        ("GET", f"{ROOT}/queues/none", 404),
        ("GET", f"{TEAM}/podgroups/train", 404),
        ("GET", f"{TEAM}/podgroups//why", 404),
        ("GET", f"/apis/{GROUP}/v2/queues", 404),
        ("DELETE", f"{TEAM}/podgroups/train/why", 405),
        ("GET", f"{TEAM}/admissions", 405),
        ("POST", f"{ROOT}/queues", 405),
        ("POST", ROOT, 405),
    ],
)
async def test_what_is_not_there_or_not_allowed_is_said_so(answering, method, path, status):
    code, told = await got(answering(), path, method)
    assert (code, told["kind"], told["code"]) == (status, "Status", status)
    assert "rival" not in told["message"]


async def test_discovery_needs_neither_a_cluster_nor_the_api_server(answering):
    api = answering(Permissions(down=True), None)
    assert (await got(api, f"/apis/{GROUP}"))[1]["preferredVersion"]["version"] == VERSION
    listed = (await got(api, ROOT))[1]["resources"]
    assert not any({"delete", "watch"} & set(each["verbs"]) for each in listed)


async def refused(api: VisibilityApi) -> Response:
    return await api.handle(Request("GET", f"{TEAM}/podgroups/train/why"), ALICE)


@pytest.mark.parametrize("access", [Permissions(), Permissions(down=True)], ids=["no cluster yet", "no API server"])
async def test_before_it_can_answer_it_says_when_to_ask_again(answering, access):
    answer = await refused(answering(access, None))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_of_a_namespace_eight_questions_wait_and_of_others_there_is_room(answering):
    let = threading.Event()
    made = Questions(lambda: STATE, POLICY, ("muster",))

    def slow(asked: Asked) -> int:
        let.wait(30)
        return len(asked.schedulers)

    waiting = [asyncio.create_task(made.ask("team", slow)) for _ in range(asking.WAITING_PER_TENANT)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyQuestionsError, match="8 questions of this namespace"):
        await made.ask("team", slow)
    answer = await refused(VisibilityApi(made, NO_STARTS, Permissions(), ()))
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    others = [
        asyncio.create_task(made.ask(f"tenant-{number}", slow))
        for number in range(asking.WAITING - asking.WAITING_PER_TENANT)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyQuestionsError, match="64 questions wait"):
        await made.ask("last", slow)
    let.set()
    assert await asyncio.gather(*waiting, *others) == [1] * asking.WAITING
    assert await made.ask("team", slow) == 1
    made.close()


async def test_the_same_question_is_answered_once_on_a_state_and_what_has_no_answer_is_asked_again():
    newest, looked = [STATE], []
    made = Questions(lambda: newest[0], POLICY, ("muster",))

    def found(name: str | None) -> Callable[[Asked], str | None]:
        def look(asked: Asked) -> str | None:
            looked.append(asked.state)
            return name

        return look

    assert await asyncio.gather(*(made.ask("team", found("train"), "train") for _ in range(3))) == ["train"] * 3
    assert looked == [STATE]
    assert await made.ask("team", found("other"), "other") == "other"
    assert await made.ask("team", found("train")) == "train", "whose questions are never alike"
    assert len(looked) == 3
    assert [await made.ask("team", found(None), "none") for _ in range(2)] == [None, None]
    assert len(looked) == 5
    newest[0] = stored(*OBJECTS)
    async with asyncio.timeout(30):
        while await made.ask("team", found("train"), "train") and looked[-1] is not newest[0]:  # noqa: ASYNC110 - a thread
            await asyncio.sleep(0)
    made.close()


async def test_an_error_in_an_answer_leaves_nothing_behind_for_others():
    made = Questions(lambda: STATE, POLICY, ("muster",))
    before = await made.ask("team", lambda asked: asked)

    def fail(asked: Asked) -> None:
        raise KeyError(asked)

    with pytest.raises(KeyError):
        await made.ask("team", fail)
    assert await made.ask("team", lambda asked: asked) is not before
    made.close()


async def test_namespaces_take_turns_and_who_has_gone_is_not_answered():
    let, told = threading.Event(), []
    made = Questions(lambda: STATE, POLICY, ("muster",))

    def named(name: str) -> Callable[[Asked], None]:
        def slow(_: Asked) -> None:
            let.wait(30)
            told.append(name)

        return slow

    asked = [("loud", "1"), ("loud", "2"), ("loud", "3"), ("quiet", "4"), ("gone", "5")]
    waiting = [asyncio.create_task(made.ask(tenant, named(name))) for tenant, name in asked]
    await asyncio.sleep(0)
    waiting[-1].cancel()
    let.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert told == ["1", "4", "2", "3"]
    made.close()


async def test_an_answer_that_never_comes_is_told_to_the_liveness_probe(monkeypatch):
    let = threading.Event()
    made = Questions(lambda: STATE, POLICY, ("muster",))
    assert made.not_alive() == []
    asked = asyncio.create_task(made.ask("team", lambda _: let.wait(30)))
    monkeypatch.setattr(asking, "HANGS", 0.0)
    async with asyncio.timeout(30):
        while not made.not_alive():  # noqa: ASYNC110 - the thread tells nobody that it has begun
            await asyncio.sleep(0.01)
    let.set()
    await asked
    made.close()


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_question_waits_for_no_newer_state_while_the_last_one_is_new_enough(monkeypatch):
    """The next state is prepared beside the answers; a question that comes meanwhile is answered on the one before."""
    let, states = threading.Event(), [STATE, stored(*OBJECTS)]
    newest = [states[0]]
    made = Questions(lambda: newest[0], POLICY, ("muster",))
    assert await made.ask("team", lambda asked: asked.state) is states[0]
    before = asking.Asked

    def slow(*values: Any) -> Asked:
        let.wait(30)
        return before(*values)

    monkeypatch.setattr(asking, "Asked", slow)
    newest[0] = states[1]
    assert await made.ask("team", lambda asked: asked.state) is states[0]
    monkeypatch.setattr(asking, "OLD", 0.0)
    late = asyncio.create_task(made.ask("team", lambda asked: asked.state))
    await asyncio.sleep(0)
    monkeypatch.setattr(asking, "OLD", 60.0)
    let.set()
    assert await late is states[1], "the one before was too old"
    assert made.age() < 60
    made.close()


async def test_what_an_older_state_does_not_have_is_looked_for_in_the_newer_one(monkeypatch):
    monkeypatch.setattr(asking, "OLD", 60.0)
    let, states = threading.Event(), [STATE, replace(stored(*OBJECTS), taken=STATE.taken + timedelta(seconds=1))]
    newest, looked, before = [STATE], [], asking.Asked
    made = Questions(lambda: newest[0], POLICY, ("muster",))

    def found(asked: Asked) -> str | None:
        looked.append(states.index(asked.state))
        return "there" if asked.state is states[1] else None

    assert await made.ask("team", found) is None
    newest[0] = states[1]

    def slow(*values: Any) -> Asked:
        let.wait(30)
        return before(*values)

    monkeypatch.setattr(asking, "Asked", slow)
    asks = asyncio.create_task(made.ask("team", found))
    async with asyncio.timeout(30):
        while len(looked) < 2:  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0.01)
    assert await made.ask("team", lambda asked: asked.state) is STATE, "others are answered meanwhile"
    let.set()
    assert await asks == "there"
    assert looked == [0, 0, 1]
    assert await made.ask("team", lambda _: None) is None
    assert made.waiting() == 0
    made.close()


async def test_states_are_prepared_while_questions_come_and_no_longer(monkeypatch):
    monkeypatch.setattr(asking, "RENEWED", 0.0)
    newest = [STATE]
    made = Questions(lambda: newest[0], POLICY, ("muster",))
    prepared: list[ClusterObjects] = []
    before = asking.Asked

    def noted(state: ClusterObjects, *values: Any) -> Asked:
        prepared.append(state)
        return before(state, *values)

    monkeypatch.setattr(asking, "Asked", noted)
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0.05)
    assert prepared == [], "nobody has asked yet"
    await made.ask("team", lambda _: None)
    newest[0] = stored(*OBJECTS)
    async with asyncio.timeout(30):
        while len(prepared) < 2:  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0.01)
    monkeypatch.setattr(asking, "WARM", 0.0)
    newest[0] = stored(*OBJECTS)
    await asyncio.sleep(0.05)
    assert len(prepared) == 2
    running.cancel()
    made.close()


async def test_a_cluster_that_changes_all_the_time_is_prepared_once_a_second_however_many_ask(monkeypatch):
    prepared, before = [], asking.Asked

    def noted(*values: Any) -> Asked:
        prepared.append(values)
        return before(*values)

    monkeypatch.setattr(asking, "Asked", noted)
    monkeypatch.setattr(asking, "RENEWED", 60.0)
    monkeypatch.setattr(asking, "OLD", 120.0)
    newest = [STATE]
    made = Questions(lambda: newest[0], POLICY, ("muster",))
    for _ in range(3):
        assert await made.ask("team", lambda asked: asked.state) is STATE
        newest[0] = stored(*OBJECTS)
    assert len(prepared) == 1
    monkeypatch.setattr(asking, "RENEWED", 0.0)
    async with asyncio.timeout(30):
        while await made.ask("team", lambda asked: asked.state) is not newest[0]:  # noqa: ASYNC110 - a thread
            await asyncio.sleep(0.01)
    made.close()


async def test_a_state_that_cannot_be_prepared_is_an_error_and_the_next_one_is_tried(answering, monkeypatch, caplog):
    def broken(*_: Any) -> Asked:
        raise RuntimeError("a defect")

    api = answering()
    monkeypatch.setattr(asking, "Asked", broken)
    assert (await got(api, f"{TEAM}/podgroups/train/why"))[0] == 500
    assert "a defect" in caplog.text
    monkeypatch.undo()
    assert (await got(api, f"{TEAM}/podgroups/train/why"))[0] == 200


async def test_another_policy_counts_from_the_next_question_on():
    made = Questions(lambda: STATE, POLICY, ("muster",))
    assert await made.ask("team", lambda asked: asked.policy) is POLICY
    other = msgspec.structs.replace(POLICY)
    made.adopt(other)
    assert await made.ask("team", lambda asked: asked.policy) is other
    made.close()


async def test_requests_are_counted_by_what_they_ask_for_and_their_codes(answering):
    api = answering()
    await got(api, f"{TEAM}/podgroups/train/why")
    await got(api, f"{TEAM}/podgroups/none/why")
    await got(api, "/apis/visibility.muster.sh")

    def value(name: str, **labels: str) -> float | None:
        return api.metrics.registry.get_sample_value(f"muster_visibility_{name}", labels)

    assert value("requests_total", resource="podgroups/why", code="200") == 1
    assert value("requests_total", resource="podgroups/why", code="404") == 1
    assert value("requests_total", resource="podgroups/why", code="429") == 0
    assert value("requests_total", resource="other", code="200") == 1
    assert value("request_seconds_count", resource="podgroups/why") == 2
    assert value("waiting_questions") == 0
    assert 0 <= (value("state_age_seconds") or 0.0) < 60


# ── admissions ───────────────────────────────────────────────────────────────────────────────────────────────────


def wanted(*objects: Any) -> bytes:
    return json.dumps({"spec": {"objects": objects}}).encode()


def group(name: str, namespace: str | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return made("scheduling.volcano.sh/v1beta1", "PodGroup", meta, spec={"minMember": 1, "queue": "lab", **spec})


async def test_objects_are_tried_and_their_start_is_told(answering):
    body = wanted(group("small", minResources={"cpu": "2"}), group("lost", queue="none"))
    status, told = await got(answering(), f"{TEAM}/admissions", "POST", body)
    assert status == 201
    verdicts = told["status"]["objects"]
    assert [(each["name"], each["outcome"]) for each in verdicts] == [("small", "admitted"), ("lost", "refused")]
    assert 'queue "none"' in verdicts[1]["status"]["message"]
    (start,) = told["status"]["starts"]
    assert (start["podGroup"], start["when"]) == ("small", "after")
    assert (start["after"], start["afterOthers"]) == (["runs", "train"], 0)


async def test_of_others_that_an_object_waits_for_the_number_is_told(answering):
    rival = [
        {**each, "metadata": {**each["metadata"], "namespace": "rival"}}
        for each in gang("walrus", [4], "lab", "node-1")
    ]
    state = stored(node("node-1", {"cpu": "4"}), queue("lab"), *rival)
    body = wanted(group("small", minResources={"cpu": "2"}))
    _, told = await got(answering(state=state), f"{TEAM}/admissions", "POST", body)
    (start,) = told["status"]["starts"]
    assert (start["when"], start["after"], start["afterOthers"]) == ("after", [], 1)
    assert "walrus" not in json.dumps(told)


HOSTS = {"workerGroupSpecs": [{"replicas": 2, "numOfHosts": 600}]}
GANG_OF_NOTHING = {"schedulingPolicy": {"gang": 5}}
SETS = {"replicatedJobs": [{"replicas": 2000, "template": {"spec": {"parallelism": 1000}}}] * 2}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is no Admission"),
        (b"[" * 100_000, "the body is no Admission"),
        (b'{"spec": {}}', "names no object"),
        (wanted({"kind": "Job"}), r"spec.objects\[0\] is no object"),
        (wanted(group("")), "has no metadata.name"),
        (wanted(group("x", "rival")), "is of another namespace than team"),
        (wanted(queue("mine")), "Queue is of no namespace"),
        (wanted(*[group(f"g-{number}") for number in range(21)]), "at most 20 objects"),
        (wanted(group("x", minMember=1001)), "at most 1000 pods at once, these want 1001"),
        (wanted({**group("x"), "kind": "JobSet", "spec": SETS}), "these want 4000000"),
        (wanted({**group("x"), "kind": "RayCluster", "spec": HOSTS}), "these want 1200"),
        (wanted(group(["x"])), r"spec.objects\[0\]: metadata.name is no text"),
        (
            wanted(made("ray.io/v1", "RayJob", {"name": "x"}, spec="y")),
            "an object isn't what its kind has: Expected `object`",
        ),
        (
            wanted(made("scheduling.k8s.io/v1beta1", "PodGroup", {"name": "x"}, spec=GANG_OF_NOTHING)),
            "schedulingPolicy.gang",
        ),
    ],
    ids=[
        "empty",
        "nested",
        "none",
        "no object",
        "no name",
        "of others",
        "of none",
        "many",
        "a large gang",
        "sets of sets",
        "hosts",
        "name",
        "no spec",
        "no gang",
    ],
)
async def test_objects_that_cannot_be_asked_about_are_refused(answering, body, said):
    status, told = await got(answering(), f"{TEAM}/admissions", "POST", body)
    assert status == 400
    assert re.search(said, told["message"])
