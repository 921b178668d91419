"""What the running programs tell: probes, metrics by Prometheus' conventions, logs, and no secret in any of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("programs")]

PROGRAMS = ("webhook", "scheduler", "certs", "visibility")
# https://prometheus.io/docs/practices/naming/: base units, and what a thing is counted in last.
UNIT = re.compile(r"_(seconds|bytes|timestamp_seconds|info|size)$")
MISTAKEN = re.compile(r"_(ms|milliseconds|minutes|hours|count|percent|kb|mb)(_|$)")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_at_work_is_alive_and_ready(told: Any, program: str) -> None:
    assert (told[program].alive, told[program].ready) == ((200, "ok\n"), (200, "ok\n"))


def test_the_work_is_in_the_metrics(told: Any) -> None:
    webhook, scheduler = told["webhook"], told["scheduler"]
    groups = "/validate/podgroups"
    assert webhook.value("muster_webhook_refusals_total", webhook=groups, reason="queue-missing") == 1
    assert webhook.value("muster_webhook_refusals_total", webhook=groups, reason="quota") == 1
    assert webhook.value("muster_ledger_refusals_total", resource="cpu") == 1
    assert webhook.value("muster_webhook_certificate_not_after_timestamp_seconds") > 1_700_000_000
    assert scheduler.value("muster_scheduler_leading") == 1
    assert scheduler.value("muster_scheduler_binds_total") == 2
    assert scheduler.value("muster_ledger_quota_hard", namespace="default", resource="cpu") == 5
    assert scheduler.value("muster_scheduler_queue_share", queue="default") is not None
    assert told["certs"].value("muster_certificates_not_after_timestamp_seconds", certificate="leaf") > 1_700_000_000


@pytest.mark.parametrize("program", PROGRAMS)
def test_metrics_are_named_as_prometheus_has_it(told: Any, program: str) -> None:
    ours = {name: family for name, family in told[program].families().items() if name.startswith("muster_")}
    assert len(ours) > (5 if program in {"certs", "visibility"} else 10)
    for name, family in ours.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert family.documentation.endswith("."), name
        assert not MISTAKEN.search(name), name
        assert family.type != "histogram" or UNIT.search(name), name
        assert family.type in {"counter", "gauge", "histogram"}, name
    assert told[program].value("muster_build_info", program=program) == 1
    assert told[program].value("process_cpu_seconds_total") > 0


def test_the_state_says_how_things_stand(told: Any) -> None:
    webhook, scheduler = told["webhook"].state, told["scheduler"].state
    assert (webhook["program"], webhook["notReady"], webhook["certificate"]["trouble"]) == ("webhook", [], "")
    assert webhook["caches"]["podgroups.scheduling.volcano.sh"]["synced"]
    assert (scheduler["leading"], scheduler["actions"]) == (True, ["enqueue", "allocate", "backfill"])
    assert [each["queue"] for each in scheduler["queues"]["items"]] == ["default"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_secret_is_told(told: Any, program: str) -> None:
    everything = (told[program].metrics, json.dumps(told[program].state), told[program].log)
    for text in everything:
        assert "hunter2" not in text
        assert "PRIVATE KEY" not in text
        assert not re.search(r"[Bb]earer|\btoken=", text)


def test_logs_have_a_line_for_each_decision_and_none_for_a_cycle(told: Any) -> None:
    logs = {name: [json.loads(line) for line in each.log.splitlines()] for name, each in told.items()}
    reviews = [line for line in logs["webhook"] if line["logger"] == "muster.webhooks"]
    assert {"uid", "user", "object", "verdict", "ms"} <= set.intersection(*map(set, reviews))
    refused = [line for line in reviews if line["level"] == "info"]
    assert [line["reason"] for line in refused] == ["queue-missing", "quota"]
    decided = [line for line in logs["scheduler"] if line["logger"] == "muster.scheduler"]
    bound = [line["object"].partition("-")[0] for line in decided if line["verdict"] == "bind"]
    assert bound == ["pods default/train"] * 2
    cycles = told["scheduler"].value("muster_scheduler_cycle_seconds_count")
    assert len([line for line in decided if line["level"] == "info"]) <= 3 < cycles
