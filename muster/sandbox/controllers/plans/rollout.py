"""The sizes of a Deployment's ReplicaSets while a new template takes over from old ones. Pure arithmetic.

Source of the rules: the Deployment's documentation; figures as the real controller's, tried on one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from muster.sandbox.controllers.plans.int_or_percent import pods_of
from muster.sandbox.core.store import Object

MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
"""Annotation: how many pods the Deployment might have had when this ReplicaSet got its size."""


class Resize(Struct, frozen=True):
    """A ReplicaSet and the size that it shall have."""

    replicaset: Object
    replicas: int


def size(replicaset: Object) -> int:
    """Return the size a ReplicaSet shall have."""
    replicas: int = replicaset["spec"].get("replicas", 1)
    return replicas


def total(replicasets: Sequence[Object]) -> int:
    """Return the sum of the sizes."""
    return sum(map(size, replicasets))


def count(replicasets: Sequence[Object], field: str) -> int:
    """Sum up a count of their status."""
    return sum((replicaset.get("status") or {}).get(field, 0) for replicaset in replicasets)


def limits(deployment: Object) -> tuple[int, int]:
    """Return maxSurge and maxUnavailable in pods; not both zero."""
    spec = deployment["spec"]
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    replicas = spec.get("replicas", 1)
    surge = pods_of(rolling.get("maxSurge", "25%"), replicas, up=True)
    unavailable = pods_of(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    if not surge and not unavailable:
        unavailable = 1
    return surge, min(unavailable, replicas)


def recreate(new: Object | None, old: Sequence[Object], replicas: int, *, old_pods: bool) -> list[Resize]:
    """Old ones to nothing first; the new one to full size when no old pod is left."""
    down = [Resize(each, 0) for each in old if size(each)]
    if down or old_pods or new is None:
        return down
    return [Resize(new, replicas)] if size(new) != replicas else []


def roll(deployment: Object, new: Object, old: Sequence[Object]) -> list[Resize]:
    """One step of a rolling update: grow the new one, else shrink old ones."""
    replicas = deployment["spec"].get("replicas", 1)
    surge, unavailable = limits(deployment)
    grown = _new_size(new, old, replicas, surge)
    if grown != size(new):
        return [Resize(new, grown)]
    return _shrink(deployment, new, old, unavailable)


def first_size(deployment: Object, new: Object, old: Sequence[Object]) -> int:
    """Return the size that a ReplicaSet is made with."""
    replicas: int = deployment["spec"].get("replicas", 1)
    if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        return replicas
    return _new_size(new, old, replicas, limits(deployment)[0])


def _new_size(new: Object, old: Sequence[Object], replicas: int, surge: int) -> int:
    if size(new) >= replicas:
        return replicas
    room = replicas + surge - total([new, *old])
    return size(new) + max(0, min(room, replicas - size(new)))


def _shrink(deployment: Object, new: Object, old: Sequence[Object], unavailable: int) -> list[Resize]:
    """Take pods from old ones, unhealthy pods first, as long as enough stay available."""
    everything = [new, *old]
    least = deployment["spec"].get("replicas", 1) - unavailable
    new_missing = size(new) - count([new], "availableReplicas")
    budget = total(everything) - least - new_missing
    if budget <= 0:
        return []
    oldest = sorted(old, key=_age)
    unhealthy = [size(each) - count([each], "availableReplicas") for each in oldest]
    sizes = _take([size(each) for each in oldest], unhealthy, budget)
    sizes = _take(sizes, sizes, count(everything, "availableReplicas") - least)
    return [Resize(each, left) for each, left in zip(oldest, sizes, strict=True) if left != size(each)]


def _age(replicaset: Object) -> tuple[str, str]:
    return replicaset["metadata"]["creationTimestamp"], replicaset["metadata"]["name"]


def _take(sizes: Sequence[int], at_most: Sequence[int], budget: int) -> list[int]:
    """Take up to ``budget`` from the sizes, from the first on, from each at most that many."""
    left = []
    for have, most in zip(sizes, at_most, strict=True):
        taken = max(0, min(budget, have, most))
        left.append(have - taken)
        budget -= taken
    return left


def scale(deployment: Object, new: Object | None, old: Sequence[Object]) -> list[Resize]:
    """Follow a change of the Deployment's own size.

    One ReplicaSet takes it all. Of several, in the middle of an update, each gets its share and the largest the rest.
    """
    replicas = deployment["spec"].get("replicas", 1)
    everything = ([new] if new else []) + list(old)
    active = [each for each in everything if size(each)]
    if len(active) <= 1:
        only = active[0] if active else new or max(old, key=_age, default=None)
        return [Resize(only, replicas)] if only is not None and size(only) != replicas else []
    if new is not None and size(new) == replicas == count([new], "availableReplicas"):
        return [Resize(each, 0) for each in old if size(each)]
    if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        return []
    return _share_out(active, replicas, replicas + limits(deployment)[0] if replicas else 0)


def _share_out(active: Sequence[Object], replicas: int, allowed: int) -> list[Resize]:
    left = allowed - total(active)
    newest = sorted(active, key=_age, reverse=left > 0)
    largest = sorted(newest, key=size, reverse=True)
    sizes = []
    for each in largest:
        share = _proportion(each, replicas, allowed, left)
        sizes.append(size(each) + share)
        left -= share
    sizes[0] = max(0, sizes[0] + left)
    return [Resize(each, wanted) for each, wanted in zip(largest, sizes, strict=True) if wanted != size(each)]


def _proportion(replicaset: Object, replicas: int, allowed: int, left: int) -> int:
    if not left:
        return 0
    if not replicas:
        return -size(replicaset)
    noted = (replicaset["metadata"].get("annotations") or {}).get(MAX_REPLICAS, "")
    before = (int(noted) if noted.isdecimal() else 0) or allowed
    share = math.floor(size(replicaset) * allowed / before + 0.5) - size(replicaset)
    return min(share, left) if left > 0 else max(share, left)
