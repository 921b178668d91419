"""Rules for Queues."""

from __future__ import annotations

from typing import Any

import pytest

from muster.model import kinds, names
from webhooks.policies import queues
from webhooks.verdict import ALLOWED, ObjectRef


def guarantee(**resource: str) -> dict[str, Any]:
    return {"resource": resource}


def backed(**resource: str) -> dict[str, Any]:
    """A guarantee, and as much that is deserved."""
    return {"guarantee": guarantee(**resource), "deserved": resource}


def test_a_plain_queue_passes(ask: Any, queue: Any) -> None:
    assert ask(queues.validate, queue(weight=65535, capability={"cpu": "8"})) == ALLOWED


@pytest.mark.parametrize("weight", [0, -1, 65536])
def test_a_weight_outside_its_range_is_invalid(ask: Any, queue: Any, weight: int) -> None:
    verdict = ask(queues.validate, queue(weight=weight))
    text = f"{weight} is no weight: write a whole number from 1 to 65535"
    assert (verdict.code, verdict.causes) == (422, (("spec.weight", text),))


def test_amounts_must_be_legal_and_fit_each_other_and_all_that_do_not_are_told(ask: Any, queue: Any) -> None:
    verdict = ask(
        queues.validate,
        queue(
            weight=0,
            capability={"cpu": "4", "memory": "-1Gi"},
            deserved={"cpu": "6", "memory": "2Gi"},
            guarantee=guarantee(cpu="8", memory="1Gi"),
        ),
    )
    assert (verdict.code, verdict.reason) == (422, "Invalid")
    assert verdict.causes == (
        ("spec.weight", "0 is no weight: write a whole number from 1 to 65535"),
        ("spec.capability[memory]", "'-1Gi' is negative; an amount is zero or more"),
        ("spec.guarantee.resource[cpu]", "8 is more than spec.deserved[cpu], 6: lower it or raise the other"),
        ("spec.deserved[cpu]", "6 is more than spec.capability[cpu], 4: lower it or raise the other"),
        ("spec.guarantee.resource[cpu]", "8 is more than spec.capability[cpu], 4: lower it or raise the other"),
    )


def test_what_is_guaranteed_is_deserved(ask: Any, queue: Any) -> None:
    verdict = ask(queues.validate, queue(guarantee=guarantee(cpu="3", memory="1Gi"), deserved={"memory": "2Gi"}))
    text = "3 is guaranteed, and spec.deserved does not name cpu: set spec.deserved[cpu] to 3 or more"
    assert (verdict.code, verdict.causes) == (422, (("spec.guarantee.resource[cpu]", text),))
    assert ask(queues.validate, queue(guarantee=guarantee(cpu="0"))) == ALLOWED


def test_the_annotations_of_volcanos_tree_are_refused_and_may_stay_where_they_are(ask: Any, queue: Any) -> None:
    old, marked = queue("dev"), queue("dev")
    marked["metadata"]["annotations"] = {
        "volcano.sh/hierarchy": "root/sci/dev",
        "volcano.sh/hierarchy-weights": "1/2/8",
    }
    verdict = ask(queues.validate, marked)
    text = "Muster makes the tree of queues from spec.parent and spec.weight: set these, and remove the annotation"
    assert verdict.causes == (
        ("metadata.annotations[volcano.sh/hierarchy]", text),
        ("metadata.annotations[volcano.sh/hierarchy-weights]", text),
    )
    assert ask(queues.validate, marked, "UPDATE", old=marked) == ALLOWED
    assert ask(queues.validate, marked, "UPDATE", old=old) != ALLOWED


def test_what_an_upper_list_does_not_name_is_not_limited_by_it(ask: Any, queue: Any) -> None:
    assert ask(queues.validate, queue(capability={"cpu": "4"}, deserved={"memory": "2Gi"})) == ALLOWED


def test_equal_amounts_fit_however_they_are_written(ask: Any, queue: Any) -> None:
    spec = {"capability": {"cpu": "0.5"}, "deserved": {"cpu": "500m"}, "guarantee": guarantee(cpu="5e-1")}
    assert ask(queues.validate, queue(**spec)) == ALLOWED


