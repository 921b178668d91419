"""Whatever a tenant sends to be admitted is tried or refused: no body is an error in Muster, or keeps others waiting."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from asked import POLICY, made, node, queue, state
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.cli.installation import crds
from muster.model.workloads import OPERATORS
from muster.visibility import answers
from muster.visibility.answers import RefusedObjectsError
from muster.visibility.questions import Asked

Json = dict[str, Any]
Path = tuple[str | int, ...]

STATE = state([node("node-1", {"cpu": "4"}), queue("default"), made("v1", "Namespace", {"name": "team", "uid": "t"})])
DEFINITIONS = crds.manifests(legacy_apis=False)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**31, 2**64, 10**30, "", "x" * 3000, "a/b", "a\nb", "é", "../..", "1e9", "9" * 5000),
    *([], {}, [{}], {"": 1}, {"a": {}}, [[]], [None]),
)
SPEC: Json = {
    "schedulerName": "muster",
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}],
}
TEMPLATE: Json = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
RICH: Json = SPEC | {
    "resourceClaims": [{"name": "c", "resourceClaimName": "d"}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
}
GANG: Json = {
    "minMember": 2,
    "minResources": {"cpu": "1"},
    "queue": "default",
    "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    "subGroupPolicy": [{"name": "a", "subGroupSize": 2, "labelSelector": {"matchLabels": {"a": "b"}}}],
}
EVERY: Json = {
    "replicas": 2,
    "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}},
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "numOfHosts": 2, "template": TEMPLATE}],
    "replicatedJobs": [{"name": "r", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}],
    "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE},
    "executor": {"instances": 2, "cores": 1, "memory": "1g"},
}
JOB: Json = {"parallelism": 2, "completions": 2, "template": TEMPLATE}
DEPLOYED: Json = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
BODIES: tuple[Json, ...] = (
    made("batch/v1", "Job", {"name": "j", "annotations": {"muster.sh/expected-duration": "1h"}}, spec=JOB),
    made("v1", "Pod", {"name": "p"}, spec=RICH),
    made("scheduling.volcano.sh/v1beta1", "PodGroup", {"name": "g"}, spec=GANG),
    made("apps/v1", "Deployment", {"name": "d"}, spec=DEPLOYED),
    made("v1", "ResourceQuota", {"name": "q"}, spec={"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}),
    made("policy/v1", "PodDisruptionBudget", {"name": "b"}, spec={"minAvailable": "50%", "selector": {}}),
    made("scheduling.k8s.io/v1beta1", "PodGroup", {"name": "n"}, spec={"schedulingPolicy": {"gang": {"minCount": 2}}}),
    *(made(each.kind.api_version, each.kind.name, {"name": "o"}, spec=EVERY) for each in OPERATORS),
)


def paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """List the places within a value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*before, key)
        yield from paths(value[key], (*before, key))


def changed(objects: list[Json], random: Random) -> list[Json]:
    """Return objects with one to three places that are odd, or gone."""
    made_of = copy.deepcopy(objects)
    for _ in range(random.randint(1, 3)):
        *way, last = random.choice(list(paths(made_of)))
        place: Any = made_of
        for key in way:
            place = place[key]
        if isinstance(last, str) and random.random() < 0.1:
            del place[last]
        else:
            place[last] = random.choice(ODD)
    return made_of


def tried(body: bytes) -> Any:
    """Return the answer on a cluster of its own, or how it is refused."""
    try:
        return answers.admission(answers.read_objects(body, "team"), DEFINITIONS)(Asked(STATE, POLICY, ("muster",)))[0]
    except RefusedObjectsError as error:
        return str(error)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.booleans())
def test_no_body_is_an_error_in_muster(random: Random, exist: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    objects = random.sample(BODIES, random.choice((1, 1, 2)))
    sent: Json = {"objects": changed(objects, random)}
    if exist:
        stored = [{**each, "metadata": {**each["metadata"], "namespace": "team", "uid": "u"}} for each in objects]
        sent = {"objects": stored, "existing": changed(stored, random)}
    tried(json.dumps({"spec": sent}).encode())


@pytest.mark.parametrize("opening", ['{"a":', "["])
@pytest.mark.parametrize("depth", [100, 300, 600, 900, 5000, 100_000])
def test_no_depth_is_an_error_in_muster(opening: str, depth: int) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    for kind in ('"v1","kind":"Pod"', '"ray.io/v1","kind":"RayCluster"'):
        spec = f'{{"x":{opening * depth}1{closing * depth}}}'
        body = f'{{"spec":{{"objects":[{{"apiVersion":{kind},"metadata":{{"name":"a"}},"spec":{spec}}}]}}}}'
        tried(body.encode())


def test_a_percentage_of_thousands_of_digits_is_refused_by_name() -> None:
    spec = {"minAvailable": "9" * 5000 + "%", "selector": {}}
    budget = made("policy/v1", "PodDisruptionBudget", {"name": "b"}, spec=spec)
    (verdict,) = tried(json.dumps({"spec": {"objects": [budget]}}).encode())["objects"]
    assert verdict["outcome"] == "refused"
    assert "must not be greater than 100%" in json.dumps(verdict["status"])
