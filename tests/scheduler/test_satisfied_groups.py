"""What is decided about those who wait is the same, whether those who run are looked at one by one or together."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.configuration import config
from scheduler.engine import satisfied
from scheduler.engine.cycle import decide

CAPACITY = config.DEFAULT.replace("proportion", "capacity")

pods = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.sampled_from(["1", "500m", "2"]),
            "phase": st.sampled_from(["Running", "Running", "Running", "Pending", "Succeeded", "Failed"]),
            "node": st.sampled_from(["a", "b", "c", ""]),
            "leaving": st.sampled_from([False, False, False, True]),
        }
    ),
    max_size=4,
)
groups = st.lists(
    st.fixed_dictionaries(
        {
            "minimum": st.integers(0, 3),
            "phase": st.sampled_from(["Running", "Running", "Completed", "Inqueue", "Pending", "Unknown"]),
            "queue": st.sampled_from(["default", "wide", "few"]),
            "stated": st.sampled_from([None, None, {"cpu": "2"}, {"cpu": "9"}]),
            "pods": pods,
        }
    ),
    max_size=9,
)


def told(plan, but):
    """What a plan comes to for all but some groups."""
    binds = [(str(bind.task), bind.node) for bind in plan.binds]
    return (
        binds,
        [(str(bind.task), bind.node) for bind in plan.pipelined],
        [str(each.task) for each in plan.evictions],
        plan.queues,
        plan.released,
        plan.rolled_back,
        {key: [str(task) for task in tasks] for key, tasks in plan.unplaced.items()},
        plan.records,
        {
            key: (each.phase, [(one.type, one.status, one.message) for one in each.conditions])
            for key, each in plan.groups.items()
            if key not in but
        },
    )


def built(build, groups, *, aggregate=False):
    """Build a cluster of groups; ``crowd``: it hears of all pods at once."""
    build.queue("default").queue("wide", weight=3, capability={"cpu": "7"}).queue("few", maxPodGroups=2)
    build.node("a", "4").node("b", "4").node("c", "8")
    for number, group in enumerate(groups):
        build.group(
            f"g{number}",
            group["minimum"],
            phase=group["phase"],
            queue=group["queue"],
            minResources=group["stated"],
            age=100 - number,
        )
    pods = [
        build.a_pod(f"g{number}-{place}", f"g{number}", **pod)
        for number, group in enumerate(groups)
        for place, pod in enumerate(group["pods"])
    ]
    if aggregate:
        build.cluster.aggregate(build.cluster.by_group(pods))
    for pod in () if aggregate else pods:
        build.cluster.pod(pod)
    return build


@given(groups=groups, policy=st.sampled_from([config.DEFAULT, CAPACITY]))
@settings(max_examples=60)
def test_those_who_wait_hear_the_same_whether_those_who_run_are_seen_one_by_one_or_together(make_build, groups, policy):
    build = built(make_build(), groups)
    snapshot, followed = build.cluster.snapshot(), config.parse(policy)
    standing = {job.key: job for job in satisfied.found(snapshot)}
    others = [job for job in snapshot.jobs if job.key not in standing]
    together = replace(snapshot, jobs=tuple(others), satisfied=satisfied.sum_by_queue(standing.values(), snapshot.axes))
    one_by_one = decide(snapshot, followed, build.now)
    assert told(decide(together, followed, build.now), standing) == told(one_by_one, standing)
    assert all(one_by_one.groups[key].phase is job.phase for key, job in standing.items())
    # The same, where most of them are never looked at.
    crowd = built(make_build(), groups, aggregate=True).cluster
    counted = {job.key: job for job in satisfied.found(crowd.snapshot())}
    assert counted.keys() == standing.keys()
    for key in {job.key for job in snapshot.jobs} - standing.keys():
        crowd.expand_group(key)
    seen = crowd.snapshot()
    others = [job for job in seen.jobs if job.key not in standing]
    together = replace(seen, jobs=tuple(others), satisfied=satisfied.sum_by_queue(counted.values(), seen.axes))
    assert told(decide(together, followed, build.now), standing) == told(one_by_one, standing)


def test_a_group_that_has_what_it_wants_stands_by_and_one_of_a_queue_that_counts_groups_does_not(build):
    build.queue("few", maxPodGroups=2).node("a", "8")
    build.group("runs", 1, phase="Running").pod("runs-0", "runs", node="a")
    build.group("counted", 1, phase="Running", queue="few").pod("counted-0", "counted", node="a")
    build.group("waits", 2, phase="Inqueue").pod("waits-0", "waits")
    assert [job.key.name for job in satisfied.found(build.cluster.snapshot())] == ["runs"]


def test_some_of_those_who_stand_by_can_be_left_out_again(build):
    build.queue("other").node("a", "8")
    for name, queue in (("one", "default"), ("two", "default"), ("three", "other")):
        build.group(name, 1, phase="Running", queue=queue).pod(f"{name}-0", name, node="a")
        build.pod(f"{name}-1", name, cpu="2", node="a")
    snapshot = build.cluster.snapshot()
    jobs = {job.key.name: job for job in satisfied.found(snapshot)}
    left = satisfied.without(satisfied.sum_by_queue(jobs.values(), snapshot.axes), [jobs["two"]])
    again = satisfied.sum_by_queue([jobs["one"], jobs["three"]], snapshot.axes)
    for axes in (snapshot.axes, snapshot.axes.with_names(["example.com/gpu"])):
        assert {name: (each.jobs, each.allocated(axes)) for name, each in left.items()} == {
            name: (each.jobs, each.allocated(axes)) for name, each in again.items()
        }


def test_who_looks_for_pods_to_evict_and_knows_only_how_many_there_are_says_so(build):
    build.queue("other").node("a", "4").group("lender", 1, phase="Running")
    build.cluster.aggregate(
        build.cluster.by_group([build.a_pod(f"lender-{each}", "lender", node="a") for each in "abcd"])
    )
    (runs,) = satisfied.found(build.cluster.snapshot())
    assert not runs.tasks
    build.gang("due", 1, 1, phase="Pending", queue="other")

    def plan(policy):
        seen = build.cluster.snapshot()
        (due,) = (job for job in seen.jobs if job.key != runs.key)
        beside = satisfied.sum_by_queue([job for job in seen.jobs if job.key == runs.key], seen.axes)
        return decide(replace(seen, jobs=(due,), satisfied=beside), config.parse(policy), build.now)

    assert not plan(config.DEFAULT.replace("reclaim, ", "")).lacks_victims
    assert plan(config.DEFAULT).lacks_victims
    build.cluster.expand_group(runs.key)
    assert (plan(config.DEFAULT).lacks_victims, len(plan(config.DEFAULT).evictions)) == (False, 1)
