"""Prometheus scrapes all programs on real nodes as docs/operations.md says, and evaluates the chart's alerts."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import prometheus
import pytest
import yaml
from nodes import SPACE, NodeError, Nodes
from platforms import PROGRAMS, hosts, pods, settled, until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load((ROOT / "deploy" / "alerts" / "muster.yaml").read_text())["spec"]
_GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"


def target(pod: dict[str, Any]) -> dict[str, Any]:
    """Return where a pod's metrics are, by the name of its port, with the label that monitors of the chart give it."""
    (port,) = [each["containerPort"] for each in pod["spec"]["containers"][0]["ports"] if each["name"] == "metrics"]
    component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
    return {"targets": [f"{hosts(pod)[0]}:{port}"], "labels": {"app_kubernetes_io_component": component}}


def configuration(nodes: Nodes, folder: Path) -> dict[str, Any]:
    """Return what scrapes all pods at their port `metrics`, with the account of the page."""
    authority = nodes.kubectl(
        "get",
        "secret",
        "muster-webhook-tls",
        "-n",
        SPACE,
        "--output=go-template={{index .data `ca.crt` | base64decode}}",
    )
    (folder / "ca.crt").write_text(authority)
    (folder / "token").write_text(nodes.kubectl("create", "token", "muster-metrics", "--namespace", SPACE))
    job = {
        "job_name": "muster",
        "scheme": "https",
        "authorization": {"credentials_file": str(folder / "token")},
        "tls_config": {"ca_file": str(folder / "ca.crt"), "server_name": f"muster-webhook.{SPACE}.svc"},
        # Debian's Prometheus is built without what finds pods by the API server.
        "static_configs": [target(each) for each in pods(nodes)],
    }
    often = {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "3s"}
    return {"global": often, "rule_files": [str(folder / "rules.yaml")], "scrape_configs": [job]}


@pytest.fixture(scope="module")
def ask(dual: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """What asks a Prometheus on the first node."""
    program = prometheus.find("prometheus")
    if program is None:
        pytest.skip("prometheus is missing (python3 tests/support/prometheus.py)")
    folder = tmp_path_factory.mktemp("prometheus")
    page = (ROOT / "docs" / "operations.md").read_text()
    (account,) = [
        each for each in re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if "muster-metrics" in each
    ]
    dual.kubectl("apply", "-f", "-", stdin=account)
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration(dual, folder)))
    words = (f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}")
    dual.add("prometheus", str(program), *words, "--web.listen-address=127.0.0.1:9090")

    def asked(path: str) -> Any:
        try:
            return json.loads(dual.inside("python3", "-c", _GET, f"http://127.0.0.1:9090/api/v1/{path}"))["data"]
        except NodeError:
            return None

    yield asked
    dual.kill("prometheus")
    dual.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=account)


def states(ask: Callable[[str], Any]) -> dict[str, tuple[str, str]]:
    """Return each alert's state and health."""
    told = ask("rules") or {"groups": []}
    return {rule["name"]: (rule["state"], rule["health"]) for group in told["groups"] for rule in group["rules"]}


def test_it_scrapes_every_program_s_pods_over_tls_with_a_token(dual, ask):
    wanted = {each["metadata"]["name"] for each in pods(dual)}

    def up() -> bool:
        targets = (ask("targets") or {"activeTargets": []})["activeTargets"]
        return len(targets) >= len(wanted) and {each["health"] for each in targets} == {"up"}

    until(up)
    query = urllib.parse.quote('count by (app_kubernetes_io_component) (up{job="muster"})')
    found = ask(f"query?query={query}")["result"]
    assert {each["metric"]["app_kubernetes_io_component"] for each in found} == set(PROGRAMS)


def test_all_alerts_are_evaluated_and_none_fires_until_nobody_leads(dual, ask):
    names = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    until(lambda: set(states(ask).values()) == {("inactive", "ok")})
    assert set(states(ask)) == names
    dual.kubectl("scale", "deployment/muster-scheduler", "--replicas=0", "--namespace", SPACE)
    try:
        until(lambda: states(ask)["MusterNobodyLeads"][0] in {"pending", "firing"})
        assert {health for _, health in states(ask).values()} == {"ok"}
    finally:
        dual.kubectl("scale", "deployment/muster-scheduler", "--replicas=2", "--namespace", SPACE)
        settled(dual)
