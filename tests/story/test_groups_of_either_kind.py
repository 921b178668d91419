"""What holds of gangs whichever kind their PodGroup is of, on a control plane of 1.37 that serves both."""

from __future__ import annotations

from collections.abc import Iterator

import binaries
import pytest
from both_kinds import GATES, NATIVE, OURS, Cluster, built, in_phase, native, ours, up
from controlplane import ControlPlane

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("native groups")]
QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: either}
spec: {weight: 1, capability: {cpu: CPU}}
"""
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {requests.cpu: "CPU"}}
"""
OTHER = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: other}
spec: {minMember: 2, minResources: {cpu: 2}}
"""


class Gangs:
    """Makes gangs named ``workers``, of one kind of PodGroup, in a namespace of the test's own."""

    def __init__(self, cluster: Cluster, *, native: bool) -> None:
        self.cluster, self.native = cluster, native

    @property
    def resource(self) -> str:
        """What kubectl calls the kind."""
        return NATIVE if self.native else OURS

    def written(self, minimum: int, pods: int, queue: str = "") -> str:
        """Write a gang of a minimum and so many pods of 1 cpu."""
        if self.native:
            text = native(f"{{gang: {{minCount: {minimum}}}}}", range(pods), queue=queue)
            return text if queue else text.replace(", annotations: {scheduling.volcano.sh/queue-name: }", "")
        return ours(minimum, pods, queue) if queue else ours(minimum, pods).replace('"queue": "default", ', "")

    def make(self, minimum: int, pods: int) -> None:
        self.cluster.apply(self.written(minimum, pods))


@pytest.fixture(
    scope="module",
    params=[("native", GATES), ("muster", GATES), ("native", GATES[:1])],
    ids=["native", "muster", "native by GenericWorkload alone"],
)
def setting(request: pytest.FixtureRequest) -> Iterator[tuple[ControlPlane, bool]]:
    """`muster up` on a control plane with feature gates, and whether groups are native there."""
    built(binaries.VERSION)
    kind, gates = request.param
    with ControlPlane(gates=gates) as plane, up(plane):
        yield plane, kind == "native"


@pytest.fixture
def gangs(setting: tuple[ControlPlane, bool]) -> Iterator[Gangs]:
    plane, native = setting
    cluster = Cluster(plane.kubeconfig())
    yield Gangs(cluster, native=native)
    cluster.clear()


def test_it_starts_together_and_is_counted(gangs: Gangs) -> None:
    gangs.make(3, 3)
    group = in_phase(gangs.cluster, "Running")
    assert gangs.cluster.placed() == 3
    assert group["status"]["running"] == 3
    row = gangs.cluster.run("get", "pg").stdout.splitlines()[1].split()
    assert row[1:4] == ["Running", "3", "3"]


def test_without_room_it_waits_whole_and_says_why(gangs: Gangs) -> None:
    gangs.make(5, 5)
    in_phase(gangs.cluster, "Pending", "cpu")
    assert gangs.cluster.placed() == 0
    why = " ".join(gangs.cluster.muster("podgroup", "why", "workers").split())
    assert "5 pods need 5 cpu" in why
    assert "Pending" in gangs.cluster.muster("podgroup", "list")


def test_it_waits_for_pods_that_are_yet_to_come(gangs: Gangs) -> None:
    gangs.make(3, 2)
    (group,) = gangs.cluster.until(OURS, "", lambda found: found["items"])["items"]
    assert group["spec"]["minMember"] == 3
    assert gangs.cluster.placed() == 0
    gangs.make(3, 3)
    in_phase(gangs.cluster, "Running")
    assert gangs.cluster.placed() == 3


def test_pods_beyond_the_minimum_start_as_there_is_room(gangs: Gangs) -> None:
    gangs.make(2, 6)
    gangs.cluster.until("pods", "", lambda found: sum("nodeName" in each["spec"] for each in found["items"]) == 4)
    in_phase(gangs.cluster, "Running")


def test_a_pod_that_was_lost_comes_back(gangs: Gangs) -> None:
    gangs.make(3, 3)
    in_phase(gangs.cluster, "Running")
    gangs.cluster.run("delete", "pod", "w-1", "--force", "--grace-period=0")
    gangs.make(3, 3)
    gangs.cluster.until("pods", "", lambda found: sum("nodeName" in each["spec"] for each in found["items"]) == 3)
    assert len(gangs.cluster.get(OURS)["items"]) == 1


def test_its_minimum_is_reserved_and_given_back_with_it(gangs: Gangs) -> None:
    gangs.cluster.apply(QUOTA.replace("CPU", "4"))
    gangs.make(3, 3)
    in_phase(gangs.cluster, "Running")
    refused = gangs.cluster.run("apply", "-f", "-", stdin=OTHER)
    assert refused.returncode != 0
    assert "workers 3), so 1 is free: short by 1 requests.cpu" in refused.stdout
    gangs.cluster.run("delete", "pods", "--all", "--force", "--grace-period=0")
    gangs.cluster.run("delete", gangs.resource, "workers")
    gangs.cluster.until(OURS, "", lambda found: not found["items"])
    gangs.cluster.until(
        "quotaledgers", "", lambda _: gangs.cluster.run("apply", "-f", "-", stdin=OTHER).returncode == 0
    )


def test_the_namespace_names_its_queue_whose_limit_it_waits_for(gangs: Gangs) -> None:
    gangs.cluster.apply(QUEUE.replace("CPU", "2"))
    gangs.cluster.run("annotate", "namespace", gangs.cluster.namespace, "scheduling.volcano.sh/queue-name=either")
    try:
        gangs.make(3, 3)
        group = in_phase(gangs.cluster, "Pending", "queue either")
        assert group["spec"]["queue"] == "either"
        assert gangs.cluster.placed() == 0
        gangs.cluster.run("patch", "queue", "either", "--type=merge", "-p", '{"spec": {"capability": {"cpu": 3}}}')
        in_phase(gangs.cluster, "Running")
    finally:
        gangs.cluster.clear()
        gangs.cluster.run("delete", "queue", "either", "--wait=false")


def test_a_queue_that_does_not_exist_is_refused_by_one_rule(gangs: Gangs) -> None:
    done = gangs.cluster.run("apply", "-f", "-", stdin=gangs.written(1, 1, queue="no-such-queue"))
    said = gangs.cluster.condition("False", "no-such-queue")["message"] if gangs.native else done.stdout
    assert 'queue "no-such-queue" (spec.queue) does not exist: use one of the open queues' in said
    assert gangs.cluster.placed() == 0


def test_admit_tells_of_a_file_whether_it_would_start(gangs: Gangs) -> None:
    would = " ".join(gangs.cluster.muster("admit", "-f", "-", stdin=gangs.written(3, 3)).split())
    assert f"PodGroup {gangs.cluster.namespace}/workers would start now, 3 pods" in would
    would_not = " ".join(gangs.cluster.muster("admit", "-f", "-", stdin=gangs.written(5, 5)).split())
    assert "5 pods need 5 cpu" in would_not
    assert "would start now" not in would_not
