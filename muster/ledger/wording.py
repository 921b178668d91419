"""Sentences about quotas: a denial, ``muster admit`` and ``muster quota view`` say the same in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from types import MappingProxyType
from typing import Final

from muster.ledger.reservations import (
    CLAIM,
    JOB,
    MEMBERS,
    POD,
    Exceeded,
    Leaving,
    ReservationRequest,
    Shortage,
    limited,
)
from muster.model import device_quota, scopes
from muster.model.amounts import NANO, Resources, amount_text
from muster.model.text import listed

_EXCEEDED: Final = "exceeded quota: "
"""How the refusal of a pod, or of its claim, begins. Kubernetes' own quota says these words; controllers of pods take them as a reason to try again."""

ABOUT_TO_RESERVE: Final = "the minimum of the pod's PodGroup is about to be reserved: try again"
CLAIMS_UNCOUNTED: Final = (
    "claims on devices are yet to be counted in the quota ledger, which an older version wrote: try again"
)

_Holders = tuple[tuple[str, Resources], ...]
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


def refusal(request: ReservationRequest, refused: Exceeded, owners: Mapping[str, str] = _NOBODY) -> str:
    """Say in one sentence why a reservation can't be made, and what to do.

    ``owners``: by the name of a group, what it was generated for, ``Job train``: the name says nothing to people.
    """
    who = _who(request, owners)
    if refused.of_group:
        return (
            f"{_EXCEEDED}{_group_of(request, owners)} holds no reservation, because {_short(refused.shortages)};"
            " its pods are admitted once that is free: lower its minimum, delete other PodGroups or raise the quota"
        )
    if refused.taken_in:
        return (
            f"{who} can't be: API group {refused.taken_in} has a PodGroup of that name in namespace"
            f" {request.namespace}, and pods name their group without its API group; choose another name"
        )
    asked = listed(f"{_amount(each.asked, each.resource)}" for each in _first_of_each(refused.shortages))
    holders = tuple((owners.get(name, name), amounts) for name, amounts in refused.holders)
    by_quota = groupby(refused.shortages, key=lambda shortage: shortage.quota)
    reasons = "; ".join(
        f"quota {_quoted(quota)} has " + "; ".join(_reason(each, holders, refused.leaving) for each in shortages)
        for quota, shortages in by_quota
    )
    more = " more" if request.revision else ""
    beyond = (
        f" beyond what {_group(request.group, owners)} has reserved"
        if request.kind in MEMBERS and request.group
        else ""
    )
    begins = _EXCEEDED if request.kind in MEMBERS else ""
    return f"{begins}{who} requests {asked}{more}{beyond}, but {reasons}; {_remedy(request, refused, holders)}"


def never_fits(who: str, shortages: Sequence[Shortage]) -> str:
    """Say that a quota is too small for what somebody will request, however little of it is taken."""
    asked = listed(_amount(each.asked, each.resource) for each in _first_of_each(shortages))
    reasons = "; ".join(
        f"quota {_quoted(quota)} has "
        + "; ".join(
            f"{_amount(each.hard, each.resource)} hard: short by {_amount(each.short, each.resource)}" for each in group
        )
        for quota, group in groupby(shortages, key=lambda shortage: shortage.quota)
    )
    return f"{who} requests {asked}, but {reasons}; lower what its pods request or raise the quota"


def unreserved(shortages: Iterable[Shortage]) -> str:
    """Say why a group that exists holds nothing, and what to do; without shortages it is a matter of milliseconds."""
    if not (shortages := tuple(shortages)):
        return "its minimum is about to be reserved"
    return (
        f"its minimum isn't reserved, because {_short(shortages)}; its pods wait until that is free:"
        " lower its minimum, delete other PodGroups or raise the quota"
    )


def postponed(shortages: Iterable[Shortage]) -> str:
    """Say why a group that reserves late isn't admitted yet."""
    return f"{_short(shortages)}; it waits until that is free"


