"""Rules that hold for more than one resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from muster.ledger import wording
from muster.ledger.reservations import Shortage, held, limited
from muster.model import device_quota, keys, kinds, labels, names, scopes, tenant_texts
from muster.model.amounts import NOTHING, QuantityError, Resources
from muster.model.objects import Json, Meta, Queue
from muster.model.text import counted, few, shown
from webhooks.verdict import DenialReason, ObjectRef, Problem
from webhooks.view import AdmissionView, below, closed_above, find_queue, serves, state_of, usable_queues

_CLOSE: Final = 2
"""Letters in which two names differ of which one may be meant for the other."""

SHOWN: Final = 8
"""How many names a message lists."""

_LONGEST: Final = 253
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_GANG: Final = (
    *names.QUEUE_NAME_KEYS,
    *names.GROUP_NAME_KEYS,
    *names.GROUP_MIN_MEMBER_KEYS,
    names.GROUP_MIN_RESOURCES,
)
_SAID: Final = frozenset({*tenant_texts.READ, *_GANG})


class QueueRequest(Struct, frozen=True):
    """Somebody wants to put a ``noun`` of ``namespace`` into ``queue``, which ``where`` (a field, an annotation) names.

    ``group`` is the API group of the object, whose own Queue kind counts too.
    """

    queue: str
    namespace: str
    where: str
    noun: str
    group: str = names.VOLCANO_GROUP

    @property
    def subject(self) -> str:
        """What the sentence is about."""
        return f'queue "{self.queue[:_LONGEST]}" ({self.where})'

    @property
    def refs(self) -> tuple[ObjectRef, ...]:
        """The objects that could be the queue."""
        own = (kind for kind in kinds.LEGACY_QUEUES if kind.group == self.group)
        return tuple(ObjectRef(kind, self.queue) for kind in (kinds.QUEUES, *own))


def queue_problems(view: AdmissionView, wanted: QueueRequest) -> list[Problem]:
    """Say why the queue can't take what is wished for."""
    queue = find_queue(view, wanted.queue)
    if wanted.queue == names.ROOT_QUEUE:
        text = f"{wanted.subject} holds the other queues and takes no {wanted.noun} itself: {_remedy(view, wanted)}"
        return [Problem(text, denial_reason=DenialReason.QUEUE_OTHER)]
    if queue is None:
        remedy = _remedy(view, wanted, _creating(wanted.queue))
        return [
            Problem(
                f"{wanted.subject} does not exist: {_meant(view, wanted)}{remedy}",
                evidence=wanted.refs,
                denial_reason=DenialReason.QUEUE_MISSING,
            )
        ]
    found = (
        (_state(view, queue, wanted), DenialReason.QUEUE_CLOSED),
        (_children(view, wanted), DenialReason.QUEUE_OTHER),
        (_selector(view, queue, wanted), DenialReason.QUEUE_OTHER),
    )
    return [Problem(text, evidence=refs, denial_reason=denial_reason) for (text, refs), denial_reason in found if text]


