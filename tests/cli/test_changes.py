"""What changes to a cluster come to, as the page of `muster ui` asks: what is told is what the scheduler would do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from asked import POLICY, gang, node, queue, replaced, state

from muster.whatif.changes import AddedNodes, ChangeableCluster, Changes, Effects

Json = dict[str, Any]


def told(objects: list[Json], **changes: Any) -> Effects:
    return ChangeableCluster(state(objects), POLICY, ["muster"]).effects(Changes(**changes))


def names(found: tuple[Any, ...]) -> list[str]:
    return [each.name for each in found]


def test_a_node_more_lets_a_group_start_that_waits_for_nodes() -> None:
    found = told([node("n", {"cpu": "4"}), queue("lab"), *gang("big", [4, 4], "lab")], add=(AddedNodes("n", 1),))
    assert names(found.starts) == ["big"]
    assert found.waiting == (1, 0)
    (lab,) = [each for each in found.queues if each.name == "lab"]
    assert [each.get("cpu", (0, "0"))[1] for each in lab.used] == ["0", "8"]


def test_a_node_added_is_empty_and_takes_pods_even_if_the_one_it_is_like_does_not() -> None:
    objects = [node("n", {"cpu": "4"}, unschedulable=True), queue("lab"), *gang("g", [4], "lab")]
    assert names(told(objects, add=(AddedNodes("n", 1),)).starts) == ["g"]


def test_pods_of_a_drained_node_find_another_or_wait() -> None:
    objects = [node("n", {"cpu": "4"}), node("m", {"cpu": "4"}), queue("lab")]
    objects += [*replaced(gang("moves", [2, 2], "lab", "n"))]
    found = told(objects, drain=("n",))
    assert [(each.name, each.pods, each.message) for each in found.displaced] == [
        ("moves", 2, "all of them find another node at once")
    ]
    found = told([*objects, *gang("there", [3], "lab", "m")], drain=("n",))
    (moves,) = found.displaced
    assert moves.message == "0 of 2 find another node at once; the others wait"


def test_pods_that_nothing_makes_again_are_told_of_as_such() -> None:
    objects = [node("n", {"cpu": "4"}), node("m", {"cpu": "4"}), queue("lab"), *gang("bare", [2, 2], "lab", "n")]
    assert [each.message for each in told(objects, drain=("n",)).displaced] == ["nothing makes these pods again"]


def test_pods_of_daemonsets_and_those_that_are_over_are_not_drained() -> None:
    objects = [node("n", {"cpu": "4"}), node("m", {"cpu": "4"}), queue("lab"), *gang("g", [1, 1], "lab", "n")]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    objects[-1]["metadata"]["ownerReferences"] = [owner]
    objects[-2]["status"]["phase"] = "Succeeded"
    assert told(objects, drain=("n",)).displaced == ()


def test_a_drain_can_keep_a_group_from_starting() -> None:
    objects = [node("n", {"cpu": "4"}), node("m", {"cpu": "4"}), queue("lab"), *gang("big", [4, 4], "lab")]
    found = told(objects, drain=("n",))
    assert names(found.waits) == ["big"]
    assert "cpu" in found.waits[0].message
    assert found.waiting == (0, 1)


def test_a_weight_changes_what_queues_deserve_and_who_has_to_give_back() -> None:
    objects = [node("n", {"cpu": "8"}), queue("lab", weight=1), queue("night", weight=1)]
    objects += [
        *replaced(gang("holds", [1] * 4, "night", "n", minimum=1)),
        *replaced(gang("other", [1] * 4, "lab", "n", minimum=1)),
    ]
    objects += gang("wants", [2], "lab")
    found = told(objects, weights={"lab": 3})
    deserved = {each.name: [amounts["cpu"].text for amounts in each.deserved] for each in found.queues}
    assert deserved == {"lab": ["4", "6"], "night": ["4", "2"]}
    assert names(found.starts) == ["wants"]
    assert [(each.name, each.pods) for each in found.evicted] == [("holds", 2)]


def test_what_is_asked_leaves_the_state_as_it_is() -> None:
    now = state([node("n", {"cpu": "4"}), queue("lab"), *gang("g", [2], "lab")])
    before = msgspec.json.encode(list(map(msgspec.to_builtins, now.objects.values())))
    ChangeableCluster(now, POLICY, ["muster"]).effects(Changes(drain=("n",)))
    assert msgspec.json.encode(list(map(msgspec.to_builtins, now.objects.values()))) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(), "nothing is changed: name nodes to drain, a weight, or nodes to add"),
        (Changes(drain=("x",)), "drain: there is no node 'x'; there are n"),
        (Changes(add=(AddedNodes("y"),)), "add: there is no node 'y'; there are n"),
        (Changes(weights={"z": 2}), "weights: there is no queue 'z'"),
    ],
)
def test_what_is_not_there_cannot_be_changed(changes: Changes, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("'", "'")):
        ChangeableCluster(state([node("n", {"cpu": "4"}), queue("lab")]), POLICY, ["muster"]).effects(changes)


@pytest.mark.parametrize(
    "body", ['{"drian": ["n"]}', '{"weights": {"lab": 0}}', '{"add": [{"like": "n", "count": 5000}]}', "[]"]
)
def test_what_cannot_be_meant_is_refused(body: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=Changes)


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    objects = [node("n", {"cpu": "4"}), queue("lab"), *gang("g", [4], "lab", "n"), *gang("big", [4, 4], "lab")]
    asked = [Changes(add=(AddedNodes("n", 2),)), Changes(drain=("n",)), Changes(weights={"lab": 3})]
    one = ChangeableCluster(state(objects), POLICY, ["muster"])
    for changes in (*asked, *asked):
        assert one.effects(changes) == ChangeableCluster(state(objects), POLICY, ["muster"]).effects(changes)
