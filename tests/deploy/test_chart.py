"""The Helm chart: what it makes of values, which values it refuses, and that its copies are copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chart
import pytest
import yaml

from certs import path_secret
from muster import __version__
from muster.cli.certs.run import run as certs_command
from muster.cli.installation import crds, permissions, preflight
from muster.model import webhooks
from scheduler.__main__ import scheduler as scheduler_command
from scheduler.configuration import config
from webhooks.__main__ import webhook as webhook_command
from webhooks.registration import ServiceRef, configurations

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("helm")]

VALUES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "values.yaml").read_text())


def one(manifests: list[Any], kind: str, name: str) -> Any:
    (found,) = [each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def volumes(manifests: list[Any]) -> dict[str, Any]:
    found = one(manifests, "Deployment", "muster-webhook")["spec"]["template"]["spec"]["volumes"]
    return {each["name"]: each for each in found}


def arguments(manifests: list[Any], component: str) -> list[str]:
    return one(manifests, "Deployment", f"muster-{component}")["spec"]["template"]["spec"]["containers"][0]["args"]


# ── copies ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("file", chart.generated(), ids=lambda file: file.name)
def test_what_is_decided_elsewhere_is_in_the_chart_as_it_is_there(file: Path):
    assert file.read_text() == chart.generated()[file], "not current: run `make manifests`"


def test_the_plain_manifest_is_current():
    chart.needed()
    assert chart.PLAIN.read_text() == chart.plain(), "not current: run `make manifests`"


def test_the_chart_is_of_this_version():
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (__version__, __version__)


def test_the_oldest_kubernetes_is_the_same_for_the_chart_and_for_the_command():
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert about["kubeVersion"] == f">={'.'.join(map(str, preflight.OLDEST))}.0-0"


def test_the_configuration_that_the_values_have_is_the_scheduler_s_own():
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())["scheduler"]
    default = yaml.safe_load(config.DEFAULT)
    assert (", ".join(values["actions"]), values["tiers"]) == (default["actions"], default["tiers"])


@pytest.mark.parametrize("legacy", [False, True])
def test_installed_by_helm_it_is_what_muster_install_makes(render, legacy):
    # The command installs no Deployment, so none that answers tenants either.
    made = render({"legacyApis": legacy, "visibility": {"enabled": False}})
    wanted = [
        *crds.manifests(legacy_apis=legacy),
        *permissions.roles(legacy_apis=legacy),
        *permissions.policies(),
        *configurations(
            ServiceRef("muster-system", "muster-webhook", chart.PORT),
            b"",
            scheduler_names=["muster"],
            legacy_apis=legacy,
            own_namespace="muster-system",
        ),
    ]
    for each in wanted:
        found = one(made, each["kind"], each["metadata"]["name"])
        for key in ("helm.sh/resource-policy", "muster.sh/paths"):
            found["metadata"].get("annotations", {}).pop(key, None)
        if not found["metadata"].get("annotations", True):
            del found["metadata"]["annotations"]
        for hook in each.get("webhooks", ()):
            # The leader's to write.
            assert hook["clientConfig"].pop("caBundle") == ""
            assert hook["clientConfig"]["service"].pop("path") == webhooks.PATHS[hook["name"]]
        assert found == each
    kinds = {each["kind"] for each in wanted}
    ours = [
        each for each in made if each["kind"] in kinds and "helm.sh/hook" not in each["metadata"].get("annotations", {})
    ]
    assert len(ours) == len(wanted)


def test_in_another_namespace_nothing_names_the_usual_one():
    chart.needed()
    done = chart.helm("template", "muster", str(chart.CHART), "--namespace", "batch")
    assert "muster-system" not in done.stdout
    assert "system:serviceaccount:batch:muster-scheduler" in done.stdout


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_programs_take_what_the_deployments_give_them(render, values, tmp_path):
    made = render(values)
    policy = one(made, "ConfigMap", "muster-scheduler")["data"]["scheduler.yaml"]
    (tmp_path / "scheduler.yaml").write_text(policy)
    programs = [("webhook", webhook_command), ("scheduler", scheduler_command), ("certs", certs_command)]
    for component, command in programs:
        words = ["certs", "run"] if component == "certs" else [component]
        given = arguments(made, component)
        assert given[: len(words)] == words
        given = [each.replace("/configuration/", f"{tmp_path}/") for each in given[len(words) :]]
        assert command.make_context(component, given).params
    if "ownPlugins" not in values.get("scheduler", {}):
        assert config.parse(policy).actions


def test_with_drop_in_all_is_served_that_was_written_for_kube_batch_and_volcano(render):
    made = render({"dropIn": True, "schedulerNames": ["muster", "volcano"]})
    for component in ("webhook", "scheduler"):
        given = arguments(made, component)
        assert [each.partition("=")[2] for each in given if each.startswith("--scheduler-name")] == [
            *("muster", "volcano", "kube-batch")
        ]
        assert "--legacy-apis" in given
    assert made == render({"legacyApis": True, "schedulerNames": ["muster", "volcano", "kube-batch"]})


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"autoscaling": "auto"}, "auto"),
        ({"autoscaling": True}, True),
        ({"autoscaling": False}, False),
        # What is said of the action itself counts for more, and keeps what else it says.
        ({"autoscaling": False, "configurations": [{"name": "enqueue", "arguments": {"autoscaling": True}}]}, True),
        (
            {"autoscaling": True, "configurations": [{"name": "enqueue", "arguments": {"inqueueTimeoutSeconds": 5}}]},
            True,
        ),
    ],
)
def test_whether_nodes_are_made_is_a_value_of_the_chart(render, values, wanted):
    text = one(render({"scheduler": values}), "ConfigMap", "muster-scheduler")["data"]["scheduler.yaml"]
    enqueue = config.parse(text).arguments["enqueue"]
    assert enqueue.autoscaling == wanted
    given = [each.get("arguments", {}) for each in values.get("configurations", ())]
    assert enqueue.timeout == next(
        (each["inqueueTimeoutSeconds"] for each in given if "inqueueTimeoutSeconds" in each), None
    )


def test_lint_finds_nothing(tmp_path):
    chart.needed()
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(VALUES["everything"]))
    done = chart.helm("lint", "--strict", str(chart.CHART), "--values", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_value_is_where_it_belongs(render):
    made = render(VALUES["everything"])
    webhook = one(made, "Deployment", "muster-webhook")["spec"]
    pod = webhook["template"]["spec"]
    (container,) = pod["containers"]
    assert webhook["replicas"] == 5
    assert container["image"] == f"registry.example/batch/muster@sha256:{'0' * 64}"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert "priorityClassName" not in pod
    assert pod["nodeSelector"] == {"node-role.kubernetes.io/control-plane": ""}
    assert pod["tolerations"][0]["key"] == "dedicated"
    assert container["resources"]["requests"] == {"cpu": 2, "memory": "1Gi"}
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 30}}}
    assert pod["terminationGracePeriodSeconds"] > 30 + 15
    assert {"--scheduler-name=volcano", "--legacy-apis", "--drain=15", "--no-delay"} <= set(arguments(made, "webhook"))
    assert {"--quota-mode=guaranteed", "--legacy-apis"} <= set(arguments(made, "scheduler"))
    validating = one(made, "ValidatingWebhookConfiguration", "muster")["webhooks"]
    policies = {each["name"]: each["failurePolicy"] for each in validating}
    assert policies["podgroupminresources.muster.sh"] == "Ignore"
    assert policies["jobs.validate.muster.sh"] == "Fail"
    left_out = [
        each["namespaceSelector"]["matchExpressions"][0]["values"] for each in validating if "namespaceSelector" in each
    ]
    assert {tuple(each) for each in left_out} == {("kube-system", "kube-node-lease", "muster-system", "istio-system")}
    assert '["muster","volcano"]' in json.dumps(validating).replace("\\", "")
    crds = [each for each in made if each["kind"] == "CustomResourceDefinition"]
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in crds} == {"delete"}
    for kind in ("PodMonitor", "PrometheusRule"):
        assert one(made, kind, "muster")["metadata"]["labels"]["release"] == "prometheus"
    alerts = yaml.safe_load((chart.ROOT / "deploy" / "alerts" / "muster.yaml").read_text())
    assert one(made, "PrometheusRule", "muster")["spec"] == alerts["spec"]
    dashboard = one(made, "ConfigMap", "muster-dashboard")["data"]["muster.json"]
    assert json.loads(dashboard) == json.loads((chart.ROOT / "deploy" / "dashboards" / "muster.json").read_text())


def test_with_cert_manager_it_issues_and_injects_and_muster_does_not(render):
    made = render(VALUES["cert-manager"])
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        found = one(made, kind, "muster")
        assert found["metadata"]["annotations"] == {
            "cert-manager.io/inject-ca-from": "muster-system/muster-webhook",
            "muster.sh/paths": "muster-certs",
        }
    certificate = one(made, "Certificate", "muster-webhook")["spec"]
    assert certificate["issuerRef"]["name"] == one(made, "Issuer", "muster-ca")["metadata"]["name"]
    volume = volumes(made)["certificates"]
    assert volume["secret"]["secretName"] == certificate["secretName"]
    assert "--no-certificates" in arguments(made, "certs")
    assert [each["metadata"]["name"] for each in made if each["kind"] == "Secret"] == [path_secret.PATH]
    theirs = render(VALUES["cert-manager's issuer"])
    assert one(theirs, "Certificate", "muster-webhook")["spec"]["issuerRef"]["kind"] == "ClusterIssuer"
    assert not [each for each in theirs if each["kind"] == "Issuer"]


def test_with_files_the_bundle_is_in_every_webhook(render):
    made = render(VALUES["files"])
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert all(each["clientConfig"]["caBundle"] for each in one(made, kind, "muster")["webhooks"])
    volume = volumes(made)["certificates"]
    assert volume["secret"]["secretName"] == "company-tls"
    assert [each["metadata"]["name"] for each in made if each["kind"] == "Secret"] == [path_secret.PATH]


def test_no_webhook_has_a_path_and_the_secret_that_ends_them_is_made_empty(render):
    """What the chart sets, an upgrade would set again: the leader alone writes paths."""
    for values in VALUES.values():
        made = render(values)
        entries = [
            each
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
            for each in one(made, kind, "muster")["webhooks"]
        ]
        assert {each["name"] for each in entries} == set(webhooks.PATHS)
        assert not [each for each in entries if "path" in each["clientConfig"]["service"]]
        secret = one(made, "Secret", path_secret.PATH)
        assert "data" not in secret
        assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert volumes(made)["paths"]["secret"]["secretName"] == path_secret.PATH
        assert "--paths=/paths" in arguments(made, "webhook")


def test_with_a_client_ca_nobody_is_answered_without_a_certificate(render):
    made = render(VALUES["client certificates"])
    assert "--client-ca=/clients/ca.crt" in arguments(made, "webhook")
    held = one(made, "ConfigMap", volumes(made)["clients"]["configMap"]["name"])["data"]["ca.crt"]
    assert held.strip() == VALUES["client certificates"]["webhook"]["clientCA"].strip()
    assert not [each for each in arguments(render({}), "webhook") if each.startswith("--client-ca")]


def test_where_api_servers_call_from_can_be_limited_and_the_leader_may_look(render):
    values = {"networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/28"}}]}}
    made = render(values)
    calls, probes = one(made, "NetworkPolicy", "muster-webhook")["spec"]["ingress"]
    assert calls["ports"] == [{"protocol": "TCP", "port": 9443}]
    assert calls["from"][0] == values["networkPolicy"]["from"][0]
    certs = one(made, "Deployment", "muster-certs")["spec"]["template"]["metadata"]["labels"]
    assert calls["from"][1]["podSelector"]["matchLabels"].items() <= certs.items()
    assert probes == {"ports": [{"protocol": "TCP", "port": 8080}]}
    (anywhere,) = one(render({}), "NetworkPolicy", "muster-webhook")["spec"]["ingress"]
    assert "from" not in anywhere


def test_what_platforms_set_of_pods_and_accounts_is_on_all_of_them(render):
    values = VALUES["a platform"]
    made = render(values)
    deployments = [each for each in made if each["kind"] == "Deployment"]
    assert len(deployments) == 4
    for each in deployments:
        component = each["metadata"]["labels"]["app.kubernetes.io/component"]
        template = each["spec"]["template"]
        assert template["metadata"]["annotations"] == values["podAnnotations"]
        assert template["metadata"]["labels"]["team"] == "batch"
        assert each["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        if component != "certs":
            assert template["spec"]["affinity"] == values["affinity"]
            assert template["spec"]["topologySpreadConstraints"] == values["topologySpreadConstraints"]
        own = values["certificates" if component == "certs" else component]
        assert set(own["extraArgs"]) <= set(arguments(made, component))
        assert template["spec"]["containers"][0].get("env") == own.get("extraEnv")
        assert template["spec"].get("hostNetwork", False) is own.get("hostNetwork", False)
    accounts = [each for each in made if each["kind"] == "ServiceAccount" and "helm.sh/hook" not in str(each)]
    assert [each["metadata"]["annotations"] for each in accounts] == [values["serviceAccountAnnotations"]] * 4
    assert "env" not in one(render({}), "Deployment", "muster-webhook")["spec"]["template"]["spec"]["containers"][0]


def test_on_the_network_of_nodes_all_that_names_a_port_names_the_one_that_is_set(render):
    values = VALUES["a platform"]
    made = render(values)
    for component, service in (("webhook", "webhooks"), ("visibility", "visibility")):
        ports = values[component]["ports"]
        (container,) = one(made, "Deployment", f"muster-{component}")["spec"]["template"]["spec"]["containers"]
        assert {each["name"]: each["containerPort"] for each in container["ports"]} == ports
        given = {f"--port={ports[service]}", f"--probe-port={ports['probes']}", f"--metrics-port={ports['metrics']}"}
        assert given <= set(container["args"])
        # API servers go by the Service, whose port stays.
        (port,) = one(made, "Service", f"muster-{component}")["spec"]["ports"]
        assert port["targetPort"] == service
        allowed = one(made, "NetworkPolicy", f"muster-{component}")["spec"]["ingress"][0]["ports"]
        assert {each["port"] for each in allowed} == {ports[service], ports["probes"]}
    looked_at = [
        port["port"]
        for rule in one(made, "NetworkPolicy", "muster-certs")["spec"]["egress"][1:]
        for port in rule["ports"]
    ]
    assert looked_at == [10443, 10444]


def test_a_service_monitor_finds_all_metrics_by_their_service(render):
    made = render(VALUES["a platform"])
    monitor, service = one(made, "ServiceMonitor", "muster"), one(made, "Service", "muster-metrics")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    for each in (one(made, "Deployment", f"muster-{name}") for name in ("webhook", "scheduler", "certs", "visibility")):
        template = each["spec"]["template"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        assert "metrics" in {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"]["credentials"] == {"name": "muster-metrics-token", "key": "token"}


def test_every_value_is_described(render):
    described = chart.values_described()
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())

    def undescribed(path: str, value: Any) -> list[str]:
        if path in described:
            return []
        if not isinstance(value, dict) or not value:
            return [path]
        return [found for name, inner in value.items() for found in undescribed(f"{path}.{name}", inner)]

    assert [found for name, value in values.items() for found in undescribed(name, value)] == []
    assert all(said.endswith(".") for said in described.values())


def test_helm_test_checks_the_installation_and_leaves_what_failed(render):
    made = render({})
    hooks = [each for each in made if each["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
    assert [each["kind"] for each in hooks] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Pod"]
    pod = hooks[-1]
    assert pod["spec"]["containers"][0]["args"] == ["check", "--namespace", "muster-system"]
    assert pod["spec"]["serviceAccountName"] == hooks[0]["metadata"]["name"]
    # Only the create is a write, and it is a dry run that is refused.
    verbs = {verb for rule in hooks[1]["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "create"}


# ── safe by default ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("component", ["webhook", "scheduler", "certs"])
def test_nothing_runs_with_more_than_it_needs(render, component):
    made = render({})
    pod = one(made, "Deployment", f"muster-{component}")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "runAsGroup": 65532,
    }
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}} in pod["volumes"]
    assert container["resources"]["limits"]["memory"]
    assert pod["serviceAccountName"] == f"muster-{component}"


@pytest.mark.parametrize(("component", "replicas"), [("webhook", 3), ("scheduler", 2)])
def test_replicas_stand_apart_and_go_one_by_one(render, component, replicas):
    made = render({})
    deployment = one(made, "Deployment", f"muster-{component}")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    pod = deployment["template"]["spec"]
    assert deployment["replicas"] == replicas
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = pod["topologySpreadConstraints"]
    budget = one(made, "PodDisruptionBudget", f"muster-{component}")["spec"]
    fence = one(made, "NetworkPolicy", f"muster-{component}")["spec"]
    selectors = (
        apart["podAffinityTerm"]["labelSelector"],
        spread["labelSelector"],
        budget["selector"],
        fence["podSelector"],
    )
    for selector in (*selectors, deployment["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
    assert budget["maxUnavailable"] == 1


def test_a_replica_serves_on_for_longer_than_it_takes_to_notice_that_it_goes(render):
    pod = one(render({}), "Deployment", "muster-webhook")["spec"]["template"]["spec"]
    sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    (drain,) = [int(each.partition("=")[2]) for each in arguments(render({}), "webhook") if each.startswith("--drain=")]
    probe = pod["containers"][0]["readinessProbe"]
    assert sleep >= 10
    assert sleep > probe["periodSeconds"] * probe["failureThreshold"]
    # What is in flight has 15 seconds after that, says webhooks/server.py.
    assert pod["terminationGracePeriodSeconds"] >= sleep + drain + 15


def test_the_probes_are_at_a_port_that_the_program_listens_on(render):
    for component in ("webhook", "scheduler", "certs"):
        (container,) = one(render({}), "Deployment", f"muster-{component}")["spec"]["template"]["spec"]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert f"--probe-port={ports['probes']}" in container["args"]
        paths = {each: container[f"{each}Probe"]["httpGet"] for each in ("startup", "liveness", "readiness")}
        assert {each["port"] for each in paths.values()} == {"probes"}
        assert paths["readiness"]["path"] == "/readyz"
        assert paths["liveness"]["path"] == "/healthz"


@pytest.mark.parametrize("component", ["webhook", "scheduler", "certs"])
def test_metrics_are_closed_until_somebody_is_named_who_may_read_them(render, component):
    closed, opened = render({}), render(VALUES["everything"])
    assert not [each for each in arguments(closed, component) if "metrics" in each]
    (wanted,) = [each for each in arguments(opened, component) if each.startswith("--metrics-port=")]
    (container,) = one(opened, "Deployment", f"muster-{component}")["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert wanted == f"--metrics-port={ports['metrics']}"
    rules = one(opened, "NetworkPolicy", f"muster-{component}")["spec"]["ingress"]
    everybody, chosen = ([each for each in rules if ("from" in each) is limited] for limited in (False, True))
    assert not {"metrics", ports["metrics"]} & {port["port"] for rule in everybody for port in rule["ports"]}
    assert [rule["from"] for rule in chosen if rule["ports"] == [{"protocol": "TCP", "port": "metrics"}]] == [
        VALUES["everything"]["monitoring"]["from"]
    ]
    (endpoint,) = one(opened, "PodMonitor", "muster")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"


@pytest.mark.parametrize("component", ["webhook", "scheduler", "certs"])
@pytest.mark.parametrize("opened", [{"from": [{"namespaceSelector": {}}]}, {"podMonitor": {"enabled": True}}])
def test_metrics_are_behind_token_review_unless_somebody_says_otherwise(render, component, opened):
    made = render({"monitoring": opened})
    assert "--metrics-tls=/certificates" in arguments(made, component)
    pod = one(made, "Deployment", f"muster-{component}")["spec"]["template"]["spec"]
    (folder,) = [each["name"] for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == "/certificates"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == folder]
    assert volume["secret"] == {"secretName": "muster-webhook-tls"}
    (rule,) = [
        each
        for each in one(made, "NetworkPolicy", f"muster-{component}")["spec"]["ingress"]
        if {"protocol": "TCP", "port": "metrics"} in each["ports"]
    ]
    assert rule.get("from") == opened.get("from")
    bound = one(made, "ClusterRoleBinding", "muster-metrics-review")["subjects"]
    assert f"muster-{component}" in {each["name"] for each in bound}
    assert one(made, "ClusterRole", "muster-metrics-reader")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]
    if "podMonitor" in opened:
        (endpoint,) = one(made, "PodMonitor", "muster")["spec"]["podMetricsEndpoints"]
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["serverName"] == "muster-webhook.muster-system.svc"
        assert endpoint["authorization"] == {"credentials": {"name": "muster-metrics-token", "key": "token"}}
    plain = render({"monitoring": {"from": [{"namespaceSelector": {}}], "tokenReview": False}})
    assert "--metrics-tls=/certificates" not in arguments(plain, component)
    assert not [each for each in plain if "metrics" in each["metadata"]["name"]]
    assert not [each for each in render({}) if "metrics" in each["metadata"]["name"]]


def test_who_schedules_has_no_permission_on_certificates(render):
    """One account that may write both is cluster-admin in effect."""
    made = render({"legacyApis": True})
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in made
        if "roleRef" in each and "muster-scheduler" in {subject["name"] for subject in each["subjects"]}
    }
    rules = [rule for kind, name in bound for rule in one(made, kind, name).get("rules") or ()]
    named = {resource for rule in rules for resource in rule["resources"]}
    assert "pods/binding" in named
    assert not named & {
        "secrets",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }


def test_who_keeps_certificates_is_reached_by_kubelets_and_reaches_the_replicas(render):
    made = render({})
    fence = one(made, "NetworkPolicy", "muster-certs")["spec"]
    assert fence["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8084}]}]
    replicas = {"to": [{"podSelector": {"matchLabels": one(made, "Service", "muster-webhook")["spec"]["selector"]}}]}
    assert replicas | {"ports": [{"protocol": "TCP", "port": 9443}]} in fence["egress"]
    assert len(one(made, "NetworkPolicy", "muster-scheduler")["spec"]["egress"]) == 1


def test_what_uninstalls_may_touch_no_more_than_what_is_muster_s_or_held_by_it(render):
    rules = one(render({}), "ClusterRole", "muster-uninstall")["rules"]
    assert not [rule for rule in rules if "*" in json.dumps(rule)]
    unnamed = {(*rule["resources"], *rule["verbs"]) for rule in rules if "resourceNames" not in rule}
    assert unnamed == {("jobs", "list", "patch"), ("queues", "list", "patch")}


# ── bad input ────────────────────────────────────────────────────────────────────────────────────────────────────

REFUSED = [
    ({"replicas": 3}, "replicas"),
    ({"webhook": {"replica": 3}}, "replica"),
    ({"webhook": {"replicas": 0}}, "webhook/replicas"),
    ({"webhook": {"failurePolicy": {"pods.muster.sh": "Fail"}}}, "pods.muster.sh"),
    ({"webhook": {"failurePolicy": {"pods.guarded.muster.sh": "fail"}}}, "pods.guarded.muster.sh"),
    ({"webhook": {"excludedNamespaces": ["Team A"]}}, "excludedNamespaces"),
    ({"webhook": {"preStopSeconds": 0}}, "preStopSeconds"),
    ({"webhook": {"resources": {"requests": {"memory": "lots"}}}}, "memory"),
    ({"webhook": {"resources": {"request": {}}}}, "request"),
    (
        {"webhook": {"resources": {"requests": {"memory": "1Gi"}}}},
        "webhook.resources requests 1Gi of memory, more than its limit of 512Mi: raise",
    ),
    ({"scheduler": {"actions": ["enqueue", "allocat"]}}, "actions"),
    ({"scheduler": {"actions": ["enqueue"]}}, "actions"),
    ({"scheduler": {"tiers": [{"plugins": [{"name": "gang", "argument": {}}]}]}}, "argument"),
    (
        {"scheduler": {"tiers": [{"plugins": [{"name": "gangs"}]}]}},
        'names the plugin "gangs", which Muster doesn\'t have',
    ),
    ({"schedulerNames": []}, "schedulerNames"),
    ({"schedulerNames": ["default-scheduler"]}, "schedulerNames"),
    ({"quota": {"mode": "off"}}, "quota/mode"),
    ({"certificates": {"mode": "files"}}, "certificates"),
    ({"certificates": {"mode": "files", "secretName": "tls", "caBundle": "ca.crt"}}, "caBundle"),
    ({"certificates": {"secretName": "tls"}}, "secretName"),
    ({"certificates": {"issuer": {"name": "company"}}}, "certificates"),
    ({"image": {"tag": "a b"}}, "image/tag"),
    ({"image": {"digest": "abc"}}, "image/digest"),
    ({"tolerations": [{"key": "a", "operator": "Exist"}]}, "operator"),
    ({"monitoring": {"podMonitor": {"interval": "often"}}}, "interval"),
    (
        {"monitoring": {"podMonitor": {"enabled": True}, "tokenReview": False}},
        "say in monitoring.from where Prometheus is",
    ),
    ({"monitoring": {"from": [{"namespace": "monitoring"}]}}, "namespace"),
]


@pytest.mark.parametrize(
    ("values", "named"), REFUSED, ids=lambda each: json.dumps(each) if isinstance(each, dict) else ""
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(values, named):
    chart.needed()
    done = chart.template(values)
    assert done.returncode != 0
    assert named in done.stderr


def test_a_cluster_that_is_too_old_is_refused():
    chart.needed()
    done = chart.template({}, "--kube-version", "1.29.9")
    assert "requires kubeVersion: >=1.30.0-0 which is incompatible with Kubernetes v1.29.9" in done.stderr
    assert chart.template({}, "--kube-version", "v1.30.4-gke.1348000").returncode == 0