def _meant(view: AdmissionView, wanted: QueueRequest) -> str:
    """Ask for the queue whose name is nearest, where it is near enough to be meant; one that is closed only where no open one is."""
    if near := _nearest(wanted.queue, usable_queues(view, wanted.namespace)):
        return f"did you mean {near}? Or "
    others = {each.name: each for each in view.items(kinds.QUEUES) if serves(view, each, wanted.namespace)}
    near = _nearest(wanted.queue, others)
    state = state_of(others[near]) if near else "Open"
    return f"did you mean {near}, which is {state}? Or " if state != "Open" else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return the name that differs least, empty where all differ too much."""
    if len(name) > _LONGEST:
        return ""
    near = (each for each in known if abs(len(each) - len(name)) <= _CLOSE)
    found = min(((keys.edit_distance(name, each), each) for each in near), default=(_CLOSE + 1, ""))
    # Of a name of four letters that differs in two, nobody can tell what was meant.
    return found[1] if found[0] <= min(_CLOSE, len(name) - 1, max(1, (len(name) - 1) // 2)) else ""


def _creating(name: str) -> str:
    return (
        f'create it with "muster queue create --name {name}"' if tenant_texts.is_subdomain(name) else "correct the name"
    )


_Finding = tuple[str, tuple[ObjectRef, ...]]
_FINE: Final[_Finding] = ("", ())


def _state(view: AdmissionView, queue: Queue, wanted: QueueRequest) -> _Finding:
    state = state_of(queue)
    if state == "Open":
        return _above(view, queue, wanted)
    if queue.metadata.deletion_timestamp is not None:
        return f"{wanted.subject} is being deleted and takes no new {wanted.noun}: {_remedy(view, wanted)}", wanted.refs
    remedy = _remedy(view, wanted, f'open it with "muster queue open {queue.name}"')
    return f"{wanted.subject} is {state} and takes no new {wanted.noun}: {remedy}", wanted.refs


def _above(view: AdmissionView, queue: Queue, wanted: QueueRequest) -> _Finding:
    closed = closed_above(view, queue)
    if closed is None:
        return _FINE
    opening = "" if closed.metadata.deletion_timestamp else f'open that with "muster queue open {closed.name}"'
    text = (
        f'{wanted.subject} is below queue "{closed.name}", which is {state_of(closed)}, and takes no new {wanted.noun}'
    )
    refs = (*wanted.refs, ObjectRef(kinds.QUEUES, closed.name))
    return f"{text}: {_remedy(view, wanted, *filter(None, [opening]))}", refs


def _children(view: AdmissionView, wanted: QueueRequest) -> _Finding:
    children = sorted(child.name for child in view.children(wanted.queue))
    if not children:
        return _FINE
    usable = [name for name in usable_queues(view, wanted.namespace) if name in below(view, wanted.queue)]
    remedy = f"use one of them ({few(usable, SHOWN)})" if usable else _remedy(view, wanted)
    text = f"{wanted.subject} has children and takes no {wanted.noun} itself: {remedy}"
    return text, tuple(ObjectRef(kinds.QUEUES, child) for child in children[:SHOWN])


def _selector(view: AdmissionView, queue: Queue, wanted: QueueRequest) -> _Finding:
    selector = queue.spec.namespace_selector
    if selector is None or serves(view, queue, wanted.namespace):
        return _FINE
    remedy = _remedy(view, wanted, "label the namespace so")
    text = f'{wanted.subject} serves only namespaces with {labels.text(selector)}, not "{wanted.namespace}": {remedy}'
    return text, (*wanted.refs, ObjectRef(kinds.NAMESPACES, wanted.namespace))


def _remedy(view: AdmissionView, wanted: QueueRequest, *others: str) -> str:
    usable = usable_queues(view, wanted.namespace)
    ways = [f"use one of the open queues ({few(usable, SHOWN)})"] if usable else []
    return " or ".join([*ways, *others]) or 'create a queue with "muster queue create --name NAME" and use it'


def amounts(quantities: Mapping[str, Json] | None, path: str) -> tuple[Resources, list[Problem]]:
    """Read a ResourceList, every illegal name or amount a problem of its own (and left out)."""
    if not quantities:
        return NOTHING, []
    if tenant_texts.are_resources(quantities):
        try:
            return Resources.parse(quantities), []
        except QuantityError:
            pass  # Each by itself, so that each is told.
    nano, problems = {}, []
    for name, value in quantities.items():
        if fault := tenant_texts.resource_fault(name):
            problems.append(Problem(fault, f"{path}[{shown(name)}]"))
            continue
        try:
            nano[name] = Resources.parse({name: value})[name]
        except QuantityError as error:
            problems.append(Problem(str(error).removeprefix(f"{name}: "), f"{path}[{name}]"))
    if len(problems) > SHOWN:
        problems = [*problems[:SHOWN], Problem(f"{len(problems) - SHOWN} more of its entries are illegal", path)]
    return Resources(nano), problems


def length_problems(quantities: Mapping[str, Json] | None, path: str) -> list[Problem]:
    """Say that a ResourceList is longer than any gang needs."""
    if len(quantities or ()) <= tenant_texts.MOST_RESOURCES:
        return []
    # Without their number, so that on an UPDATE what was too long already isn't a new problem.
    return [Problem(f"it lists too many resources: list at most {tenant_texts.MOST_RESOURCES}", path)]


def annotation_problems(*metas: Meta) -> list[Problem]:
    """Say which annotations of an object, or of its template, can't be read as what they are for."""
    problems: list[Problem] = []
    for meta, path in zip(metas, ("metadata", "spec.template.metadata"), strict=False):
        if meta.annotations:
            problems += problems_at(path, meta)
    return problems


def says_anything(meta: Meta) -> bool:
    """Whether an object has any of the annotations that can be wrong: most pods have none."""
    return meta.annotations is not None and not _SAID.isdisjoint(meta.annotations)


def problems_at(path: str, meta: Meta) -> list[Problem]:
    """Say which annotations of metadata that stands at ``path`` can't be read as what they are for."""
    if not meta.annotations or tenant_texts.READ.isdisjoint(meta.annotations):
        return []
    return [Problem(text, f"{path}.annotations[{key}]") for key, text in tenant_texts.faults(meta.annotations)]


