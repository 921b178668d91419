"""More species of hostile objects: odd values, one after the other, in each field that a program of ours reads.

As in `hostile`, a species is a function that returns requests, and each is what anybody with the role `edit` may send. Here are
fields that the API server leaves to whoever reads them: times, places, labels, selectors, owners' versions, and what pods ask for
beside their containers' requests.
"""

from __future__ import annotations

import json
from typing import Any

import hostile
import hostile_kinds
from hostile import ODD, Species, Tenant, create, meta, patch, pod, spec

from muster.kube.transport import STRATEGIC_PATCH, Request
from muster.model import kinds, names

MOST = "9223372036854775807"
"""The largest amount that an API server stores."""

PLACED = "node-3"
"""The node that is taken by who names it: one of several, for the others are the other tenant's too."""

_LONG_DIGITS = "9" * 100_000


def _requests(amount: str, *resources: str) -> dict[str, Any]:
    return {"resources": {"requests": dict.fromkeys(resources, amount), "limits": dict.fromkeys(resources, amount)}}


def _container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox", **more}


def placed(tenant: Tenant) -> list[Request]:
    """Pods that name their node themselves, there or not, and take more of it than can be counted."""
    made = []
    for node in (PLACED, PLACED, PLACED, "nowhere", f"{'n' * 60}.example.com"):
        for scheduler in (names.SCHEDULER_NAME, "other"):
            for resource in ("cpu", "memory", "ephemeral-storage", "example.com/device"):
                main = _container("main", **_requests(MOST, resource))
                body = spec(scheduler=scheduler) | {"containers": [main], "nodeName": node}
                made.append(pod(tenant, tenant.name("placed"), body))
    return made


def beside_containers(tenant: Tenant) -> list[Request]:
    """Sidecars, initialisation, the pod's own amounts, gates and claims."""
    main = _container("main", **_requests("1m", "cpu"))
    sidecars = [_container(f"s{number}", restartPolicy="Always", **_requests("1m", "cpu")) for number in range(100)]
    steps = [_container(f"i{number}", **_requests(MOST, "cpu")) for number in range(100)]
    mixed = [each for pair in zip(sidecars, steps, strict=True) for each in pair]
    every: list[dict[str, Any]] = [
        {"initContainers": sidecars},
        {"initContainers": steps},
        {"initContainers": mixed},
        {"initContainers": [_container("i", restartPolicy="Always", **_requests(MOST, "cpu"))] * 1},
        {"resources": {"requests": {"cpu": MOST, "memory": MOST}}},
        {"resources": {"limits": {"cpu": "1", "memory": MOST, "hugepages-2Mi": "2Mi"}}},
        {"resources": {"requests": {"cpu": "0"}}},
        {"schedulingGates": [{"name": f"example.com/gate-{number}"} for number in range(2000)]},
        {"resourceClaims": [{"name": f"c{number}", "resourceClaimName": f"none-{number}"} for number in range(500)]},
        {"terminationGracePeriodSeconds": 2**63 - 1},
        {"activeDeadlineSeconds": 2**31 - 1, "priorityClassName": "system-cluster-critical"},
        {"priorityClassName": "system-node-critical", "preemptionPolicy": "Never"},
        {
            "hostNetwork": True,
            "containers": [main | {"ports": [{"containerPort": 1 + n, "hostPort": 1 + n} for n in range(3000)]}],
        },
        {"containers": [main | {"ports": [{"containerPort": 1, "hostPort": 1, "hostIP": "::ffff:1.2.3.4"}]}]},
    ]
    return [
        pod(tenant, tenant.name("beside"), spec(scheduler=scheduler) | {"containers": [main]} | each)
        for each in every
        for scheduler in (names.SCHEDULER_NAME, "other")
    ]


