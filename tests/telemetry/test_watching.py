"""Dashboard and alerts ask for what the programs show, in PromQL, and every alert has its section in the runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("programs")]

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/dashboards/muster.json").read_text())
ALERTS = yaml.safe_load((ROOT / "deploy/alerts/muster.yaml").read_text())
RULES = [rule for group in ALERTS["spec"]["groups"] for rule in group["rules"]]
RUNBOOK = (ROOT / "docs/operations.md").read_text()
TARGETS = [
    (panel["title"], target["expr"], target["legendFormat"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
VARIABLES = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
# Without samples until something is wrong; so what labels it would have is said here.
SILENT = {
    "muster_scheduler_plugin_faults_total": {"plugin", "point"},
    "muster_scheduler_queue_evictions_total": {"queue"},
    "muster_scheduler_queue_longest_wait_seconds": {"queue", "namespace", "podgroup"},
    "muster_scheduler_queue_waiting_podgroups": {"queue"},
    "muster_scheduler_unreadable_objects": {"kind"},
    "muster_webhook_unreadable_objects": {"kind"},
}
ADDED = {"instance"}  # by Prometheus


def expressions() -> Iterator[tuple[str, str]]:
    yield from ((f"panel {title}", expression) for title, expression, _ in TARGETS)
    yield from ((f"alert {rule['alert']}", rule["expr"]) for rule in RULES)
    for variable in VARIABLES:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
        yield f"variable {variable['name']}", f"sum by ({label}) ({metric})"


def parsed(expression: str) -> Any:
    """Parse as Prometheus would, with Grafana's one variable that isn't PromQL filled in."""
    return promql_parser.parse(expression.replace("$__rate_interval", "5m"))


def nodes(node: Any) -> Iterator[Any]:
    """Return an expression and all that it is made of."""
    yield node
    parts = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "param", "vector_selector")]
    for part in [*parts, *getattr(node, "args", ())]:
        if part is not None and not isinstance(part, str):
            yield from nodes(part)


def selectors(expression: str) -> list[Any]:
    return [node for node in nodes(parsed(expression)) if isinstance(node, promql_parser.VectorSelector)]


def grouping(expression: str) -> set[str]:
    """The labels by which an expression sums or matches."""
    modifiers = [getattr(node, "modifier", None) for node in nodes(parsed(expression))]
    kept = [
        getattr(each, "labels", None) or getattr(getattr(each, "matching", None), "labels", None) for each in modifiers
    ]
    return {label for labels in kept if labels for label in labels}


@pytest.fixture(scope="module")
def shown(told: Any) -> dict[str, set[str]]:
    """The names of samples that the programs show, each with the labels that it has."""
    found: dict[str, set[str]] = {}
    for program in told.values():
        for family in program.families().values():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return {**SILENT, **found}


def test_what_is_said_to_be_silent_is_known_to_the_programs(told: Any) -> None:
    families = {name for program in told.values() for name in program.families()}
    assert {name.removesuffix("_total") for name in SILENT} <= families


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_what_is_asked_is_promql_of_metrics_and_labels_that_exist(
    shown: dict[str, set[str]], where: str, expression: str
) -> None:
    used = selectors(expression)
    assert used or expression == "time()", where
    for selector in used:
        assert selector.name in shown, f"{where} asks for {selector.name}"
        matched = {matcher.name for matcher in selector.matchers.matchers}
        assert matched <= shown[selector.name] | ADDED, where
    everything = set().union(*(shown[selector.name] for selector in used))
    assert grouping(expression) <= everything | ADDED, where


@pytest.mark.parametrize(("title", "expression", "legend"), TARGETS)
def test_a_legend_names_labels_that_the_series_have(title: str, expression: str, legend: str) -> None:
    named = set(re.findall(r"{{(\w+)}}", legend))
    assert named <= grouping(expression) | {"instance"} | ({"queue"} if "queue_share" in expression else set()), title


def test_counters_are_asked_for_rates_and_gauges_are_not(told: Any) -> None:
    types = {name: family.type for program in told.values() for name, family in program.families().items()}
    for where, expression in expressions():
        if where.startswith("variable"):
            continue
        calls = [node for node in nodes(parsed(expression)) if isinstance(node, promql_parser.Call)]
        inside = {call.args[0].vector_selector.name for call in calls if call.func.name in {"rate", "increase"}}
        for selector in selectors(expression):
            name = re.sub(r"_(total|bucket|sum|count)$", "", selector.name)
            assert (selector.name in inside) is (types[name] in {"counter", "histogram"}), where


def test_every_metric_of_ours_is_on_the_dashboard_or_in_an_alert_or_in_the_runbook(told: Any) -> None:
    text = json.dumps(DASHBOARD) + json.dumps(ALERTS) + RUNBOOK
    ours = {name for program in told.values() for name in program.families() if name.startswith("muster_")}
    assert {name for name in ours if name not in text} == set()


def test_the_dashboard_shows_what_an_operator_was_promised() -> None:
    titles = {panel["title"] for panel in DASHBOARD["panels"]}
    assert {
        "Reviews by verdict",
        "Time to answer",
        "Refusals by reason",
        "Reservations against quota: $namespace, $resource",
        "Queue shares",
        "Waiting time by stage",
        "Cycle time",
        "Time left",
    } <= titles
    places = [tuple(panel["gridPos"].values()) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_every_alert_has_its_section_in_the_runbook(rule: Any) -> None:
    name = rule["alert"]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
    section = re.search(rf"^### {name}$(.*?)(?=^##|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    assert section, f"docs/operations.md has no section {name}"
    assert "**What it means.**" in section[1]
    assert "**What to do.**" in section[1]


def test_the_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    names = {rule["alert"] for rule in RULES}
    assert set(re.findall(r"^### (Muster\w+)$", RUNBOOK, re.MULTILINE)) == names
    for group in ALERTS["spec"]["groups"]:
        assert {"name", "rules"} == set(group)


def test_templates_of_alerts_name_labels_that_the_alert_has_and_functions_of_prometheus() -> None:
    for rule in RULES:
        text = json.dumps(rule["annotations"])
        assert set(re.findall(r"\| (\w+)", text)) <= {"humanize", "humanizeDuration", "humanizePercentage"}
        assert text.count("{{") == len(re.findall(r"{{ \$(?:value|labels\.\w+)(?: \| \w+)? }}", text))
        named = set(re.findall(r"\$labels\.(\w+)", text))
        assert named <= grouping(rule["expr"]), rule["alert"]
