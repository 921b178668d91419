"""Answers for a tenant: its own groups by name, of others amounts and positions."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from asked import Json, asked, gang, key, node, queue
from msgspec.structs import replace

from muster.model import kinds
from muster.whatif import tenants, why
from muster.whatif.cluster import WhatIfCluster
from scheduler.model.records import KeptNodes, NodeReport
from scheduler.model.snapshot import GroupKey

SECRETS = ("rival", "zebra", "walrus", "taint-of-rival", "node-of-rival")
NODE = node("node-of-rival", {"cpu": "4"})
CLOSED = node("walrus-node", {"cpu": "8"}, taints=[{"key": "taint-of-rival", "value": "zebra", "effect": "NoSchedule"}])


def of_rival(objects: list[Json]) -> list[Json]:
    """Return a group and its pods as another tenant's."""
    found = copy.deepcopy(objects)
    for each in found:
        each["metadata"] |= {"namespace": "rival", "uid": f"rival/{each['metadata']['uid']}"}
    return found


def older(objects: list[Json], hour: int = 10) -> list[Json]:
    for each in objects:
        each["metadata"]["creationTimestamp"] = f"2026-01-01T{hour:02}:00:00Z"
    return objects


def contended() -> WhatIfCluster:
    """Return a full node, two groups of a rival's before two of the team's, and a node that is tainted for the rival."""
    return asked(
        [
            NODE,
            CLOSED,
            queue("lab"),
            *of_rival(gang("zebra-runs", [4], "lab", "node-of-rival")),
            *older(of_rival(gang("zebra", [2], "lab")), 8),
            *older(of_rival(gang("walrus", [2], "lab")), 9),
            *older(gang("earlier", [2], "lab")),
            *gang("train", [2, 2], "lab"),
        ]
    )


def told(cluster: WhatIfCluster, name: str = "train") -> Json:
    return tenants.why(why.ask(cluster, key(name)), "team")


def test_why_tells_the_place_in_the_line_and_names_ones_own_ahead() -> None:
    answer = told(contended())
    assert (answer["position"], answer["ahead"]) == (4, ["earlier"])
    assert answer["limit"]["kind"] == "cluster"
    assert answer["needs"] == "2 pods of 2 cpu; at least 2 of them together"


def answers(cluster: WhatIfCluster) -> list[Any]:
    plan = cluster.decide()
    return [
        told(cluster),
        told(cluster, "earlier"),
        tenants.position(plan, key("train")),
        tenants.queues(cluster.state, plan, "team"),
    ]


@pytest.mark.parametrize("of", range(4), ids=["why", "why of the first", "position", "queues"])
def test_no_answer_names_what_is_of_others(of: int) -> None:
    answer = msgspec.json.encode(answers(contended())[of]).decode()
    assert [each for each in SECRETS if each in answer] == []


def test_what_is_said_to_administrators_names_others_so_there_is_something_to_leave_out() -> None:
    answer = why.ask(contended(), key("train"))
    assert "rival/zebra" in answer.data()["ahead"]


def test_position_counts_all_who_wait() -> None:
    plan = contended().decide()
    assert tenants.position(plan, key("train")) == {"podGroup": "train", "queue": "lab", "position": 4, "waiting": 4}


def test_who_runs_has_no_position() -> None:
    cluster = contended()
    runs = GroupKey(kinds.PODGROUPS.group, "rival", "zebra-runs")
    assert tenants.position(cluster.decide(), runs) is None
    assert tenants.why(why.ask(cluster, runs), "rival") == {"podGroup": "zebra-runs", "phase": "Running", "running": 1}


def test_queues_tell_use_and_shares_and_where_ones_own_stand() -> None:
    cluster = contended()
    (lab,) = tenants.queues(cluster.state, cluster.decide(), "team")
    assert (lab["queue"], lab["waiting"], lab["allocated"]["cpu"]) == ("lab", 4, "4")
    assert lab["own"] == [{"podGroup": "earlier", "position": 3}, {"podGroup": "train", "position": 4}]


@pytest.mark.parametrize(
    ("name", "objects", "change"),
    [
        ("train", [queue("default")], {"kind": "queue", "queue": "lab"}),
        ("train", [queue("lab", "Closed")], {"kind": "open", "queue": "lab"}),
    ],
)
def test_changes_are_told_by_their_fields(name: str, objects: list[Json], change: Json) -> None:
    cluster = asked([NODE, *objects, *gang("train", [1], "lab")])
    assert change.items() <= told(cluster, name)["changes"][0].items()


def test_nodes_are_counted_and_whatever_words_are_about_them_is_left_out() -> None:
    answer = why.ask(contended(), key("train"))
    assert answer.record is not None
    kept = KeptNodes(1, "rival/zebra", "Job rival/zebra")
    nearest = "the nearest fit is node node-of-rival: 2 cpu short"
    nodes = NodeReport(2, (("leased to walrus", 1),), 0, 0, 2, nearest, kept)
    told = tenants.why(replace(answer, record=replace(answer.record, nodes=nodes)), "team")
    assert told["nodes"] == {"total": 2, "fitting": 0, "room": 0, "needed": 2, "keptForOthers": 1}
    assert [each for each in SECRETS if each in str(told)] == []
