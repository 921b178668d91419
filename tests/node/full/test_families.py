"""Clusters of IPv6 alone, and of both families."""

from __future__ import annotations

import ipaddress
import json
import time

import pytest
from nodes import SPACE, Nodes
from platforms import decides, hosts, pods
from test_gangs import job

pytestmark = pytest.mark.processes

# Whoever is at a port of probes answers.
_ASK = """
import json, sys, urllib.request
for place in json.loads(sys.argv[1]):
    print(urllib.request.urlopen(f"http://{place}/healthz", timeout=30).status)
"""


def versions(nodes: Nodes) -> set[tuple[int, ...]]:
    """Return of which families the addresses of Muster's pods are."""
    return {tuple(ipaddress.ip_address(host).version for host in hosts(each)) for each in pods(nodes)}


def checked(nodes: Nodes) -> None:
    """Have the chart's own test look at everything, and the API server reach the tenants' API."""
    done = nodes.run("helm", "test", "muster", "--namespace", SPACE, "--timeout", "3m")
    assert done.returncode == 0, done.stdout + done.stderr
    waited = ("apiservice/v1alpha1.visibility.muster.sh", "--for=condition=Available", "--timeout=120s")
    nodes.kubectl("wait", *waited)


def test_where_there_is_ipv6_alone_the_chart_s_defaults_refuse_start_and_answer(real, figures):
    begun = time.monotonic()
    with Nodes(1, families=(6,)) as nodes:
        nodes.install()
        figures["one node of IPv6 alone with Muster, s"] = time.monotonic() - begun
        assert versions(nodes) == {(6,)}
        decides(nodes, job("six", ["true"]), "six")
        checked(nodes)
        restarts = [each["status"]["containerStatuses"][0]["restartCount"] for each in pods(nodes)]
        assert set(restarts) == {0}


def test_where_there_are_both_families_every_program_answers_by_both(dual):
    assert versions(dual) == {(4, 6)}
    places = []
    for each in pods(dual):
        (probes,) = [
            port["containerPort"] for port in each["spec"]["containers"][0]["ports"] if port["name"] == "probes"
        ]
        places += [f"[{host}]:{probes}" if ":" in host else f"{host}:{probes}" for host in hosts(each)]
    assert len(places) >= 2 * len(pods(dual))
    for node in dual.names:
        said = dual.inside("python3", "-c", _ASK, json.dumps(places), node=node)
        assert said.split() == ["200"] * len(places)
    decides(dual, job("both", ["true"]), "both")
    checked(dual)
