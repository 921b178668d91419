"""The two webhook configurations as JSON: the requests that the API server sends us, and its failure policy.

Names and paths are API: operators see them in errors. The cheapest call is the one not made, so conditions keep away
what no policy would touch; what decides for the user's safety fails closed, and only on objects that are ours.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.ledger.reservations import COMPLETED
from muster.model import kinds, names, webhooks
from muster.model.kinds import Kind
from muster.model.objects import Json
from muster.model.workloads import CRONJOB, HINTED_APART, OPERATORS, WORKLOADS, WorkloadKind
from webhooks import hint_conditions

_TIMEOUT: Final = 5
_CREATE: Final = ("CREATE",)
_WRITE: Final = ("CREATE", "UPDATE")
_ANY: Final = ("CREATE", "UPDATE", "DELETE")


_CONTROLLED: Final = (
    "has(object.metadata.ownerReferences)"
    " && object.metadata.ownerReferences.exists(owner, has(owner.controller) && owner.controller)"
)


class UrlBase(Struct, frozen=True):
    """Call ``https://HOST:PORT`` directly, as a server outside the cluster needs; ``segment`` ends each path."""

    url: str
    segment: str = ""

    def client_config(self, path: str) -> dict[str, Json]:
        """Say where ``path`` is."""
        return {"url": "/".join([self.url.rstrip("/") + path, *filter(None, [self.segment])])}


class ServiceRef(Struct, frozen=True):
    """Call a Service of the cluster."""

    namespace: str
    name: str
    port: int = 443

    def client_config(self, path: str) -> dict[str, Json]:
        """Say where ``path`` is."""
        return {"service": {"namespace": self.namespace, "name": self.name, "port": self.port, "path": path}}


class _RegistrationSettings(Struct, frozen=True):
    """What differs between installations."""

    base: UrlBase | ServiceRef
    ca_bundle: bytes
    scheduler_names: tuple[str, ...]
    legacy_apis: bool
    own_namespace: str

    def named(self, scheduler: str) -> str:
        """Write whether a schedulerName is one of ours."""
        return f"{scheduler} in {_cel(*self.scheduler_names)}"


def configurations(
    base: UrlBase | ServiceRef,
    ca_bundle: bytes,
    *,
    scheduler_names: Sequence[str],
    legacy_apis: bool,
    own_namespace: str,
) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return the mutating and the validating configuration; ``ca_bundle`` is PEM."""
    scope = _RegistrationSettings(base, ca_bundle, tuple(scheduler_names), legacy_apis, own_namespace)
    return _whole(kinds.MUTATING, _mutating(scope)), _whole(kinds.VALIDATING, _validating(scope))


def _whole(kind: Kind[Any], entries: list[dict[str, Json]]) -> dict[str, Json]:
    metadata = {"name": names.WEBHOOK_CONFIGURATION, "labels": {names.PART_OF: "muster"}}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "webhooks": entries}


def _mutating(scope: _RegistrationSettings) -> list[dict[str, Json]]:
    ours = _ours(scope, "object.spec.template.spec")
    jobs = [("ours", ours), ("not-suspended", "!has(object.spec.suspend) || !object.spec.suspend")]
    pods = [
        ("ours", _ours(scope, "object.spec")),
        ("without-group", f"!({_annotated('object', names.GROUP_NAME_KEYS)})"),
    ]
    members = [
        ("another-scheduler", f"!({_ours(scope, 'object.spec')})"),
        ("with-group", _annotated("object", names.GROUP_NAME_KEYS)),
        ("with-owner", "has(object.metadata.ownerReferences)"),
    ]
    no_queue = f"!has(object.spec.queue) || object.spec.queue in {_cel('', names.DEFAULT_QUEUE)}"
    # The CRD writes the default queue, which gives way to what an annotation of the group names, and one of its namespace.
    own = f"!has(object.spec.queue) || object.spec.queue == '' || {_annotated('object', names.QUEUE_NAME_KEYS)}"
    podgroups = [("no-queue", no_queue), ("names-another", own)]
    labels, key = "object.metadata.labels", _cel(names.NAMES_QUEUE)[1:-1]
    unlabelled = f"!(has({labels}) && {key} in {labels} && {labels}[{key}] == 'true')"
    namespaces = [("names-queue", _annotated("object", names.QUEUE_NAME_KEYS)), ("not-labelled", unlabelled)]
    each = (
        *_default_scheduler(scope),
        _webhook(scope, "jobs.mutate.muster.sh", _rule(_CREATE, kinds.JOBS), "Ignore", jobs),
        _webhook(scope, "pods.mutate.muster.sh", _rule(_CREATE, kinds.PODS), "Ignore", pods),
        _where(
            _webhook(scope, "pods.members.muster.sh", _rule(_CREATE, kinds.PODS), "Ignore", members),
            names.QUOTA_MODE,
            "In",
            names.GUARDED,
            names.GUARANTEED,
        ),
        _webhook(scope, "namespaces.mutate.muster.sh", _rule(_WRITE, kinds.NAMESPACES), "Ignore", namespaces),
        _webhook(scope, "podgroups.mutate.muster.sh", _podgroups(scope, _CREATE), "Ignore", podgroups),
        _where(
            _webhook(
                scope,
                "podgroups.namespace-queue.muster.sh",
                _podgroups(scope, _CREATE),
                "Ignore",
                [("no-queue", no_queue)],
            ),
            names.NAMES_QUEUE,
            "In",
            "true",
        ),
        _where(
            _webhook(scope, "podgroups.queue-policy.muster.sh", _podgroups(scope, _CREATE), "Ignore"),
            names.QUOTA_POLICY,
            "In",
            names.POLICY_QUEUE,
        ),
    )
    return [webhook | {"reinvocationPolicy": "IfNeeded"} for webhook in each]


def _statuses(groups: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Turn rules on PodGroups into rules on their statuses, by which a group may come to hold more."""
    return [rule | {"resources": [f"{kinds.PODGROUPS.plural}/status"], "operations": ["UPDATE"]} for rule in groups]


