"""Objects that a tenant writes to do harm, and that an API server stores: made of a seed, by species.

A species is a function that returns requests; each request is what anybody with the role `edit` in a namespace may send.
Some are refused by some API servers: what counts is that enough of each species is stored (see tests/hostile).
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.kube.transport import MERGE_PATCH, Request
from muster.model import kinds, names
from muster.model.kinds import Kind

SHORTEST_DEEP, DEEPEST = 1_200, 9_900
LONG = 250 * 1024
"""Characters: all annotations of an object together may have 256 KiB."""

ODD = (" ", "/", ",", "=", "@", "\n", "\t", "\\", '"', "%", "\u2028", "\u202e", "é", "𝔘", "\x7f")
"""What breaks lines, columns, rows, patterns and paths where somebody forgot to look."""

_SLA = ("sla-waiting-time", "volcano.sh/sla-waiting-time")
_READ = (
    *names.GROUP_NAME_KEYS,
    *names.GROUP_MIN_MEMBER_KEYS,
    *names.QUEUE_NAME_KEYS,
    *_SLA,
    names.GROUP_MIN_RESOURCES,
    names.DELAY,
    names.SUSPENDED,
    names.JOB_GROUP,
    names.MEMBER_OF,
    names.POD_TRAITS,
    names.TURN,
    names.QUOTA_POLICY,
    names.EXPECTED_DURATION,
    names.TOPOLOGY_MODE,
    names.TOPOLOGY_TIER,
    names.DISRUPTION_MODE,
    names.PREEMPTION_POLICY,
    "volcano.sh/preemptable",
    "volcano.sh/task-spec",
)
"""Annotations that a program of ours reads, of whatever object."""


@dataclass
class Tenant:
    """Who attacks, from one namespace. What it makes has names of its own."""

    namespace: str
    chance: random.Random
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def name(self, species: str) -> str:
        return f"{species.replace('_', '-')}-{next(self._numbers)}"

    def odd(self) -> str:
        """Return a text that is short or long, and holds what separates things elsewhere."""
        sign = self.chance.choice(ODD)
        return self.chance.choice(
            (sign, sign * 3, f"a{sign}b", f"{sign}a", f"a{sign}", f"cpu{sign}4", sign * 5000, "", "-")
        )

    def long(self) -> str:
        """Return as many of one character as an annotation takes."""
        sign = self.chance.choice("1 9h.,{[/a=-")
        return sign * (LONG // len(sign.encode()))


Species = Callable[[Tenant], Sequence[Request]]


def create(kind: Kind[Any], tenant: Tenant, manifest: Mapping[str, Any]) -> Request:
    whole = {"apiVersion": kind.api_version, "kind": kind.name, **manifest}
    return Request("POST", kind.path(tenant.namespace), {}, json.dumps(whole).encode())


def patch(kind: Kind[Any], tenant: Tenant, name: str, change: Mapping[str, Any]) -> Request:
    return Request("PATCH", kind.path(tenant.namespace, name), {}, json.dumps(change).encode(), MERGE_PATCH)


def meta(name: str, **annotations: str) -> dict[str, Any]:
    return {"name": name, "annotations": annotations}


def spec(cpu: str = "100m", scheduler: str = names.SCHEDULER_NAME, **more: Any) -> dict[str, Any]:
    """Return the spec of a small pod."""
    main = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [main], **more}


def pod(tenant: Tenant, name: str, pod_spec: Mapping[str, Any], **annotations: str) -> Request:
    return create(kinds.PODS, tenant, {"metadata": meta(name, **annotations), "spec": pod_spec})


def group(tenant: Tenant, name: str, group_spec: Mapping[str, Any], **annotations: str) -> Request:
    return create(kinds.PODGROUPS, tenant, {"metadata": meta(name, **annotations), "spec": group_spec})


def job(tenant: Tenant, name: str, pod_spec: Mapping[str, Any], count: int = 1, **annotations: str) -> Request:
    template = {"metadata": {"annotations": annotations}, "spec": pod_spec}
    work = {"parallelism": count, "completions": count, "suspend": True, "template": template}
    return create(kinds.JOBS, tenant, {"metadata": meta(name, **annotations), "spec": work})


# ── species ──────────────────────────────────────────────────────────────────────────────────────────────────────


def deep_metadata(tenant: Tenant) -> list[Request]:
    """managedFields that nest thousands deep, of a pod, a PodGroup and a Job."""
    made = []
    name = tenant.name("deep")
    for request in (pod(tenant, name, spec()), group(tenant, name, {"minMember": 1}), job(tenant, name, spec())):
        depth = tenant.chance.randint(SHORTEST_DEEP, DEEPEST)
        # Written as text: an encoder would give up on it as the decoders of Muster's did.
        fields = b'{"f:metadata":' * depth + b"{}" + b"}" * depth
        version = json.loads(request.body)["apiVersion"].encode()
        entry = b'{"manager":"m","operation":"Update","apiVersion":"%s","fieldsType":"FieldsV1","fieldsV1":%s}'
        managed = b'"metadata":{"managedFields":[' + entry % (version, fields) + b"],"
        body = request.body.replace(b'"metadata": {', managed, 1)
        made.append(Request(request.method, request.path, {}, body))
    return made


def long_annotations(tenant: Tenant) -> list[Request]:
    """A quarter of a megabyte of one character, where programs read."""
    return [
        made
        for key in _READ
        for name, text in [(tenant.name("long"), tenant.long())]
        for made in (
            tenant.chance.choice((pod(tenant, name, spec(), **{key: text}), job(tenant, name, spec(), **{key: text}))),
            group(tenant, name, {"minMember": 1}, **{key: text}),
        )
    ]


def odd_annotations(tenant: Tenant) -> list[Request]:
    """What separates things elsewhere, in each annotation that programs read."""
    made = []
    for key in _READ:
        name = tenant.name("odd")
        text = tenant.odd()
        made += [
            pod(tenant, name, spec(), **{key: text}),
            job(tenant, name, spec(), **{key: tenant.odd()}),
            group(tenant, name, {"minMember": 1}, **{key: tenant.odd()}),
        ]
    return made


def odd_min_resources(tenant: Tenant) -> list[Request]:
    """PodGroups and Jobs whose minimum names what is no resource."""
    made = []
    for sign in ODD:
        name = tenant.name("minimum")
        keys = (sign, f"cpu{sign}", f"a{sign}b", f"{tenant.odd()}{sign}", "x" * 5000)
        amounts = dict.fromkeys(keys, "1")
        made += [
            group(tenant, name, {"minMember": 1, "minResources": {key: "1"}}) if key else group(tenant, name, {})
            for name, key in ((tenant.name("minimum"), key) for key in keys)
        ]
        made += [
            job(tenant, name, spec(), **{names.GROUP_MIN_RESOURCES: json.dumps(amounts)}),
            pod(tenant, name, spec(), **{names.GROUP_MIN_RESOURCES: json.dumps(amounts | {"cpu": tenant.odd()})}),
        ]
    return made


def odd_queues(tenant: Tenant) -> list[Request]:
    """Queues that are none, in fields and annotations."""
    texts = [*(f"a{sign}b" for sign in ODD), "q" * 253, " ", "-", "..", "default/", "root"]
    return [
        made
        for text in texts
        for made in (
            group(tenant, tenant.name("queue"), {"minMember": 1, "queue": text}),
            *(job(tenant, tenant.name("queue"), spec(), **{key: text}) for key in names.QUEUE_NAME_KEYS),
        )
    ]


def odd_owners(tenant: Tenant) -> list[Request]:
    """Owners that don't exist, by uids that are none."""
    made = []
    for sign in ODD:
        owners = [
            {"apiVersion": "v1", "kind": "Node", "name": f"n{number}", "uid": f"{sign}{number}/{tenant.odd()}"}
            for number in range(tenant.chance.randint(1, 40))
        ]
        owners[0] |= {"controller": True, "apiVersion": "invented.example.com/v1", "kind": f"K{sign}d"}
        about = {**meta(tenant.name("owned")), "ownerReferences": owners}
        made.append(create(kinds.PODS, tenant, {"metadata": about, "spec": spec()}))
        about = about | {"name": tenant.name("owned")}
        made.append(create(kinds.PODGROUPS, tenant, {"metadata": about, "spec": {"minMember": 1}}))
    return made


