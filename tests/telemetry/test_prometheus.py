"""The dashboard's queries and the alerts, run by a real Prometheus against what the programs show."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus
import pytest
import yaml
from controlplane import free_ports

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("programs")]

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/dashboards/muster.json").read_text())
GROUPS = yaml.safe_load((ROOT / "deploy/alerts/muster.yaml").read_text())["spec"]
SECONDS = 60.0
VARIABLES = {"$__rate_interval": "5m", "$namespace": "default", "$resource": "cpu"}
"""What Grafana fills in."""
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


class Served(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, as metrics."""

    def guess_type(self, path: Any) -> str:
        del path
        return "text/plain; version=0.0.4"

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Prometheus:
    """A running one."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer.

        Raises:
            AssertionError: it is an error; the text is Prometheus' own.
        """
        try:
            with urllib.request.urlopen(
                f"{self._url}{path}?{urllib.parse.urlencode(query)}", timeout=SECONDS
            ) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def until(self, path: str, holds: Any) -> Any:
        """Return the data of an answer once something holds of it."""
        deadline = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(urllib.error.URLError, AssertionError):
                found = self.get(path)
                if holds(found):
                    return found
            assert time.monotonic() < deadline, path
            time.sleep(0.1)


@pytest.fixture(scope="module")
def tool() -> Path:
    found = prometheus.find("promtool")
    if found is None:
        pytest.skip("prometheus is missing (python3 tests/support/prometheus.py)")
    return found


@pytest.fixture(scope="module")
def running(tool: Path, metrics_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus, which scrapes all programs and has the rules."""
    folder = tmp_path_factory.mktemp("prometheus")
    (port,) = free_ports(1)
    names = sorted(each.name for each in metrics_folder.iterdir())
    handler = functools.partial(Served, directory=str(metrics_folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        jobs = [
            {
                "job_name": name,
                "metrics_path": f"/{name}",
                "static_configs": [{"targets": [f"127.0.0.1:{served.server_port}"], "labels": {"instance": name}}],
            }
            for name in names
        ]
        quick = {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"}
        (folder / "rules.yaml").write_text(yaml.safe_dump(GROUPS))
        configuration = {"global": quick, "rule_files": ["rules.yaml"], "scrape_configs": jobs}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        checked = subprocess.run(
            [str(tool), "check", "config", str(folder / "prometheus.yaml")], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        command = [
            str(prometheus.find("prometheus")),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            made = Prometheus(f"http://127.0.0.1:{port}")
            try:
                healthy = made.until("/api/v1/targets", lambda found: _scraped(found, len(names)))
                assert healthy
                yield made
            finally:
                process.terminate()
        served.shutdown()


def _scraped(found: Any, count: int) -> bool:
    health = [each["health"] for each in found["activeTargets"]]
    return health == ["up"] * count


def test_promtool_finds_nothing_wrong_with_the_rules(tool: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(GROUPS))
    done = subprocess.run(
        [str(tool), "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(len(each['rules']) for each in GROUPS['groups'])} rules found" in done.stdout


def test_all_queries_of_the_dashboard_are_answered(running: Prometheus) -> None:
    for expression in QUERIES:
        assert running.get("/api/v1/query", query=_filled_in(expression))["resultType"] in {"vector", "scalar"}


def _filled_in(expression: str) -> str:
    return functools.reduce(lambda text, pair: text.replace(*pair), VARIABLES.items(), expression)


@pytest.mark.parametrize(
    "metric", ["muster_scheduler_queue_share", "muster_visibility_requests_total", "muster_ledger_quota_hard"]
)
def test_what_the_programs_show_is_stored(running: Prometheus, metric: str) -> None:
    assert running.get("/api/v1/query", query=metric)["result"]


def test_the_variables_of_the_dashboard_have_values(running: Prometheus) -> None:
    found = running.get("/api/v1/label/namespace/values", **{"match[]": "muster_ledger_quota_hard"})
    assert found == ["default"]


def test_all_rules_are_evaluated_without_an_error(running: Prometheus) -> None:
    wanted = {rule["alert"] for group in GROUPS["groups"] for rule in group["rules"]}

    def rules(found: Any) -> list[Any]:
        return [rule for group in found["groups"] for rule in group["rules"]]

    found = rules(running.until("/api/v1/rules", lambda told: all(each["health"] != "unknown" for each in rules(told))))
    assert {each["name"] for each in found} == wanted
    assert [each for each in found if each["health"] != "ok"] == []
