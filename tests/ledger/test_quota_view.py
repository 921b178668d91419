"""What ``muster quota view`` tells of a ledger."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from plane import PATIENCE

from muster.cli.commands import quota
from muster.kube import errors
from muster.kube.client import Client
from muster.ledger.report import LedgerReport, QuotaHolder, QuotaUsage, UnreservedGroup
from muster.ledger.reservations import Reserved, taken_by_pods
from muster.model import kinds

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def printed(capsys: pytest.CaptureFixture[str], report: LedgerReport) -> list[str]:
    quota.show(
        msgspec.structs.replace(report, seeded_at=report.seeded_at and NOW.isoformat()), NOW + timedelta(minutes=5)
    )
    return capsys.readouterr().out.replace(report.namespace, "NAMESPACE").splitlines()


async def test_it_shows_who_holds_what_and_what_is_left(
    lab: Any, asking: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = await lab.process()
    await lab.quota(replica, "team", **{"requests.cpu": "10", "pods": "20"})
    await lab.quota(replica, "short", scopes=["Terminating"], cpu="3")
    assert await lab.create(replica, "train", "6") == Reserved()
    assert await lab.pod(replica, "train-0", "2", "train") == Reserved()
    assert await lab.pod(replica, "web", "500m", activeDeadlineSeconds=60) == Reserved()
    lab.run(replica.controller.run())
    await lab.ledger_says(lambda ledger: not ledger.data.rows)
    assert await asking(replica, "ghost", "1") == Reserved()
    assert printed(capsys, await quota.read(lab.client, lab.namespace, ["nobody"])) == [
        "namespace NAMESPACE: quota is guarded (pods are checked while a webhook replica answers)",
        "policy Reject: a PodGroup reserves when it is created",
        "ledger created 5m ago",
        "",
        "QUOTA   RESOURCE            HARD   RESERVED   OTHER   FREE",
        "short   cpu (Terminating)   3      0          500m    2500m",
        "team    pods                20     0          2       18",
        "team    requests.cpu        10     7          500m    2500m",
        "",
        "PODGROUP   RESERVED   USED BY ITS PODS",
        "train      6 cpu      2 cpu, 1 pod",
        "",
        "Reserved for objects that are being created (released after a minute without them):",
        "",
        "KIND       NAME    REQUESTED",
        "PodGroup   ghost   1 cpu",
    ]


async def test_who_may_not_list_claims_is_told_that_these_are_left_out(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = await lab.process()
    await lab.quota(replica, "team", **{"requests.cpu": "10"})

    class Restricted(Client):
        async def list(self, kind: Any, namespace: str = "", **rest: Any) -> Any:
            if kind is kinds.RESOURCECLAIMS:
                raise errors.ForbiddenError(403, "Forbidden", "resourceclaims.resource.k8s.io is forbidden")
            return await super().list(kind, namespace, **rest)

    found = await quota.read(Restricted(lab.client.transport), lab.namespace)
    assert [each.quota for each in found.quotas] == ["team"]
    assert capsys.readouterr().err == "note: resourceclaims may not be listed: what they use of quotas is left out\n"


def test_a_group_made_for_a_workload_is_shown_by_the_workload(capsys: pytest.CaptureFixture[str]) -> None:
    usage = QuotaUsage("team", "cpu", "", "10", "6", "0", "4", "0")
    holder = QuotaHolder("podgroup-1", {"cpu": "6"}, {"cpu": "2"}, "Job train")
    waiting = UnreservedGroup("podgroup-2", "quota team is short by 2 cpu", "Deployment web")
    report = LedgerReport("ns", "guarded", "Reject", NOW.isoformat(), (usage,), (holder,), (), (waiting,))
    assert printed(capsys, report)[-4:] == [
        "PODGROUP    RESERVED   USED BY ITS PODS",
        "Job train   6 cpu      2 cpu",
        "",
        "Deployment web: quota team is short by 2 cpu",
    ]


async def test_a_group_that_has_come_is_not_under_way_though_its_reservation_still_stands(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = await lab.process()
    await lab.quota(replica, "team", cpu="10")
    assert await lab.create(replica, "train", "6") == Reserved()
    ledger = await lab.client.get(kinds.QUOTALEDGERS, "default", lab.namespace)
    assert any("train" in row for row in ledger.data.rows)
    lines = printed(capsys, await quota.read(lab.client, lab.namespace))
    assert "team    cpu        10     6          0       4" in lines
    assert not [line for line in lines if line.startswith("Reserved for objects")]


async def test_a_namespace_without_a_quota_has_nothing_to_show(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, await quota.read(lab.client, lab.namespace)) == [
        "namespace NAMESPACE has no quota ledger: nothing has requested quota yet"
    ]


async def test_what_is_beyond_the_quota_and_who_holds_nothing_is_told(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = await lab.process()
    lab.run(replica.controller.run())
    await lab.quota(replica, "team", cpu="4")
    assert await lab.create(replica, "train", "4") == Reserved()
    await lab.store("late", "2")
    await lab.ledger_says(lambda ledger: any("unreserved" in row for row in ledger.data.rows))
    await lab.client.patch(kinds.RESOURCEQUOTAS, "team", {"spec": {"hard": {"cpu": "3"}}}, lab.namespace)
    await lab.ledger_says(lambda ledger: ledger.data.quotas["team"].hard == {"cpu": "3"})
    lines = printed(capsys, await quota.read(lab.client, lab.namespace))
    assert "team    cpu        3      4          0       none, 1 over" in lines
    # Long lines are broken for people.
    assert " ".join(line.strip() for line in lines).endswith(
        'PodGroup late: its minimum isn\'t reserved, because quota "team" is short by 3 cpu; its pods wait until that is free:'
        " lower its minimum, delete other PodGroups or raise the quota"
    )


async def test_a_pod_of_another_scheduler_that_names_a_group_counts_outside_it(
    lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    replica = await lab.process()
    await lab.quota(replica, "team", cpu="10")
    assert await lab.create(replica, "train", "6") == Reserved()
    assert await lab.pod(replica, "train-0", "1", "train") == Reserved()
    assert await lab.pod(replica, "guest", "2", "train", schedulerName="another") == Reserved()
    lab.run(replica.controller.run())
    await lab.ledger_says(lambda ledger: not ledger.data.rows)
    report = await quota.read(lab.client, lab.namespace, ["nobody"])
    assert [(each.resource, each.reserved, each.other) for each in report.quotas] == [("cpu", "6", "2")]
    assert [each.used for each in report.groups] == [{"cpu": "1"}]


@pytest.mark.parametrize(
    ("resource", "taken"),
    [
        ("requests.cpu", True),
        ("limits.memory", True),
        ("cpu@Terminating", True),
        ("count/pods", True),
        ("requests.nvidia.com/gpu", True),
        ("hugepages-2Mi", True),
        ("count/jobs.batch", False),
        ("services", False),
        ("requests.storage", False),
        ("gold.storageclass.storage.k8s.io/requests.storage", False),
        ("gpu.deviceclass.resource.k8s.io/devices", True),
    ],
)
def test_what_pods_take_is_known_by_its_name(resource: str, *, taken: bool) -> None:
    assert taken_by_pods(resource) == taken


async def test_what_is_not_for_pods_stands_as_kubernetes_counts_it(lab: Any) -> None:
    replica = await lab.process()
    await lab.quota(replica, "team", **{"requests.cpu": "10", "count/jobs.batch": "3"})
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    await lab.client.create(
        kinds.JOBS, {"metadata": {"name": "one"}, "spec": {"suspend": True, "template": template}}, lab.namespace
    )
    assert await lab.create(replica, "train", "6") == Reserved()

    async def standing() -> tuple[str, str, str]:
        found = (await quota.read(lab.client, lab.namespace)).quotas
        each = next(each for each in found if each.resource == "count/jobs.batch")
        return each.reserved, each.other, each.free

    async with asyncio.timeout(PATIENCE):
        while await standing() != ("0", "1", "2"):  # noqa: ASYNC110 - Kubernetes counts when it does
            await asyncio.sleep(0.05)
