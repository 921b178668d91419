"""Queues: amounts that fit each other, a tree that stays one, and what may be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Final

from muster.model import grouping, kinds, labels, names
from muster.model.amounts import NOTHING, Resources, amount_text
from muster.model.objects import Job, PodGroup, Queue
from muster.model.text import counted, few
from webhooks.policies import common
from webhooks.policies.common import SHOWN
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ObjectRef, Problem, Verdict, forbidden, judge
from webhooks.view import AdmissionView, below, groups_named, parent_of

MAX_DEPTH: Final = 10
"""Levels below the root."""

_WEIGHTS: Final = range(1, 65536)
_CAPABILITY: Final = "spec.capability"
_DESERVED: Final = "spec.deserved"
_GUARANTEE: Final = "spec.guarantee.resource"


def validate(request: AdmissionRequest, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    """Check a queue that is made, changed or deleted."""
    if request.operation == "DELETE":
        return _delete(request.old(Queue), request.resource.group, view, settings)
    queue = request.new(Queue)
    if _is_alias(queue, request.resource.group, view):
        text = f'Queue "{queue.name}" of {request.resource.group} is an alias: its spec is ignored'
        return judge((), [text])
    if queue.metadata.deletion_timestamp is not None:
        return judge(())
    problems = list(_problems(queue, view))
    if request.operation == "UPDATE":
        problems = common.new_problems(problems, _problems(request.old(Queue), view))
    return judge(problems, _warnings(queue, view))


def _problems(queue: Queue, view: AdmissionView) -> Iterator[Problem]:
    yield from _weight_problems(queue)
    amounts, illegal = _amounts(queue)
    yield from illegal
    for low, high in ((_GUARANTEE, _DESERVED), (_DESERVED, _CAPABILITY), (_GUARANTEE, _CAPABILITY)):
        yield from _order_problems(low, amounts[low], high, amounts[high])
    yield from _undeserved(amounts)
    yield from _hierarchy_problems(queue)
    selector = queue.spec.namespace_selector
    if selector is not None:
        yield from (Problem(text, f"spec.namespaceSelector.{path}") for path, text in labels.faults(selector))
    tree = list(_tree_problems(queue, view))
    yield from tree
    if not tree:
        yield from _guarantee_problems(queue, amounts[_GUARANTEE], view)


def _weight_problems(queue: Queue) -> Iterator[Problem]:
    if queue.spec.weight not in _WEIGHTS:
        text = f"{queue.spec.weight} is no weight: write a whole number from {_WEIGHTS[0]} to {_WEIGHTS[-1]}"
        yield Problem(text, "spec.weight")


def _amounts(queue: Queue) -> tuple[dict[str, Resources], list[Problem]]:
    spec = queue.spec
    lists = {
        _CAPABILITY: spec.capability,
        _DESERVED: spec.deserved,
        _GUARANTEE: spec.guarantee.resource if spec.guarantee else None,
    }
    read = {path: common.amounts(quantities, path) for path, quantities in lists.items()}
    return {path: found for path, (found, _) in read.items()}, [each for _, bad in read.values() for each in bad]


def _order_problems(low: str, lower: Resources, high: str, upper: Resources) -> Iterator[Problem]:
    for name in lower.above(upper):
        have, most = amount_text(name, lower[name]), amount_text(name, upper[name])
        yield Problem(f"{have} is more than {high}[{name}], {most}: lower it or raise the other", f"{low}[{name}]")


def _undeserved(amounts: dict[str, Resources]) -> Iterator[Problem]:
    """Refuse to guarantee what isn't deserved: reclaim would take it back."""
    guarantee, deserved = amounts[_GUARANTEE], amounts[_DESERVED]
    excessive = set(guarantee.above(amounts[_CAPABILITY]))  # the remedy would be refused, too
    for name in guarantee:
        if guarantee[name] and name not in deserved and name not in excessive:
            least = amount_text(name, guarantee[name])
            text = f"{least} is guaranteed, and {_DESERVED} does not name {name}: set {_DESERVED}[{name}] to {least} or more"
            yield Problem(text, f"{_GUARANTEE}[{name}]")


def _hierarchy_problems(queue: Queue) -> Iterator[Problem]:
    """Refuse the annotations of Volcano's tree: they would be stored and change nothing."""
    for key in names.HIERARCHY:
        if key in (queue.metadata.annotations or {}):
            yield Problem(
                "Muster makes the tree of queues from spec.parent and spec.weight: set these, and remove the annotation",
                f"metadata.annotations[{key}]",
            )