def _validating(scope: _RegistrationSettings) -> list[dict[str, Json]]:
    annotations = (*names.QUEUE_NAME_KEYS, *names.GROUP_NAME_KEYS)
    annotated = (_annotated(where, annotations) for where in ("object", "object.spec.template"))
    ours = [("ours", " || ".join(f"({part})" for part in (_ours(scope, "object.spec.template.spec"), *annotated)))]
    judged_of_jobs = (*annotations, *names.GROUP_MIN_MEMBER_KEYS, names.GROUP_MIN_RESOURCES)
    ours.append(_changed("spec.template", annotations=judged_of_jobs))
    pods = _rule(_WRITE, kinds.PODS, "pods/resize")
    spec_changed = [_changed("spec")]
    pod_changed = _changed("spec", annotations=(*names.GROUP_NAME_KEYS, names.MEMBER_OF))
    group_changed = [
        _changed("spec", annotations=(names.POD_TRAITS, names.QUOTA_POLICY), more=_differs(_phase)),
    ]
    quotas = _rule(_ANY, kinds.RESOURCEQUOTAS)
    policy = f"object.metadata.annotations[{_cel(names.QUOTA_POLICY)[1:-1]}]"
    marked = f"{_annotated('object', [names.QUOTA_POLICY])} && {policy} in {_cel(names.POLICY_QUEUE)}"
    noted = f"{_differs(_noted_minimum)} || {_differs(_succeeded_before)}"
    holding = [
        ("holding-changes", f"{_differs(_phase)} || {noted}"),
        ("may-reserve", f"({marked}) || {_phase('oldObject')} in {_cel(COMPLETED)} || {noted}"),
    ]
    judged_of_queues = [_changed("spec", annotations=names.HIERARCHY)]
    queues = _webhook(scope, "queues.validate.muster.sh", _queues(scope), "Fail", judged_of_queues)
    del queues["namespaceSelector"]  # cluster-scoped objects are never left out by one
    return [
        _webhook(
            scope,
            "podgroupminresources.muster.sh",
            _podgroups(scope, _WRITE),
            "Fail",
            group_changed,
        ),
        _webhook(scope, "phases.muster.sh", _statuses(_podgroups(scope, _WRITE)), "Fail", holding),
        _webhook(scope, "jobs.validate.muster.sh", _rule(_WRITE, kinds.JOBS), "Fail", ours),
        queues,
        *_counted(scope, pods, [pod_changed]),
        *_counted(scope, _rule(_CREATE, kinds.RESOURCECLAIMS)),
        _where(
            _webhook(scope, "resourcequotas.guaranteed.muster.sh", quotas, "Fail", spec_changed),
            names.QUOTA_MODE,
            "In",
            names.GUARANTEED,
        ),
        _where(
            _webhook(scope, "resourcequotas.muster.sh", quotas, "Ignore", spec_changed),
            names.QUOTA_MODE,
            "NotIn",
            names.GUARANTEED,
        ),
        *_hints(scope),
        *(_workload(scope, each) for each in WORKLOADS),
    ]