def odd_scheduler_names(tenant: Tenant) -> list[Request]:
    """Schedulers that nobody runs."""
    texts = [f"muster{sign}" for sign in ODD] + ["x" * 100_000, "muster ", "MUSTER"]
    return [pod(tenant, tenant.name("scheduler"), spec(scheduler=text)) for text in texts]


def invented_resources(tenant: Tenant) -> list[Request]:
    """Pods that ask for thousands of resources that no node has."""
    made = []
    for _ in range(3):
        salt = tenant.chance.randrange(1 << 30)
        invented = {f"invented.example.com/r{salt}-{number}": "1" for number in range(3000)} | {"cpu": "1m"}
        main = {"name": "main", "image": "busybox", "resources": {"requests": invented, "limits": invented}}
        made += [
            pod(tenant, tenant.name("invented"), spec() | {"containers": [main]}),
            pod(tenant, tenant.name("invented"), spec(scheduler="other") | {"containers": [main]}),
        ]
        sixty = dict(itertools.islice(invented.items(), 60))
        made.append(group(tenant, tenant.name("invented"), {"minMember": 1, "minResources": sixty}))
    return made


def many_terms(tenant: Tenant) -> list[Request]:
    """Pending pods with thousands of affinity terms."""
    return _each_of(tenant, "affinity", "antiAffinity", "nodeAffinity")


