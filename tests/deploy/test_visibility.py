"""The chart with the visibility API: what it adds, and that a value turns it off."""

from __future__ import annotations

from typing import Any

import chart
import pytest

from certs import apiservice, observation
from muster.cli.commands.visibility import visibility as visibility_command
from muster.cli.installation import permissions

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("helm")]

ON = {"visibility": {"enabled": True}}


def one(manifests: list[Any], kind: str, name: str) -> Any:
    (found,) = [each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def container(manifests: list[Any], component: str) -> Any:
    (found,) = one(manifests, "Deployment", f"muster-{component}")["spec"]["template"]["spec"]["containers"]
    return found


def test_it_is_on_until_somebody_turns_it_off(render):
    assert "--visibility" in container(render({}), "certs")["args"]
    made = render({"visibility": {"enabled": False}})
    assert not [each for each in made if "visibility" in each["metadata"]["name"]]
    assert "--visibility" not in container(made, "certs")["args"]


def test_its_permissions_are_those_of_deploy_rbac(render):
    made, without = render(ON), permissions.roles(legacy_apis=False)
    wanted = [each for each in permissions.roles(legacy_apis=False, visibility=True) if each not in without]
    assert wanted
    for each in wanted:
        assert one(made, each["kind"], each["metadata"]["name"]) == each
    assert not [each for each in made if each["kind"] == "APIService"], "it is registered while it is served"


@pytest.mark.parametrize("more", [{}, {"dropIn": True}, {"monitoring": {"from": [{"podSelector": {}}]}}])
def test_the_program_takes_what_its_deployment_gives_it(render, tmp_path, more):
    (tmp_path / "scheduler.yaml").touch()
    args = container(render(ON | more), "visibility")["args"]
    assert args[0] == "visibility"
    given = [each.replace("/configuration/", f"{tmp_path}/") for each in args[1:]]
    assert visibility_command.make_context("visibility", given).params


def test_it_is_served_where_it_is_registered_and_its_keeper_reaches_it(render):
    made = render(ON)
    (port,) = one(made, "Service", apiservice.SERVICE)["spec"]["ports"]
    ports = {each["name"]: each["containerPort"] for each in container(made, "visibility")["ports"]}
    assert (port["port"], ports[port["targetPort"]]) == (apiservice.PORT, apiservice.PORT)
    assert "--visibility" in container(made, "certs")["args"]
    selector = one(made, "Service", apiservice.SERVICE)["spec"]["selector"]
    egress = one(made, "NetworkPolicy", "muster-certs")["spec"]["egress"]
    reached = [{"protocol": "TCP", "port": apiservice.PORT}]
    assert {"to": [{"podSelector": {"matchLabels": selector}}], "ports": reached} in egress
    ingress = one(made, "NetworkPolicy", "muster-visibility")["spec"]["ingress"]
    assert {each["port"] for rule in ingress for each in rule["ports"]} == {9444, 8086}
    assert observation.VISIBILITY == apiservice.SERVICE


def test_its_certificate_is_good_for_its_service(render):
    issued = one(render(ON | {"certificates": {"mode": "cert-manager"}}), "Certificate", "muster-webhook")
    assert f"{apiservice.SERVICE}.muster-system.svc" in issued["spec"]["dnsNames"]


def test_it_runs_with_no_more_than_it_needs(render):
    made = render(ON)
    pod = one(made, "Deployment", "muster-visibility")["spec"]["template"]["spec"]
    webhook = one(made, "Deployment", "muster-webhook")["spec"]["template"]["spec"]
    assert pod["securityContext"] == webhook["securityContext"]
    assert pod["containers"][0]["securityContext"] == webhook["containers"][0]["securityContext"]
    assert pod["terminationGracePeriodSeconds"] == webhook["terminationGracePeriodSeconds"]
    rules = [
        rule
        for name in ("ClusterRole", "Role")
        for rule in one(made, name, "muster-visibility")["rules"]
        if set(rule["verbs"]) - {"get", "list", "watch"} or "secrets" in rule["resources"]
    ]
    assert rules == []


@pytest.mark.parametrize("everyone", [True, False])
def test_queues_are_for_everyone_where_the_value_says_so(render, everyone):
    made = render({"visibility": {"enabled": True, "queuesForEveryone": everyone}})
    bound = [
        each
        for each in made
        if each["kind"] == "ClusterRoleBinding" and each["roleRef"]["name"] == "muster-visibility-queues"
    ]
    removed = permissions.for_everyone()
    assert [each["subjects"] for each in bound] == ([removed["subjects"]] if everyone else [])
    assert [each["metadata"]["name"] for each in bound] == ([removed["metadata"]["name"]] if everyone else [])


def test_a_value_that_it_does_not_have_is_refused_by_its_name():
    chart.needed()
    done = chart.template({"visibility": {"enabled": True, "replica": 3}})
    assert done.returncode != 0
    assert "replica" in done.stderr
