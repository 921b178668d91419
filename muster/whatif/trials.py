"""Trials: whether a group starts once something is supposed, and what it waits for then. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from muster.model.amounts import Resources, amount_text
from muster.whatif.cluster import WhatIfCluster
from scheduler.model.obstacle import Stage
from scheduler.model.records import Record
from scheduler.model.snapshot import GroupKey


class Remedy(Struct, frozen=True):
    """Something that would let a group start: a sentence, and the same for programs."""

    text: str
    data: dict[str, Any]


def helps(cluster: WhatIfCluster, wanted: GroupKey, suppose: Callable[[], None]) -> bool:
    """Whether a group starts once something is supposed."""
    with cluster.assuming():
        suppose()
        return bool(cluster.run_until_idle([wanted]).started)


def outcome(cluster: WhatIfCluster, before: Record, suppose: Callable[[], None]) -> str | None:
    """Return what comes of supposing something: empty where the group starts, None where it waits where it waited.

    Else it is what the group waits for then, as the end of a sentence: it went on to a later stage.
    """
    with cluster.assuming():
        suppose()
        if cluster.run_until_idle([before.key]).started:
            return ""
        then = cluster.decide(growing=[before.key]).records.get(before.key)
    if then is None or then.reason is None or (then.stage, then.message) == (before.stage, before.message):
        return None
    if then.stage is before.stage is Stage.QUOTA:
        return None  # It holds nothing, then as before: only the amounts are others.
    return f"; then it waits for: {then.message}"


def shown(amounts: Resources) -> str:
    """Write amounts in units that people use."""
    parts = ((name, amount_text(name, nano)) for name, nano in amounts.nano.items() if nano)
    return ", ".join(f"{text} {name}" for name, text in parts)
