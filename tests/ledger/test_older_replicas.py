"""A rolling upgrade: a replica of 0.1.0, which knows no claims, seeds or folds the ledger that newer ones decide by."""

from __future__ import annotations

import pytest

from muster.ledger.reservations import PODGROUP, Exceeded, ReservationRequest, Reserved, Unavailable
from muster.ledger.table import Table
from muster.ledger.tally import Totals
from muster.ledger.view import CLAIM_SOURCE, QUOTA_SOURCE
from muster.model import kinds, names
from muster.model.amounts import Resources

DEVICES = "gpu.deviceclass.resource.k8s.io/devices"


def amounts(devices):
    return Resources.parse({DEVICES: str(devices)})


async def device_quota(lab, process, devices):
    await lab.quota(process, **{DEVICES: str(devices)})
    await lab.ledger_says(lambda ledger: ledger.data.seeded_at)


async def claim(lab, name, count):
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    await lab.client.create(kinds.RESOURCECLAIMS, {"metadata": {"name": name}, "spec": spec}, lab.namespace)


async def folded_by_the_old_version(lab):
    """What 0.1.0 writes from a list of its own: totals of groups and pods, and revisions of these and of quotas."""
    ledger = await lab.ledger()
    left_out = {name: {"reserved": None, "used": None, "other": None} for name in ledger.data.quotas}
    change = {"data": {"observed": {CLAIM_SOURCE: None}, "quotas": left_out}}
    await lab.client.patch(kinds.QUOTALEDGERS, names.LEDGER_NAME, change, lab.namespace)
    written = await lab.ledger()
    assert CLAIM_SOURCE not in written.data.observed
    for process in lab.processes:
        ledgers = process.view.cache(kinds.QUOTALEDGERS)
        await ledgers.reached(written.metadata.resource_version)


@pytest.fixture
async def behind(lab, monkeypatch):
    """A replica whose cache of claims doesn't get on, with a quota for four devices, of which a claim has three."""
    process = lab.processes[0]
    await device_quota(lab, process, 4)
    monkeypatch.setattr(process.view.cache(kinds.RESOURCECLAIMS), "put", lambda *_: None)
    await claim(lab, "there", 3)
    await folded_by_the_old_version(lab)
    return process


async def test_devices_of_claims_that_the_old_version_left_out_are_not_promised_again(lab, behind, asking):
    assert isinstance(await asking(behind, "gang", "0", amounts=amounts(2)), Exceeded)
    assert await asking(behind, "small", "0", amounts=amounts(1)) == Reserved()
    assert CLAIM_SOURCE in (await lab.ledger()).data.observed


async def test_nor_are_they_once_something_else_was_reserved(lab, behind, asking):
    await lab.quota(behind, "cpus", **{"requests.cpu": "8"})
    await folded_by_the_old_version(lab)
    assert await asking(behind, "other", "1") == Reserved()
    assert isinstance(await asking(behind, "gang", "0", amounts=amounts(2)), Exceeded)


async def test_a_leader_that_knows_claims_counts_them_as_soon_as_it_looks(lab, behind):
    lab.run(behind.controller.run())
    ledger = await lab.ledger_says(lambda ledger: CLAIM_SOURCE in ledger.data.observed)
    assert ledger.data.quotas["quota"].other == {DEVICES: "3"}


def test_devices_are_not_reserved_by_totals_that_leave_claims_out():
    """As where the view that counts them can't be folded in yet."""
    table = Table("2026-01-01T00:00:00Z", {QUOTA_SOURCE: 1}, {"q": Totals("u", amounts(4))})
    request = ReservationRequest("ns", PODGROUP, names.VOLCANO_GROUP, "gang", "u-g", amounts(1))
    assert isinstance(table.reserve([request])[1][0], Unavailable)
    counted = Table(table.seeded_at, {**table.observed, CLAIM_SOURCE: 1}, table.quotas)
    assert counted.reserve([request])[1] == (Reserved(),)
