"""A recorded history of the real API server: whatever is done to Muster, at every moment the sum is within the limit.

``MUSTER_SOAK`` multiplies how much is done; `make soak` does so.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from fleet import Fleet, History

from muster.kube import errors
from muster.kube.client import Client
from muster.ledger.reservations import held, reserving, taken_by
from muster.model import grouping, kinds, names
from muster.model.amounts import NANO, Resources
from muster.model.objects import Pod, PodGroup

log = logging.getLogger(__name__)

SOAK = int(os.environ.get("MUSTER_SOAK", "1"))
SEED = int(os.environ.get("MUSTER_SEED", "1"))
HARD = 32
CLIENTS = 32
STORED = 70 * SOAK
FAULTS = 8 * SOAK
LIMIT = 600.0 * SOAK

_WRITES = ("group",) * 4 + ("update",) * 3 + ("drop",) * 2 + ("pod",) * 5 + ("drop pod",) * 2


class Load:
    """Clients that write what they like, over each other's work."""

    def __init__(self, client: Client, history: History) -> None:
        self._client = client.limited(15)
        self._namespace = history.namespace
        self._history = history
        self._going_on = asyncio.Event()
        self._ended = False
        self._names = itertools.count(1)
        self.outcomes: Counter[str] = Counter()

    async def run(self) -> None:
        await asyncio.gather(*(self._write_on(random.Random(f"{SEED} {number}")) for number in range(CLIENTS)))

    def end(self) -> None:
        self._ended = True

    async def stores(self, more: int) -> None:
        """Return once that many more writes were stored: then nothing that was broken before is in the way."""
        enough = self.outcomes["stored"] + more
        while self.outcomes["stored"] < enough:
            self._going_on.clear()
            await self._going_on.wait()

    async def _write_on(self, chance: random.Random) -> None:
        full = False
        while not self._ended:
            # Where there is no room somebody has to go, or all that happens is refusals.
            what = chance.choice(("drop", "drop pod")) if full and chance.random() < 0.5 else chance.choice(_WRITES)
            full = False
            try:
                if await self._write(what, chance):
                    self.outcomes["stored"] += 1
                    self._going_on.set()
                    continue
                self.outcomes["nothing to do"] += 1
            except (errors.KubeError, TimeoutError) as error:
                self.outcomes[type(error).__name__] += 1
                full = isinstance(error, errors.ForbiddenError)
            # What the faults kept from being stored holds the quota for a minute, in which nothing else should be all
            # that is tried.
            await asyncio.sleep(chance.uniform(0, 1))

    async def _write(self, what: str, chance: random.Random) -> bool:
        """Make a write of that sort; tell whether there was anything to write."""
        cpu = str(chance.randint(1, 5))
        # What is there by what the API server says: of a write without an answer the client knows nothing.
        groups = [each.name for each in self._history.groups.items()]
        pods = [each.name for each in self._history.pods.items()]
        match what:
            case "group":
                # Now and then a name that is there already.
                name = chance.choice(groups) if groups and chance.random() < 0.2 else self._name("g")
                spec = {"minMember": 1, "queue": "default", "minResources": {"cpu": cpu}}
                await self._client.create(kinds.PODGROUPS, {"metadata": {"name": name}, "spec": spec}, self._namespace)
            case "update" if groups:
                change = {"spec": {"minResources": {"cpu": cpu}}}
                await self._client.patch(kinds.PODGROUPS, chance.choice(groups), change, self._namespace)
            case "drop" if groups:
                await self._client.delete(kinds.PODGROUPS, chance.choice(groups), self._namespace)
            case "pod":
                await self._client.create(kinds.PODS, self._pod(self._name("p"), groups, chance), self._namespace)
            case "drop pod" if pods:
                await self._client.delete(kinds.PODS, chance.choice(pods), self._namespace)
            case _:
                return False
        return True

    def _name(self, prefix: str) -> str:
        return f"{prefix}{next(self._names)}"

    def _pod(self, name: str, groups: Sequence[str], chance: random.Random) -> dict[str, Any]:
        annotations = {names.RUN_SECONDS: str(chance.randint(1, 5))}
        if groups and chance.random() < 0.7:
            annotations[names.GROUP_NAME] = chance.choice(groups)
        scheduler = names.SCHEDULER_NAME if names.GROUP_NAME in annotations else "nobody"
        main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": str(chance.randint(1, 2))}}}
        spec = {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [main]}
        return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


