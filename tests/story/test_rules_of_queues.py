"""What `kubectl apply` says of queues and PodGroups that can't be meant, on both control planes: one file, each object answered by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from running import Up, kubectl

WEBHOOK = 'admission webhook "queues.validate.muster.sh" denied the request: '
OTHER = "lower it or raise the other"
TREE = "Muster makes the tree of queues from spec.parent and spec.weight: set these, and remove the annotation"


def queue(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "annotations": annotations or {}}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": meta, "spec": spec}


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 1} | spec,
    }


def guaranteed(**resource: str) -> dict[str, Any]:
    return {"guarantee": {"resource": resource}}


ACCEPTED = [
    queue("plain"),
    queue("heavy", weight=65535),
    queue("rules-dept", **guaranteed(cpu="2"), deserved={"cpu": "4"}, capability={"cpu": "6"}),
    queue("rules-team", parent="rules-dept", **guaranteed(cpu="2"), deserved={"cpu": "4"}, capability={"cpu": "6"}),
    queue("rules-unlike", parent="root", deserved={"cpu": "3"}, capability={"memory": "1Gi"}),
    queue("rules-shut", desiredState="Closed"),
    group("in-team", queue="rules-team", minResources={"cpu": "1", "nvidia.com/gpu": "2"}),
    group("in-no-queue", minMember=0),
]
REFUSED = [
    (queue("no-weight", weight=0), 'Queue.scheduling.volcano.sh "no-weight" is invalid: spec.weight'),
    (queue("less-weight", weight=-1), 'Queue.scheduling.volcano.sh "less-weight" is invalid: spec.weight'),
    (queue("more-weight", weight=65536), 'Queue.scheduling.volcano.sh "more-weight" is invalid: spec.weight'),
    (queue("ajar", desiredState="Ajar"), 'spec.desiredState: Unsupported value: "Ajar"'),
    (queue("negative", capability={"cpu": "-1"}), 'spec.capability.cpu: Invalid value: "-1"'),
    (queue("unread", deserved={"memory": "lots"}), 'spec.deserved.memory: Invalid value: "lots"'),
    (
        queue(
            "beyond", deserved={"cpu": "3", "nvidia.com/gpu": "9"}, capability={"cpu": "2500m", "nvidia.com/gpu": "8"}
        ),
        (
            f"{WEBHOOK}spec.deserved[cpu]: 3 is more than spec.capability[cpu], 2500m: {OTHER}; "
            f"spec.deserved[nvidia.com/gpu]: 9 is more than spec.capability[nvidia.com/gpu], 8: {OTHER}"
        ),
    ),
    (
        queue("promised", **guaranteed(memory="3Gi"), deserved={"memory": "2Gi"}),
        f"{WEBHOOK}spec.guarantee.resource[memory]: 3Gi is more than spec.deserved[memory], 2Gi: lower it or raise the other",
    ),
    (
        queue("capped", **guaranteed(cpu="3"), capability={"cpu": "2"}),
        f"{WEBHOOK}spec.guarantee.resource[cpu]: 3 is more than spec.capability[cpu], 2: lower it or raise the other",
    ),
    (
        queue("undeserved", **guaranteed(cpu="3", memory="1Gi"), deserved={"cpu": "3"}),
        (
            f"{WEBHOOK}spec.guarantee.resource[memory]: 1Gi is guaranteed, and spec.deserved does not name memory: "
            "set spec.deserved[memory] to 1Gi or more"
        ),
    ),
    (
        queue("annotated", {"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/2"}),
        (
            f"{WEBHOOK}metadata.annotations[volcano.sh/hierarchy]: {TREE}; "
            f"metadata.annotations[volcano.sh/hierarchy-weights]: {TREE}"
        ),
    ),
    (queue("orphan", parent="nowhere"), f'{WEBHOOK}queue "nowhere" (spec.parent) does not exist: create it first'),
    (queue("own-parent", parent="own-parent"), "spec.parent must be another queue"),
    (queue("under-default", parent="default"), "queue default takes the PodGroups that name no queue"),
    (
        queue("greedy", parent="rules-dept", **guaranteed(cpu="1"), deserved={"cpu": "1"}),
        (
            f"{WEBHOOK}spec.guarantee.resource[cpu]: 1 with the 2 of its siblings is more than the 2 of its parent "
            '"rules-dept": lower it or raise the parent\'s'
        ),
    ),
    (group("negative", minMember=-1), 'PodGroup.scheduling.volcano.sh "negative" is invalid: spec.minMember'),
    (group("unread", minResources={"cpu": "lots"}), 'spec.minResources.cpu: Invalid value: "lots"'),
    (group("lost", queue="nowhere"), 'queue "nowhere" (spec.queue) does not exist: '),
    (group("in-dept", queue="rules-dept"), 'queue "rules-dept" (spec.queue) has children and takes no PodGroup itself'),
    (group("in-root", queue="root"), 'queue "root" (spec.queue) '),
]
CHANGED = [
    (
        ("queue", "rules-dept", '{"spec": {"parent": "rules-team"}}'),
        'queue "rules-team" (spec.parent) is below queue "rules-dept" (rules-dept -> rules-team -> rules-dept)',
    ),
    (
        ("queue", "rules-dept", '{"spec": {"guarantee": {"resource": {"cpu": "1"}}}}'),
        "spec.guarantee.resource[cpu]: 1 is less than the 2 of its children (rules-team): raise it or lower theirs",
    ),
    (("queue", "plain", '{"spec": {"weight": 0}}'), "spec.weight"),
    (("podgroup", "in-team", '{"spec": {"queue": "rules-dept"}}'), "has children and takes no PodGroup itself"),
]
KEPT = [
    ("default", 'queue "default" can\'t be deleted: Muster needs it; close it instead'),
    ("rules-dept", 'queue "rules-dept" is the parent of rules-team: delete or move it first'),
]

Run = Callable[..., tuple[int, str]]


def document(objects: list[dict[str, Any]]) -> str:
    # Plain mappings only: kubectl reads JSON where a document begins like it.
    return yaml.safe_dump_all(objects, default_flow_style=False)


def in_full(word: str) -> str:
    """Write the name of a kind with its group: ``queue`` and ``queue/name``, ``podgroup`` and ``podgroup/name``."""
    kind, slash, name = word.partition("/")
    return f"{kind}s.scheduling.volcano.sh{slash}{name}" if kind in {"queue", "podgroup"} else word


@pytest.fixture
def run(up: Up, namespace: str) -> Iterator[Run]:
    def ran(*words: str, stdin: str = "") -> tuple[int, str]:
        # Bare names may mean kube-batch's kinds, which other tests serve for a while and kubectl remembers.
        done = kubectl(up.kubeconfig, "-n", namespace, *map(in_full, words), stdin=stdin)
        return done.returncode, done.stdout

    yield ran
    mine = [each["metadata"]["name"] for each in ACCEPTED if each["kind"] == "Queue"]
    for names in (["rules-team"], [name for name in mine if name != "rules-team"]):
        ran("delete", "queues.scheduling.volcano.sh", *names, "--ignore-not-found", "--timeout=60s")


def test_each_object_that_can_not_be_meant_is_refused_with_its_field_amounts_and_remedy(run: Run):
    code, said = run("apply", "-f", "-", stdin=document(ACCEPTED))
    assert code == 0, said
    code, said = run("apply", "-f", "-", stdin=document([each for each, _ in REFUSED]))
    assert code == 1
    assert [words for _, words in REFUSED if words not in said] == []
    assert said.count("Error from server") + said.count("is invalid: ") >= len(REFUSED)
    assert " created" not in said
    for (kind, name, change), words in CHANGED:
        code, said = run("patch", kind, name, "--type=merge", "--patch", change)
        assert (code, words in said) == (1, True), said
    for name, words in KEPT:
        code, said = run("delete", "queue", name, "--wait=false")
        assert (code, words in said) == (1, True), said


def test_a_queue_closes_refuses_new_groups_opens_and_goes_with_what_is_in_it(run: Run):
    code, said = run("apply", "-f", "-", stdin=document(ACCEPTED))
    assert code == 0, said
    code, said = run("wait", "queue/rules-shut", "--for=jsonpath={.status.state}=Closed", "--timeout=60s")
    assert code == 0, said
    code, said = run("apply", "-f", "-", stdin=document([group("late", queue="rules-shut")]))
    assert (code, 'queue "rules-shut" (spec.queue) is Closed and takes no new PodGroup' in said) == (1, True), said
    code, said = run("patch", "queue", "rules-team", "--type=merge", "--patch", '{"spec": {"desiredState": "Closed"}}')
    assert code == 0, said
    # The group in it is unfinished, so that it is closing.
    code, said = run("wait", "queue/rules-team", "--for=jsonpath={.status.state}=Closing", "--timeout=60s")
    assert code == 0, said
    code, said = run("patch", "queue", "rules-team", "--type=merge", "--patch", '{"spec": {"desiredState": "Open"}}')
    assert code == 0, said
    code, said = run("wait", "queue/rules-team", "--for=jsonpath={.status.state}=Open", "--timeout=60s")
    assert code == 0, said
    code, said = run("delete", "queue", "rules-team", "--timeout=60s")
    assert (code, 'deleting queue "rules-team" deletes 1 PodGroup in it' in said) == (0, True), said
    code, said = run("get", "podgroup", "in-team")
    assert (code, "NotFound" in said) == (1, True), said
