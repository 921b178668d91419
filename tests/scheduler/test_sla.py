"""The plugin sla: who has waited for long goes first, and is let in whatever later tiers think."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from muster.model import kinds

POLICY = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{{name: sla{arguments}}}, {{name: gang}}]
- plugins: [{{name: overcommit, arguments: {{overcommit-factor: 1.0}}}}]
"""
PLAIN = POLICY.format(arguments="")
HOUR = POLICY.format(arguments=", arguments: {sla-waiting-time: 1h}")


def waiting(build, name, minutes, cpu="1", says=""):
    """A group that has waited for so many minutes, and one pod of it."""
    created = (build.now - timedelta(minutes=minutes)).isoformat()
    meta = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created}
    meta |= {"annotations": {"sla-waiting-time": says} if says else {}}
    body = {"metadata": meta, "spec": {"minMember": 1}, "status": {"phase": "Pending"}}
    build.cluster.group(kinds.PODGROUPS.group, msgspec.convert(body, kinds.PODGROUPS.struct))
    build.pod(f"{name}-0", name, cpu)


def phases(plan):
    return {key.name: group.phase.value for key, group in plan.groups.items()}


@pytest.mark.parametrize(
    ("policy", "says", "phase"),
    [
        (HOUR, "", "Pending"),
        (HOUR, "20m", "Inqueue"),
        (PLAIN, "20m", "Inqueue"),
        (PLAIN, "", "Pending"),
        (PLAIN, "soon", "Pending"),
        pytest.param(PLAIN, "1" * 200_000, "Pending", id="200 KB of digits"),
        (POLICY.format(arguments=", arguments: {sla-waiting-time: 1800000ms}"), "", "Inqueue"),
    ],
)
def test_a_group_is_let_in_once_it_has_waited_for_long(build, policy, says, phase):
    build.node("a", "1")
    waiting(build, "g", minutes=30, cpu="2", says=says)
    assert phases(build.decide(policy)) == {"g": phase}


def test_the_one_whose_time_ends_first_goes_first(build, binds):
    build.node("a", "1")
    waiting(build, "older", minutes=30)
    waiting(build, "urgent", minutes=10, says="15m")
    assert binds(build.decide(HOUR)) == {"urgent-0": "a"}


def test_those_who_state_nothing_come_after_those_who_do(build, binds):
    build.node("a", "1")
    waiting(build, "older", minutes=300)
    waiting(build, "stated", minutes=10, says="24h")
    assert binds(build.decide(PLAIN)) == {"stated-0": "a"}