def is_controller(username: str) -> bool:
    """Whether a user is one of Kubernetes' own controllers: what they write follows from what somebody else wrote."""
    return username in names.COMPONENTS or username.startswith(names.CONTROLLER_PREFIXES)


def is_gang(meta: Meta) -> bool:
    """Whether annotations say that pods start together, or wait in a queue."""
    return bool(meta.annotation(*_GANG))


def is_nobodys(scheduler: str) -> bool:
    """Whether a schedulerName is Kubernetes' default: of a gang nobody can mean that."""
    return scheduler in {"", _DEFAULT_SCHEDULER}


def no_effect(scheduler: str) -> str:
    """Warn of annotations that only one of Muster's schedulers reads."""
    return f'the queue and group annotations have no effect: the pods\' schedulerName is not "{scheduler}"'


def new_problems(after: Iterable[Problem], before: Iterable[Problem]) -> list[Problem]:
    """Keep what an UPDATE adds: what was wrong already must not block a change that doesn't make it worse."""
    known = {(problem.path, problem.text) for problem in before}
    return [problem for problem in after if (problem.path, problem.text) not in known]


def limit_warnings(view: AdmissionView, name: str) -> list[str]:
    """Say that a queue has as many unfinished groups past Pending as it may; a new one waits until others end."""
    queue = find_queue(view, name)
    if queue is None or not queue.spec.max_pod_groups:
        return []
    most = queue.spec.max_pod_groups
    past = queue.status.total - queue.status.completed - queue.status.failed - queue.status.pending
    if past < most:
        return []
    return [
        f'queue "{name}" has {counted(past, "PodGroup")} past Pending and its maxPodGroups is {most}: this one waits'
    ]


def grew(after: Resources, before: Resources) -> bool:
    """Whether any amount is larger than it was."""
    return bool((after - before).positive())


def size_warnings(view: AdmissionView, member: int, minimum: Resources) -> list[str]:
    """Say what the whole cluster, idle, could not hold."""
    capacity = view.capacity()
    if capacity is None:
        return []
    of_nodes = (name for name in minimum.nano if not device_quota.for_quotas_alone(name, minimum.nano))
    asked = held(minimum.only(of_nodes)).maximum(Resources.parse({"pods": member}))
    return [
        f"all nodes together have {capacity.only([name]) if capacity[name] else f'no {name}'},"
        f" the gang needs {asked.only([name])} to start"
        for name, amount in asked.nano.items()
        if amount > capacity[name] and not name.startswith("limits.")
    ]


def quota_warnings(view: AdmissionView, namespace: str, member: int, minimum: Resources, scope_facts: str) -> list[str]:
    """Say which quota never lets so many pods exist at once, or can't tell whether it is about a group."""
    warnings = []
    for quota in view.items(kinds.RESOURCEQUOTAS, namespace):
        hard, _ = amounts(quota.spec.hard, "spec.hard")
        scope_set = scopes.scope_set(quota.spec)
        if scope_set and not scope_facts and held(minimum).only(map(limited, hard)):
            warnings.append(
                f'nothing is reserved of ResourceQuota "{quota.name}": a PodGroup alone says nothing of whether its pods are in'
                f" scope {scope_set}; say so in annotation {names.POD_TRAITS}"
            )
        most = [hard.units(name) for name in ("pods", "count/pods") if name in hard]
        if most and member > min(most) and (not scope_set or scopes.matches(scope_set, scope_facts)):
            warnings.append(f'minMember is {member}, ResourceQuota "{quota.name}" allows {counted(min(most), "pod")}')
    return warnings


def never_fits(
    view: AdmissionView,
    namespace: str,
    title: str,
    minimum: Resources,
    scope_facts: str,
    evidence: tuple[ObjectRef, ...] = (),
) -> list[Problem]:
    """Say which quota is too small for a minimum even while nothing else takes any of it.

    ``evidence``: what that rests on beside the quotas.
    """
    short, refs = list[Shortage](), list(evidence)
    for quota in sorted(view.items(kinds.RESOURCEQUOTAS, namespace), key=lambda each: each.name):
        scope_set = scopes.scope_set(quota.spec)
        if scope_set and not scopes.matches(scope_set, scope_facts):
            continue
        hard, _ = amounts(quota.spec.hard, "spec.hard")
        asked = held(minimum)
        beyond = [(name, asked[limited(name)], most) for name, most in hard.nano.items() if asked[limited(name)] > most]
        short += [Shortage(name, most, 0, 0, need, need - most, quota.name) for name, need, most in beyond]
        refs += [ObjectRef(kinds.RESOURCEQUOTAS, quota.name, namespace)] if beyond else []
    if not short:
        return []
    return [Problem(wording.never_fits(title, short), evidence=tuple(refs), denial_reason=DenialReason.QUOTA)]
