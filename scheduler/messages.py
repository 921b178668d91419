"""The sentences that tell users how much of what is short."""

from __future__ import annotations

from muster.model.amounts import NANO, Resources
from scheduler import vectors
from scheduler.vectors import Axes, Vector


def counted(count: int, noun: str) -> str:
    """Write ``1 pod``, ``2 pods``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shortage(count: int, wanted: Vector, free: Vector, axes: Axes, where: str) -> str:
    """Say what ``count`` pods need and ``where`` has too little of: only the resources that are short are named."""
    missing = axes.resources(vectors.short(wanted, free))
    need = axes.resources(wanted).only(missing)
    have = axes.resources(vectors.above_zero(free)).only(missing)
    verb = "needs" if count == 1 else "need"
    return f"{counted(count, 'pod')} {verb} {need}; {have} {_are(have)} {where}: short by {missing}"


def _are(amounts: Resources) -> str:
    """Choose the verb: nothing is, 1 cpu is, 4 cpu are."""
    values = list(amounts.positive().nano.values())
    return "is" if not values or values == [NANO] else "are"