# ── the tree ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_parent_must_exist(ask: Any, queue: Any) -> None:
    verdict = ask(queues.validate, queue(parent="dept"))
    assert (verdict.code, verdict.reason) == (403, "Forbidden")
    assert verdict.message == 'queue "dept" (spec.parent) does not exist: create it first, or name another'
    assert verdict.evidence == (ObjectRef(kinds.QUEUES, "dept"),)


@pytest.mark.parametrize("parent", ["", "root"])
def test_the_root_needs_no_object(ask: Any, queue: Any, parent: str) -> None:
    assert ask(queues.validate, queue(parent=parent)) == ALLOWED


def test_a_queue_is_not_its_own_parent(ask: Any, queue: Any) -> None:
    verdict = ask(queues.validate, queue("a", parent="a"))
    assert verdict.causes == (("spec.parent", '"a" is the queue itself: name another, or leave it empty'),)


def test_the_root_has_no_parent(ask: Any, queue: Any) -> None:
    verdict = ask(queues.validate, queue("root", parent="default"))
    assert verdict.causes == (("spec.parent", '"default" is above the root queue: leave it empty'),)


def test_the_queue_of_those_who_name_none_has_no_children(ask: Any, queue: Any) -> None:
    assert ask(queues.validate, queue(parent="default")).message == (
        'queue "default" (spec.parent) takes the PodGroups that name no queue, so it can have no children:'
        " name another parent, or leave it empty to be under root"
    )


def test_a_queue_does_not_go_below_its_own_descendant(ask: Any, queue: Any, cluster: Any) -> None:
    cluster.queue("a")
    cluster.queue("b", parent="a")
    cluster.queue("c", parent="b")
    verdict = ask(queues.validate, queue("a", parent="c"), "UPDATE", old=queue("a"))
    assert verdict.message == 'queue "c" (spec.parent) is below queue "a" (a -> c -> b -> a): name another parent'
    assert verdict.evidence == (ObjectRef(kinds.QUEUES, "c"), ObjectRef(kinds.QUEUES, "b"))


def test_a_circle_that_slipped_in_blocks_neither_its_repair_nor_anything_else(
    ask: Any, queue: Any, cluster: Any
) -> None:
    cluster.queue("a", parent="b")
    cluster.queue("b", parent="a")
    old = queue("a", parent="b")
    assert ask(queues.validate, queue("a", parent="b", weight=5), "UPDATE", old=old) == ALLOWED
    assert ask(queues.validate, queue("a", parent=""), "UPDATE", old=old) == ALLOWED


def test_the_tree_has_a_depth_and_a_moved_branch_counts_whole(ask: Any, queue: Any, cluster: Any) -> None:
    for level in range(1, 10):
        cluster.queue(f"l{level}", parent=f"l{level - 1}" if level > 1 else "")
    assert ask(queues.validate, queue("leaf", parent="l9")) == ALLOWED
    cluster.queue("branch")
    cluster.queue("twig", parent="branch")
    verdict = ask(queues.validate, queue("branch", parent="l9"), "UPDATE", old=queue("branch"))
    assert verdict.message == (
        'queue "l9" (spec.parent) would make the tree 11 levels deep: the limit is 10; name a parent further up'
    )


def test_siblings_together_stay_within_their_parents_guarantee(ask: Any, queue: Any, cluster: Any) -> None:
    cluster.queue("dept", guarantee=guarantee(cpu="4"))
    cluster.queue("one", parent="dept", guarantee=guarantee(cpu="3", memory="1Gi"))
    verdict = ask(queues.validate, queue("two", parent="dept", **backed(cpu="2", memory="1Gi")))
    assert verdict.causes == (
        (
            "spec.guarantee.resource[cpu]",
            '2 with the 3 of its siblings is more than the 4 of its parent "dept": lower it or raise the parent\'s',
        ),
    )
    assert verdict.evidence == (ObjectRef(kinds.QUEUES, "dept"), ObjectRef(kinds.QUEUES, "one"))
    assert ask(queues.validate, queue("two", parent="dept", **backed(cpu="1"))) == ALLOWED


