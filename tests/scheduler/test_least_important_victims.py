"""preempt evicts where the least important of a queue run, whichever node would be the best for the pod."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.configuration import config

PREEMPTING = config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim")
LEVELS = {"least": 10, "less": 100, "more": 500, "even-more": 700, "most": 900}
URGENT = {"priorityClassName": "urgent"}


def cluster(build, levels):
    """Full nodes; on each runs a group with one pod more than its minimum, of one of `LEVELS`."""
    build.priority("urgent", 1000)
    for name, value in LEVELS.items():
        build.priority(name, value)
    for number, level in enumerate(levels):
        name = f"{level}-{number}"
        build.node(f"n{number}", "2").group(name, 1, phase="Running", priorityClassName=level)
        for pod in range(2):
            build.pod(f"{name}.{pod}", name, "1", node=f"n{number}", priority=LEVELS[level])
    return build


def evicted(plan):
    """Return the groups of those who go."""
    return sorted(each.group.name for each in plan.evictions)


def test_the_node_whose_pods_are_less_important_is_taken_wherever_it_stands(build, make_build):
    assert evicted(cluster(build, ["more", "less"]).gang("g", 1, 1, **URGENT).decide(PREEMPTING)) == ["less-1"]
    other = make_build().queue("default")
    assert evicted(cluster(other, ["less", "more"]).gang("g", 1, 1, **URGENT).decide(PREEMPTING)) == ["less-0"]


def test_the_pods_of_a_gang_take_the_least_important_of_several_nodes(build):
    cluster(build, ["more", "least", "even-more", "less"]).gang("g", 2, 2, **URGENT)
    assert evicted(build.decide(PREEMPTING)) == ["least-1", "less-3"]


def test_who_is_protected_is_passed_over_for_the_next_in_importance(build):
    cluster(build, ["more", "less"])
    build.node("n2", "2").group("kept", 2, phase="Running", priorityClassName="least")
    build.pod("kept.0", "kept", node="n2", priority=10).pod("kept.1", "kept", node="n2", priority=10)
    assert evicted(build.gang("g", 1, 1, **URGENT).decide(PREEMPTING)) == ["less-1"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(list(LEVELS)), min_size=1, max_size=6), st.integers(1, 4))
def test_nobody_goes_while_a_less_important_pod_could_have_gone(make_build, levels, pods):
    build = cluster(make_build().queue("default"), levels)
    build.gang("g", pods, pods, **URGENT)
    gone = sorted(LEVELS[name.rpartition("-")[0]] for name in evicted(build.decide(PREEMPTING)))
    possible = sorted(LEVELS[level] for level in levels)
    assert gone == (possible[:pods] if pods <= len(levels) else [])