# ── the tree ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _tree_problems(queue: Queue, view: AdmissionView) -> Iterator[Problem]:
    parent = parent_of(queue)
    if queue.name == names.ROOT_QUEUE:
        if queue.spec.parent:
            yield Problem(f'"{queue.spec.parent}" is above the root queue: leave it empty', "spec.parent")
        return
    if parent == queue.name:
        yield Problem(f'"{parent}" is the queue itself: name another, or leave it empty', "spec.parent")
    elif parent == names.DEFAULT_QUEUE:
        text = f'queue "{parent}" (spec.parent) takes the PodGroups that name no queue, so it can have no children: '
        yield Problem(text + f"name another parent, or leave it empty to be under {names.ROOT_QUEUE}")
    elif parent != names.ROOT_QUEUE:
        yield from _parent_problems(queue, view)


def _parent_problems(queue: Queue, view: AdmissionView) -> Iterator[Problem]:
    parent, path = parent_of(queue), _ancestors(queue, view)
    if view.get(kinds.QUEUES, parent) is None:
        text = f'queue "{parent}" (spec.parent) does not exist: create it first, or name another'
        yield Problem(text, evidence=(ObjectRef(kinds.QUEUES, parent),))
    elif queue.name in path:
        circle = " -> ".join([queue.name, *path[: path.index(queue.name) + 1]])
        text = f'queue "{parent}" (spec.parent) is below queue "{queue.name}" ({circle}): name another parent'
        yield Problem(text, evidence=tuple(ObjectRef(kinds.QUEUES, name) for name in path if name != queue.name))
    elif (depth := len(path) + 1 + _height(queue.name, view)) > MAX_DEPTH:
        text = f'queue "{parent}" (spec.parent) would make the tree {depth} levels deep: the limit is {MAX_DEPTH}'
        yield Problem(f"{text}; name a parent further up")


def _ancestors(queue: Queue, view: AdmissionView) -> list[str]:
    """Return the names above a queue, nearest first, without the root, each once however the tree is bent."""
    path: list[str] = []
    name = parent_of(queue)
    while name not in {"", names.ROOT_QUEUE} and name not in path:
        path.append(name)
        above = view.get(kinds.QUEUES, name) if name != queue.name else None
        name = parent_of(above) if above is not None else ""
    return path


def _height(name: str, view: AdmissionView) -> int:
    """Return how many levels are below a queue; more than `MAX_DEPTH` are not told apart."""
    level, height, seen = {name}, 0, {name}
    while height <= MAX_DEPTH:
        level = {child.name for parent in level for child in view.children(parent)} - seen
        if not level:
            break
        seen |= level
        height += 1
    return height


def _guarantee_problems(queue: Queue, guarantee: Resources, view: AdmissionView) -> Iterator[Problem]:
    """Hold the children's guarantees within the parent's, of each resource that the parent guarantees."""
    parent = view.get(kinds.QUEUES, parent_of(queue))
    if parent is not None:
        siblings = [child for child in view.children(parent.name) if child.name != queue.name]
        others = _guaranteed(siblings)
        for name in (guarantee + others).above(_guaranteed([parent])):
            if guarantee[name]:
                most = amount_text(name, _guaranteed([parent])[name])
                text = (
                    f"{amount_text(name, guarantee[name])} with the {amount_text(name, others[name])} of its siblings "
                )
                text += f'is more than the {most} of its parent "{parent.name}": lower it or raise the parent\'s'
                refs = tuple(ObjectRef(kinds.QUEUES, each.name) for each in (parent, *siblings[:SHOWN]))
                yield Problem(text, f"{_GUARANTEE}[{name}]", refs)
    children = list(view.children(queue.name))
    total = _guaranteed(children)
    for name in total.above(guarantee):
        text = (
            f"{amount_text(name, guarantee[name])} is less than the {amount_text(name, total[name])} of its children "
        )
        text += f"({few(sorted(child.name for child in children), SHOWN)}): raise it or lower theirs"
        refs = tuple(ObjectRef(kinds.QUEUES, child.name) for child in children[:SHOWN])
        yield Problem(text, f"{_GUARANTEE}[{name}]", refs)


def _guaranteed(queues: Iterable[Queue]) -> Resources:
    return reduce(Resources.__add__, (_amounts(queue)[0][_GUARANTEE] for queue in queues), NOTHING)


# ── warnings and deletion ────────────────────────────────────────────────────────────────────────────────────────