def test_a_guarantee_is_not_lowered_below_the_childrens(ask: Any, queue: Any, cluster: Any) -> None:
    cluster.queue("dept", guarantee=guarantee(cpu="4"))
    cluster.queue("one", parent="dept", guarantee=guarantee(cpu="3"))
    old = queue("dept", **backed(cpu="4"))
    verdict = ask(queues.validate, queue("dept", **backed(cpu="2")), "UPDATE", old=old)
    assert verdict.causes == (
        ("spec.guarantee.resource[cpu]", "2 is less than the 3 of its children (one): raise it or lower theirs"),
    )
    assert ask(queues.validate, queue("dept", **backed(cpu="3")), "UPDATE", old=old) == ALLOWED


# ── updates, aliases, deletion ───────────────────────────────────────────────────────────────────────────────────


def test_an_update_answers_only_for_what_it_changes(ask: Any, queue: Any) -> None:
    old = queue(weight=0, parent="nope")
    assert ask(queues.validate, queue(weight=0, parent="nope", priority=3), "UPDATE", old=old) == ALLOWED
    assert ask(queues.validate, queue(weight=-1, parent="nope"), "UPDATE", old=old).causes == (
        ("spec.weight", "-1 is no weight: write a whole number from 1 to 65535"),
    )


def test_a_legacy_queue_of_a_primary_queues_name_is_an_alias(ask: Any, queue: Any) -> None:
    verdict = ask(queues.validate, queue("research", group="scheduling.sigs.dev", weight=0))
    assert verdict.warnings == ('Queue "research" of scheduling.sigs.dev is an alias: its spec is ignored',)
    assert ask(queues.validate, queue("other", group="scheduling.sigs.dev", weight=0)).code == 422


@pytest.mark.parametrize("name", ["default", "root"])
def test_the_queues_that_muster_needs_stay(ask: Any, queue: Any, name: str) -> None:
    verdict = ask(queues.validate, queue(name), "DELETE")
    assert (verdict.code, verdict.message) == (
        403,
        f'queue "{name}" can\'t be deleted: Muster needs it; close it instead',
    )


def test_a_parent_is_deleted_after_its_children(ask: Any, queue: Any, cluster: Any) -> None:
    cluster.queue("b", parent="dept")
    cluster.queue("a", parent="dept")
    verdict = ask(queues.validate, queue("dept"), "DELETE")
    assert verdict.message == 'queue "dept" is the parent of a, b: delete or move these first'
    assert verdict.evidence == (ObjectRef(kinds.QUEUES, "a"), ObjectRef(kinds.QUEUES, "b"))


def test_a_deletion_says_what_goes_with_the_queue(ask: Any, queue: Any, cluster: Any) -> None:
    assert ask(queues.validate, queue("research"), "DELETE") == ALLOWED
    cluster.put(kinds.PODGROUPS, "one", "dev", spec={"queue": "research"})
    assert ask(queues.validate, queue("research"), "DELETE").warnings == (
        'deleting queue "research" deletes 1 PodGroup in it',
    )
    for name in ("two", "three"):
        cluster.put(kinds.LEGACY_PODGROUPS[0], name, "dev", spec={"queue": "research"})
    cluster.put(kinds.PODGROUPS, "elsewhere", "dev", spec={})
    here = {names.QUEUE_NAME_KEYS[0]: "research"}
    jobs = {  # by group, by annotation; and in another queue, of another scheduler, in a group that nobody made
        "one": ("muster", {names.GROUP_NAME: "one"}, {}),
        "early": ("muster", {}, here),
        "other": ("muster", {}, {}),
        "foreign": ("default-scheduler", {}, here),
        "lost": ("muster", {names.GROUP_NAME: "nobody"}, here),
    }
    for name, (scheduler, named, said) in jobs.items():
        template = {"metadata": {"annotations": named}, "spec": {"schedulerName": scheduler, "containers": []}}
        cluster.put(kinds.JOBS, name, "dev", metadata={"annotations": said}, spec={"template": template})
    assert ask(queues.validate, queue("research"), "DELETE").warnings == (
        'deleting queue "research" deletes 3 PodGroups and 2 Jobs in it',
    )
    # Of an alias nothing is held.
    assert ask(queues.validate, queue("research", group="scheduling.sigs.dev"), "DELETE") == ALLOWED
    assert ask(queues.validate, queue("default", group="scheduling.sigs.dev"), "DELETE") == ALLOWED