def _short(shortages: Iterable[Shortage]) -> str:
    return "; ".join(
        f"quota {_quoted(quota)} is short by {listed(_amount(each.short, each.resource) for each in group)}"
        for quota, group in groupby(shortages, key=lambda shortage: shortage.quota)
    )


def overcommitted(quota: str, shortage: Shortage) -> str:
    """Warn whoever changes a quota that what is reserved no longer fits it."""
    resource = shortage.resource
    reserved = _plain(shortage.reserved + shortage.used, resource)
    return (
        f"quota {_quoted(quota)} has {_amount(shortage.hard, resource)} hard, {reserved} reserved:"
        f" short by {_amount(shortage.short, resource)}; no more is admitted until it fits"
    )


def _who(request: ReservationRequest, owners: Mapping[str, str]) -> str:
    if request.kind in MEMBERS:
        return f"{request.kind} {_quoted(request.name)}"
    # A Job's reservation is kept under the name of the group to come, which its user has never seen.
    return owners.get(request.name) or (
        "the Job's PodGroup" if request.kind == JOB else f"{request.kind} {_quoted(request.name)}"
    )


def _group_of(pod: ReservationRequest, owners: Mapping[str, str]) -> str:
    owner, who = owners.get(pod.group), _who(pod, owners)
    return f"{owner}, the owner of {who}," if owner else f"PodGroup {_quoted(pod.group)} of {who}"


def _group(name: str, owners: Mapping[str, str]) -> str:
    return owners.get(name) or f"PodGroup {_quoted(name)}"


def _reason(shortage: Shortage, holders: _Holders, leaving: Leaving | None) -> str:
    resource = shortage.resource
    free = shortage.hard - shortage.reserved - shortage.used
    others = "claims" if device_quota.of_class(resource) else "other pods"
    used = f", {_plain(shortage.used, resource)} used by {others}{_until(shortage, leaving)}" if shortage.used else ""
    reserved = f"{_plain(shortage.reserved, resource)} reserved{_by(shortage, holders)}"
    left = f"so {_plain(free, resource)} {'is' if free == NANO else 'are'} free" if free > 0 else "so none is free"
    return f"{_amount(shortage.hard, resource)} hard, {reserved}{used}, {left}: short by {_amount(shortage.short, resource)}"


def _until(shortage: Shortage, leaving: Leaving | None) -> str:
    # A group may hold a part of what its pods take.
    amount = min(leaving.amounts[limited(shortage.resource)], shortage.used) if leaving is not None else 0
    if leaving is None or not amount:
        return ""
    when = datetime.fromtimestamp(leaving.gone_by, UTC)
    return f" ({_plain(amount, shortage.resource)} by pods that are being deleted, until {when:%H:%M:%S} UTC)"


def _by(shortage: Shortage, holders: _Holders) -> str:
    name = limited(shortage.resource)
    shown = [f"{holder} {_plain(amounts[name], name)}" for holder, amounts in holders if amounts[name]]
    return f" ({', '.join(shown)})" if shown else ""


def _remedy(request: ReservationRequest, refused: Exceeded, holders: _Holders) -> str:
    field = {JOB: "what its pods request", POD: "its requests", CLAIM: "its requests"}.get(
        request.kind, "spec.minResources"
    )
    if any(each.asked > each.hard for each in refused.shortages):
        return f"lower {field} or raise the quota"
    wait = f"wait for {holders[0][0]}" if holders else "wait until some of it is free"
    return f"lower {field}, {wait}, or raise the quota"


def _first_of_each(shortages: Iterable[Shortage]) -> list[Shortage]:
    return list({shortage.resource: shortage for shortage in reversed(tuple(shortages))}.values())[::-1]


def _amount(nano: int, resource: str) -> str:
    return f"{_plain(nano, resource)} {scopes.split_name(resource)[0]}"


def _plain(nano: int, resource: str) -> str:
    return amount_text(scopes.split_name(resource)[0], nano)


def _quoted(name: str) -> str:
    return f'"{name}"'
