"""When groups start, for tenants: played while they ask, at most every half minute, bounded, and told with its age."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asked import POLICY, TAKEN, gang, made, node, queue, state
from msgspec.structs import replace

from muster.cli import visible
from muster.cli.installation import crds
from muster.kube.transport import Request
from muster.model import kinds, names
from muster.sandbox import virtual_time
from muster.visibility import forecasts, plays
from muster.visibility.access import Access, Attributes
from muster.visibility.api import VisibilityApi
from muster.visibility.forecasts import ASKED, INTERVAL, PAUSE, StartForecasts
from muster.visibility.paths import ROOT
from muster.visibility.plays import NoForecastError
from muster.visibility.questions import Questions, TooManyQuestionsError
from muster.visibility.requestheader import Caller
from muster.whatif.cluster_view import ClusterObjects
from muster.whatif.run_times import RunHistory
from muster.whatif.start_forecast import StartForecast
from scheduler.engine.policy import Policy
from scheduler.model.snapshot import GroupKey

MINUTE = timedelta(minutes=1)
TRAIN = GroupKey(kinds.PODGROUPS.group, "team", "train")
ZEBRA = GroupKey(kinds.PODGROUPS.group, "rival", "zebra")


def lasting(objects: list[Any], text: str, namespace: str = "team") -> list[Any]:
    """Return a group and its pods that say how long they run, since an hour ago, of some namespace."""
    for each in objects:
        each["metadata"] |= {"namespace": namespace, "uid": f"{namespace}/{each['metadata']['uid']}"}
        if text:
            each["metadata"].setdefault("annotations", {})[names.EXPECTED_DURATION] = text
        if each["kind"] == "Pod" and each["spec"].get("nodeName"):
            each["status"]["startTime"] = "2026-01-01T11:00:00Z"
    return objects


def contended(text: str = "90m") -> ClusterObjects:
    """Return a node that a rival's group has, another one of the rival's that waits for it, and behind it one of the team's."""
    objects = [
        node("n", {"cpu": "4"}),
        queue("lab"),
        *(made("v1", "Namespace", {"name": name, "uid": name}) for name in ("team", "rival")),
        *lasting(gang("walrus", [4], "lab", "n"), text, "rival"),
        *lasting(gang("zebra", [4], "lab"), "30m", "rival"),
        *lasting(gang("train", [4], "lab"), "10m"),
    ]
    for number, each in enumerate(objects, 1):
        each["metadata"]["resourceVersion"] = str(number)
    return state(objects)


