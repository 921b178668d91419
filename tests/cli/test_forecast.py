"""When groups that wait will start."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.random import default_rng

from muster.model import kinds, names
from muster.model.objects import OwnerReference
from muster.whatif.forecast import Forecaster, quantiles
from muster.whatif.run_times import RunHistory, RunTime, of_workload
from muster.whatif.start_forecast import StartForecast
from tests.support.asked import POLICY, TAKEN, gang, held_job, node, queue, state

MINUTE = timedelta(minutes=1)


def lasting(objects: list[dict[str, Any]], text: str, began: str = "2026-01-01T11:00:00Z") -> list[dict[str, Any]]:
    """Return a group and its pods that say how long they run; those on nodes have run since then."""
    for each in objects:
        each["metadata"].setdefault("annotations", {})[names.EXPECTED_DURATION] = text
        if each["kind"] == "Pod" and each["spec"].get("nodeName"):
            each["status"]["startTime"] = began
    return objects


def forecast(*objects: Any, history: RunHistory | None = None, plays: int = 1) -> dict[str, StartForecast]:
    found = Forecaster(state(objects), POLICY, ["muster"], history or RunHistory())
    played = [found.play(number) for number in range(plays)]
    summed = found.summary(played, found.reasons(played[0].never))
    return {each.name: one for each, one in summed.items()}


def test_a_gang_starts_when_what_runs_has_ended():
    running = lasting(gang("first", [4], "q", "n"), "90m")
    found = forecast(node("n", {"cpu": "4"}), queue("q"), *running, *lasting(gang("second", [4], "q"), "10m"))
    assert list(found) == ["second"]
    middle = found["second"].middle
    assert middle is not None
    assert abs(middle - (TAKEN + 30 * MINUTE)) < timedelta(seconds=5)
    assert found["second"].text(TAKEN) == f"about {middle:%H:%M} UTC if nothing else arrives"
    assert found["second"].brief(TAKEN) == f"{middle:%H:%M} if no others"


def test_who_stands_behind_starts_after_who_stands_ahead():
    running = lasting(gang("first", [4], "q", "n"), "90m")
    objects = (*running, *lasting(gang("second", [4], "q"), "10m"), *lasting(gang("third", [4], "q"), "10m"))
    found = forecast(node("n", {"cpu": "4"}), queue("q"), *objects)
    second, third = (found[name].middle for name in ("second", "third"))
    assert second is not None
    assert third is not None
    assert timedelta(minutes=10) <= third - second < timedelta(minutes=11)


def test_a_held_job_starts_when_there_is_room_and_its_template_says_how_long_others_wait_for_it():
    running = lasting(gang("first", [4], "q", "n"), "90m")
    job = held_job("second", 2, 2)
    job["spec"]["template"]["metadata"]["annotations"][names.EXPECTED_DURATION] = "20m"
    group = gang("second", [], "q", minimum=2)
    found = forecast(
        node("n", {"cpu": "4"}), queue("q"), *running, *group, job, *lasting(gang("third", [4], "q"), "20m")
    )
    assert found["second"].middle is not None
    assert found["third"].middle is not None
    assert timedelta(minutes=20) <= abs(found["third"].middle - found["second"].middle) < timedelta(minutes=22)


def test_where_nobody_says_how_long_something_runs_it_is_named_and_no_time_is_told():
    found = forecast(node("n", {"cpu": "4"}), queue("q"), *gang("first", [4], "q", "n"), *gang("second", [4], "q"))
    assert found["second"].middle is None
    assert found["second"].text(TAKEN) == (
        "no time can be told: nobody says how long PodGroup team/first will run; the annotation muster.sh/expected-duration does, or of"
        " a Job activeDeadlineSeconds"
    )
    assert found["second"].brief(TAKEN) == "no run times"
    assert found["second"].data() == {"early": None, "middle": None, "late": None}


def test_what_never_fits_has_no_time():
    found = forecast(node("n", {"cpu": "4"}), queue("q"), *lasting(gang("large", [8], "q"), "1m"))
    assert found["large"].text(TAKEN) == "no time can be told: it doesn't start within two weeks as the cluster is"
    assert found["large"].brief(TAKEN) == "not in 2 weeks"


def test_what_time_does_not_help_says_so_and_not_that_run_times_are_missing():
    """Beside it runs what nobody says the run time of."""
    suspended = held_job("suspended", 1, 1)
    suspended["metadata"]["annotations"] = {}
    objects = (
        *(node("n", {"cpu": "4"}), queue("q"), queue("closed", "Closed"), *gang("endless", [3], "q", "n")),
        *(*gang("lost", [1], "nowhere"), *gang("late", [1], "closed"), *gang("few", [1], "q", minimum=2)),
        *gang("coming", [], "q", minimum=2, phase="Inqueue"),
        *(*gang("suspended", [], "q", minimum=1), suspended, *gang("large", [8], "q"), *gang("next", [4], "q")),
    )
    found = forecast(*objects)
    assert {name: one.brief(TAKEN) for name, one in found.items()} == {
        "lost": "queue missing",
        "late": "queue closed",
        "few": "lacks pods",
        "coming": "lacks pods",
        "suspended": "suspended",
        "large": "not in 2 weeks",
        "next": "no run times",
    }
    assert {name: one.text(TAKEN).partition(": ")[2].partition(";")[0] for name, one in found.items()} == {
        "lost": "its queue doesn't exist",
        "late": "its queue is closed",
        "few": "fewer of its pods exist than start together",
        "coming": "fewer of its pods exist than start together",
        "suspended": "its Job is suspended by its user",
        "large": "it doesn't start within two weeks as the cluster is",
        "next": "nobody says how long PodGroup team/endless will run",
    }
    for one in found.values():
        assert StartForecast.read(one.data(), one.unknown).text(TAKEN) == one.text(TAKEN)
    # Cut off at once, it says less, and nothing else.
    cut = Forecaster(state(objects), POLICY, ["muster"], RunHistory())
    reasons = cut.reasons(cut.waiting, lambda _: True)
    assert {key.name for key in reasons} == {"lost", "late", "suspended"}


def test_what_others_keep_for_longer_than_two_weeks_is_not_said_to_lack_run_times():
    running = [*lasting(gang("long", [2], "q", "n"), "500h"), *gang("endless", [1], "q", "n")]
    found = forecast(node("n", {"cpu": "4"}), queue("q"), *running, *gang("wide", [3], "q"), *gang("other", [2], "q"))
    assert found["wide"].brief(TAKEN) == "not in 2 weeks"
    assert found["other"].brief(TAKEN) == "no run times"


def test_what_was_taken_back_has_a_time_where_nothing_else_is_going_to_happen():
    again = taken_back(
        gang("again", [2], "q"), "Pending", "3 attempts came to nothing; the next is after 2026-01-01T12:04:00Z"
    )
    found = forecast(node("n", {"cpu": "4"}), queue("q"), *again)
    assert found["again"].middle is not None
    assert 4 * MINUTE <= found["again"].middle - TAKEN <= 5 * MINUTE


def test_of_history_come_the_middle_and_the_interval():
    history = RunHistory()
    running = gang("first", [4], "q", "n")
    running[1]["status"]["startTime"] = "2026-01-01T11:50:00Z"
    template = state(running).of(kinds.PODS)[0].spec
    for minutes in (20, 30, 40, 50, 60):
        history.add("team", "", template, minutes * 60.0)
    found = forecast(
        node("n", {"cpu": "4"}), queue("q"), *running, *gang("second", [4], "q"), history=history, plays=40
    )
    one = found["second"]
    assert one.early is not None
    assert one.middle is not None
    assert one.late is not None
    assert TAKEN + 4 * MINUTE <= one.early < TAKEN + 20 * MINUTE < one.middle < one.late <= TAKEN + 75 * MINUTE
    said = f"about {one.middle:%H:%M} UTC if nothing else arrives, {one.early:%H:%M} to {one.late:%H:%M}"
    assert one.text(TAKEN) == said
    assert one.brief(TAKEN) == f"{one.middle:%H:%M} ({one.early:%H:%M}-{one.late:%H:%M}) if no others"
    assert "share" not in one.data()


@pytest.mark.parametrize(("plays", "between"), [(1, (0, 0)), (8, (0, 7)), (9, (0, 8)), (16, (1, 14)), (30, (2, 27))])
def test_what_happens_is_one_more_play_and_eight_of_ten_lie_between(plays, between):
    early, middle, late = quantiles([float(each) for each in range(plays)])
    assert (early, late) == between
    assert early <= middle <= late


def test_history_remembers_a_few_times_of_each_template_and_forgets_templates():
    history, spec = RunHistory(), state(gang("g", [1], "q")).of(kinds.PODS)[0].spec
    for number in range(100):
        history.add("team", "CronJob/nightly", spec, float(number))
    assert history.find("team", "CronJob/nightly", spec) == tuple(map(float, range(80, 100)))
    other = replace(spec, active_deadline_seconds=7)
    assert history.find("team", "CronJob/nightly", other) == tuple(map(float, range(80, 100)))
    assert history.find("team", "", other) == ()
    assert history.find("other", "", spec) == ()
    for number in range(3000):
        history.add("team", "", replace(spec, active_deadline_seconds=number + 1), 1.0)
    assert len(history) == 2000
    assert history.find("team", "", spec) == ()


def test_a_job_that_ended_is_learned_once_and_one_that_failed_is_not():
    job = held_job("done", 1, 1)
    times = {"startTime": "2026-01-01T11:00:00Z", "completionTime": "2026-01-01T11:10:00Z"}
    job["status"] = {**times, "conditions": [{"type": "Complete", "status": "True"}]}
    failed = held_job("failed", 2, 1)
    failed["status"] = {"startTime": "2026-01-01T11:00:00Z", "conditions": [{"type": "Failed", "status": "True"}]}
    history, seen = RunHistory(), state([job, failed])
    for _ in range(5):
        history.learn(seen)
    assert len(history) == 2  # its template, and its namespace
    history.add("team", "", seen.of(kinds.JOBS)[0].spec.template.spec, 700.0)
    history.add("team", "", seen.of(kinds.JOBS)[0].spec.template.spec, 800.0)
    assert history.find("team", "", seen.of(kinds.JOBS)[0].spec.template.spec) == (600.0, 700.0, 800.0)


@pytest.mark.parametrize("text", ["soon", "-5m", "1" * 300_000])
def test_a_duration_that_is_none_says_nothing(text):
    pods = gang("second", [4], "q")
    for each in pods:
        each["metadata"].setdefault("annotations", {})[names.EXPECTED_DURATION] = text
    assert of_workload((), state(pods).of(kinds.PODS), None, RunHistory()) is None


def test_a_deadline_is_the_last_resort_and_cuts_what_history_says():
    pod = state(gang("g", [1], "q")).of(kinds.PODS)[0]
    pod = replace(pod, spec=replace(pod.spec, active_deadline_seconds=1000))
    assert of_workload((), (pod,), None, RunHistory()) == RunTime((1000.0,), "deadline")
    history = RunHistory()
    for seconds in (500.0, 900.0, 1500.0):
        history.add("team", "", pod.spec, seconds)
    assert of_workload((), (pod,), None, history) == RunTime((500.0, 900.0, 1000.0), "history", 1000.0)


@given(
    st.lists(st.floats(1.0, 1e6), min_size=1, max_size=20),
    st.floats(0.0, 2e6),
    st.one_of(st.just(math.inf), st.floats(1.0, 1e6)),
    st.integers(0, 9),
)
def test_what_is_drawn_is_longer_than_what_has_passed_and_within_the_deadline(seconds, ran, most, seed):
    time = RunTime(tuple(min(each, most) for each in seconds), "history", most)
    whole = time.drawn(default_rng(seed), ran)
    assert whole > ran or ran == whole == 0
    assert whole <= max(most * (1 + 1e-9), 1.5 * ran)
    assert whole == time.drawn(default_rng(seed), ran)


def test_one_alone_that_ran_so_long_does_not_say_for_how_long_to_the_second():
    time = RunTime((100.0, 110.0, 90.0, 120.0, 200.0), "history")
    lots = default_rng(1)
    ends = [time.drawn(lots, 150.0) for _ in range(200)]
    assert 150 < min(ends) < 180
    assert 220 < max(ends) < 400
    ends = [time.drawn(lots) for _ in range(1000)]
    assert 95 < sorted(ends)[500] < 120


def test_what_is_stated_is_drawn_as_it_is_until_it_has_passed():
    lots = default_rng(1)
    assert {RunTime((60.0,), "annotation").drawn(lots, ran) for ran in (0.0, 10.0, 59.0)} == {60.0}
    # Two seconds are those that a pod takes to start; what has been late for long may be so for longer.
    assert max(RunTime((3600.0,), "annotation").drawn(lots, 3601.0) for _ in range(100)) <= 3605
    assert 4000 < max(RunTime((3600.0,), "annotation").drawn(lots, 4000.0) for _ in range(100)) <= 4802
    assert 12000 < max(RunTime((3600.0,), "annotation").drawn(lots, 10_000.0) for _ in range(100)) <= 15_000


def test_of_one_or_two_that_ended_each_may_run_half_as_long_or_twice_as_long():
    pod, history = state(gang("g", [1], "q")).of(kinds.PODS)[0], RunHistory()
    history.add("team", "", pod.spec, 600.0)
    assert of_workload((), (pod,), None, history) == RunTime((300.0, 600.0, 1200.0), "history")
    history.add("team", "", pod.spec, 800.0)
    assert history.find("team", "", pod.spec) == (300.0, 400.0, 600.0, 800.0, 1200.0, 1600.0)
    history.add("team", "", pod.spec, 700.0)
    assert history.find("team", "", pod.spec) == (600.0, 700.0, 800.0)


def test_what_ends_and_has_no_like_may_run_as_long_as_others_of_its_namespace():
    found = state([*gang("g", [1], "q"), held_job("first", 1, 1)])
    pod, job = found.of(kinds.PODS)[0], found.of(kinds.JOBS)[0]
    owner = OwnerReference(api_version="kubeflow.org/v1", kind="PyTorchJob", name="g", uid="g", controller=True)
    ends, history = replace(pod, metadata=replace(pod.metadata, owner_references=(owner,))), RunHistory()
    for number, seconds in enumerate((100.0, 200.0, 300.0)):
        assert of_workload((job,), (), None, history) is None
        history.add("team", "", replace(pod.spec, active_deadline_seconds=number + 1), seconds)
    others = RunTime((100.0, 200.0, 300.0), "namespace")
    assert of_workload((job,), (), None, history) == others
    assert of_workload((), (ends,), None, history) == others
    # What has no such owner may be a service.
    assert of_workload((), (pod,), None, history) is None
    # Neither does a service end because a Job of the same template did.
    service = replace(owner, api_version="apps/v1", kind="ReplicaSet")
    serving = replace(pod, metadata=replace(pod.metadata, owner_references=(service,)))
    history.add("team", "", pod.spec, 100.0)
    assert of_workload((), (pod,), None, history) is not None
    assert of_workload((), (serving,), None, history) is None
    limited = replace(ends, spec=replace(ends.spec, active_deadline_seconds=50))
    assert of_workload((), (limited,), None, RunHistory()) == RunTime((50.0,), "deadline")


def test_between_the_rounds_of_a_job_there_is_room():
    job = held_job("first", 2, 2)
    job["spec"] |= {"completions": 8, "suspend": False}
    job["metadata"]["annotations"] = {names.EXPECTED_DURATION: "80m"}
    job["status"] = {"succeeded": 4}
    objects = gang("first", [2, 2], "q", "n")
    for each in objects[1:]:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "first", "uid": "job-first", "controller": True}
        each["metadata"]["ownerReferences"] = [owner]
        each["status"]["startTime"] = "2026-01-01T11:50:00Z"
    found = forecast(node("n", {"cpu": "4"}), queue("q"), *objects, job, *lasting(gang("second", [4], "q"), "1m"))
    # Its four rounds take 20 minutes each, and the one that runs is taken to be in its middle.
    assert found["second"].middle is not None
    assert 10 * MINUTE <= found["second"].middle - TAKEN <= 11 * MINUTE


def test_what_is_overdue_leaves_nothing_exact():
    running = lasting(gang("first", [4], "q", "n"), "90m")
    waiting = lasting(gang("second", [4], "q"), "10m")
    objects = [node("n", {"cpu": "4"}), queue("q"), *running, *waiting]
    assert Forecaster(state(objects), POLICY, ["muster"], RunHistory()).exact
    late = state(objects, TAKEN + 45 * MINUTE)
    assert not Forecaster(late, POLICY, ["muster"], RunHistory()).exact


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(2, 60)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 4), st.integers(2, 60)), min_size=1, max_size=4),
)
def test_with_exact_run_times_all_that_fits_has_a_time_and_it_is_no_later_than_one_after_the_other(running, waiting):
    objects = [node("n", {"cpu": "8"}), queue("q")]
    left = 8
    for number, (cpus, minutes) in enumerate(running):
        if cpus <= left:
            left -= cpus
            objects += lasting(gang(f"r{number}", [cpus], "q", "n"), f"{60 + minutes}m")
    for number, (cpus, minutes) in enumerate(waiting):
        objects += lasting(gang(f"w{number}", [cpus], "q"), f"{minutes}m")
    found = forecast(*objects)
    assert all(each.middle is not None for each in found.values())
    ends = 60 * (60 + sum(minutes for _, minutes in (*running, *waiting)) + len(waiting))
    assert all(each.middle <= TAKEN + timedelta(seconds=ends) for each in found.values() if each.middle is not None)


def taken_back(objects: list[dict[str, Any]], phase: str, message: str) -> list[dict[str, Any]]:
    """Return a group of one pod in a phase, which was taken back before, as its status says."""
    condition = {"type": "Postponed", "status": "True", "reason": "NotEnoughResources", "message": message}
    objects[0]["status"] |= {"phase": phase, "conditions": [condition]}
    objects[0]["spec"]["minResources"] = objects[1]["spec"]["containers"][0]["resources"]["requests"]
    return objects


@pytest.mark.parametrize(
    ("again", "began", "earliest"),
    [
        ("", "11:00", 30),
        ("2 attempts came to nothing; the next is after 2026-01-01T11:50:00Z", "11:00", 1),
        ("", "11:55", 1),
    ],
    ids=["nothing changed", "another was admitted again", "a pod was placed"],
)
def test_what_was_taken_back_waits_for_room_alone_once_nodes_have_changed(again, began, earliest):
    running = [lasting(gang(f"first-{name}", [2], "q", name), "90m") for name in ("a", "b")]
    running[1][1]["status"]["startTime"] = f"2026-01-01T{began}:00Z"
    small, wide = (lasting(gang(name, [cpu], "q"), "10m") for name, cpu in (("small", 2), ("wide", 4)))
    taken_back(small, "Pending", "1 attempt came to nothing; the next is after 2026-01-01T11:49:00Z")
    # It has room in two nodes, and not in one: it is taken back after a minute.
    taken_back(wide, "Inqueue", again)
    nodes = [node(name, {"cpu": "4"}) for name in ("a", "b")]
    middle = forecast(*nodes, queue("q"), *running[0], *running[1], *small, *wide)["small"].middle
    assert middle is not None
    assert timedelta() <= middle - TAKEN - earliest * MINUTE <= MINUTE