def _counted(
    scope: _RegistrationSettings, rules: list[dict[str, Json]], conditions: Sequence[tuple[str, str]] = ()
) -> list[dict[str, Json]]:
    """Return the webhooks by which the ledger is asked for what isn't a group, where its quotas hold for that."""
    modes = ((names.GUARANTEED, "Fail"), (names.GUARDED, "Ignore"))
    plural = rules[0]["resources"][0]
    each = [(mode, _webhook(scope, f"{plural}.{mode}.muster.sh", rules, policy, conditions)) for mode, policy in modes]
    return [_where(webhook, names.QUOTA_MODE, "In", mode) for mode, webhook in each]


def _default_scheduler(scope: _RegistrationSettings) -> list[dict[str, Json]]:
    """Return the webhooks by which gangs get Muster's scheduler in namespaces that are labelled so."""
    pods = hint_conditions.unscheduled("object.spec", ["object"])
    operators = [rule for each in OPERATORS if each.templates for rule in _rule(_CREATE, each.kind)]
    templated = [
        *_rule(_CREATE, kinds.JOBS, CRONJOB.kind.plural),
        *_rule(_CREATE, kinds.DEPLOYMENTS, kinds.STATEFULSETS.plural),
    ]
    each = (
        _webhook(scope, "pods.scheduler.muster.sh", _rule(_CREATE, kinds.PODS), "Ignore", [("gang", pods)]),
        _webhook(
            scope, "workloads.scheduler.muster.sh", templated, "Ignore", [("gang", hint_conditions.unscheduled_gang())]
        ),
        _webhook(scope, "operators.scheduler.muster.sh", operators, "Ignore", [("gang", hint_conditions.gang())]),
    )
    for webhook in each:
        expressions = webhook["namespaceSelector"]["matchExpressions"]
        expressions.append({"key": names.DEFAULT_SCHEDULER, "operator": "In", "values": ["true"]})
    return list(each)


def _hints(scope: _RegistrationSettings) -> list[dict[str, Json]]:
    """Return the webhooks that only warn: called where there is a key that nobody knows, or a gang that nobody schedules."""
    plain = [
        *_rule(_WRITE, kinds.NAMESPACES),
        *_rule(_WRITE, kinds.QUEUES, groups=_groups(scope)),
        *_podgroups(scope, _WRITE),
        *_rule(_CREATE, kinds.PODS),
    ]
    templated = [*_rule(_WRITE, kinds.JOBS), *_rule(_WRITE, kinds.DEPLOYMENTS, kinds.STATEFULSETS.plural)]
    nightly = [rule | {"resources": ["cronjobs"]} for rule in _rule(_WRITE, kinds.JOBS)]
    return [
        _webhook(scope, "hints.muster.sh", plain, "Ignore", hint_conditions.plain()),
        _webhook(scope, "workloads.hints.muster.sh", templated, "Ignore", hint_conditions.templated()),
        _webhook(scope, "cronjobs.hints.muster.sh", nightly, "Ignore", hint_conditions.cronjobs()),
    ]


def _workload(scope: _RegistrationSettings, workload: WorkloadKind) -> dict[str, Json]:
    """Judge a kind of workload when one is applied; its group is judged again when it is made, so this call may fail."""
    schedulers = [f"{each.path}.{each.scheduler}" for each in workload.templates] + [*workload.scheduler_names]
    ours = [hint_conditions.anywhere("object", path.split("."), scope.named) for path in schedulers]
    annotated = (*names.QUEUE_NAME_KEYS, *names.GROUP_MIN_MEMBER_KEYS, names.GROUP_MIN_RESOURCES)
    changes = ["oldObject == null", "object.spec != oldObject.spec", _any_differs(annotated)]
    if workload not in HINTED_APART:
        ours.append(hint_conditions.described(workload))
        changes.append(hint_conditions.unknown("object"))
    conditions = [
        ("ours", " || ".join(f"({part})" for part in ours)),
        ("applied", f"!({_CONTROLLED}) && !has(object.metadata.deletionTimestamp)"),
        ("not-by-a-controller", _by_no_controller()),
        ("judged-part-changes", " || ".join(changes)),
    ]
    name = f"{workload.kind.plural}.validate.muster.sh"
    return _webhook(scope, name, _rule(_WRITE, workload.kind), "Ignore", conditions)


def _webhook(
    scope: _RegistrationSettings,
    name: str,
    rules: list[dict[str, Json]],
    failure_policy: str,
    conditions: Sequence[tuple[str, str]] = (),
) -> dict[str, Json]:
    exempt = [*names.EXEMPT_NAMESPACES, *([scope.own_namespace] if scope.own_namespace else [])]
    excluded = {"key": names.NAMESPACE_NAME, "operator": "NotIn", "values": exempt}
    webhook: dict[str, Json] = {
        "name": name,
        "clientConfig": {
            **scope.base.client_config(webhooks.PATHS[name]),
            "caBundle": base64.b64encode(scope.ca_bundle).decode(),
        },
        "rules": rules,
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": _TIMEOUT,
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchExpressions": [excluded]},
    }
    if conditions:
        webhook["matchConditions"] = [{"name": name, "expression": text} for name, text in conditions]
    return webhook


