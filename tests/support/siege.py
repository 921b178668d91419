"""Muster beside a tenant who writes hostile objects, and another who works: what is sent, and what must still be so."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hostile_claims
import hostile_kinds
import msgspec
import workloads
from asking import FrontProxy
from deployed import Deployed

from muster.kube import errors, wait
from muster.kube.client import Client
from muster.kube.transport import Request
from muster.ledger.audit import AuditedNamespace, sums
from muster.ledger.conversion import observed_group, observed_pod, observed_quota
from muster.ledger.reservations import limited
from muster.ledger.table import Table
from muster.ledger.view import ObservedGroup, ObservedQuota, source
from muster.model import grouping, kinds, names
from muster.model.kinds import Kind
from muster.model.nesting import decode_shallow

PATIENCE = 120.0
MOST_GROWTH = {"webhook": 256 * 1024, "scheduler": 512 * 1024, "visibility": 512 * 1024}
"""KiB by which each program may grow: half of what its container has."""

FAULTS: dict[str, str] = {}
"""Species that stop something today, with what is wrong; each test of them must fail until that is fixed."""

HOSTILE = {"open": {}, "guarded": {names.QUOTA_MODE: names.GUARDED}, "guaranteed": {names.QUOTA_MODE: names.GUARANTEED}}
"""Namespaces of the tenant who attacks, by how their quota is kept."""

VICTIM = "victim"
HARD = "10"
"""The cpu of each quota. The namespace that is open has none, so that most of what is sent there is stored."""

GANG = 3
_AT_ONCE = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
_EDITOR = "mallory"
_CONTENTS: tuple[Kind[Any], ...] = (
    *(kinds.DEPLOYMENTS, kinds.JOBS, kinds.PODS),
    *(kinds.PODGROUPS, kinds.DISRUPTIONBUDGETS, kinds.CLAIMS, kinds.RESOURCECLAIMS, hostile_kinds.TEMPLATES),
)
_ADDED: tuple[Kind[Any], ...] = (kinds.RESOURCECLAIMS, hostile_kinds.TEMPLATES, kinds.NATIVE_PODGROUPS)
"""Kinds that the role edit doesn't include everywhere."""
_AT_ONE_TIME = 500
_CREATED = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Watched:
    """A program that must live: its process, and the port of its probes."""

    name: str
    pid: int
    probes: int

    def resident(self) -> int:
        """Return its memory, in KiB; 0 where it is dead."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except FileNotFoundError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)

    def ready(self) -> str:
        """Return an empty text, or why it isn't."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.probes}/readyz", timeout=5):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError as error:
            return str(error)


