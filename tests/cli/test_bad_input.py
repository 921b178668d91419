"""What isn't as it should be, in files and in dumps, ends in one line or in an answer, never in a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{name: main, image: example.com/train, resources: {requests: {cpu: null}}}]
"""

POD = """
apiVersion: v1
kind: Pod
metadata: {{{name}, annotations: {{scheduling.k8s.io/group-name: {group}}}}}
spec:
  schedulerName: muster
  containers: [{{name: main, image: example.com/train}}]
"""
GANG = """
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: gang}
spec: {minMember: 1}
---"""


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", 2, "a Pod has no metadata.name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: 3\n", 2, "a Pod has no metadata.name"),
        ("kind: Pod\nmetadata: {name: a}\n", 2, "Pod a has no apiVersion"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a/b}\n", 2, "metadata.name of a Pod is 'a/b': no name has"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: ..}\n", 2, "metadata.namespace of a Pod is '..'"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: 4\n", 1, "job.batch/a refused"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: [1]\n", 1, "job.batch/a refused"),
        ("a: &a [*a]\n", 2, "document 1: not a Kubernetes object, it has no kind"),
        (
            "a: 1\n---\nkind: Pod\n---\n- 3\n",
            2,
            (
                "Error: objects.yaml, document 1: not a Kubernetes object, it has no kind\nobjects.yaml, document 2: a Pod has"
                " no metadata.name\nobjects.yaml, document 3: not a Kubernetes object, it has no kind\n"
            ),
        ),
        ("\n", 2, "no objects in objects.yaml"),
        (
            POD.format(name="generateName: run-", group="nowhere"),
            0,
            'Pod default/run- would start at an unknown time: its PodGroup "nowhere" is\n',
        ),
        (GANG + POD.format(name="name: only", group="gang"), 0, "PodGroup default/gang would start now, 1 pod"),
        # An API server takes a null for a zero.
        (JOB, 0, "Job default/train would start now, 1 pod"),
    ],
)
def test_an_object_that_is_not_as_it_should_be_is_told_in_words(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, status: int, said: str
) -> None:
    state = str(Path("states/empty.yaml").resolve())
    monkeypatch.chdir(tmp_path)
    Path("objects.yaml").write_text(text)
    result = run("admit", "-f", "objects.yaml", "--state", state)
    assert said in result.output
    assert result.exit_code == status
    assert isinstance(result.exception, SystemExit | None)


@pytest.mark.parametrize(
    ("dump", "group", "before", "after"),
    [
        ("quota", "late", '"resourceVersion":"142"', '"resourceVersion":"Running"'),
        ("quota", "late", '"resourceVersion":"140"', '"resourceVersion":""'),
        ("busy", "train", '"memory":"16Gi"', '"memory":["16Gi"]'),
        ("busy", "train", '"cpu":"4"', '"cpu":"four"'),
    ],
)
def test_a_dump_with_something_odd_in_it_still_answers(
    run: Callable[..., Result], tmp_path: Path, dump: str, group: str, before: str, after: str
) -> None:
    whole = Path(f"states/{dump}.yaml").read_text()
    assert before in whole
    (tmp_path / "odd.yaml").write_text(whole.replace(before, after))
    result = run("podgroup", "why", group, "-n", "team-a", "--state", str(tmp_path / "odd.yaml"))
    assert result.output.startswith(f"PodGroup team-a/{group} is "), result.exception
    assert result.exit_code == 0


def test_a_configuration_that_can_not_be_read_is_told_in_one_line(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"actions: \xff")
    asked = ("podgroup", "why", "train", "--state", "states/busy.yaml", "--config")
    missing, binary = (run(*asked, str(tmp_path / f"{name}.yaml")) for name in ("missing", "binary"))
    assert missing.output == f"Error: {tmp_path}/missing.yaml: No such file or directory\n"
    assert binary.output == f"Error: {tmp_path}/binary.yaml is no UTF-8 text: invalid start byte at byte 9\n"