def _where(webhook: dict[str, Json], label: str, operator: str, *values: str) -> dict[str, Json]:
    """Narrow a webhook to namespaces by one of their labels."""
    mine = {"key": label, "operator": operator, "values": list(values)}
    webhook["namespaceSelector"]["matchExpressions"].append(mine)
    return webhook


# ── rules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rule(operations: Sequence[str], kind: Kind[Any], *more: str, groups: Sequence[str] = ()) -> list[dict[str, Json]]:
    return [
        {
            "operations": list(operations),
            "apiGroups": list(groups) or [kind.group],
            "apiVersions": ["*"] if groups else [kind.version],
            "resources": [kind.plural, *more],
            "scope": "Namespaced" if kind.namespaced else "Cluster",
        }
    ]


def _groups(scope: _RegistrationSettings) -> Sequence[str]:
    return names.PODGROUP_GROUPS if scope.legacy_apis else (names.VOLCANO_GROUP,)


def _podgroups(scope: _RegistrationSettings, operations: Sequence[str]) -> list[dict[str, Json]]:
    return _rule(operations, kinds.PODGROUPS, groups=_groups(scope))


def _queues(scope: _RegistrationSettings) -> list[dict[str, Json]]:
    return _rule(_ANY, kinds.QUEUES, groups=_groups(scope))


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────────────────


def _ours(scope: _RegistrationSettings, spec: str) -> str:
    return f"has({spec}.schedulerName) && {spec}.schedulerName in {_cel(*scope.scheduler_names)}"


def _by_no_controller() -> str:
    user = "request.userInfo.username"
    prefixes = (f"!{user}.startsWith({_cel(prefix)[1:-1]})" for prefix in names.CONTROLLER_PREFIXES)
    return " && ".join([f"!({user} in {_cel(*names.COMPONENTS)})", *prefixes])


def _annotated(where: str, keys: Sequence[str]) -> str:
    """Write whether one of the annotations is there; a missing map is no error."""
    # A template may have no metadata at all; an object always has.
    steps = [f"has({where}.metadata)"] if where != "object" else []
    annotations = f"{where}.metadata.annotations"
    return " && ".join([*steps, f"has({annotations})", f"{_cel(*keys)}.exists(key, key in {annotations})"])


def _changed(part: str, *, annotations: Sequence[str] = (), more: str = "") -> tuple[str, str]:
    """Return the condition that keeps away an UPDATE of what no policy judges.

    Finalizers, labels, status and managed fields change while nobody answers for us, so Jobs end and nodes drain.
    ``part`` of the spec holds what the policies read of it; ``annotations`` are those that they read.
    """
    old = f"oldObject.{part}"
    changes = [f"has(object.{part}) != has({old}) || (has({old}) && object.{part} != {old})"]
    if annotations:
        changes.append(_any_differs(annotations))
    return "judged-part-changes", " || ".join(["object == null || oldObject == null", *changes, *filter(None, [more])])


def _any_differs(annotations: Sequence[str]) -> str:
    """Write whether the value of one of these annotations changes."""
    return f"{_cel(*annotations)}.exists(key, {_differs(_annotation)})"


def _differs(write: Callable[[str], str]) -> str:
    """Write that a part isn't what it was; ``write`` writes the part of ``object`` or of ``oldObject``."""
    return f"{write('object')} != {write('oldObject')}"


def _annotation(where: str) -> str:
    """Write the value of the annotation ``key``; one that isn't there is empty, and means the same to every policy."""
    annotations = f"{where}.metadata.annotations"
    return f'(has({annotations}) && key in {annotations} ? {annotations}[key] : "")'


def _phase(where: str) -> str:
    """Write a group's phase; one that nobody has set is empty."""
    return f'(has({where}.status) && has({where}.status.phase) ? {where}.status.phase : "")'


def _noted_minimum(where: str) -> str:
    """Write what the scheduler noted of a group's minimum; nothing where it didn't."""
    return f"(has({where}.status) && has({where}.status.minResources) ? {where}.status.minResources : {{}})"


def _succeeded_before(where: str) -> str:
    """Write how many pods of a group had succeeded when it was started again."""
    return f"(has({where}.status) && has({where}.status.succeededBefore) ? {where}.status.succeededBefore : 0)"


def _cel(*texts: str) -> str:
    """Write a list of CEL; JSON's escapes are CEL's."""
    return msgspec.json.encode(texts).decode()