def _warnings(queue: Queue, view: AdmissionView) -> list[str]:
    warnings = []
    parent = parent_of(queue)
    if parent not in {"", names.ROOT_QUEUE} and not any(view.children(parent)):
        held = sum(1 for _ in _groups(parent, view))
        if held:
            warnings.append(f'queue "{parent}" has {counted(held, "PodGroup")}; as a parent it takes no new ones')
    warnings += _beyond_parent(queue, view)
    if queue.spec.desired_state == "Closed":
        warnings += _closing_warnings(queue, view)
    return warnings


def _beyond_parent(queue: Queue, view: AdmissionView) -> Iterator[str]:
    """Tell of amounts that have no effect, since an ancestor has less."""
    parent = view.get(kinds.QUEUES, parent_of(queue))
    if parent is None or parent.name == names.ROOT_QUEUE:
        return
    amounts, limits = _amounts(queue)[0], _amounts(parent)[0]
    for name in amounts[_CAPABILITY].above(limits[_CAPABILITY]):
        have, most = (amount_text(name, each[_CAPABILITY][name]) for each in (amounts, limits))
        yield f'{_CAPABILITY}[{name}]: {have} is more than the {most} of its parent "{parent.name}"'
    siblings = (child for child in view.children(parent.name) if child.name != queue.name)
    others = reduce(Resources.__add__, (_amounts(each)[0][_DESERVED] for each in siblings), NOTHING)
    for name in (amounts[_DESERVED] + others).above(limits[_DESERVED]):
        if amounts[_DESERVED][name]:
            have, beside = amount_text(name, amounts[_DESERVED][name]), amount_text(name, others[name])
            most = amount_text(name, limits[_DESERVED][name])
            yield f'{_DESERVED}[{name}]: {have} with the {beside} of its siblings is more than the {most} of "{parent.name}"'


def _closing_warnings(queue: Queue, view: AdmissionView) -> list[str]:
    beneath = below(view, queue.name)
    warnings = []
    if names.DEFAULT_QUEUE in {queue.name, *beneath}:
        text = f"PodGroups and Jobs that name no queue are refused while queue {queue.name} is closed"
        warnings.append(text)
    if beneath:
        warnings.append(
            f"{counted(len(beneath), 'queue')} below {queue.name} {'takes' if len(beneath) == 1 else 'take'} no new work either"
        )
    return warnings


def _delete(queue: Queue, group: str, view: AdmissionView, settings: WebhookSettings) -> Verdict:
    if _is_alias(queue, group, view):
        return judge(())
    if queue.name in {names.DEFAULT_QUEUE, names.ROOT_QUEUE}:
        return forbidden(f'queue "{queue.name}" can\'t be deleted: Muster needs it; close it instead')
    children = sorted(child.name for child in view.children(queue.name))
    if children:
        them = "it" if len(children) == 1 else "these"
        text = f'queue "{queue.name}" is the parent of {few(children, SHOWN)}: delete or move {them} first'
        refs = tuple(ObjectRef(kinds.QUEUES, child) for child in children[:SHOWN])
        return judge([Problem(text, evidence=refs)])
    return judge((), _deletion_warnings(queue, view, settings))


def _is_alias(queue: Queue, group: str, view: AdmissionView) -> bool:
    """Whether a queue of a legacy group stands for the primary one of its name."""
    return group != names.VOLCANO_GROUP and view.get(kinds.QUEUES, queue.name) is not None


def _deletion_warnings(queue: Queue, view: AdmissionView, settings: WebhookSettings) -> list[str]:
    groups = sum(1 for _ in _groups(queue.name, view))
    jobs = sum(
        settings.ours(job.spec.template.spec.scheduler_name) and _queue_of(job, view) == queue.name
        for job in view.items(kinds.JOBS)
    )
    held = [counted(count, noun) for count, noun in ((groups, "PodGroup"), (jobs, "Job")) if count]
    return [f'deleting queue "{queue.name}" deletes {" and ".join(held)} in it'] if held else []


def _queue_of(job: Job, view: AdmissionView) -> str:
    """Return the queue that a Job's pods wait in; empty where a group is named that nobody made."""
    template = job.spec.template.metadata
    found = groups_named(view, job.namespace, grouping.group_of_job(job.metadata, template))
    if found:
        return next(iter(found.values())).spec.queue or names.DEFAULT_QUEUE
    space = view.get(kinds.NAMESPACES, job.namespace)
    metas = (template, job.metadata, space.metadata if space is not None else None)
    return "" if grouping.group_of(template) else grouping.queue_name(*metas)


def _groups(queue: str, view: AdmissionView) -> Iterator[PodGroup]:
    for kind in (kinds.PODGROUPS, *kinds.LEGACY_PODGROUPS):
        for group in view.items(kind):
            if (group.spec.queue or names.DEFAULT_QUEUE) == queue:
                yield group