def many_labels(tenant: Tenant) -> list[Request]:
    """Pods with a thousand labels, each time others, and who asks for all that lack one."""
    made = []
    for number in range(12):
        salt = tenant.chance.randrange(1 << 30)
        labels = {f"k{salt}-{each}": f"v{salt}-{each}" for each in range(1000)}
        about = meta(tenant.name("labels"), **{names.GROUP_NAME: "labels"}) | {"labels": labels}
        body = spec(scheduler=(names.SCHEDULER_NAME, "other")[number % 2])
        made.append(create(kinds.PODS, tenant, {"metadata": about, "spec": body}))
    terms = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]},
        }
        for number in range(99)
    ]
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    made += [pod(tenant, tenant.name("labels"), spec(affinity=anti))]
    return made


def odd_selectors(tenant: Tenant) -> list[Request]:
    """What pods say of nodes and other pods: numbers that are none, thousands of values, ends of int32."""

    def required(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
        term: dict[str, Any] = {"matchExpressions": list(expressions)} | (
            {"matchFields": list(fields)} if fields else {}
        )
        node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return {"affinity": {"nodeAffinity": node}}

    numbers = ("1", "-1", "1_0", " 1", "٣", "0x1", "1e9", _LONG_DIGITS, "9" * 40, "")
    bodies: list[dict[str, Any]] = [
        required({"key": "kubernetes.io/hostname", "operator": operator, "values": [text]})
        for operator in ("Gt", "Lt")
        for text in numbers
    ]
    bodies += [
        required({"key": "k", "operator": "In", "values": [f"{sign}{number}" for number in range(300)]}) for sign in ODD
    ]
    bodies += [
        required(fields=({"key": "metadata.name", "operator": "In", "values": [f"{sign}"]},))
        for sign in ("node-3", "nowhere")
    ]
    bodies += [{"nodeSelector": {f"example.com/k{number}": "v" for number in range(2000)}}]
    for skew, domains in ((2**31 - 1, 2**31 - 1), (1, 2**31 - 1), (2**31 - 1, None)):
        one: dict[str, Any] = {
            "maxSkew": skew,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {},
            "matchLabelKeys": [f"k{number}" for number in range(200)] if domains is None else None,
            "minDomains": domains,
        }
        bodies += [{"topologySpreadConstraints": [one]}]
    return [pod(tenant, tenant.name("selector"), spec() | each) for each in bodies]


def odd_times(tenant: Tenant) -> list[Request]:
    """Moments that calendars don't have, where nobody but the reader looks at them."""
    made = []
    for text in (
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-12:00",
        "0001-01-01T00:00:00+14:00",
    ):
        times = {"creationTimestamp": text, "deletionTimestamp": text}
        for about in (
            times,
            {"managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": text}]},
        ):
            name = tenant.name("time")
            work = {"parallelism": 1, "suspend": True, "template": {"metadata": about, "spec": spec()}}
            made += [
                create(kinds.JOBS, tenant, {"metadata": meta(name), "spec": work}),
                create(kinds.PODS, tenant, {"metadata": meta(name) | about, "spec": spec()}),
                create(kinds.PODGROUPS, tenant, {"metadata": meta(name) | about, "spec": {"minMember": 1}}),
                _deployment(tenant, name, {"metadata": about | {"labels": {"app": name}}, "spec": _always()}),
            ]
    return made


def _always() -> dict[str, Any]:
    return spec() | {"restartPolicy": "Always"}


def _deployment(tenant: Tenant, name: str, template: dict[str, Any], **about: Any) -> Request:
    work = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return create(kinds.DEPLOYMENTS, tenant, {"metadata": meta(name) | about, "spec": work})