def most_taken(history: History) -> tuple[int, int]:
    """Replay what the API server stored; give the most that was ever taken, and of how many states."""
    groups: dict[str, PodGroup] = {}
    pods: dict[str, Pod] = {}
    most = 0
    for _, kind, uid, stored in sorted(history.events, key=lambda event: event[0]):
        place: dict[str, Any] = groups if kind == kinds.PODGROUPS.plural else pods
        if stored is None:
            place.pop(uid, None)
        else:
            place[uid] = stored
        most = max(most, _taken(groups.values(), pods.values()))
    return most, len(history.events)


def _taken(groups: Any, pods: Any) -> int:
    """Add up, over names, the larger of what is reserved and what is used; and what is used outside."""
    charge: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for group in groups:
        charge[group.name] += held(Resources.parse(group.spec.min_resources))["cpu"] if reserving(group) else 0
    for pod in pods:
        used[grouping.group_of(pod.metadata)] += taken_by(pod)["cpu"]
    outside = used.pop("", 0)
    return outside + sum(max(charge[name], used[name]) for name in {*charge, *used})


async def _prepare(client: Client, namespace: str) -> None:
    labels = {names.QUOTA_MODE: "guaranteed"}
    await client.create(kinds.NAMESPACES, {"metadata": {"name": namespace, "labels": labels}})
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    node = {"name": "node", "annotations": {"kwok.x-k8s.io/node": "fake"}}
    await client.create(kinds.NODES, {"metadata": node, "status": {"capacity": amounts, "allocatable": amounts}})
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"requests.cpu": str(HARD)}}}
    await client.create(kinds.RESOURCEQUOTAS, quota, namespace)
    async with asyncio.timeout(60):
        while True:
            ledger = await client.find(kinds.QUOTALEDGERS, names.LEDGER_NAME, namespace)
            found = await client.get(kinds.RESOURCEQUOTAS, "quota", namespace)
            if ledger is not None and ledger.data.seeded_at and found.status.hard:
                return
            await asyncio.sleep(0.1)


async def _break(fleet: Fleet, load: Load, chance: random.Random) -> None:
    """Break something, again and again. How often is for the writes to say: on a busy machine they take longer."""
    while True:
        await load.stores(5)
        await fleet.trouble(chance)


@pytest.mark.soak
@pytest.mark.processes
@pytest.mark.xdist_group("linearizable")
async def test_whatever_is_killed_stopped_or_cut_the_sum_is_within_the_limit(fleet: Fleet, admin: Client) -> None:
    namespace = "history"
    chance, history = random.Random(SEED), History(namespace)
    load = Load(admin, history)
    async with fleet.balancer.serving(fleet.deployed.port):
        await _prepare(admin, namespace)
        async with history.recorded(admin), asyncio.timeout(LIMIT), asyncio.TaskGroup() as work:
            work.create_task(load.run())
            breaking = [work.create_task(_break(fleet, load, chance)) for _ in range(2)]
            while load.outcomes["stored"] < STORED or len(fleet.faults) < FAULTS:
                await load.stores(1)
            for task in breaking:
                task.cancel()
            load.end()
    most, states = most_taken(history)
    log.info("%d tries by %d clients: %s", load.outcomes.total(), CLIENTS, dict(load.outcomes))
    log.info("%d states, at most %d of %d cpu taken; %d faults", states, most // NANO, HARD, len(fleet.faults))
    log.info("faults: %s", ", ".join(fleet.faults))
    assert load.outcomes["ForbiddenError"], "no refusal: the limit was never reached"
    assert 0 < most <= HARD * NANO