def many_spread_constraints(tenant: Tenant) -> list[Request]:
    """Pending pods with thousands of topology spread constraints."""
    return _each_of(tenant, "spread")


def many_parts(tenant: Tenant) -> list[Request]:
    """Pending pods with thousands of tolerations and volumes, and hundreds of containers."""
    return _each_of(tenant, "tolerations", "containers", "volumes")


def _each_of(tenant: Tenant, *many: str) -> list[Request]:
    return [
        pod(tenant, tenant.name("many"), _many(tenant, each, spec(scheduler=scheduler)))
        for scheduler in (names.SCHEDULER_NAME, "other")
        for each in many
    ]


def _many(tenant: Tenant, what: str, small: dict[str, Any]) -> dict[str, Any]:
    count = 4000
    label = {"matchLabels": {"app": f"a{tenant.chance.randrange(1000)}"}}
    terms = [{"topologyKey": f"example.com/zone{number % 50}", "labelSelector": label} for number in range(count)]
    match what:
        case "affinity":
            return small | {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
        case "antiAffinity":
            weighed = [{"weight": 1 + number % 100, "podAffinityTerm": term} for number, term in enumerate(terms)]
            return small | {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": terms[:2000],
                        "preferredDuringSchedulingIgnoredDuringExecution": weighed[:2000],
                    }
                }
            }
        case "nodeAffinity":
            either = [
                {"matchExpressions": [{"key": f"k{number}", "operator": "In", "values": ["a", "b"]}]}
                for number in range(count)
            ]
            return small | {
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": either}}
                }
            }
        case "spread":
            spread = [
                {
                    "maxSkew": 1,
                    "topologyKey": f"k{number}",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": label,
                }
                for number in range(count)
            ]
            return small | {"topologySpreadConstraints": spread}
        case "tolerations":
            return small | {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]}
        case "containers":
            main = small["containers"][0]
            return small | {"containers": [main | {"name": f"c{number}"} for number in range(500)]}
        case _:
            claims = [
                {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"none-{number}"}}
                for number in range(1000)
            ]
            return small | {"volumes": claims}


_AMOUNTS = (
    *("9223372036854775807", "99999999999999999999E", "1e30", "0.000000001n", "1n", "0", "-1", "-0", "+5", ".5", "5."),
    *("1e-30", "9" * 60, "0." + "0" * 60 + "1", "1e9999", "1Ei", "8191Pi", "1E", "1e", "", " 1", "1 ", "١"),
)
_SLOW_FOR_KUBERNETES = ("1e999999999", "1e-999999999")
"""Quantities over which kube-apiserver itself works for minutes: only where it doesn't read them."""


def absurd_amounts(tenant: Tenant) -> list[Request]:
    """Quantities at the ends of what can be written."""
    made = []
    for text in _AMOUNTS:
        made += [
            pod(tenant, tenant.name("amount"), spec(text)),
            group(tenant, tenant.name("amount"), {"minMember": 1, "minResources": {"cpu": text, "memory": text}}),
        ]
    for text in _AMOUNTS + _SLOW_FOR_KUBERNETES:
        made += [job(tenant, tenant.name("amount"), spec(), **{names.GROUP_MIN_RESOURCES: json.dumps({"cpu": text})})]
    return made


def absurd_durations(tenant: Tenant) -> list[Request]:
    """Waiting times, delays and deadlines at the ends of what can be written."""
    texts = (
        "1e309h",
        "9" * 63 + "h",
        "-1s",
        "0s",
        "nan",
        "inf",
        "1h" * 30,
        "0.0000001ms",
        "1h1h",
        "９s",
        "1" * 4000 + "h",
    )
    made = [
        group(tenant, tenant.name("while"), {"minMember": 1}, **{key: text})
        for text in texts
        for key in (*_SLA, names.DELAY, names.EXPECTED_DURATION)
    ]
    made += [job(tenant, tenant.name("while"), spec(), **{names.DELAY: text}) for text in texts]
    made += [pod(tenant, tenant.name("while"), spec(activeDeadlineSeconds=each)) for each in (1, 2**31 - 1, 2**31, 0)]
    return made


