"""What annotations say about groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model import grouping
from muster.model.amounts import Resources
from muster.model.objects import Meta, OwnerReference

OLD, NEW = "scheduling.k8s.io/", "scheduling.volcano.sh/"


def noted(key: str, value: str) -> Meta:
    return Meta(annotations={key: value})


@pytest.mark.parametrize(
    ("annotations", "group"),
    [
        ({OLD + "group-name": "a"}, "a"),
        ({NEW + "group-name": "b"}, "b"),
        ({OLD + "group-name": "a", NEW + "group-name": "b"}, "b"),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_pod_belongs_to_the_group_it_names_and_the_newer_key_wins(annotations: dict[str, str], group: str) -> None:
    assert grouping.group_of(Meta(annotations=annotations)) == group


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("3", 3), (" 7 ", 7), ("2147483647", 2**31 - 1)])
def test_a_legal_minimum_is_taken_as_it_is(text: str, count: int) -> None:
    assert grouping.min_member(noted(NEW + "group-min-member", text)) == (count, "")


@pytest.mark.parametrize("text", ["-1", "2.5", "two", "2147483648", "9" * 5000, "٣", "1e3"])
def test_an_illegal_minimum_counts_as_one_and_warns(text: str) -> None:
    count, warning = grouping.min_member(noted(NEW + "group-min-member", text))
    assert count == 1
    assert warning.startswith("scheduling.volcano.sh/group-min-member '")
    assert warning.endswith("counts as 1: write a whole number from 0 to 2147483647")
    assert "\n" not in warning


def test_without_a_minimum_a_group_needs_one_member() -> None:
    assert grouping.min_member(Meta(), None) == (1, "")


def test_the_newer_minimum_wins_on_one_object_and_the_nearer_object_wins_over_it() -> None:
    both = Meta(annotations={OLD + "group-min-member": "2", NEW + "group-min-member": "3"})
    assert grouping.min_member(both) == (3, "")
    assert grouping.min_member(noted(OLD + "group-min-member", "5"), both) == (5, "")


@pytest.mark.parametrize(
    ("pod", "owner", "namespace", "queue"),
    [
        ("p", "o", "n", "p"),
        (None, "o", "n", "o"),
        (None, None, "n", "n"),
        (None, None, None, "default"),
        ("", " ", "n", "n"),
    ],
)
def test_the_nearest_queue_wins(pod: str | None, owner: str | None, namespace: str | None, queue: str) -> None:
    metas = [Meta() if name is None else noted("volcano.sh/queue-name", name) for name in (pod, owner, namespace)]
    assert grouping.queue_name(metas[0], None, *metas[1:]) == queue


def test_minimum_resources_are_a_resource_list_in_json() -> None:
    found = grouping.min_resources(noted(NEW + "group-min-resources", '{"cpu": "2", "memory": "1Gi"}'))
    assert found == (Resources.parse({"cpu": 2, "memory": "1Gi"}), "")
    assert grouping.min_resources(Meta()) == (None, "")


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("2 cpu", 'scheduling.volcano.sh/group-min-resources \'2 cpu\' is ignored: write it like {"cpu": "2"}'),
        ("[1]", 'scheduling.volcano.sh/group-min-resources \'[1]\' is ignored: write it like {"cpu": "2"}'),
        (
            '{"cpu": "-2"}',
            "scheduling.volcano.sh/group-min-resources is ignored: cpu: '-2' is negative; an amount is zero or more",
        ),
    ],
)
def test_illegal_minimum_resources_are_passed_over_and_warn(text: str, warning: str) -> None:
    assert grouping.min_resources(noted(NEW + "group-min-resources", text)) == (None, warning)


def test_a_bomb_of_brackets_is_passed_over() -> None:
    found, warning = grouping.min_resources(noted(NEW + "group-min-resources", '{"a":' * 100_000))
    assert found is None
    assert len(warning) < 200


@given(st.text())
def test_no_text_breaks_the_reading_of_annotations(text: str) -> None:
    member, _ = grouping.min_member(noted(NEW + "group-min-member", text))
    assert 0 <= member <= 2**31 - 1
    grouping.min_resources(noted(NEW + "group-min-resources", text))


def test_a_generated_name_tells_its_owner() -> None:
    assert grouping.generated_name("1234") == "podgroup-1234"


def owner(kind: str, api_version: str = "batch/v1") -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=kind.lower(), uid=kind, controller=True)


JOB, CRON = owner("Job"), owner("CronJob")
RS, DEPLOYMENT = owner("ReplicaSet", "apps/v1"), owner("Deployment", "apps/v1")
WORKFLOW = owner("Workflow", "argoproj.io/v1alpha1")
BELOW_WORKFLOW = (grouping.OwnerRule("argoproj.io/v1alpha1", "workflow", -1),)


@pytest.mark.parametrize(
    ("owners", "rules", "chosen"),
    [
        ([], grouping.DEFAULT_RULES, None),
        ([RS, DEPLOYMENT], grouping.DEFAULT_RULES, DEPLOYMENT),
        ([JOB, CRON], grouping.DEFAULT_RULES, JOB),
        ([JOB, CRON], (), CRON),
        ([JOB, WORKFLOW], BELOW_WORKFLOW, JOB),
        ([WORKFLOW], BELOW_WORKFLOW, None),
        ([JOB], BELOW_WORKFLOW, JOB),
        ([JOB, CRON], (grouping.OwnerRule("batch/v1", "JOB", 1),), CRON),
        ([JOB], (grouping.OwnerRule("batch/v1", "job", 3),), JOB),
        ([owner("Job", "batch/v2"), CRON], grouping.DEFAULT_RULES, CRON),
    ],
)
def test_a_generated_group_stands_for_the_owner_that_the_rules_choose(
    owners: list[OwnerReference], rules: tuple[grouping.OwnerRule, ...], chosen: OwnerReference | None
) -> None:
    assert grouping.chosen_owner(owners, rules) == chosen


@pytest.mark.parametrize(
    ("name", "kind", "owner", "title"),
    [
        ("podgroup-1234", "Job", "train", "Job ns/train"),
        ("podgroup-1234", "PyTorchJob", "train", "PyTorchJob ns/train"),
        ("podgroup-4321", "Job", "train", "PodGroup ns/podgroup-4321"),
        ("mine", "Job", "train", "PodGroup ns/mine"),
        ("podgroup-1234", "Job of", "train", "PodGroup ns/podgroup-1234"),
        ("podgroup-1234", "Job", "train\nEvicted", "PodGroup ns/podgroup-1234"),
    ],
)
def test_people_know_a_generated_group_by_its_workload(name: str, kind: str, owner: str, title: str) -> None:
    reference = OwnerReference(api_version="batch/v1", kind=kind, name=owner, uid="1234")
    meta = Meta(name=name, owner_references=(reference,))
    assert grouping.title("ns", name, grouping.owner_of(meta)) == title


def test_people_know_a_group_without_an_owner_by_its_name() -> None:
    assert grouping.title("ns", "mine", grouping.owner_of(Meta(name="mine"))) == "PodGroup ns/mine"
