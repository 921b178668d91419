"""What arrives later, in forecasts of starts."""

from __future__ import annotations

import math
import pickle
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from muster.model.amounts import Resources
from muster.visibility import plays
from muster.whatif.arrivals import ArrivalHistory, SeenArrival
from muster.whatif.forecast import HORIZON, Forecaster, Play
from muster.whatif.run_times import RunHistory
from muster.whatif.start_forecast import StartForecast
from scheduler.simulator.trace import TraceJob
from tests.support.asked import POLICY, TAKEN, gang, held_job, node, queue, state

HOUR = timedelta(hours=1)
DAY = 86400.0


def seen(at: datetime, queue: str = "q", cpus: int = 1) -> SeenArrival:
    return SeenArrival(
        at, "team", queue, "", 1, 1, Resources.parse({"cpu": str(cpus)}), "", "print", 3600.0, exact=True
    )


def came(*ago: timedelta, since: timedelta, **more: Any) -> ArrivalHistory:
    """Return what came so long ago, each alike, where all is known since some time."""
    found = ArrivalHistory()
    found.add({f"u{number}": seen(TAKEN - each, **more) for number, each in enumerate(ago)}, TAKEN, TAKEN - since)
    return found


def coming(history: ArrivalHistory, seed: int = 1, until: float = HORIZON) -> list[TraceJob]:
    return list(history.coming(TAKEN, until, default_rng(seed), RunHistory().of_arrival))


@given(
    st.lists(st.floats(0.01, 72.0), max_size=30),
    st.integers(24, 72),
    st.integers(0, 5),
    st.sampled_from([3600.0, DAY, 3 * DAY]),
)
def test_what_comes_later_came_at_the_same_hour_of_a_day_that_is_known(ago, since, seed, until):
    history = came(*(each * HOUR for each in ago), since=since * HOUR)
    found = coming(history, seed, until)
    arrivals = [each.arrival for each in found]
    assert arrivals == sorted(arrivals)
    assert all(0 <= each <= until for each in arrivals)
    assert len({each.name for each in found}) == len(found)
    days = since // 24
    known = [-each * 3600.0 % DAY for each in ago if each <= days * 24]
    for each in arrivals:
        assert any(math.isclose(each % DAY, one, abs_tol=0.01) for one in known)


def test_so_much_comes_as_came_and_not_always_the_same():
    history = came(*(each * HOUR / 2 for each in range(1, 97)), since=48 * HOUR)
    counts = [len(coming(history, seed, DAY)) for seed in range(40)]
    assert 45 <= sum(counts) / len(counts) <= 51
    assert len(set(counts)) > 5


def test_of_less_than_a_day_nothing_is_concluded():
    history = came(HOUR, since=23 * HOUR)
    assert history.days(TAKEN) == 0
    assert coming(history) == []


def test_of_more_than_is_remembered_it_goes_back_less_far_and_of_a_week_at_most():
    history = ArrivalHistory()
    history.add(
        {f"u{each}": seen(TAKEN - each * timedelta(seconds=1)) for each in range(30_000)}, TAKEN, TAKEN - 48 * HOUR
    )
    assert history.since == TAKEN - timedelta(seconds=19_999)
    assert "u19999" in history
    assert "u20000" not in history
    history.add({}, TAKEN + 1000 * HOUR, TAKEN)
    assert history.since == TAKEN + 1000 * HOUR - timedelta(days=7)
    assert "u0" not in history


def test_a_process_that_plays_is_told_what_came():
    history = RunHistory()
    history.arrivals = came(*(each * HOUR for each in range(1, 25)), since=24 * HOUR)
    there = pickle.loads(pickle.dumps(history))
    assert coming(there.arrivals) == coming(history.arrivals) != []


def test_a_group_of_before_all_is_known_is_not_looked_at_again():
    history = RunHistory()
    history.learn(state([*gang("bare", [1], "q"), *done("old", TAKEN - HOUR / 2)]))
    assert history.arrivals.since == TAKEN - HOUR / 2
    assert "bare" not in history.arrivals