def test_unwise_changes_pass_with_a_warning(ask: Any, queue: Any, cluster: Any) -> None:
    cluster.put(kinds.PODGROUPS, "one", "dev", spec={"queue": "research"})
    assert ask(queues.validate, queue(parent="research")).warnings == (
        'queue "research" has 1 PodGroup; as a parent it takes no new ones',
    )
    assert ask(queues.validate, queue("default", desiredState="Closed")).warnings == (
        "PodGroups and Jobs that name no queue are refused while queue default is closed",
    )
    cluster.queue("lab", parent="research")
    assert ask(queues.validate, queue("research", desiredState="Closed")).warnings == (
        "1 queue below research takes no new work either",
    )
    assert ask(queues.validate, queue("root", desiredState="Closed")).warnings == (
        "PodGroups and Jobs that name no queue are refused while queue root is closed",
        "3 queues below root take no new work either",
    )


def test_what_a_parent_does_not_have_passes_with_a_warning(ask: Any, queue: Any, cluster: Any) -> None:
    cluster.queue("lab", deserved={"cpu": "4"}, capability={"cpu": "6", "memory": "8Gi"})
    cluster.queue("first", parent="lab", deserved={"cpu": "1500m"})
    fits = {"deserved": {"cpu": "2500m", "nvidia.com/gpu": "1"}, "capability": {"cpu": "6", "nvidia.com/gpu": "2"}}
    assert ask(queues.validate, queue("second", parent="lab", **fits)) == ALLOWED
    more = {"deserved": {"cpu": "3"}, "capability": {"cpu": "7", "memory": "8Gi"}}
    verdict = ask(queues.validate, queue("second", parent="lab", **more))
    assert verdict.warnings == (
        'spec.capability[cpu]: 7 is more than the 6 of its parent "lab"',
        'spec.deserved[cpu]: 3 with the 1500m of its siblings is more than the 4 of "lab"',
    )
    # Its own share as stored counts once; and the root holds nobody to what it states.
    again = queue("first", parent="lab", deserved={"cpu": "4"})
    assert ask(queues.validate, again, "UPDATE", old=queue("first", parent="lab")) == ALLOWED
    cluster.queue("root", capability={"cpu": "1"})
    assert ask(queues.validate, queue(parent="root", capability={"cpu": "2"})) == ALLOWED


@pytest.mark.parametrize(
    ("selector", "field", "text"),
    [
        ({"matchLabels": {"x y": "z"}}, "matchLabels", '"x y" can\'t be the key of a label'),
        ({"matchLabels": {"team": "a b"}}, "matchLabels[team]", '"a b" can\'t be the value of a label'),
        (
            {"matchExpressions": [{"key": "team", "operator": "In", "values": []}]},
            "matchExpressions[0].values",
            "In has nothing to compare with: list at least one value",
        ),
        (
            {"matchExpressions": [{"key": "team", "operator": "Exists", "values": ["a"]}]},
            "matchExpressions[0].values",
            "Exists takes no values: leave them out",
        ),
        (
            {"matchExpressions": [{"key": "-", "operator": "Exists"}]},
            "matchExpressions[0].key",
            '"-" can\'t be the key of a label',
        ),
    ],
)
def test_a_selector_that_no_namespace_could_match_is_refused(
    ask: Any, queue: Any, selector: Any, field: str, text: str
) -> None:
    ((path, message),) = ask(queues.validate, queue(namespaceSelector=selector)).causes
    assert path == f"spec.namespaceSelector.{field}"
    assert message.startswith(text)