def odd_owner_versions(tenant: Tenant) -> list[Request]:
    """Owners whose version or name leads elsewhere, and objects that own one another."""
    made = []
    versions = (
        "v1",
        ".",
        "..",
        "../v1",
        "v1?watch=true",
        "apps/v1#x",
        "%2e%2e/v1",
        "apps/v1\n",
        "é/v1",
        "x" * 5000,
        "/v1",
    )
    kinds_ = ("Pod", "../Pod", "P?watch=1", "", "k" * 5000)
    for version in versions:
        for kind in kinds_:
            owner = {
                "apiVersion": version,
                "kind": kind,
                "name": "../../../healthz",
                "uid": f"u-{len(made)}",
                "controller": True,
            }
            about = meta(tenant.name("version")) | {"ownerReferences": [owner]}
            made.append(create(kinds.PODS, tenant, {"metadata": about, "spec": spec()}))
    return made


def later_changes(tenant: Tenant) -> list[Request]:
    """Resizes and ephemeral containers, after the pod is there."""
    made = []
    for amount in ("0", "1m", "1", MOST, "1e400", "-1", "1n", "0x1"):
        name = tenant.name("later")
        resized = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": amount}}}]}}
        made += [pod(tenant, name, spec("1m"))]
        made += [_sub(tenant, name, "resize", resized)]
        late = {"spec": {"ephemeralContainers": [_container(f"e{amount.strip('-').lower()}")]}}
        made += [_sub(tenant, name, "ephemeralcontainers", late)]
        made += [
            patch(
                kinds.PODS,
                tenant,
                name,
                {
                    "metadata": {
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": True}
                        ]
                    }
                },
            )
        ]
    return made


def _sub(tenant: Tenant, name: str, part: str, change: dict[str, Any]) -> Request:
    return Request(
        "PATCH", kinds.PODS.path(tenant.namespace, name, part), {}, json.dumps(change).encode(), STRATEGIC_PATCH
    )


def odd_claims(tenant: Tenant) -> list[Request]:
    """Claims with odd amounts, selectors, classes and nodes, each with a pod that waits for it."""
    made = []
    for number, amount in enumerate((MOST, "1n", "1e30", "1")):
        for sign in ("", "é", "a b", "\n", "x" * 5000):
            name = tenant.name("claim")
            many = [{"key": f"k{each}", "operator": "In", "values": [f"v{each}"]} for each in range(500 * number)]
            claim = {
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"][: 1 + number % 2],
                "resources": {"requests": {"storage": amount}},
                "storageClassName": "" if number % 2 else "none",
                "selector": {"matchExpressions": many},
            }
            about = meta(name, **{"volume.kubernetes.io/selected-node": sign, "pv.kubernetes.io/bind-completed": sign})
            made.append(create(kinds.CLAIMS, tenant, {"metadata": about, "spec": claim}))
            volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
            made.append(pod(tenant, name, spec() | {"volumes": [volume]}))
    return made


def odd_numbers(tenant: Tenant) -> list[Request]:
    """Numbers of groups in every form that JSON has."""
    texts = ("1.0", "1e0", "-0", "2147483648", "1e300", "-1", "9223372036854775808", "null", '"1"', "1.5", "true")
    made = []
    for text in texts:
        for field in (
            '"minMember":%s',
            '"minMember":1,"minTaskMember":{"a":%s}',
            '"minMember":1,"minResources":{"cpu":%s}',
        ):
            name = tenant.name("number")
            body = '{"apiVersion":"%s","kind":"PodGroup","metadata":{"name":"%s"},"spec":{%s}}'
            written = body % (kinds.PODGROUPS.api_version, name, field % text)
            made.append(Request("POST", kinds.PODGROUPS.path(tenant.namespace), {}, written.encode()))
    return made


FIELDS: tuple[Species, ...] = (
    placed,
    beside_containers,
    many_labels,
    odd_selectors,
    odd_times,
    odd_owner_versions,
    later_changes,
    odd_claims,
    odd_numbers,
)

SPECIES: tuple[Species, ...] = hostile.SPECIES + FIELDS + hostile_kinds.KINDS
"""All that there are."""

LARGE: frozenset[Species] = hostile.LARGE | {
    many_labels,
    odd_selectors,
    beside_containers,
    odd_claims,
    hostile_kinds.costly_claims,
}
"""Those whose objects are large, or cost the API server much."""