def done(name: str, ended: datetime, **spec: Any) -> list[dict[str, Any]]:
    """Return a Job that completed, and its group."""
    group = gang(name, [], "q", minimum=1, phase="Completed")
    job = held_job(name, 1, 3)
    job["spec"] |= {"suspend": False, **spec}
    times = {"startTime": "2026-01-01T11:00:00Z", "completionTime": f"{ended:%Y-%m-%dT%H:%M:%SZ}"}
    job["status"] = {**times, "conditions": [{"type": "Complete", "status": "True"}]}
    return [*group, job]


@pytest.mark.parametrize(
    ("spec", "since"), [({}, TAKEN - 30 * HOUR), ({"ttlSecondsAfterFinished": 7200}, TAKEN - 2 * HOUR)]
)
def test_what_came_is_known_since_the_first_end_that_is_still_there_unless_jobs_are_deleted_sooner(spec, since):
    history = RunHistory()
    history.learn(
        state([*done("old", TAKEN - 30 * HOUR, **spec), *done("new", TAKEN - HOUR), *gang("bare", [1, 1], "q")])
    )
    assert history.arrivals.since == since
    assert all(uid in history.arrivals for uid in ("old", "new", "bare"))
    history.learn(state([], TAKEN + HOUR))
    assert "old" in history.arrivals
    assert history.arrivals.since == since


def test_a_group_that_came_is_known_by_what_it_asks_for():
    history, objects = RunHistory(), done("job", TAKEN - 30 * HOUR, activeDeadlineSeconds=600)
    for each in objects:
        each["metadata"]["creationTimestamp"] = "2025-12-31T12:30:00Z"
    history.learn(state(objects))
    (one, *_) = coming(history.arrivals, 3)
    assert (one.namespace, one.queue, one.pods, one.minimum, one.duration) == ("team", "q", 3, 1, 600.0)
    assert one.request == Resources.parse({"cpu": "1"})
    assert one.arrival % DAY == 1800.0


# ── forecasts ────────────────────────────────────────────────────────────────────────────────────────────────────


def starts(objects: list[dict[str, Any]], history: RunHistory) -> dict[str, StartForecast]:
    return {each.key.name: each for each in plays.forecasts(state(objects), POLICY, ["muster"], history)}


def contended() -> list[dict[str, Any]]:
    """Return a node of which a half is free in a minute and the other in 30, and groups that wait for all of it, and for more than there is."""
    objects = [node("n", {"cpu": "4"}), queue("q"), queue("other", weight=3)]
    objects += [*gang("first", [2], "q", "n"), *gang("second", [2], "q", "n")]
    objects += [*gang("large", [4], "q"), *gang("huge", [8], "q")]
    for each in objects:
        if each["kind"] in {"Pod", "PodGroup"}:
            each["metadata"].setdefault("annotations", {})["muster.sh/expected-duration"] = "90m"
            each["metadata"]["creationTimestamp"] = "2026-01-01T11:59:00Z"
        if each["kind"] == "Pod" and each["spec"].get("nodeName"):
            first = each["metadata"]["name"].startswith("first")
            each["status"]["startTime"] = f"2026-01-01T{'10:31' if first else '11:00'}:00Z"
    return objects


def test_what_arrives_later_moves_starts_and_only_then_a_share_of_plays_is_told():
    alone = starts(contended(), RunHistory())["large"]
    assert alone.text(TAKEN) == "about 12:30 UTC if nothing else arrives"
    assert StartForecast.read(alone.data(), ()).arrivals is False
    busy = RunHistory()
    # From noon to one o'clock yesterday, an hour each: what takes the half that is free first isn't done when the other one is.
    busy.arrivals = came(
        *(24 * HOUR - each * HOUR / 12 for each in range(1, 12)), since=24 * HOUR, queue="other", cpus=2
    )
    found = starts(contended(), busy)["large"]
    assert alone.middle is not None
    assert found.middle is not None
    assert found.middle > alone.middle + timedelta(minutes=10)
    assert " UTC, 80 %: " in found.text(TAKEN)
    assert found.brief(TAKEN).startswith("~")
    assert found.brief(TAKEN).endswith(")")
    assert found.data()["share"] == 0.8
    assert StartForecast.read(found.data(), ()).arrivals is True


