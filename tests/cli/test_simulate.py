"""``muster simulate``: one or more decisions on the objects of some files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import muster

NODE = """
apiVersion: v1
kind: Node
metadata: {name: NAME}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}
"""
GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: train, namespace: default}
spec: {minMember: 2, queue: default}
status: {phase: PHASE}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default, annotations: {scheduling.k8s.io/group-name: train}}
spec: {schedulerName: volcano, containers: [{name: main, resources: {requests: {cpu: "3"}}}]}
status: {phase: Pending}
"""


def cluster(nodes: int, phase: str = "Inqueue") -> str:
    every = [NODE.replace("NAME", f"n{number}") for number in range(nodes)]
    every += [GROUP.replace("PHASE", phase), POD.replace("NAME", "a"), POD.replace("NAME", "b")]
    return "---".join(every)


def simulated(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(muster, ["simulate", *words], input=stdin)


def test_what_is_bound_and_how_groups_stand_is_told_to_programs() -> None:
    result = simulated("-f", "-", "-o", "json", stdin=cluster(2))
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["cycles"] == 1
    assert sorted(said["binds"]) == ["default/a", "default/b"]
    assert sorted(said["binds"].values()) == ["n0", "n1"]
    assert said["podgroups"]["default/train"]["phase"] == "Inqueue"
    assert said["tasks"] == {"default/train": {"Binding": 2}}
    assert said["queues"]["default"]["allocated"]["cpu"] == "6"
    assert said["seconds"] > 0
    assert (said["evicted"], said["pipelined"]) == ([], {})


def test_a_group_that_waits_says_why() -> None:
    assert simulated("-f", "-", stdin=cluster(1)).stdout.splitlines() == [
        "PODGROUP        PHASE     TASKS       REASON",
        "default/train   Inqueue   2 Pending   NotEnoughResources",
        "",
        "default/train: 2 pods need 6 cpu; 4 cpu are free in the cluster: short by 2 cpu",
    ]


def test_what_one_cycle_does_the_next_builds_on(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text("---".join(NODE.replace("NAME", f"n{number}") for number in range(2)))
    (tmp_path / "gang.yaml").write_text(GROUP.replace("PHASE", "Pending") + "---" + POD.replace("NAME", "a"))
    (tmp_path / "config.yaml").write_text('actions: "enqueue"\ntiers:\n- plugins:\n  - name: gang\n')
    files = ["-f", str(tmp_path / "nodes.yaml"), "-f", str(tmp_path / "gang.yaml")]
    only_enqueue = simulated(*files, "--config", str(tmp_path / "config.yaml"), "-o", "json")
    assert json.loads(only_enqueue.stdout)["podgroups"]["default/train"]["phase"] == "Inqueue"
    assert json.loads(only_enqueue.stdout)["binds"] == {}
    assert json.loads(simulated(*files, "--cycles", "3", "-o", "json").stdout)["cycles"] == 3


def test_lists_are_read_as_kubectl_writes_them() -> None:
    listed = '{"apiVersion": "v1", "kind": "NodeList", "items": [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}]}'
    result = simulated("-f", "-", stdin=listed)
    assert result.stdout == (
        "nothing to schedule: the files have no PodGroup and no pod of these scheduler names\n"
        "(the pods of a Job are created as time passes: see --until-idle)\n"
    )


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        ("a: b\n c: d", "Error: standard input, line 2, column 3: mapping values are not allowed in this context"),
        ("just: text", "Error: standard input, document 1: not a Kubernetes object, it has no kind"),
        ("- 1", "Error: standard input, document 1: not a Kubernetes object, it has no kind"),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 3}}",
            "Error: Pod p: Expected `array | null`, got `int` - at `$.spec.containers`",
        ),
    ],
)
def test_what_can_not_be_read_is_named(stdin: str, message: str) -> None:
    result = simulated("-f", "-", stdin=stdin)
    assert result.exit_code == 1
    assert result.output.strip() == message


def test_what_changes_nothing_in_a_configuration_is_said_beside_the_result(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "actions: allocate\ntiers:\n- plugins:\n  - {name: gang, enableBestNode: true}\n  - name: task-topology\n"
    )
    result = simulated("-f", "-", "-o", "json", "--config", str(file), stdin=cluster(1))
    assert result.exit_code == 0
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == ["Warning", "Warning"]
    assert f"{file}, line 4: enableBestNode changes nothing" in result.stderr
    assert f"{file}, line 5: plugin 'task-topology' is skipped" in result.stderr
    assert json.loads(result.stdout)["cycles"] == 1


def test_files_that_are_not_there_and_wrong_configurations_are_named(tmp_path: Path) -> None:
    assert "nowhere.yaml: No such file or directory" in simulated("-f", "nowhere.yaml").output
    (tmp_path / "config.yaml").write_text('actions: "alocate"\n')
    result = simulated("-f", "-", "--config", str(tmp_path / "config.yaml"), stdin=cluster(1))
    assert result.exit_code == 1
    assert "allocate" in result.output


NATIVE = """
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: workers, namespace: default}
spec: {schedulingPolicy: {gang: {minCount: COUNT}}MORE}
"""
MEMBER = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default}
spec:
  schedulerName: muster
  schedulingGroup: {podGroupName: workers}
  containers: [{name: main, resources: {requests: {cpu: "3"}}}]
"""


def native(count: int, more: str = "") -> str:
    """One node of 4 cpu, and a gang of Kubernetes' own kind with two pods of 3 cpu."""
    group = NATIVE.replace("COUNT", str(count)).replace("MORE", more)
    return "---".join([NODE.replace("NAME", "n0"), group, *(MEMBER.replace("NAME", name) for name in "ab")])


@pytest.mark.parametrize("time", [(), ("--until-idle",)])
def test_a_podgroup_of_kubernetes_own_is_a_gang(time: tuple[str, ...]) -> None:
    whole = simulated("-f", "-", *time, stdin=native(2))
    assert "default/podgroup-workers" in whole.stdout
    assert "2 pods need 6 cpu" in whole.stdout
    part = simulated("-f", "-", "-o", "json", *time, stdin=native(1))
    if time:
        assert json.loads(part.stdout)["report"]["wait"]["started"] == 1
    else:
        assert len(json.loads(part.stdout)["binds"]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            native(1, ", parentCompositePodGroupName: above"),
            "spec.parentCompositePodGroupName is not evaluated",
        ),
        (native(1).replace("podGroupName: workers", "podGroupName: others"), "PodGroup others of scheduling.k8s.io"),
    ],
)
def test_pods_that_wait_for_a_podgroup_of_kubernetes_own_for_good_are_left_out(text: str, words: str) -> None:
    result = simulated("-f", "-", stdin=text)
    assert "note: 2 pods left out: " in result.stderr
    assert words in result.stderr
    assert "nothing to schedule" in result.stdout