class Played:
    """Plays at once, or fails; notes when it played, and what."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.policies: list[Policy] = []
        self.learnt: list[int] = []
        self.trouble = ""
        self.takes = 1.0
        self.at_once = self.most = 0

    async def __call__(
        self, state: ClusterObjects, policy: Policy, _: Sequence[str], history: RunHistory, *, seconds: float = plays.SECONDS,
        limit: float,
    ) -> list[StartForecast]:  # fmt: skip
        assert 2 * seconds <= limit <= plays.LIMIT
        self.at.append(asyncio.get_running_loop().time())
        self.policies.append(policy)
        self.learnt.append(len(history))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(self.takes)
        self.at_once -= 1
        if self.trouble:
            raise NoForecastError(self.trouble)
        return [StartForecast(TRAIN, state.taken, state.taken + MINUTE, state.taken + 2 * MINUTE)]


@contextlib.asynccontextmanager
async def keeping(
    played: Played, found: Callable[[], ClusterObjects | None] = contended
) -> AsyncIterator[StartForecasts]:
    loop = asyncio.get_running_loop()
    began = loop.time()

    def now() -> datetime:
        return TAKEN + timedelta(seconds=loop.time() - began)

    def moment() -> ClusterObjects | None:
        state = found()
        return replace(state, taken=now()) if state is not None else None

    starts = StartForecasts(moment, now, POLICY, ["muster"], played)
    running = asyncio.create_task(starts.run())
    try:
        yield starts
    finally:
        running.cancel()
        await asyncio.wait([running])


def said(starts: StartForecasts) -> dict[str, Any]:
    return starts.about(starts.known())


def test_nothing_is_played_until_somebody_asks_and_the_first_is_told_so() -> None:
    async def main() -> None:
        played = Played()
        async with keeping(played) as starts:
            await asyncio.sleep(3600)
            assert played.at == []
            told = said(starts)
            assert told["state"] == "pending"
            assert "no forecast yet" in told["message"]
            await asyncio.sleep(2)
            assert said(starts) == {"state": "ready", "taken": "2026-01-01T13:00:00Z", "ageSeconds": 2}

    virtual_time.run(main())


def test_it_is_played_every_half_minute_while_somebody_asks_and_each_answer_has_its_age() -> None:
    async def main() -> None:
        played = Played()
        async with keeping(played) as starts:
            ages = []
            for _ in range(200):
                ages.append(said(starts).get("ageSeconds", 0))
                await asyncio.sleep(1)
            pauses = {later - earlier for earlier, later in zip(played.at, played.at[1:], strict=False)}
            assert pauses == {INTERVAL}
            assert max(ages) == INTERVAL
            count = len(played.at)
            await asyncio.sleep(3 * ASKED)
            assert len(played.at) - count <= ASKED / INTERVAL + 1
            assert said(starts)["ageSeconds"] > ASKED

    virtual_time.run(main())


def test_a_play_that_takes_long_is_rested_from_twice_as_long() -> None:
    async def main() -> None:
        played = Played()
        played.takes = 20.0
        async with keeping(played) as starts:
            for _ in range(200):
                starts.known()
                await asyncio.sleep(1)
            assert {later - earlier for earlier, later in zip(played.at, played.at[1:], strict=False)} == {60.0}

    virtual_time.run(main())


def test_a_large_cluster_has_more_time_to_be_played_but_not_without_end() -> None:
    groups = [each for number in range(400) for each in gang(f"g{number}", [], "lab", minimum=1)]
    assert plays.enough_for(state([])) == plays.SECONDS
    assert plays.SECONDS < plays.enough_for(state(groups)) < plays.SECONDS + 1
    assert (
        plays.enough_for(replace(state(groups), objects={kinds.PODGROUPS: state(groups).of(kinds.PODGROUPS) * 100}))
        == plays.LIMIT / 4
    )


def test_one_that_came_to_nothing_is_told_with_the_one_before_and_not_tried_again_for_a_while() -> None:
    async def main() -> None:
        played = Played()
        async with keeping(played) as starts:
            starts.known()
            await asyncio.sleep(2)
            played.trouble = "this cluster's future isn't played within 60 seconds"
            await asyncio.sleep(INTERVAL + 1)
            told = said(starts)
            assert (told["state"], told["ageSeconds"]) == ("failed", INTERVAL + 3)
            assert told["message"] == f"no newer forecast: {played.trouble}"
            assert starts.known().found is not None
            await asyncio.sleep(PAUSE)
            assert played.at[-1] - played.at[-2] == PAUSE

    virtual_time.run(main())


def test_before_the_cluster_is_known_there_is_no_forecast_and_soon_after_there_is() -> None:
    async def main() -> None:
        played, states = Played(), list[ClusterObjects]()
        async with keeping(played, lambda: states[-1] if states else None) as starts:
            assert said(starts)["state"] == "pending"
            await asyncio.sleep(20)
            states.append(contended())
            await asyncio.sleep(3)
            assert said(starts)["state"] == "ready"

    virtual_time.run(main())


def test_what_ended_is_remembered_after_it_is_gone_and_a_changed_policy_is_played_by() -> None:
    async def main() -> None:
        ended = gang("done", [1], "lab", "n", phase="Completed")[1]
        ended["status"] = {
            "phase": "Succeeded",
            "startTime": "2026-01-01T11:00:00Z",
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:20:00Z"}],
        }
        states, played = [state([node("n", {"cpu": "4"}), ended])], Played()
        async with keeping(played, lambda: states[-1]) as starts:
            await asyncio.sleep(2)
            states.append(contended())
            await asyncio.sleep(100)
            other = replace(POLICY, actions=POLICY.actions[:2])
            starts.adopt(other)
            starts.known()
            await asyncio.sleep(2)
            assert played.learnt == [2]  # its template, and its namespace
            assert played.policies == [other]

    virtual_time.run(main())


def test_what_a_tenant_supposes_is_played_one_at_a_time_and_few_may_wait() -> None:
    async def main() -> None:
        played = Played()
        async with keeping(played) as starts:
            waiting = [asyncio.create_task(starts.suppose(f"team-{each}", contended())) for each in range(4)]
            await asyncio.sleep(0.1)
            with pytest.raises(TooManyQuestionsError, match="this namespace"):
                await starts.suppose("team-0", contended())
            with pytest.raises(TooManyQuestionsError, match="4 plays wait"):
                await starts.suppose("team-9", contended())
            starts.known()
            assert [len(each) for each in await asyncio.gather(*waiting)] == [1] * 4
            assert len(await starts.suppose("team-0", contended())) == 1
            await asyncio.sleep(5)
            assert played.most == 1
            assert said(starts)["state"] == "ready"

    virtual_time.run(main())


# ── over the API ─────────────────────────────────────────────────────────────────────────────────────────────────


class Everything(Access):
    """Allows all."""

    def __init__(self) -> None:
        self.asked: list[Attributes] = []

    async def allowed(self, caller: Caller, attributes: Attributes) -> bool:
        assert caller.name == "alice"
        self.asked.append(attributes)
        return True


async def here(
    state: ClusterObjects, policy: Policy, schedulers: Sequence[str], history: RunHistory, *, seconds: float = plays.SECONDS, limit: float,
) -> list[StartForecast]:  # fmt: skip
    """Play in this process."""
    return plays.forecasts(state, policy, schedulers, history)


@pytest.fixture
async def api() -> AsyncIterator[tuple[VisibilityApi, Everything]]:
    found = contended()
    questions, access = Questions(lambda: found, POLICY, ("muster",)), Everything()
    starts = StartForecasts(lambda: found, lambda: TAKEN + 7 * timedelta(seconds=1), POLICY, ["muster"], here)
    running = asyncio.create_task(starts.run())
    yield VisibilityApi(questions, starts, access, crds.manifests(legacy_apis=False)), access
    running.cancel()
    questions.close()


async def got(api: VisibilityApi, path: str, method: str = "GET", body: bytes = b"", **query: str) -> Any:
    answer = await api.handle(Request(method, path, query, body), Caller("alice"))
    assert answer.status in {200, 201}, answer.body
    return json.loads(answer.body)


async def ready(api: VisibilityApi, namespace: str) -> Any:
    async with asyncio.timeout(60):
        while True:
            told = await got(api, f"{ROOT}/namespaces/{namespace}/starts")
            if told["forecast"]["state"] != "pending":
                return told
            await asyncio.sleep(0.01)


async def test_a_tenant_is_told_the_starts_of_a_namespace_and_nothing_of_others_but_times(
    api: tuple[VisibilityApi, Everything],
) -> None:
    told = await ready(api[0], "team")
    assert api[1].asked[-1] == Attributes("list", "starts", namespace="team")
    (one,) = told["items"]
    assert (told["kind"], one["kind"], one["metadata"]) == (
        "PodGroupStartList",
        "PodGroupStart",
        {"name": "train", "namespace": "team"},
    )
    # The rival's ends at 12:30, and the one that waits before takes half an hour.
    assert "2026-01-01T13:00:00Z" <= one["status"]["middle"] < "2026-01-01T13:02:00Z"
    assert told["forecast"] == {"state": "ready", "taken": "2026-01-01T12:00:00Z", "ageSeconds": 7}
    assert not [each for each in ("zebra", "walrus", "rival") if each in json.dumps(told)]


async def test_objects_that_would_be_admitted_are_told_when_they_would_start(
    api: tuple[VisibilityApi, Everything],
) -> None:
    wanted = {
        "apiVersion": kinds.PODGROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "more", "annotations": {names.EXPECTED_DURATION: "5m"}},
        "spec": {"minMember": 1, "queue": "lab", "minResources": {"cpu": "4"}},
    }
    body = json.dumps({"spec": {"objects": [wanted]}}).encode()
    path = f"{ROOT}/namespaces/team/admissions"
    (plain,) = (await got(api[0], path, "POST", body))["status"]["starts"]
    assert "start" not in plain
    (start,) = (await got(api[0], path, "POST", body, start="true"))["status"]["starts"]
    assert "2026-01-01T13:10:00Z" <= start["start"]["middle"] < "2026-01-01T13:13:00Z"
    assert "; about " in visible.start(start)


def test_of_who_runs_without_an_end_a_tenant_is_told_by_name_only_ones_own() -> None:
    found = plays.forecasts(contended(text=""), POLICY, ["muster"], RunHistory())
    told = {each.key: forecasts.told(each, each.key.namespace) for each in found}
    assert told[ZEBRA]["unknown"] == ["PodGroup rival/walrus"]
    assert told[ZEBRA]["unknownOthers"] is False
    assert (told[TRAIN]["unknown"], told[TRAIN]["unknownOthers"]) == ([], True)
    assert (
        visible.start_forecast(told[TRAIN])
        .text(TAKEN)
        .startswith("no time can be told: nobody says how long workloads of other namespaces will run")
    )


# ── the process ──────────────────────────────────────────────────────────────────────────────────────────────────


async def played(**bounds: Any) -> list[StartForecast]:
    return await plays.play(contended(), POLICY, ["muster"], RunHistory(), **bounds)


def children() -> set[str]:
    """Return the processes of this one, ended ones that nobody waited for among them. A worker of pytest has a control plane, too."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # After the name, which may hold anything: the state, then the parent.
            if stat.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(stat.parent.name)
    return found