@pytest.mark.parametrize(("arrivals", "wider"), [(False, 0.0), (True, 0.1)])
def test_where_others_arrive_the_times_are_wider_than_those_of_the_plays(arrivals, wider):
    history = RunHistory()
    if arrivals:
        history.arrivals = came(12 * HOUR, since=24 * HOUR, cpus=1)
    found = Forecaster(state(contended()), POLICY, ["muster"], history)
    key = found.waiting[0]
    ended = found.summary([Play({**dict.fromkeys(found.waiting, math.inf), key: 1000.0 * n}) for n in range(1, 10)], {})
    one = ended[key]
    assert one.early is not None
    assert one.late is not None
    assert ((one.early - TAKEN).total_seconds(), (one.late - TAKEN).total_seconds()) == pytest.approx(
        (1000 * (1 - wider), 9000 * (1 + wider))
    )
    # In nine of ten plays it hadn't started by then, and in half of them not by the end of what was played.
    unplayed = dict.fromkeys(found.waiting, math.inf)
    cut = [Play(unplayed | ({key: 1000.0 * n} if n < 5 else {}), 6000.0) for n in range(1, 10)]
    after = found.summary(cut, {})[key].after
    assert after is not None
    assert (after - TAKEN).total_seconds() == pytest.approx(1000 * (1 - wider))


def test_what_never_starts_even_if_nothing_arrives_is_told_and_is_not_waited_for():
    busy = RunHistory()
    busy.arrivals = came(12 * HOUR, since=24 * HOUR, cpus=1)
    found = Forecaster(state(contended()), POLICY, ["muster"], busy)
    looks: list[float] = []
    alone = found.play(0)
    play = found.play(1, lambda now: bool(looks.append(now)), alone)
    assert max(looks, default=0.0) < DAY
    huge = next(each for key, each in found.summary([play], {}).items() if key.name == "huge")
    assert huge.text(TAKEN) == "no time can be told: it doesn't start within two weeks as the cluster is"


@pytest.mark.parametrize("phase", ["Inqueue", "Pending"])
def test_who_waits_beside_room_is_kept_from_it_by_a_large_one_that_nodes_are_kept_for(phase):
    objects = [node("n", {"cpu": "4"}), queue("q"), *gang("runs", [3], "q", "n")]
    objects += [*gang("large", [4], "q", phase=phase), *gang("small", [1], "q", phase=phase)]
    if phase == "Pending":
        # It was taken back, and nothing has changed since.
        said = "3 attempts came to nothing; the next is after 2026-01-01T11:50:00Z"
        postponed = {"type": "Postponed", "status": "True", "reason": "NotEnoughResources", "message": said}
        large = next(each for each in objects if each["kind"] == "PodGroup" and each["metadata"]["name"] == "large")
        large["status"]["conditions"] = [postponed]
    for each in objects:
        if each["kind"] in {"Pod", "PodGroup"}:
            each["metadata"].setdefault("annotations", {})["muster.sh/expected-duration"] = "90m"
        if each["kind"] == "Pod" and each["spec"].get("nodeName"):
            each["status"]["startTime"] = "2026-01-01T11:00:00Z"
    found = starts(objects, RunHistory())
    assert found["large"].middle is not None
    assert found["small"].middle is not None
    # It comes after the large one; whoever knows nothing of the leader's choice would start it at once.
    assert timedelta(minutes=29) < found["large"].middle - TAKEN < timedelta(minutes=32)
    assert found["small"].middle > found["large"].middle
