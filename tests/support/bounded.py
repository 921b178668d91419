"""Everything of Muster that reads free text, fed with 256 KiB of one character: python bounded.py, under a limit of processor time.

Prints the name of each step before it is taken, so that the last line names the one that the limit ended.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Callable
from typing import Any

import hostile_claims
import msgspec

from muster.kube import decoding, errors
from muster.ledger import conversion
from muster.ledger.reservations import ReservationRequest, held
from muster.ledger.rows import MalformedLedgerError, Row
from muster.model import (
    durations,
    grouping,
    kinds,
    labels,
    names,
    requests,
    rules,
    scopes,
    tenant_texts,
    text,
    versions,
)
from muster.model.amounts import Quantity, Resources
from muster.model.objects import Condition, LabelSelector, LabelSelectorRequirement, Meta, OwnerReference, PodGroup
from muster.model.objects import PodGroupSpec as Spec
from scheduler.engine import requeue
from scheduler.model import affinity, constraints
from scheduler.state import conversion as state
from webhooks import admission, review

SIZE = 256 * 1024
SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
CHARACTERS = 'a1.-/,= \n0e[{"\\:_\0😀'
PATTERNS = (*CHARACTERS, "1.", "a-", "a.", "1h", "a=", "a,", "-.", "[{", '\\"')

EXPECTED = (ValueError, TypeError, MalformedLedgerError, msgspec.MsgspecError, UnicodeError, errors.KubeError)
"""What a step may refuse with: what it documents, or what its callers isolate. Not a RecursionError, nor a MemoryError."""


def meta(written: str) -> Meta:
    keys = (*names.GROUP_NAME_KEYS, *names.QUEUE_NAME_KEYS, names.POD_TRAITS, names.QUOTA_POLICY, names.MEMBER_OF)
    more = (names.GROUP_MIN_MEMBER, names.GROUP_MIN_RESOURCES, "sla-waiting-time", names.JOB_GROUP)
    return Meta(name=written, namespace="ns", uid=written, annotations=dict.fromkeys((*keys, *more), written))


def pod(**spec: Any) -> Any:
    return msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}, kinds.PODS.struct)


def with_affinity(written: str) -> Any:
    term = {
        "labelSelector": {"matchExpressions": [{"key": written, "operator": "In", "values": [written]}]},
        "topologyKey": written,
        "namespaces": [written],
    }
    return pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


def selector(written: str) -> LabelSelector:
    wanted = LabelSelectorRequirement(key=written, operator="In", values=(written,))
    return LabelSelector(match_labels={written: written}, match_expressions=(wanted,))


def request(written: str) -> ReservationRequest:
    amounts = Resources({written: 1})
    return ReservationRequest("ns", "PodGroup", names.VOLCANO_GROUP, written, written, amounts, scope_facts=written)


def owned(written: str) -> Meta:
    owner = OwnerReference(api_version=written, kind=written, name=written, uid=written, controller=True)
    return Meta(name="p", uid="u", owner_references=(owner,))


STEPS: dict[str, Callable[[str], object]] = {
    "Quantity.parse": Quantity.parse,
    "Resources.parse, amount": lambda written: Resources.parse({"cpu": written}),
    "Resources.parse, name": lambda written: Resources.parse({written: "1"}),
    "str(Resources)": lambda written: str(Resources({written: 1})),
    "durations.duration": durations.duration,
    "border.is_subdomain": tenant_texts.is_subdomain,
    "border.is_resource": tenant_texts.is_resource,
    "border.is_uid": tenant_texts.is_uid,
    "border.traits": tenant_texts.traits,
    "border.faults": lambda written: list(tenant_texts.faults(meta(written).annotations)),
    "border.check": lambda written: tenant_texts.check(
        "here", subdomains=[written], resources=[written], uids=[written]
    ),
    "scopes.parse_facts": scopes.parse_facts,
    "scopes.scope_facts": lambda written: scopes.scope_facts(pod(priorityClassName=written).spec),
    "scopes.split_name": scopes.split_name,
    "scopes.in_scopes": lambda written: scopes.in_scopes(Resources({written: 1}), written, [written]),
    "text.shown": text.shown,
    "versions.at_least": lambda written: versions.at_least(written, written),
    "labels.faults": lambda written: list(labels.faults(selector(written))),
    "labels.text": lambda written: labels.text(selector(written)),
    "labels.matches": lambda written: labels.matches(selector(written), {written: written}),
    "grouping.group_of": lambda written: grouping.group_of(meta(written)),
    "grouping.queue_name": lambda written: grouping.queue_name(meta(written)),
    "grouping.min_member": lambda written: grouping.min_member(meta(written)),
    "grouping.min_resources": lambda written: grouping.min_resources(meta(written)),
    "grouping.reserves_late": lambda written: grouping.reserves_late(meta(written)),
    "grouping.is_generated": grouping.is_generated,
    "grouping.chosen_owner": lambda written: grouping.chosen_owner(owned(written).owner_references or (), ()),
    "rules.parse": lambda written: rules.parse(written, "a file"),
    "Row.parse": Row.parse,
    "ReservationRequest": request,
    "conversion.readable": lambda written: conversion.readable({written: written, "cpu": written}),
    "conversion.observed_group": lambda written: conversion.observed_group(
        "g", PodGroup(metadata=meta(written), spec=Spec(min_resources={written: written})), 0
    ),
    "state.sla_of": lambda written: state.sla_of(PodGroup(metadata=meta(written))),
    "state.min_resources": lambda written: state.min_resources(PodGroup(spec=Spec(min_resources={written: "1"}))),
    "requeue.recorded": lambda written: requeue.recorded(
        [Condition(type="Postponed", status="True", message=written, transition_id=written)]
    ),
    "constraints.requirement_holds": lambda written: constraints.requirement_holds(
        LabelSelectorRequirement(key="a", operator="Gt", values=(written,)), {"a": written}
    ),
    "constraints.of_pod": lambda written: constraints.of_pod(
        Meta(name="p", namespace="ns"), pod(nodeSelector={written: written}, schedulerName=written).spec
    ),
    "affinity.of_pod": lambda written: affinity.of_pod("ns", {written: written}, with_affinity(written).spec),
    "decoding.item, in a string": lambda written: decoding.item(
        kinds.PODS,
        msgspec.json.encode({"metadata": {"name": "p", "annotations": {"a": written}}, "spec": {"nodeName": 7}}),
    ),
    "decoding.item": lambda written: decoding.item(kinds.PODS, written.encode()),
    "decoding.page": lambda written: decoding.page(kinds.PODS, written.encode()),
    "errors.bounded": errors.bounded,
    "review.parse": lambda written: review.parse(written.encode()),
    "review.early_uid": lambda written: review.early_uid(b'{"request":{"uid":"' + written.encode()),
    "admission: timeout": admission._GO_DURATION.fullmatch,
}
"""Each place where a text that a tenant wrote is read by a pattern, a parser or a number's conversion."""