@pytest.mark.processes
async def test_a_process_plays_what_is_played_here() -> None:
    assert await played() == plays.forecasts(contended(), POLICY, ["muster"], RunHistory())


@pytest.mark.processes
async def test_a_process_that_hangs_is_killed_and_none_is_left() -> None:
    others = children()
    with pytest.raises(NoForecastError, match="isn't played within 0 seconds"):
        await played(limit=0.0)
    assert children() <= others


@pytest.mark.processes
async def test_a_process_that_wants_more_memory_than_it_may_have_ends_and_says_so() -> None:
    many = [each for number in range(1000) for each in gang(f"waits-{number}", [1, 1], "lab")]
    large = state([node("n", {"cpu": "4"}), queue("lab"), *many])
    with pytest.raises(NoForecastError, match="takes more than 1 MiB"):
        await plays.play(large, POLICY, ["muster"], RunHistory(), memory=1 << 20)


@pytest.mark.processes
async def test_a_process_that_outlives_its_parent_ends_by_its_time_of_the_processor() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from muster.visibility import plays; plays._bounded(600 << 20, 1)\nwhile True: pass"
    )
    async with asyncio.timeout(120):
        assert await child.wait() == -signal.SIGXCPU


@pytest.mark.processes
async def test_a_cluster_that_cannot_be_simulated_is_told_as_a_sentence() -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "team"},
        "spec": {"hard": {"cpu": "-1"}},
    }
    broken = state([node("n", {"cpu": "4"}), quota, *gang("train", [4], "lab")])
    with pytest.raises(NoForecastError, match="when something starts can't be told: ResourceQuota q"):
        await plays.play(broken, POLICY, ["muster"], RunHistory())


def test_a_play_that_is_cut_off_tells_from_when_on_it_starts() -> None:
    (zebra, train) = plays.forecasts(contended(), POLICY, ["muster"], RunHistory(), seconds=0.0)
    assert zebra.middle is None
    assert train.after is not None
    assert train.text(TAKEN).startswith("after 12:")
    assert train.brief(TAKEN).startswith(">12:")
    assert train.data()["after"] == f"{train.after.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
