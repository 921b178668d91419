"""The devices that the claims of a job's pods request, in words, and how many of its pods get none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from muster.model.text import counted, few
from scheduler.engine.session import Session
from scheduler.model.devices import ClaimedDevices, DeviceRequest
from scheduler.model.snapshot import TaskClass
from scheduler.model.vectors import Mask

_LONGEST: Final = 160
"""Characters of a claim's expressions that are repeated."""
_SHOWN: Final = 3
"""Claims of a pod, requests of a claim and alternatives of a request that are named."""


def with_claims(session: Session, kind: TaskClass, count: int) -> str:
    """Say what so many pods of a class claim, as what follows them in a sentence; empty where nothing is left without devices."""
    claimed = _claimed(session, kind)
    if not claimed:
        return ""
    if _share(kind, count):
        return f" that share a claim for {claimed}"
    return f" with {'a claim' if count == 1 else 'claims'} for {claimed}"


def _share(kind: TaskClass, count: int) -> bool:
    return count > 1 and not any(each.own for each in kind.constraints.devices)


def _claimed(session: Session, kind: TaskClass) -> str:
    """Say what each pod of a class claims, as far as that has no devices yet; empty where nothing is left."""
    return _some([*map(_of_claim, session.devices.shape(kind.constraints))], "claims")


def shortage(session: Session, kind: TaskClass, count: int, open_: Mask) -> str:
    """Say what devices are lacking where ``count`` pods of a class are to have some; empty where that isn't known, or enough are free.

    ``open_``: the nodes that take such a pod, [nodes].
    """
    supply = session.devices.supply(kind.constraints)
    if supply is None:
        return ""
    share, fits = _share(kind, count), int(supply.pods[open_].sum())
    if fits >= (1 if share else count):
        return ""
    claimed = _claimed(session, kind)
    lack = (
        f"{count - fits} of {counted(count, 'pod')} {'lacks' if count == 1 else 'lack'} devices: each claims {claimed}"
    )
    if share:
        lack = f"{counted(count, 'pod')} share a claim for {claimed}"
    if not supply.suitable:
        return (
            f"{lack}, and no node has one; look at the DeviceClass, the selectors of the claim and the ResourceSlices"
        )
    none = f"the nodes that take such pods have no more for {'it' if count == 1 else 'them'}"
    if share:
        none = "no node that takes such pods reaches enough"
    return f"{lack}, of which there are {supply.suitable}, {int(supply.free.sum())} of them free, and {none}; wait until claims are deleted, or add devices"


def _some(texts: Sequence[str], noun: str, between: str = " and ") -> str:
    more = [f"{len(texts) - _SHOWN} more {noun}"] if len(texts) > _SHOWN else []
    return between.join([*texts[:_SHOWN], *more])


def _of_claim(claim: ClaimedDevices) -> str:
    requests = _some([*map(_of_line, claim.requests)], "requests")
    same = few([*dict.fromkeys(each.attribute for each in claim.constraints)], _SHOWN)
    return f"{requests} with the same {same}" if same else requests


def _of_line(alternatives: Sequence[DeviceRequest]) -> str:
    return _some([*map(_of_request, alternatives)], "alternatives", " or ")


def _of_request(request: DeviceRequest) -> str:
    stated = " && ".join(" ".join(each.split()) for each in request.selectors)
    shown = stated if len(stated) <= _LONGEST else f"{stated[: _LONGEST - 1]}…"
    amount = "all devices" if request.count is None else counted(request.count, "device")
    access = " for admin access" if request.admin else ""
    return f"{amount} of class {request.device_class}{access}" + (f" where {shown}" if shown else "")