MANY = 8192
"""Names of resources in one object; an API server takes 1.5 MB."""


def many(count: int) -> dict[str, str]:
    return {f"example.com/r{number}": "1" for number in range(count)}


def containers() -> Any:
    each = [
        {"resources": {"requests": {f"example.com/r{number}-{k}": "1" for k in range(8)}}} for number in range(1500)
    ]
    return pod(containers=each, initContainers=each)


CROWDED: dict[str, Callable[[], object]] = {
    "conversion.readable": lambda: conversion.readable(many(MANY)),
    "conversion.observed_group": lambda: conversion.observed_group(
        "g", PodGroup(metadata=Meta(name="g", uid="u"), spec=Spec(min_resources=many(MANY))), 0
    ),
    "conversion.observed_pod": lambda: conversion.observed_pod(containers()),
    "requests.pod_request": lambda: requests.pod_request(containers().spec),
    "requests.pod_limits": lambda: requests.pod_limits(containers().spec),
    "held": lambda: held(Resources.parse(many(MANY))),
    "scopes.in_scopes": lambda: scopes.in_scopes(
        Resources.parse(many(MANY)), "class=a", ["PriorityClass=a", "BestEffort"]
    ),
    "state.min_resources": lambda: state.min_resources(PodGroup(spec=Spec(min_resources=many(MANY)))),
    "two cycles with claims": lambda: list(hostile_claims.decisions(2)),
}
"""The same of objects with thousands of names, and of claims whose expressions take long."""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    for name, step in STEPS.items():
        for pattern in PATTERNS:
            say(f"{name} of {pattern!r}")
            with contextlib.suppress(*EXPECTED):
                step(pattern * (SIZE // len(pattern)))
    for name, run in CROWDED.items():
        say(f"{name} of thousands")
        with contextlib.suppress(*EXPECTED):
            run()
    say("all are bounded")


if __name__ == "__main__":
    main()
