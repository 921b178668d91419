"""Answers of the API as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from muster.cli import visible

NODES = {"total": 9, "fitting": 2, "room": 2, "needed": 4, "keptForOthers": 1}
QUOTA = {"quota": "compute", "resource": "requests.cpu", "hard": "8", "reserved": "4", "other": "1"}
WHY = {
    "podGroup": "train",
    "phase": "Inqueue",
    "running": 0,
    "queue": "lab",
    "stage": "nodes",
    "reason": "NotEnoughResources",
    "needs": "4 pods of 2 cpu",
    "position": 4,
    "ahead": ["earlier"],
    "quotas": [QUOTA],
    "limit": {"kind": "queue", "name": "lab", "short": {"cpu": "1500m"}},
    "nodes": NODES,
}


def test_why_is_one_screen():
    assert list(visible.why_lines(WHY | {"changes": [{"kind": "open", "queue": "lab"}]}, "team/train", 100)) == [
        "team/train is Inqueue: waiting at stage nodes, NotEnoughResources",
        "",
        "limit  queue lab, short by 1500m cpu",
        "needs  4 pods of 2 cpu",
        "place  4 in the line of queue lab, behind earlier, 2 of other namespaces",
        "nodes  2 of 9 fit its pods now, 4 needed",
        "       1 kept for others",
        "quota  compute, requests.cpu: 4 of 8 reserved, 1 used by other pods",
        "",
        "Each of these changes alone would let it start:",
        "  - open queue lab",
    ]


def test_of_what_does_not_wait_that_is_said():
    runs = {"podGroup": "train", "phase": "Running", "running": 2}
    assert list(visible.why_lines(runs, "team/train", 100)) == [
        "team/train does not wait: it is Running, 2 pods running"
    ]
    other = {"podGroup": "", "message": "it is finished"}
    assert list(visible.why_lines(other, "team/job/train", 100)) == [
        "team/job/train does not wait for Muster: it is finished"
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "node", "free": {"cpu": "4", "pods": "2"}}, "add a node with 4 cpu, 2 pods free"),
        ({"kind": "node"}, "add a node, or change one"),
        ({"kind": "nodes", "count": 2}, "add 2 nodes like those there are"),
        ({"kind": "capability", "queue": "lab", "capability": None}, "remove the capability of queue lab"),
        (
            {"kind": "capability", "queue": "lab", "capability": {"cpu": "8"}},
            "set the capability of queue lab to 8 cpu",
        ),
        (
            {"kind": "quota", "quotas": [{"name": "compute", "resource": "requests.cpu", "more": "2", "hard": "10"}]},
            "raise requests.cpu of ResourceQuota compute to 10",
        ),
        ({"kind": "of a later version"}, "of a later version"),
    ],
)
def test_a_change_is_said_in_words(change: dict[str, Any], text: str):
    assert visible.changes({"changes": [change]}) == [text]


START = {"pods": 2, "after": [], "afterOthers": 0, "evicts": [], "evictsOthers": 0}


@pytest.mark.parametrize(
    ("start", "text"),
    [
        ({"when": "now"}, "would start now, 2 pods"),
        ({"when": "soon", "evictsOthers": 1}, "would start soon, 2 pods: the scheduler evicts 1 pod"),
        ({"when": "soon", "after": ["a"]}, "would start soon, 2 pods: a gives way"),
        ({"when": "after", "after": ["a"], "afterOthers": 2}, "would start after a, 2 PodGroups of other namespaces"),
        ({"when": "never"}, "would not start on the cluster as it is"),
        ({"when": "running"}, "runs already, 2 pods"),
        ({"when": "ended"}, "has ended already"),
        ({"when": "unknown"}, "would start at an unknown time"),
    ],
)
def test_when_it_would_start_is_said_in_words(start: dict[str, Any], text: str):
    assert visible.start(START | start) == text
