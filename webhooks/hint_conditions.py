"""The conditions, in CEL, under which an API server asks for hints: where there is something to warn of, or may be.

An object without a key of Muster's costs no call, and neither does one whose keys Muster knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from muster.model import keys, names
from muster.model.workloads import WorkloadKind

_GANG: Final = (
    *names.QUEUE_NAME_KEYS,
    *names.GROUP_NAME_KEYS,
    *names.GROUP_MIN_MEMBER_KEYS,
    names.GROUP_MIN_RESOURCES,
)
_TEMPLATE: Final = "object.spec.template"
_NIGHTLY: Final = "object.spec.jobTemplate.spec.template"

_MOST_KEYS: Final = 128
"""Keys among which a misspelt one is looked for: people write few, and an API server took a third of a second for 3,000."""

Conditions = list[tuple[str, str]]


def plain() -> Conditions:
    """Return the conditions on namespaces, queues, PodGroups, and pods that nobody controls."""
    gang = f"request.resource.resource == 'pods' && {unscheduled('object.spec', ['object'])}"
    return [
        ("nobody-controls-it", "!has(object.metadata.ownerReferences) || request.resource.resource != 'pods'"),
        ("something-to-say", _any(unknown("object"), gang)),
    ]


def templated() -> Conditions:
    """Return the conditions on Jobs, Deployments and StatefulSets."""
    places = ["object", _TEMPLATE]
    parts = [*map(unknown, places), *map(_unreadable, places), _news(unscheduled(f"{_TEMPLATE}.spec", places))]
    return [("something-to-say", _any(*parts, _resumed()))]


def cronjobs() -> Conditions:
    """Return the conditions on CronJobs."""
    places = ["object", "object.spec.jobTemplate", _NIGHTLY]
    parts = [*map(unknown, places), *map(_unreadable, places), _news(unscheduled(f"{_NIGHTLY}.spec", places))]
    return [("something-to-say", _any(*parts))]


def unscheduled_gang() -> str:
    """Write whether a Job, CronJob, Deployment or StatefulSet is a gang whose pods are left to the default scheduler."""
    nightly = unscheduled(f"{_NIGHTLY}.spec", ["object", "object.spec.jobTemplate", _NIGHTLY])
    other = unscheduled(f"{_TEMPLATE}.spec", ["object", _TEMPLATE])
    return f"request.resource.resource == 'cronjobs' ? ({nightly}) : ({other})"


def gang() -> str:
    """Write whether an object says that pods start together; which scheduler they have, the policy reads."""
    return f"{_there('object')} && {_says_gang('object.metadata')}"


def described(workload: WorkloadKind) -> str:
    """Write whether an object of an operator may have something to warn of: an unknown key, or what says gang anywhere."""
    places = (f"{each.path}.{each.metadata}".rstrip(".") for each in workload.templates)
    templates = (anywhere("object", place.split("."), _says_gang) for place in places)
    return _any(unknown("object"), gang(), *templates)


def anywhere(where: str, path: Sequence[str], leaf: Callable[[str], str], depth: int = 0) -> str:
    """Write whether it is so at one of the places of a path of `muster.model.workloads`."""
    key, rest = path[0].rstrip("[]{}"), path[1:]
    here = f"{where}.{key}"
    if not rest:
        return f"has({here}) && {leaf(here)}"
    if path[0] == key:
        return f"has({here}) && {anywhere(here, rest, leaf, depth)}"
    each = f"each{depth}"
    inner = each if path[0].endswith("[]") else f"{here}[{each}]"
    return f"has({here}) && {here}.exists({each}, {anywhere(inner, rest, leaf, depth + 1)})"


def _says_gang(metadata: str) -> str:
    return f"has({metadata}.annotations) && {_cel(*_GANG)}.exists(key, key in {metadata}.annotations)"


def unscheduled(spec: str, places: Sequence[str]) -> str:
    """Write whether one of the places says that pods are a gang, and their ``spec`` leaves them to the default scheduler."""
    gang = " || ".join(f"({_there(place)} && {_cel(*_GANG)}.exists(key, key in {_map(place)}))" for place in places)
    nobodys = f"!has({spec}.schedulerName) || {spec}.schedulerName in {_cel('', 'default-scheduler')}"
    return f"({gang}) && ({nobodys})"


def unknown(place: str) -> str:
    """Write whether a label or an annotation has a key of ours that nobody knows, and says something new."""
    known, prefixes = _cel(*sorted(keys.KNOWN | keys.OF_OTHERS)), _cel(keys.OURS, *keys.SHARED)
    return _any(
        *(
            f"{_there(place, kind)} && {_map(place, kind)}.size() <= {_MOST_KEYS}"
            f" && {_map(place, kind)}.exists(key, {prefixes}.exists(prefix, key.startsWith(prefix))"
            f" && !(key in {known}) && {_new(place, kind)})"
            for kind in ("annotations", "labels")
        )
    )


def _unreadable(place: str) -> str:
    """Write whether an annotation says anew how many pods start together, or what they need, and may be unreadable."""
    mine = _map(place)
    member = f"{_cel(*names.GROUP_MIN_MEMBER_KEYS)}.exists(key, key in {mine} && !{mine}[key].matches('^[0-9]{{1,9}}$')"
    resources = f"{_cel(names.GROUP_MIN_RESOURCES)}.exists(key, key in {mine}"
    return f"{_there(place)} && ({member} && {_new(place)}) || {resources} && {_new(place)}))"


def _news(condition: str) -> str:
    """Write that a condition holds, and may not have held before."""
    return f"({condition}) && (oldObject == null || {_differ('object')} || object.spec != oldObject.spec)"


def _resumed() -> str:
    """Write whether a Job that Muster holds is resumed by somebody else: Muster takes its note away."""
    note = f"{_cel(names.SUSPENDED)}.exists(key, {_there('object')} && key in {_map('object')})"
    return (
        f"request.resource.resource == 'jobs' && oldObject != null && {note} && has(oldObject.spec.suspend)"
        " && oldObject.spec.suspend && !(has(object.spec.suspend) && object.spec.suspend)"
    )


def _differ(place: str) -> str:
    """Write whether a place says something else of gangs than before."""
    return f"{_cel(*_GANG)}.exists(key, {_value(place)} != {_value(_old(place))})"


def _value(place: str) -> str:
    return f'({_there(place)} && key in {_map(place)} ? {_map(place)}[key] : "")'


def _new(place: str, kind: str = "annotations") -> str:
    """Write that ``key`` wasn't there with this value before."""
    was = _map(_old(place), kind)
    there = f"oldObject != null && {_there(_old(place), kind)} && key in {was}"
    return f"!({there} && {was}[key] == {_map(place, kind)}[key])"


def _there(place: str, kind: str = "annotations") -> str:
    return f"has({place}.metadata) && has({_map(place, kind)})"


def _map(place: str, kind: str = "annotations") -> str:
    return f"{place}.metadata.{kind}"


def _old(place: str) -> str:
    return place.replace("object", "oldObject", 1)


def _any(*parts: str) -> str:
    return " || ".join(f"({part})" for part in parts)


def _cel(*texts: str) -> str:
    """Write a list of CEL; JSON's escapes are CEL's."""
    return msgspec.json.encode(texts).decode()
