"""The story that `muster demo` plays: what a newcomer should see in the first minute, step by step, with its checks.

Data only. The commands are real kubectl commands, so that a reader can type them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct


class CommandResult(Struct, frozen=True):
    """What a command answered: its exit status, and stdout and stderr in the order they came."""

    status: int
    text: str


Check = Callable[[CommandResult], str]
"""Returns what is wrong with a result, in words; empty when nothing is."""


class StoryCommand(Struct, frozen=True):
    """One command as typed, and what must be true of its answer."""

    line: str
    check: Check


class StoryStep(Struct, frozen=True):
    """A part of the story: what it shows, the files it uses, the commands."""

    title: str
    files: dict[str, str]
    commands: tuple[StoryCommand, ...]


def succeeds(*said: str) -> Check:
    """Check that a command ended with 0 and its answer matches each pattern of ``said``."""
    return _answers(ok=True, said=said)


def refused(*said: str) -> Check:
    """Check that a command ended with an error and its answer matches each pattern of ``said``."""
    return _answers(ok=False, said=said)


def _answers(*, ok: bool, said: tuple[str, ...]) -> Check:
    def check(result: CommandResult) -> str:
        if (result.status == 0) is not ok:
            return f"ended with status {result.status}"
        missing = [pattern for pattern in said if not re.search(pattern, result.text, re.MULTILINE)]
        return f"doesn't say {', '.join(missing)}" if missing else ""

    return check


def running_pods(count: int) -> Check:
    """Check that a table of pods shows exactly ``count``, all running."""

    def check(result: CommandResult) -> str:
        rows = result.text.strip().splitlines()[1:]
        states = [row.split()[2] for row in rows]
        return "" if states == ["Running"] * count else f"shows pods {states}"

    return check


def _node(name: str, cpu: int) -> str:
    amounts = f"{{cpu: '{cpu}', memory: 16Gi, pods: '110'}}"
    return f"""\
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}
status:
  capacity: {amounts}
  allocatable: {amounts}
"""


def _group(name: str, spec: str, namespace: str = "default") -> str:
    return f"""\
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {{name: {name}, namespace: {namespace}}}
spec: {spec}
"""


def _job(name: str, annotation: str) -> str:
    return f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: default}}
spec:
  parallelism: 6
  completions: 6
  template:
    metadata:
      annotations: {{{annotation}}}
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers:
      - name: worker
        image: example.com/train
        resources: {{requests: {{cpu: "1"}}}}
"""


_QUOTA: Final = """\
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: team}
spec:
  hard: {cpu: "10"}
"""

_QUEUE: Final = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: night}
spec: {weight: 2}
"""


def _waits(group: str, phase: str) -> StoryCommand:
    return StoryCommand(
        f"kubectl wait --for=jsonpath='{{.status.phase}}'={phase} pg/{group} --timeout=60s", succeeds("met")
    )


STORY: Final = (
    StoryStep(
        "A small cluster: one node with 4 cpu. The queue `default` is there, made by the scheduler.",
        {"node-1.yaml": _node("node-1", 4)},
        (
            StoryCommand("kubectl apply -f node-1.yaml", succeeds("node/node-1 created")),
            StoryCommand("kubectl wait --for=condition=Ready node/node-1 --timeout=60s", succeeds("met")),
            StoryCommand("kubectl get queues", succeeds(r"^NAME +WEIGHT +STATE", r"^default +1 +Open")),
        ),
    ),
    StoryStep(
        "A PodGroup must name a queue that exists.",
        {"lost.yaml": _group("lost", "{minMember: 1, queue: nightly}")},
        (StoryCommand("kubectl apply -f lost.yaml", refused("denied the request", "nightly", "default")),),
    ),
    StoryStep(
        "A closed queue takes nothing new.",
        {"night.yaml": _QUEUE, "late.yaml": _group("late", "{minMember: 1, queue: night}")},
        (
            StoryCommand("kubectl apply -f night.yaml", succeeds("queue.*/night created")),
            StoryCommand(
                'kubectl patch queue night --type=merge -p \'{"spec":{"desiredState":"Closed"}}\'',
                succeeds("queue.*/night patched"),
            ),
            StoryCommand(
                "kubectl wait --for=jsonpath='{.status.state}'=Closed queue/night --timeout=60s",
                succeeds("met"),
            ),
            StoryCommand("kubectl apply -f late.yaml", refused("denied the request", "night", "Closed")),
        ),
    ),
    StoryStep(
        "A namespace has 10 cpu. No other PodGroup can reserve what one has reserved.",
        {
            "team.yaml": _QUOTA,
            "first.yaml": _group("first", "{minMember: 1, minResources: {cpu: 6}}", "team"),
            "second.yaml": _group("second", "{minMember: 1, minResources: {cpu: 6}}", "team"),
        },
        (
            StoryCommand("kubectl apply -f team.yaml", succeeds("resourcequota/compute created")),
            StoryCommand("kubectl apply -f first.yaml", succeeds("podgroup.*/first created")),
            StoryCommand(
                "kubectl apply -f second.yaml",
                refused("denied the request", "10 cpu", "6 reserved|6 cpu reserved", "6 cpu"),
            ),
            StoryCommand("kubectl delete pg first -n team", succeeds('"first" deleted')),
            StoryCommand("kubectl apply -f second.yaml", succeeds("podgroup.*/second created")),
            StoryCommand("kubectl delete namespace team", succeeds('"team" deleted')),
        ),
    ),
    StoryStep(
        "A Job of 6 pods, 1 cpu each, that only makes sense together: on 4 cpu none of them starts.",
        {
            "train.yaml": _group("train", "{minMember: 6}")
            + "---\n"
            + _job("train", "scheduling.k8s.io/group-name: train"),
        },
        (
            StoryCommand("kubectl apply -f train.yaml", succeeds("podgroup.*/train created", "job.*/train created")),
            StoryCommand("kubectl wait --for=condition=Unschedulable pg/train --timeout=60s", succeeds("met")),
            StoryCommand("kubectl get pods", succeeds("No resources found")),
            StoryCommand(
                "kubectl get pg train -o jsonpath='{.status.conditions[?(@.type==\"Unschedulable\")].message}'",
                succeeds("6 cpu", "4 cpu", "2 cpu"),
            ),
        ),
    ),
    StoryStep(
        "A node joins: all six start at once.",
        {"node-2.yaml": _node("node-2", 4)},
        (
            StoryCommand("kubectl apply -f node-2.yaml", succeeds("node/node-2 created")),
            _waits("train", "Running"),
            StoryCommand("kubectl get pods", running_pods(6)),
            StoryCommand("kubectl get pg train", succeeds(r"^train +Running +6 +6 +default")),
        ),
    ),
    StoryStep(
        "The Job has ended. The same with nothing but an annotation: its PodGroup is made for it.",
        {"again.yaml": _job("again", 'scheduling.k8s.io/group-min-member: "6"')},
        (
            _waits("train", "Completed"),
            StoryCommand("kubectl apply -f again.yaml", succeeds("job.*/again created")),
            StoryCommand("kubectl wait --for=jsonpath='{.status.ready}'=6 job/again --timeout=60s", succeeds("met")),
            StoryCommand("kubectl get pg", succeeds(r"^podgroup-[0-9a-f-]{36} +(Running|Completed) +6 ")),
        ),
    ),
)
