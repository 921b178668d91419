"""What the chart's NetworkPolicies let through, with rules of nftables made of them: no network plugin is tested, but the policies."""

from __future__ import annotations

import json

import images
import pytest
from nodes import SPACE
from platforms import MONITORING, decides, hosts, items, pods
from policies import TABLE, PolicyRules
from test_gangs import job

pytestmark = pytest.mark.processes

_PROBE = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reached(place):
    try:
        socket.create_connection(place, timeout=3).close()
        return True
    except TimeoutError:
        return False
places = [tuple(each) for each in json.loads(sys.argv[1])]
print(json.dumps(list(ThreadPoolExecutor(32).map(reached, places))))
"""


def placed(space: str, node: str) -> str:
    main = {"name": "main", "image": images.MUSTER, "imagePullPolicy": "Never", "command": ["sleep", "3600"]}
    spec = {"nodeName": node, "containers": [main], "terminationGracePeriodSeconds": 0}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": node, "namespace": space}, "spec": spec})


@pytest.fixture(scope="module")
def people(dual):
    """A pod on each node in a namespace of strangers, and in that of monitoring."""
    for space in ("strangers", MONITORING):
        dual.kubectl("create", "namespace", space)
        dual.kubectl("wait", "serviceaccount/default", "--for=create", "--namespace", space, "--timeout=60s")
        for node in dual.names:
            dual.kubectl("apply", "-f", "-", stdin=placed(space, node))
    for space in ("strangers", MONITORING):
        dual.kubectl("wait", "pods", "--all", "--for=condition=Ready", "--namespace", space, "--timeout=300s")
    yield
    dual.kubectl("delete", "namespace", "strangers", MONITORING)


def enforce(nodes) -> None:
    rules = PolicyRules(
        items(nodes, "networkpolicies", "--all-namespaces"),
        items(nodes, "pods", "--all-namespaces"),
        items(nodes, "namespaces"),
    ).text()
    (nodes.folder / "policies.nft").write_text(rules)
    for name in nodes.names:
        # Packets between two pods of one node pass a bridge alone.
        for each in ("ip", "ip6"):
            nodes.inside("sysctl", "-qw", f"net.bridge.bridge-nf-call-{each}tables=1", node=name)
        nodes.inside("nft", "-f", str(nodes.folder / "policies.nft"), node=name)


@pytest.fixture
def enforced(dual, people):
    enforce(dual)
    yield
    for name in dual.names:
        dual.inside("nft", "delete", "table", *TABLE.split(), node=name)


def reached(nodes, space: str) -> dict[str, set[bool]]:
    """Return whether the pods of a namespace reach Muster's, by the name of the port: from each node, by each family."""
    places = [
        (port["name"], host, port["containerPort"])
        for pod in pods(nodes)
        for port in pod["spec"]["containers"][0]["ports"]
        for host in hosts(pod)
    ]
    found: dict[str, set[bool]] = {}
    for node in nodes.names:
        asked = json.dumps([[host, number] for _, host, number in places])
        words = ("exec", node, "--namespace", space, "--", "python", "-c", _PROBE, asked)
        for (name, *_), answer in zip(places, json.loads(nodes.kubectl(*words)), strict=True):
            found.setdefault(name, set()).add(answer)
    return found


def test_who_may_connect_is_what_the_policies_say_on_every_node_and_by_both_families(dual, people, request):
    everything = {"webhooks": {True}, "visibility": {True}, "metrics": {True}, "probes": {True}}
    # Without rules each place is reached: the network itself stops nobody.
    assert reached(dual, "strangers") == everything
    request.getfixturevalue("enforced")
    closed = everything | {"webhooks": {False}, "metrics": {False}}
    assert reached(dual, "strangers") == closed
    assert reached(dual, MONITORING) == closed | {"metrics": {True}}


def test_behind_its_policies_muster_refuses_and_starts_as_ever(dual, enforced):
    decides(dual, job("behind", ["true"]), "behind")
    done = dual.run("helm", "test", "muster", "--namespace", SPACE, "--timeout", "2m")
    assert done.returncode == 0, done.stdout + done.stderr
    # The tenants' API answers through the API server, from which alone it is called.
    dual.kubectl("get", "--raw", "/apis/visibility.muster.sh/v1alpha1")
