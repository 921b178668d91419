"""The leader's auditor on a control plane: what it tells, when, and how it paces itself."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from muster.ledger.auditor import Auditor
from muster.ledger.metrics import AuditMetrics
from muster.ledger.observer import Observer, guaranteed_in
from muster.ledger.reservations import Reserved
from muster.model import kinds, names
from muster.model.grouping import generated_name

pytestmark = pytest.mark.only("sandbox", reason="waits for minutes: in virtual time")


class Audited:
    """An auditor over a process' caches, with a processor that takes ``cost`` seconds for each step."""

    def __init__(self, process: Any, cost: float = 0.0) -> None:
        self.registry = CollectorRegistry()
        steps = itertools.count()
        view = process.view
        caches = [
            view.cache(kind) for kind in (kinds.PODGROUPS, kinds.RESOURCEQUOTAS, kinds.PODS, kinds.RESOURCECLAIMS)
        ]
        observer = Observer({kinds.PODGROUPS: caches[0]}, *caches[1:], view.watching.timeline)
        self.auditor = Auditor(
            process.client,
            view.cache(kinds.QUOTALEDGERS),
            caches[1],
            [kinds.PODGROUPS],
            observer,
            AuditMetrics(self.registry),
            guaranteed_in(view.cache(kinds.NAMESPACES)),
            lambda: next(steps) * cost,
        )

    def says(self, name: str, **labels: str) -> float:
        found = self.registry.get_sample_value(name, labels)
        assert found is not None
        return found

    def excesses(self) -> dict[str, float]:
        found = (
            self.says("muster_quota_audit_excesses", **{"class": kind})
            for kind in ("overcommitted", "unreserved", "guarded", "unexplained")
        )
        return dict(zip("oug?", found, strict=True))


async def prepared(lab: Any, mode: str = "guarded", cost: float = 0.0) -> tuple[Any, Audited]:
    """A namespace with 6 of 10 reserved, which the leader and the auditor have known for long."""
    labels = {"metadata": {"labels": {names.QUOTA_MODE: mode}}}
    await lab.client.patch(kinds.NAMESPACES, lab.namespace, labels)
    replica = await lab.process()
    lab.run(replica.controller.run())
    audited = Audited(replica, cost)
    lab.run(audited.auditor.run())
    await lab.quota(replica, cpu="10")
    await asyncio.sleep(60)
    assert await lab.create(replica, "gang", "6") == Reserved()
    await asyncio.sleep(600)
    assert audited.excesses() == {"o": 0, "u": 0, "g": 0, "?": 0}
    return replica, audited


async def test_a_pod_past_the_webhooks_is_an_error_in_a_guaranteed_namespace_once_two_lists_show_it(
    lab: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, audited = await prepared(lab, "guaranteed")
    before = len(caplog.records)
    await lab.pod(None, "stray", "7")
    async with asyncio.timeout(300):
        while not audited.excesses()["?"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(1)
    (record,) = [each for each in caplog.records[before:] if "allows" in each.message]
    assert record.levelname == "ERROR"
    assert record.message == (
        f"namespace {lab.namespace}: quota quota allows 10 cpu, and what exists takes 13 (unexplained): Pod stray"
    )
    await lab.client.delete(kinds.PODS, "stray", lab.namespace)
    await asyncio.sleep(300)
    assert audited.excesses() == {"o": 0, "u": 0, "g": 0, "?": 0}


async def test_one_that_is_gone_before_the_second_list_is_never_told_of(
    lab: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, audited = await prepared(lab, "guaranteed")
    await lab.pod(None, "stray", "7")
    memory = audited.auditor._known[lab.namespace]
    async with asyncio.timeout(300):
        while not memory.suspected:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(1)
    await lab.client.delete(kinds.PODS, "stray", lab.namespace)
    await asyncio.sleep(300)
    assert "unexplained" not in caplog.text
    assert audited.excesses()["?"] == 0


@pytest.mark.parametrize(
    ("plant", "kind", "named"),
    [("pod", "g", "Pod stray"), ("group", "u", "PodGroup late"), ("quota", "o", "PodGroup gang")],
)
async def test_what_may_be_is_a_warning_by_its_class(
    lab: Any, caplog: pytest.LogCaptureFixture, plant: str, kind: str, named: str
) -> None:
    replica, audited = await prepared(lab)
    if plant == "pod":
        await lab.pod(None, "stray", "7")
    elif plant == "group":
        await lab.store("late", "7")
    else:
        await lab.change_quota(replica, cpu="4")
    await asyncio.sleep(300)
    assert audited.excesses() == {"o": 0, "u": 0, "g": 0, "?": 0} | {kind: 1}
    (record,) = [each for each in caplog.records if "allows" in each.message]
    assert (record.levelname, record.message.rsplit(": ", 1)[1]) == ("WARNING", named)


async def test_a_generated_group_is_called_by_its_owner(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    await prepared(lab)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    job = {"metadata": {"name": "train"}, "spec": {"suspend": True, "template": template}}
    uid = (await lab.client.create(kinds.JOBS, job, lab.namespace)).metadata.uid
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    meta = {"name": generated_name(uid), "ownerReferences": [owner]}
    lab.front.replica = None
    manifest = {"metadata": meta, "spec": {"minMember": 1, "minResources": {"cpu": "7"}}}
    await lab.client.create(kinds.PODGROUPS, manifest, lab.namespace)
    await asyncio.sleep(300)
    (record,) = [each for each in caplog.records if "allows" in each.message]
    assert record.message.rsplit(": ", 1)[1] == "Job train"


async def test_it_takes_a_fiftieth_of_a_core_however_long_a_namespace_takes(lab: Any) -> None:
    _, audited = await prepared(lab, cost=2.0)
    before = audited.says("muster_quota_audit_cpu_seconds_total")
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(20_000)
    spent = audited.says("muster_quota_audit_cpu_seconds_total") - before
    assert 0 < spent <= 0.021 * (asyncio.get_running_loop().time() - began)
    assert audited.says("muster_quota_audit_oldest_seconds") < 3000


async def test_every_namespace_is_audited_within_five_minutes(lab: Any) -> None:
    _, audited = await prepared(lab)
    for _ in range(60):
        await asyncio.sleep(10)
        assert audited.says("muster_quota_audit_oldest_seconds") <= 300
    assert audited.says("muster_quota_audit_failures_total") == 0