def absurd_counts(tenant: Tenant) -> list[Request]:
    """Gangs of as many pods as an int32 takes, of thousands of tasks."""
    tasks = {f"task-{number}": 2**31 - 1 for number in range(256)}
    made = [group(tenant, tenant.name("count"), {"minMember": many}) for many in (0, 2**31 - 1, 100_000)]
    made += [group(tenant, tenant.name("count"), {"minMember": 1, "minTaskMember": tasks})]
    made += [group(tenant, tenant.name("count"), {"minMember": 1, "minTaskMember": {tenant.odd() or "x": 1}})]
    for many in ("2147483647", "9" * 4000, "-1", "1e9", "0x10", " 1", "1_0", "٣"):
        for key in names.GROUP_MIN_MEMBER_KEYS:
            made += [job(tenant, tenant.name("count"), spec(), **{key: many})]
            made += [pod(tenant, tenant.name("count"), spec(), **{key: many})]
    made += [job(tenant, tenant.name("count"), spec("1"), 2**31 - 1)]
    return made


def edits(tenant: Tenant) -> list[Request]:
    """Changes, after admission, of what amounts are counted by."""
    made = []
    facts = (
        "BestEffort",
        "NotBestEffort",
        "Terminating",
        "NotTerminating",
        "PriorityClass=x",
        "a b",
        "@",
        "\n",
        "x" * 5000,
    )
    for text in facts:
        name = tenant.name("edited")
        made += [
            group(tenant, name, {"minMember": 1, "minResources": {"cpu": "1"}}),
            patch(kinds.PODGROUPS, tenant, name, {"metadata": {"annotations": {names.POD_TRAITS: text}}}),
            patch(kinds.PODGROUPS, tenant, name, {"spec": {"minResources": {"cpu": "9"}}}),
            patch(kinds.PODGROUPS, tenant, name, {"metadata": {"annotations": {names.POD_TRAITS: tenant.odd()}}}),
            pod(tenant, name, spec("1")),
            patch(kinds.PODS, tenant, name, {"spec": {"activeDeadlineSeconds": 2**31 - 1}}),
            patch(kinds.PODS, tenant, name, {"spec": {"activeDeadlineSeconds": 5}}),
            patch(kinds.PODS, tenant, name, {"metadata": {"annotations": {names.GROUP_NAME: tenant.odd()}}}),
            patch(kinds.PODS, tenant, name, {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/stay"]}}),
        ]
    return made


def budgets(tenant: Tenant) -> list[Request]:
    """PodDisruptionBudgets that match by thousands of expressions."""
    values = [f"v{number}" for number in range(2000)]
    many = [{"key": f"k{number}", "operator": "NotIn", "values": values[:20]} for number in range(1000)]
    return [
        create(
            kinds.DISRUPTIONBUDGETS,
            tenant,
            {"metadata": meta(tenant.name("budget")), "spec": {"minAvailable": least, "selector": chosen}},
        )
        for least in (0, 2**31 - 1, "100%")
        for chosen in ({"matchExpressions": many}, {}, {"matchExpressions": [many[0] | {"values": values}]})
    ]


SPECIES: tuple[Species, ...] = (
    deep_metadata,
    long_annotations,
    odd_annotations,
    odd_min_resources,
    odd_queues,
    odd_owners,
    odd_scheduler_names,
    invented_resources,
    many_terms,
    many_spread_constraints,
    many_parts,
    absurd_amounts,
    absurd_durations,
    absurd_counts,
    edits,
    budgets,
)


LARGE: frozenset[Species] = frozenset(
    {deep_metadata, long_annotations, invented_resources, many_terms, many_spread_constraints, many_parts, budgets}
)
"""Species whose objects are hundreds of kilobytes: seldom, or the API server does nothing else."""

_SELDOM = 0.002
"""Of batches; more, and the API server has time for nothing else: it takes half a second for a pod with hundreds of containers."""


def batches(
    tenant: Tenant, species: Sequence[Species], rare: frozenset[Species] = LARGE
) -> Iterator[Sequence[Request]]:
    """Return what species make, one by chance after the other and the ``rare`` ones seldom, without end."""
    large = [each for each in species if each in rare]
    small = [each for each in species if each not in rare]
    while True:
        yield tenant.chance.choice(large if tenant.chance.random() < _SELDOM else small)(tenant)
