"""What the ledger tells Prometheus."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from muster.kube.cache import ObjectCache
from muster.kube.clock import SystemClock
from muster.ledger.committer import Committer
from muster.ledger.metrics import NAMESPACES, RESOURCES, LedgerMetrics
from muster.ledger.observer import Observer
from muster.ledger.reservations import Exceeded, ReservationRequest, Reserved, Shortage, Unavailable
from muster.model.amounts import Resources

CORE = 10**9


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> LedgerMetrics:
    return LedgerMetrics(registry)


def standing(resource: str = "cpu", hard: int = 10, reserved: int = 6, other: int = 1, quota: str = "q") -> Shortage:
    taken = reserved + other
    return Shortage(resource, hard * CORE, reserved * CORE, other * CORE, 0, (taken - hard) * CORE, quota)


def namespaces(registry: CollectorRegistry) -> set[str]:
    families = [family for family in registry.collect() if family.name == "muster_ledger_quota_hard"]
    return {sample.labels["namespace"] for family in families for sample in family.samples}


def test_a_namespace_shows_of_each_resource_the_quota_with_least_left(
    metrics: LedgerMetrics, registry: CollectorRegistry
) -> None:
    tight = standing("requests.cpu@Terminating", hard=2, reserved=2, other=0)
    metrics.quotas.stand("team", [standing("requests.cpu"), tight, standing("memory")])
    value = registry.get_sample_value
    of_cpu = {"namespace": "team", "resource": "requests.cpu"}
    assert value("muster_ledger_quota_hard", of_cpu) == 2
    assert value("muster_ledger_quota_reserved", of_cpu) == 2
    assert value("muster_ledger_quota_other", {"namespace": "team", "resource": "memory"}) == 1
    metrics.quotas.stand("team", [])
    assert value("muster_ledger_quota_hard", of_cpu) is None


def test_of_many_namespaces_the_fullest_are_shown(metrics: LedgerMetrics, registry: CollectorRegistry) -> None:
    for number in range(NAMESPACES + 7):
        metrics.quotas.stand(f"idle-{number}", [standing(reserved=0, other=0)])
    metrics.quotas.stand("full", [standing(reserved=10, other=0)])
    metrics.quotas.stand("over", [standing(hard=0, reserved=1, other=0)])
    shown = namespaces(registry)
    assert len(shown) == NAMESPACES
    assert {"full", "over"} <= shown
    assert registry.get_sample_value("muster_ledger_quota_namespaces_left_out") == 9
    metrics.quotas.clear()
    assert namespaces(registry) == set()


def test_names_of_resources_that_users_make_up_are_bounded(metrics: LedgerMetrics, registry: CollectorRegistry) -> None:
    for number in range(10 * RESOURCES):
        name = f'count/x{number}.example.com"}}\n'
        metrics.refused(name)
        metrics.quotas.stand("team", [standing(name)])
    metrics.quotas.stand("team", [standing(f"r{number}") for number in range(10 * RESOURCES)])
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert len({sample.labels["resource"] for sample in samples if "resource" in sample.labels}) <= RESOURCES + 1
    of_others = registry.get_sample_value("muster_ledger_refusals_total", {"resource": "other"})
    assert of_others is not None
    assert of_others > 8 * RESOURCES


def test_a_resource_whose_name_came_too_late_stands_among_others(
    metrics: LedgerMetrics, registry: CollectorRegistry
) -> None:
    for number in range(RESOURCES):
        metrics.refused(f"early-{number}")
    metrics.quotas.stand("team", [standing("late"), standing("later", reserved=9)])
    labels = {"namespace": "team", "resource": "other"}
    assert registry.get_sample_value("muster_ledger_quota_reserved", labels) == 9


@pytest.mark.parametrize(
    ("answer", "label"),
    [(Reserved(), "granted"), (Exceeded("team"), "refused"), (Unavailable("late"), "busy")],
)
async def test_answers_are_counted_under_labels_that_no_renaming_of_classes_changes(
    metrics: LedgerMetrics, registry: CollectorRegistry, answer: Any, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody: Any = None  # no request leaves the committer
    committer = Committer(
        nobody, ObjectCache(), Observer({}, *(ObjectCache() for _ in range(3))), SystemClock(), metrics
    )

    async def answered(*_: Any, **__: Any) -> Any:
        return answer

    monkeypatch.setattr(committer, "_submit", answered)
    request = ReservationRequest("dev", "PodGroup", "scheduling.volcano.sh", "a", "u", Resources({"cpu": CORE}))
    assert await committer.reserve(request, deadline=0.0, dry_run=False) == answer
    assert registry.get_sample_value("muster_ledger_answers_total", {"answer": label}) == 1


def test_a_restore_is_counted_by_who_writes_ledgers(metrics: LedgerMetrics, registry: CollectorRegistry) -> None:
    nobody: Any = None  # no request leaves the committer
    observer = Observer({}, *(ObjectCache() for _ in range(3)))
    Committer(nobody, ObjectCache(), observer, SystemClock(), metrics)
    assert registry.get_sample_value("muster_cluster_restores_total") == 0
    observer.timeline.went_back("podgroups", "a list is at 5, and 9 was seen")
    assert registry.get_sample_value("muster_cluster_restores_total") == 1