@dataclass
class Siege:
    """``programs`` gives those that run now; they are asked anew after a restart.

    Attributes:
        in_flight: requests of one attack that are under way at once.
        created: objects that were stored; ``stored`` counts changes of them too.
        late: how often the other tenant had to ask again, by why.
        proxy: asks what answers tenants, where that runs.
    """

    admin: Client
    tenant: Client
    programs: Callable[[], tuple[Watched, ...]]
    proxy: FrontProxy | None = None
    in_flight: int = 8
    created: int = 0
    stored: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)

    async def attack(self, species: str, requests: Iterable[Request]) -> None:
        """Send requests: what creates objects first, and then changes, those of one object in order."""
        created: list[list[Request]] = []
        changed: dict[str, list[Request]] = {}
        for request in requests:
            if request.method == "POST":
                created.append([request])
            else:
                changed.setdefault(request.path, []).append(request)
        room = asyncio.Semaphore(self.in_flight)

        async def send(lane: list[Request]) -> None:
            async with room:
                for request in lane:
                    await self.send(species, request)

        await asyncio.gather(*map(send, created))
        await asyncio.gather(*map(send, changed.values()))

    async def send(self, species: str, request: Request) -> bool:
        """Send one; tell whether it was stored."""
        try:
            await self.tenant.send(request)
        except (errors.KubeError, TimeoutError) as error:
            self.refused[species] += 1
            self.answers[str(error)[:160]] += 1
            return False
        self.stored[species] += 1
        self.created += request.method == "POST"
        return True

    async def lease(self) -> tuple[str | None, int | None]:
        """Return who leads, and how often that has changed."""
        lease = await self.admin.get(kinds.LEASES, "muster-scheduler", names.SYSTEM_NAMESPACE)
        return lease.spec.holder_identity, lease.spec.lease_transitions

    async def work(self) -> None:
        """Have the other tenant's gang admitted and bound."""
        name = f"work-{next(_NUMBERS)}"
        await self._create(kinds.JOBS, workloads.job(name, GANG, **{names.QUEUE_NAME_KEYS[0]: VICTIM}))
        try:
            async with asyncio.timeout(PATIENCE):
                while len(await self._bound(name)) < GANG:  # noqa: ASYNC110 - a poll is all that a client has
                    await asyncio.sleep(0.2)
        except TimeoutError as error:
            raise AssertionError(await self._stand_of(name)) from error
        finally:
            await self.admin.delete(kinds.JOBS, name, VICTIM)
        await wait.until(self.admin, kinds.JOBS, name, VICTIM, holds=lambda found: found is None, within=PATIENCE)

    async def _create(self, kind: Kind[Any], manifest: Mapping[str, Any]) -> None:
        """Create it, as a client does: once more where the server asks for it, or had no time to judge it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.admin.create(kind, manifest, VICTIM)
                except errors.TooManyRequestsError:
                    self.late["busy"] += 1
                except errors.ForbiddenError as error:
                    # Its earlier Jobs are gone, and what collects their groups and pods is late: they hold their share until then.
                    if "short by" not in str(error):
                        raise
                    self.late["earlier Jobs hold the quota"] += 1
                except errors.ServerError as error:
                    if "deadline exceeded" not in str(error):
                        raise
                    self.late["no answer in time"] += 1
                except errors.AlreadyExistsError:
                    return
                else:
                    return
                await asyncio.sleep(0.5)

    async def _stand_of(self, name: str) -> str:
        """Return how far a Job came that isn't bound in time: who of us is late."""
        job = await self.admin.get(kinds.JOBS, name, VICTIM)
        pods = (await self.admin.list(kinds.PODS, VICTIM, labels=f"job-name={name}")).items
        groups = {each.name: each for each in (await self.admin.list(kinds.PODGROUPS, VICTIM)).items}
        group = groups.get(grouping.generated_name(job.metadata.uid))
        status = (
            f"{group.status.phase}: {[each.message for each in group.status.conditions or ()]}" if group else "none"
        )
        held = "held" if job.spec.suspend else "released"
        return f"Job {name} is {held}; its PodGroup: {status}; {len(pods)} pods, of {len(groups)} PodGroups in all"

    async def _bound(self, job: str) -> list[str]:
        pods = (await self.admin.list(kinds.PODS, VICTIM, labels=f"job-name={job}")).items
        return [pod.name for pod in pods if pod.spec.node_name]

    async def ledgers(self) -> dict[str, Table]:
        """Read every ledger as a replica that has just started does."""
        listed = await self.admin.list(kinds.QUOTALEDGERS)
        assert listed.unreadable == ()
        return {each.namespace: Table.parse(each.data) for each in listed.items}

    async def within(self) -> None:
        """Fail where more is held in a guaranteed namespace than its quota allows, at one revision of the API server.

        Nothing is looked at twice, and no excess is let pass: groups, pods, quotas and the ledger are read as they were at
        one moment. A group holds nothing where the ledger of that moment says so, by the two rules by which the scheduler
        leaves its pods alone (`muster.ledger.unreserved`): it is marked, or it was born after all that the ledger has
        counted and has no row. The second is for the groups that Muster makes itself, which are stored without a
        reservation; nobody else's may be so. Pods count whatever their group holds.
        """
        for namespace in (VICTIM, "guaranteed"):
            stored, ledger = await self._stored_at_once(namespace)
            late = await self._late(stored, ledger, namespace)
            assert all(map(grouping.is_generated, late.values())), (namespace, late)
            assert not (over := excess(stored, ledger.unreserved | late.keys())), (namespace, over)

    async def _stored_at_once(self, namespace: str) -> tuple[AuditedNamespace, Table]:
        """Return what there is at one revision, and the ledger of that revision."""
        groups, version = await self._listed(kinds.PODGROUPS, namespace)
        pods, _ = await self._listed(kinds.PODS, namespace, version)
        quotas, _ = await self._listed(kinds.RESOURCEQUOTAS, namespace, version)
        (ledger,), _ = await self._listed(kinds.QUOTALEDGERS, namespace, version)
        stored = AuditedNamespace(
            tuple(observed_group(kinds.PODGROUPS.group, each, 0) for each in groups),
            tuple(map(observed_pod, pods)),
            tuple(map(observed_quota, quotas)),
        )
        return stored, Table.parse(ledger.data)

    async def _late(self, stored: AuditedNamespace, ledger: Table, namespace: str) -> dict[str, str]:
        """Return the groups, names by uid, that didn't exist yet at the revision that a ledger counts, and have no row."""
        counted = ledger.observed.get(source(kinds.PODGROUPS.group), 0)
        known = {row.uid for row in ledger.rows}
        there = {each.uid: each.name for each in stored.groups if each.uid not in known and counts(each, stored.quotas)}
        if not (there and counted):
            return {}
        try:
            before, _ = await self._listed(kinds.PODGROUPS, namespace, str(counted))
        except errors.GoneError:
            return {}  # etcd has forgotten that revision, so all that is there was counted long ago
        return {uid: name for uid, name in there.items() if uid not in {each.metadata.uid for each in before}}

    async def _listed(self, kind: Kind[Any], namespace: str, version: str = "") -> tuple[tuple[Any, ...], str]:
        """Return what there is now, or was at a version, and the version."""
        exactly = {"resourceVersion": version, "resourceVersionMatch": "Exact"} if version else {}
        page = await self.admin.page(kind, namespace, exactly)
        assert page.unreadable == ()
        return page.items, page.resource_version

    async def stands(self, leader: tuple[str | None, int | None], resident: Mapping[str, int]) -> None:
        """Fail unless both programs live and are ready, the same leads, memory is bounded, ledgers can be read, quotas hold."""
        assert await self.lease() == leader
        programs = self.programs()
        await self.ready()
        now = {each.name: each.resident() for each in programs}
        assert all(0 < size < resident[name] + MOST_GROWTH[name] for name, size in now.items()), (resident, now)
        assert {VICTIM, "guaranteed"} <= set(await self.ledgers())
        await self.within()
        if self.proxy is not None:
            await self.told(self.proxy)

    async def told(self, proxy: FrontProxy) -> None:
        """Have the other tenant's questions answered, and then the hostile one's about what is stored of it."""
        status, queues = await proxy.ask("/queues")
        assert (status, {VICTIM, names.DEFAULT_QUEUE} <= {each["metadata"]["name"] for each in queues["items"]}) == (
            200,
            True,
        )
        meta = {"name": "asked", "namespace": VICTIM}
        wanted = {"apiVersion": "batch/v1", "kind": "Job", **workloads.job("asked", GANG), "metadata": meta}
        status, answer = await proxy.ask(f"/namespaces/{VICTIM}/admissions", {"spec": {"objects": [wanted]}})
        # What its earlier Jobs hold until they are collected may be too much for one more.
        assert status == 201, answer
        assert answer["status"]["objects"][0]["outcome"] in {"admitted", "refused"}, answer
        for namespace in HOSTILE:
            for kind in (kinds.PODGROUPS, kinds.PODS):
                await self._ask_about(proxy, kind, namespace)

    async def _ask_about(self, proxy: FrontProxy, kind: Kind[Any], namespace: str) -> None:
        noun = "podgroups/" if kind is kinds.PODGROUPS else "workloads/pod:"
        for each in (await self.admin.page(kind, namespace, {"limit": "10"})).items:
            status, answer = await proxy.ask(f"/namespaces/{namespace}/{noun}{each.name}/why")
            assert status in {200, 404}, answer

    async def made(self) -> int:
        """Count the objects that were made since the API server started, of the kinds that count here and by whomever."""
        metrics = (await self.admin.send(Request("GET", "/metrics"))).body.decode()
        counted = {kind.plural for kind in _CONTENTS}
        total = 0.0
        for labels, value in _CREATED.findall(metrics):
            named = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if (
                (named["verb"], named["code"]) == ("POST", "201")
                and named["resource"] in counted
                and not named["subresource"]
            ):
                total += float(value)
        return int(total)

    async def alive(self, namespace: str) -> int:
        """Count what there is in a namespace, without reading it."""
        return sum([await self._count(kind, namespace) for kind in _CONTENTS])

    async def _count(self, kind: Kind[Any], namespace: str) -> int:
        answer = await self.admin.send(Request("GET", kind.path(namespace), {"limit": "1"}))
        # Deep metadata is too deep for a decoder here, too.
        listed = decode_shallow(_COUNTED.decode, answer.body)
        return len(listed.items) + listed.metadata.remaining_item_count

    async def ready(self) -> None:
        """Wait until all programs are ready."""
        async with asyncio.timeout(PATIENCE):
            for each in self.programs():
                while await asyncio.to_thread(each.ready):  # noqa: ASYNC110 - a poll is all that probes allow
                    await asyncio.sleep(0.1)

    async def clear(self, *namespaces: str) -> None:
        """Take away what the hostile tenant made: in these namespaces, or in all."""
        await asyncio.gather(*map(self._clear, namespaces or HOSTILE))

    async def _clear(self, namespace: str) -> None:
        async with asyncio.timeout(10 * PATIENCE):
            while await self.alive(namespace):
                await self.thin(namespace)

    async def thin(self, namespace: str) -> None:
        """Delete what there is of a tenant now, kind by kind at once; what comes meanwhile stays."""
        await asyncio.gather(*(self._delete_all(kind, namespace) for kind in _CONTENTS))

    async def _delete_all(self, kind: Kind[Any], namespace: str) -> None:
        # More than it can delete in time: it is asked again.
        with contextlib.suppress(errors.UnreachableError, errors.ServerError):
            await self.admin.send(Request("DELETE", kind.path(namespace), _AT_ONCE))
        await self._let_go(kind, namespace)

    async def _let_go(self, kind: Kind[Any], namespace: str) -> None:
        """Remove the finalizers of what is being deleted."""
        for each in (await self.admin.page(kind, namespace, {"limit": f"{_AT_ONE_TIME}"})).items:
            if each.metadata.finalizers and each.metadata.deletion_timestamp:
                with contextlib.suppress(errors.NotFoundError):
                    await self.admin.patch(kind, each.name, {"metadata": {"finalizers": None}}, namespace)


