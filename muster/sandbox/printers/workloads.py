"""Values of printed columns of built-in kinds, one function per kind: what `kubectl get` shows of an object.

Each takes the object and the time, and gives the cells after the name, in the order of `muster.sandbox.printers.columns`. Wide
columns are always among them; the client leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

from muster.model.durations import human_duration
from muster.sandbox.core.versions import EVENT_FIELDS

Json = dict[str, Any]

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"


def moment(text: Any) -> datetime | None:
    """Read an RFC 3339 time; None when absent or not readable."""
    try:
        read = datetime.fromisoformat(text) if isinstance(text, str) and text else None
    except ValueError:
        return None
    return read if read is not None and read.tzinfo is not None else None


def since(text: Any, now: datetime) -> str:
    """Write how long ago a time was; ``<unknown>`` when there is none."""
    time = moment(text)
    return UNKNOWN if time is None else human_duration((now - time).total_seconds())


def age(obj: Json, now: datetime) -> str:
    """Write how long ago the object was created."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def just_age(obj: Json, now: datetime) -> list[Any]:
    """Cells of the kinds of which nothing but the age is shown."""
    return [age(obj, now)]


def pairs(labels: Mapping[str, str] | None) -> str:
    """Write a map as ``a=b,c=d``."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector(value: Json | None) -> str:
    """Write a LabelSelector as a command line would have it."""
    if not value:
        return NONE
    terms = [(key, f"{key}={wanted}") for key, wanted in (value.get("matchLabels") or {}).items()]
    terms += [(expression["key"], _expression(expression)) for expression in value.get("matchExpressions") or []]
    return ",".join(text for _, text in sorted(terms, key=itemgetter(0))) or NONE


def _expression(expression: Json) -> str:
    key, values = expression["key"], ",".join(sorted(expression.get("values") or []))
    match expression["operator"]:
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return str(key)


def _containers(template: Json) -> list[Any]:
    containers = template.get("spec", {}).get("containers") or []
    return [",".join(str(container.get(key, "")) for container in containers) for key in ("name", "image")]


def _count(obj: Json, field: str) -> int:
    return int(obj.get("status", {}).get(field) or 0)


def _conditions(obj: Json) -> dict[str, Json]:
    return {condition["type"]: condition for condition in obj.get("status", {}).get("conditions") or []}


def _true(obj: Json, condition: str) -> bool:
    return _conditions(obj).get(condition, {}).get("status") == "True"


# ── workloads ────────────────────────────────────────────────────────────────────────────────────────────────────

_JOB_STATES: Final = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)


def job(obj: Json, now: datetime) -> list[Any]:
    """Cells of a Job."""
    spec, status = obj.get("spec", {}), obj.get("status", {})
    deleted = "deletionTimestamp" in obj["metadata"]
    state = next((text for kind, text in _JOB_STATES if (_true(obj, kind) if kind else deleted)), "Running")
    start, end = moment(status.get("startTime")), moment(status.get("completionTime"))
    duration = human_duration(((end or now) - start).total_seconds()) if start else ""
    return [
        state,
        _completions(spec, _count(obj, "succeeded")),
        duration,
        age(obj, now),
        *_containers(spec.get("template", {})),
        selector(spec.get("selector")),
    ]


def _completions(spec: Json, succeeded: int) -> str:
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def cronjob(obj: Json, now: datetime) -> list[Any]:
    """Cells of a CronJob."""
    spec, status = obj.get("spec", {}), obj.get("status", {})
    inner = spec.get("jobTemplate", {}).get("spec", {})
    suspend = {True: "True", False: "False"}.get(spec.get("suspend"), "<unset>")
    last = status.get("lastScheduleTime")
    return [
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        suspend,
        len(status.get("active") or []),
        since(last, now) if last else NONE,
        age(obj, now),
        *_containers(inner.get("template", {})),
        selector(inner.get("selector")),
    ]


def _workload(obj: Json) -> list[Any]:
    return [*_containers(obj.get("spec", {}).get("template", {})), selector(obj.get("spec", {}).get("selector"))]


def _replicas(obj: Json) -> int:
    return int(obj.get("spec", {}).get("replicas") or 0)


def replicaset(obj: Json, now: datetime) -> list[Any]:
    """Cells of a ReplicaSet."""
    counts = [_replicas(obj), _count(obj, "replicas"), _count(obj, "readyReplicas")]
    return [*counts, age(obj, now), *_workload(obj)]


def deployment(obj: Json, now: datetime) -> list[Any]:
    """Cells of a Deployment."""
    ready = f"{_count(obj, 'readyReplicas')}/{_replicas(obj)}"
    counts = [_count(obj, "updatedReplicas"), _count(obj, "availableReplicas")]
    return [ready, *counts, age(obj, now), *_workload(obj)]


def statefulset(obj: Json, now: datetime) -> list[Any]:
    """Cells of a StatefulSet."""
    ready = f"{_count(obj, 'readyReplicas')}/{_replicas(obj)}"
    return [ready, age(obj, now), *_containers(obj.get("spec", {}).get("template", {}))]


def daemonset(obj: Json, now: datetime) -> list[Any]:
    """Cells of a DaemonSet."""
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    nodes = pairs(obj.get("spec", {}).get("template", {}).get("spec", {}).get("nodeSelector"))
    return [*(_count(obj, field) for field in fields), nodes, age(obj, now), *_workload(obj)]


def disruption_budget(obj: Json, now: datetime) -> list[Any]:
    """Cells of a PodDisruptionBudget."""
    limits = [str(obj.get("spec", {}).get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [*limits, _count(obj, "disruptionsAllowed"), age(obj, now)]


# ── nodes, namespaces and what is in them ────────────────────────────────────────────────────────────────────────

_ROLE: Final = "node-role.kubernetes.io/"


def node(obj: Json, now: datetime) -> list[Any]:
    """Cells of a Node."""
    ready = _conditions(obj).get("Ready")
    states = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if obj.get("spec", {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    info = obj.get("status", {}).get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        ",".join(states),
        ",".join(_roles(obj["metadata"].get("labels") or {})) or NONE,
        age(obj, now),
        info.get("kubeletVersion", ""),
        _address(obj, "InternalIP"),
        _address(obj, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _roles(labels: Mapping[str, str]) -> list[str]:
    named = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    return sorted((named | {labels.get("kubernetes.io/role", "")}) - {""})


def _address(obj: Json, kind: str) -> str:
    addresses = obj.get("status", {}).get("addresses") or []
    return next((str(address["address"]) for address in addresses if address["type"] == kind), NONE)


def namespace(obj: Json, now: datetime) -> list[Any]:
    """Cells of a Namespace."""
    return [obj.get("status", {}).get("phase", ""), age(obj, now)]


def quota(obj: Json, now: datetime) -> list[Any]:
    """Cells of a ResourceQuota."""
    hard, used = obj.get("status", {}).get("hard") or {}, obj.get("status", {}).get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    limits = {name for name in shown if name.startswith("limits.")}
    requests = ", ".join(text for name, text in shown.items() if name not in limits)
    return [requests, ", ".join(text for name, text in shown.items() if name in limits), age(obj, now)]


def event(obj: Json, now: datetime) -> list[Any]:
    """All cells of an Event of either group: its name is the last of them."""
    obj = {old: obj[new] for old, new in EVENT_FIELDS.items() if new in obj} | obj
    series, source, involved = (obj.get(field) or {} for field in ("series", "source", "involvedObject"))
    first = since(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = since(series.get("lastObservedTime") or obj.get("lastTimestamp"), now)
    component = source.get("component") or obj.get("reportingComponent", "")
    host = source.get("host") or obj.get("reportingInstance", "")
    return [
        first if last == UNKNOWN else last,
        obj.get("type", ""),
        obj.get("reason", ""),
        _joined("/", involved.get("kind", "").lower(), involved.get("name", "")),
        involved.get("fieldPath", ""),
        _joined(", ", component, host),
        obj.get("message", "").strip(),
        first,
        series.get("count") or obj.get("count") or 1,
        obj["metadata"].get("name", ""),
    ]


def _joined(separator: str, *texts: str) -> str:
    return separator.join(text for text in texts if text)


# ── what holds data, and what configures the cluster ─────────────────────────────────────────────────────────────


def configmap(obj: Json, now: datetime) -> list[Any]:
    """Cells of a ConfigMap."""
    return [len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj, now)]


def secret(obj: Json, now: datetime) -> list[Any]:
    """Cells of a Secret."""
    return [obj.get("type", ""), len(obj.get("data") or {}), age(obj, now)]


def lease(obj: Json, now: datetime) -> list[Any]:
    """Cells of a Lease."""
    return [obj.get("spec", {}).get("holderIdentity") or "", age(obj, now)]


def priority_class(obj: Json, now: datetime) -> list[Any]:
    """Cells of a PriorityClass."""
    return [obj.get("value", 0), bool(obj.get("globalDefault")), age(obj, now), obj.get("preemptionPolicy") or ""]


def webhooks(obj: Json, now: datetime) -> list[Any]:
    """Cells of both webhook configurations."""
    return [len(obj.get("webhooks") or []), age(obj, now)]


def policy(obj: Json, now: datetime) -> list[Any]:
    """Cells of a ValidatingAdmissionPolicy."""
    spec = obj.get("spec", {})
    kind = spec.get("paramKind")
    parameters = f"{kind['apiVersion']}/{kind['kind']}" if kind else "<unset>"
    return [len(spec.get("validations") or []), parameters, age(obj, now)]


def policy_binding(obj: Json, now: datetime) -> list[Any]:
    """Cells of a ValidatingAdmissionPolicyBinding."""
    spec = obj.get("spec", {})
    reference = spec.get("paramRef") or {}
    named = f"{reference.get('namespace') or '*'}/{reference['name']}" if reference.get("name") else ""
    chosen = selector(reference["selector"]) if reference.get("selector") else ""
    return [spec.get("policyName", ""), named or chosen or "<unset>", age(obj, now)]


def role_binding(obj: Json, now: datetime) -> list[Any]:
    """Cells of both role bindings."""
    reference, subjects = obj.get("roleRef", {}), obj.get("subjects") or []
    return [
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        age(obj, now),
        _subjects(subjects, "User"),
        _subjects(subjects, "Group"),
        _subjects(subjects, "ServiceAccount"),
    ]


def _subjects(subjects: Iterable[Json], kind: str) -> str:
    chosen = (subject for subject in subjects if subject["kind"] == kind)
    if kind == "ServiceAccount":
        return ", ".join(f"{subject.get('namespace', '')}/{subject['name']}" for subject in chosen)
    return ", ".join(str(subject["name"]) for subject in chosen)


def created(obj: Json, _now: datetime) -> list[Any]:
    """Cells of every kind that has no columns of its own."""
    return [obj["metadata"].get("creationTimestamp")]
