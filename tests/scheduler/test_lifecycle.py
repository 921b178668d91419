"""Phases and conditions of PodGroups, on values."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.model import kinds
from muster.model.objects import Condition
from scheduler.engine import lifecycle, requeue
from scheduler.engine.lifecycle import PhaseFacts
from scheduler.model.obstacle import Obstacle, Reason
from scheduler.model.snapshot import Phase, RequeueState

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHORT = Obstacle(Reason.NOT_ENOUGH_RESOURCES, "short by 2 cpu")


def test_the_diagram_in_the_docs_is_the_table():
    page = (ROOT / "docs" / "podgroup-lifecycle.md").read_text()
    assert f"```mermaid\n{lifecycle.diagram()}\n```" in page, "docs/podgroup-lifecycle.md isn't what diagram() draws"


def test_conditions_and_reasons_are_named_where_users_look_for_them():
    crd = yaml.safe_load((ROOT / "deploy" / "crds" / "podgroups.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    named = schema["conditions"]["items"]["properties"]["type"]["description"]
    types = {lifecycle.UNSCHEDULABLE, lifecycle.SCHEDULED, requeue.POSTPONED, requeue.RESERVED, lifecycle.FAILING}
    assert set(re.findall(r"\b[A-Z]\w+", named)) == types
    page = (ROOT / "docs" / "podgroup-lifecycle.md").read_text()
    assert [each.value for each in Reason if each.value not in page] == []


@pytest.mark.parametrize(
    ("phase", "facts", "then"),
    [
        (Phase.PENDING, PhaseFacts(minimum=2), Phase.PENDING),
        (Phase.PENDING, PhaseFacts(minimum=2, admitted=True), Phase.INQUEUE),
        (Phase.INQUEUE, PhaseFacts(minimum=2, admitted=True, running=1, placed=2, pods=2), Phase.INQUEUE),
        (Phase.INQUEUE, PhaseFacts(minimum=2, admitted=True, running=2, placed=2, pods=2), Phase.RUNNING),
        (Phase.INQUEUE, PhaseFacts(minimum=0, admitted=True), Phase.INQUEUE),
        (Phase.INQUEUE, PhaseFacts(minimum=2, succeeded=2, placed=2, pods=2, over=True), Phase.COMPLETED),
        (Phase.INQUEUE, PhaseFacts(minimum=2, failed=2, pods=2, over=True), Phase.COMPLETED),
        (Phase.RUNNING, PhaseFacts(minimum=2, running=1, succeeded=1, placed=2, pods=2), Phase.RUNNING),
        (Phase.RUNNING, PhaseFacts(minimum=2, running=1, placed=2, pods=2), Phase.RUNNING),
        (Phase.RUNNING, PhaseFacts(minimum=2, running=1, placed=1, pods=1), Phase.UNKNOWN),
        (Phase.RUNNING, PhaseFacts(minimum=2, running=1, placed=1, leaving=1, pods=3), Phase.RUNNING),
        (Phase.RUNNING, PhaseFacts(minimum=2), Phase.PENDING),
        (Phase.RUNNING, PhaseFacts(minimum=0), Phase.RUNNING),
        (Phase.UNKNOWN, PhaseFacts(minimum=2, running=2, placed=2, pods=2), Phase.RUNNING),
        (Phase.UNKNOWN, PhaseFacts(minimum=2), Phase.PENDING),
        (Phase.RUNNING, PhaseFacts(minimum=2, failed=2, pods=2, over=True), Phase.COMPLETED),
        (Phase.COMPLETED, PhaseFacts(minimum=2, running=2, placed=2, pods=2, admitted=True), Phase.COMPLETED),
        (
            Phase.COMPLETED,
            PhaseFacts(minimum=2, running=2, placed=2, pods=2, admitted=True, restarts=True),
            Phase.PENDING,
        ),
        (Phase.COMPLETED, PhaseFacts(minimum=2, pods=2, restarts=True, obstacle=SHORT), Phase.COMPLETED),
    ],
)
def test_a_group_moves_as_the_table_says(phase, facts, then):
    assert lifecycle.settle(phase, facts) is then


counts = st.integers(0, 4)
facts = st.builds(
    PhaseFacts,
    minimum=counts,
    admitted=st.booleans(),
    running=counts,
    succeeded=counts,
    failed=counts,
    placed=counts,
    waiting=counts,
    pods=counts,
    over=st.booleans(),
    ready=st.booleans(),
    obstacle=st.sampled_from([None, SHORT]),
    restarts=st.booleans(),
)


@given(st.sampled_from(Phase), facts)
def test_completed_is_left_for_pending_only_and_every_move_is_a_row(phase, facts):
    then = lifecycle.settle(phase, facts)
    if phase is Phase.COMPLETED:
        assert then is (Phase.PENDING if facts.restarts and facts.obstacle is None else Phase.COMPLETED)
    reachable, grown = {phase}, True
    while grown:
        more = {row.target for row in lifecycle.TABLE if row.source in reachable} - reachable
        reachable, grown = reachable | more, bool(more)
    assert then in reachable


@given(st.sampled_from(Phase), facts)
def test_the_same_facts_change_no_condition_twice(phase, facts):
    once = lifecycle.conditions((), phase, facts, transition="a", now=NOW)
    again = lifecycle.conditions(once, phase, facts, transition="b", now=NOW + timedelta(1))
    assert again == once


@given(st.sampled_from(Phase), facts, st.sampled_from(Phase), facts)
def test_a_group_is_never_scheduled_and_unschedulable_at_once(phase, facts, next_phase, next_facts):
    first = lifecycle.conditions((), phase, facts, transition="a", now=NOW)
    second = lifecycle.conditions(first, next_phase, next_facts, transition="b", now=NOW)
    true = {each.type for each in second if each.status == "True"}
    assert true != {lifecycle.SCHEDULED, lifecycle.UNSCHEDULABLE}


def test_the_time_of_a_condition_is_that_of_its_status_and_its_id_that_of_the_change():
    old = Condition(
        type="Unschedulable",
        status="True",
        reason="NotEnoughResources",
        message="short by 3 cpu",
        last_transition_time=NOW,
        transition_id="old",
    )
    later = NOW + timedelta(hours=1)
    (new,) = lifecycle.conditions(
        (old,), Phase.PENDING, PhaseFacts(minimum=1, obstacle=SHORT), transition="new", now=later
    )
    assert (new.last_transition_time, new.transition_id, new.message) == (NOW, "new", "short by 2 cpu")


def test_a_broken_gang_says_what_broke_it():
    failed = lifecycle.trouble(Phase.UNKNOWN, PhaseFacts(minimum=3, placed=2, failed=1, pods=3))
    deleted = lifecycle.trouble(Phase.UNKNOWN, PhaseFacts(minimum=3, placed=2, pods=2))
    short = lifecycle.trouble(Phase.UNKNOWN, PhaseFacts(minimum=3, placed=2, pods=3, waiting=1, obstacle=SHORT))
    assert [each.reason for each in (failed, deleted, short)] == [
        Reason.POD_FAILED,
        Reason.POD_DELETED,
        Reason.NOT_ENOUGH_RESOURCES,
    ]
    assert short.message == "2 of 3 pods of the minimum left; short by 2 cpu"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            PhaseFacts(minimum=3, placed=16, running=1, pods=16, ready=True),
            "1 of 3 pods of the minimum run; 16 pods have nodes",
        ),
        (PhaseFacts(minimum=1, placed=1, pods=1, ready=True), "none of 1 pod of the minimum run; 1 pod has a node"),
        (
            PhaseFacts(minimum=3, placed=16, succeeded=2, pods=16, ready=True),
            "2 of 3 pods of the minimum run or succeeded; 16 pods have nodes",
        ),
        (PhaseFacts(minimum=3, placed=16, pods=20, waiting=4, obstacle=SHORT), "16 pods have nodes; short by 2 cpu"),
    ],
)
def test_a_broken_gang_that_has_its_nodes_again_says_how_many_of_the_minimum_run(facts, said):
    assert lifecycle.trouble(Phase.UNKNOWN, facts).message == said


def pending(build, *conditions, age=None):
    meta = {"name": "g", "namespace": "ns", "uid": "g"}
    if age is not None:
        meta["creationTimestamp"] = (NOW - timedelta(seconds=age)).isoformat()
    group = msgspec.convert({"metadata": meta, "spec": {"minMember": 1}}, kinds.PODGROUPS.struct)
    group = replace(group, status=replace(group.status, phase="Pending", conditions=conditions))
    build.cluster.group(kinds.PODGROUPS.group, group)
    return build.cluster.snapshot().jobs[0]


def refused(seconds, type_="Unschedulable", status="True", message="short by 2 cpu"):
    since = NOW - timedelta(seconds=seconds)
    return Condition(type=type_, status=status, message=message, last_transition_time=since)


BACK = "2 attempts came to nothing; the next is after 2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("conditions", "wait", "age", "waited"),
    [
        ((), None, 12, 12),
        ((), None, None, None),
        ((), None, -1, 0),
        ((refused(12),), None, 40, 12),
        ((refused(12, status="False"),), None, 40, None),
        ((refused(30),), RequeueState(since=NOW.timestamp() - 7, tries=1), 40, 7),
        ((refused(30),), RequeueState(since=NOW.timestamp() - 7), 40, 30),
        ((refused(30), refused(20, "Postponed", message=BACK)), None, 40, None),
    ],
    ids=["new", "ageless", "another-clock", "refused", "no-more", "taken-back", "never-back", "another-leader"],
)
def test_how_long_a_group_was_pending(build, conditions, wait, age, waited):
    assert lifecycle.phase_seconds(pending(build, *conditions, age=age), wait, NOW) == waited


def test_a_plan_says_how_long_an_admitted_group_was_pending(build):
    build.node("a").gang("g", 1, 1, phase="Pending", age=12)
    (status,) = build.decide().groups.values()
    assert (status.phase, status.lasted) == (Phase.INQUEUE, 12)
    build.gang("h", 1, 1, phase="Inqueue", age=12)
    assert [each.lasted for each in build.decide().groups.values() if each.key.name == "h"] == [None]