def counts(group: ObservedGroup, quotas: Iterable[ObservedQuota]) -> bool:
    """Whether a group holds something that a quota limits; what holds nothing of that needs no row."""
    return bool(group.amounts.only({limited(resource) for quota in quotas for resource in quota.hard}))


def excess(stored: AuditedNamespace, without: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return what is held of a namespace's quotas beyond their limits, but for some groups: (held, limit)."""
    taken = sums(stored, without=without)
    return {
        resource: (taken.taken(limited(resource)), limit)
        for quota in stored.quotas
        for resource, limit in quota.hard.nano.items()
        if taken.taken(limited(resource)) > limit
    }


class _CountedMeta(msgspec.Struct, rename="camel"):
    remaining_item_count: int = 0


class _Counted(msgspec.Struct):
    metadata: _CountedMeta
    items: list[msgspec.Raw] = []


_COUNTED = msgspec.json.Decoder(_Counted)


async def started(siege: Siege, deployed: Deployed, *programs: str) -> None:
    """Start programs, and wait until all are ready."""
    # Not in another thread: a program ends with the thread that started it.
    if "webhook" in programs:
        deployed.start_webhook(wait=False)
    if "scheduler" in programs:
        deployed.start_scheduler(wait=False)
    if "visibility" in programs:
        deployed.start_visibility(wait=False)
    await siege.ready()


async def prepare(admin: Client, cpu: str = "32", nodes: int = 4) -> None:
    """Make the nodes, the queues and the namespaces: each tenant's queue has a limit, as where tenants don't trust one another."""
    for number in range(nodes):
        amounts = {"cpu": cpu, "memory": "256Gi", "pods": "1000"}
        about = {"name": f"node-{number}", "labels": {"kubernetes.io/hostname": f"node-{number}"}}
        about["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        await admin.create(kinds.NODES, {"metadata": about, "status": {"capacity": amounts, "allocatable": amounts}})
        slice_ = {"metadata": {"name": f"node-{number}"}, "spec": hostile_claims.offered(f"node-{number}")}
        await admin.create(kinds.RESOURCESLICES, slice_)
    await admin.create(
        kinds.DEVICECLASSES, {"metadata": {"name": hostile_kinds.DEVICE_CLASS}, "spec": hostile_claims.CLASS}
    )
    await wait.until(
        admin,
        kinds.QUEUES,
        names.DEFAULT_QUEUE,
        holds=lambda queue: queue is not None and queue.status.state == "Open",
        within=PATIENCE,
    )
    half = str(int(cpu) * nodes // 2)
    await admin.patch(kinds.QUEUES, names.DEFAULT_QUEUE, {"spec": {"capability": {"cpu": half}}})
    selector = {"matchLabels": {names.NAMESPACE_NAME: VICTIM}}
    await admin.create(kinds.QUEUES, {"metadata": {"name": VICTIM}, "spec": {"namespaceSelector": selector}})
    for name, labels in ({VICTIM: {names.QUOTA_MODE: names.GUARANTEED}} | HOSTILE).items():
        await admin.create(kinds.NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        if name != "open":
            quota = {"metadata": {"name": "compute"}, "spec": {"hard": {"cpu": HARD}}}
            await admin.create(kinds.RESOURCEQUOTAS, quota, name)


async def make_editor(admin: Client) -> None:
    """Give the hostile tenant an account with the role `edit` in its namespaces, and what some clusters let tenants do besides."""
    await admin.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": _EDITOR}}, "open")
    later = {"apiGroups": [""], "resources": ["pods/resize", "pods/ephemeralcontainers"], "verbs": ["patch"]}
    rules = [later, *({"apiGroups": [each.group], "resources": [each.plural], "verbs": ["create"]} for each in _ADDED)]
    await admin.create(kinds.CLUSTERROLES, {"metadata": {"name": "later-changes"}, "rules": rules})
    for namespace, role in itertools.product(HOSTILE, ("edit", "later-changes")):
        binding = {
            "metadata": {"name": f"{_EDITOR}-{role}"},
            "roleRef": {"apiGroup": kinds.ROLES.group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": _EDITOR, "namespace": "open"}],
        }
        await admin.create(kinds.ROLEBINDINGS, binding, namespace)


EDITOR = (_EDITOR, "open")


async def settled(siege: Siege) -> None:
    """Wait until somebody leads, quotas that are guaranteed have ledgers, and the hostile tenant may do what its role says."""
    async with asyncio.timeout(PATIENCE):
        for namespace in (VICTIM, "guaranteed"):
            await wait.until(
                siege.admin,
                kinds.QUOTALEDGERS,
                names.LEDGER_NAME,
                namespace,
                holds=lambda ledger: ledger is not None and bool(ledger.data.seeded_at),
                within=PATIENCE,
            )
        # A role's permissions are gathered by a controller, and known to the API server a moment later.
        for namespace in HOSTILE:
            for kind in (kinds.PODGROUPS, kinds.JOBS):
                await _may(siege.tenant, kind, namespace)


async def _may(client: Client, kind: Kind[Any], namespace: str) -> None:
    manifest = workloads.group("probe") if kind is kinds.PODGROUPS else workloads.job("probe", 1)
    while True:
        try:
            await client.create(kind, manifest, namespace, dry_run=True)
        except errors.KubeError:
            await asyncio.sleep(0.2)
        else:
            return
