"""Keys of labels and annotations: those that Muster reads or writes, and the one that a misspelt key was meant to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final

from muster.model import names
from muster.model.objects import Meta

OURS: Final = f"{names.MUSTER_GROUP}/"
"""Nobody but Muster reads keys with this prefix."""

SHARED: Final = ("scheduling.k8s.io/", "scheduling.volcano.sh/", "volcano.sh/", f"sandbox.{names.MUSTER_GROUP}/")
"""Prefixes under which Muster reads keys, and others may, too."""

KNOWN: Final = frozenset(
    {
        *names.GROUP_NAME_KEYS,
        *names.GROUP_MIN_MEMBER_KEYS,
        names.GROUP_MIN_RESOURCES,
        *names.QUEUE_NAME_KEYS,
        *names.HIERARCHY,
        names.SLA,
        names.ROLE,
        names.PREEMPTABLE,
        names.TOPOLOGY_MODE,
        names.TOPOLOGY_TIER,
        names.DEFAULT_SCHEDULER,
        names.DELAY,
        names.VOLUMES_WRITTEN,
        names.SUSPENDED,
        names.JOB_GROUP,
        names.OWNER,
        names.WANTED_RESOURCES,
        names.MEMBER_OF,
        names.DISRUPTION_MODE,
        names.SHARED_CLAIMS,
        names.SHARED_CLAIMS_OF,
        names.EXPECTED_DURATION,
        names.PREEMPTION_POLICY,
        names.DESCRIBED,
        names.OWNER_READER,
        names.QUOTA_MODE,
        names.QUOTA_WINDOW,
        names.QUOTA_POLICY,
        names.NAMES_QUEUE,
        names.POD_TRAITS,
        names.TURN,
        names.RUN_SECONDS,
        names.EXIT_CODE,
    }
)

OF_OTHERS: Final = frozenset(
    f"volcano.sh/{name}"
    for name in (
        "job-name",
        "job-namespace",
        "job-version",
        "job-retry-count",
        "job-type",
        "queue-name",
        "task-index",
        "task-priority",
        "task-topology",
        "preemptable",
        "cooldown-time",
        "revocable-zone",
        "jdb-min-available",
        "jdb-max-unavailable",
        "numa-topology-policy",
        "topology-decision",
        "qos-level",
        "createdByJobTemplate",
        "vgpu-number",
        "vgpu-memory",
        "vgpu-cores",
    )
)
"""Keys that Volcano reads and Muster doesn't."""

_CLOSE: Final = 2
_MOST_KEYS: Final = 64
"""Keys that are looked at of one object: an object may have thousands."""
_MOST_WARNINGS: Final = 4
_LONGEST: Final = 80


def warnings(meta: Meta, before: Meta | None = None, *, ours: bool) -> list[str]:
    """Say which keys of an object's labels and annotations mean nothing, with the nearest that does.

    Args:
        meta: of the object.
        before: of the object as it was; what it says, too, is no news.
        ours: whether Muster has to do with the object; only then keys that others may read are looked at.
    """
    found = (
        _sentence(noun, key)
        for noun, mine, old in (
            ("annotation", meta.annotations, before.annotations if before is not None else None),
            ("label", meta.labels, before.labels if before is not None else None),
        )
        for key in islice(_unknown(mine or {}, old or {}, ours=ours), _MOST_KEYS)
    )
    return list(islice(filter(None, found), _MOST_WARNINGS))


def _unknown(mine: Mapping[str, str], old: Mapping[str, str], *, ours: bool) -> Iterator[str]:
    prefixes = (OURS, *SHARED) if ours else OURS
    for key, value in mine.items():
        if key.startswith(prefixes) and key not in KNOWN and key not in OF_OTHERS and old.get(key) != value:
            yield key


def _sentence(noun: str, key: str) -> str:
    nearest, distance = nearest_known(key[:_LONGEST])
    if distance <= _CLOSE:
        return f"unknown {noun} {key[:_LONGEST]}: did you mean {nearest}?"
    if not key.startswith(OURS):
        return ""
    return f"unknown {noun} {key[:_LONGEST]}: the nearest that Muster knows is {nearest}"


@lru_cache(maxsize=1024)
def nearest_known(key: str) -> tuple[str, int]:
    """Return the known key that a key was most likely meant to be, and in how many letters they differ.

    Between prefixes that mean the same only the names after them are compared. A name of which words are left out, as
    ``queue`` for ``queue-name``, counts as one letter away.
    """
    prefix, _, name = key.rpartition("/")

    def distance(known: str) -> tuple[int, bool, str]:
        known_prefix, _, known_name = known.rpartition("/")
        if (prefix == names.MUSTER_GROUP) != (known_prefix == names.MUSTER_GROUP):
            return len(key) + len(known), True, known
        apart = 1 if _abridges(name, known_name) else edit_distance(name, known_name)
        return apart, prefix != known_prefix, known

    apart, _, nearest = min(map(distance, KNOWN))
    return nearest, apart


def _abridges(name: str, known: str) -> bool:
    """Whether a name is a known one without its first or its last words."""
    return bool(name) and (known.startswith(f"{name}-") or known.endswith(f"-{name}"))


def edit_distance(one: str, other: str) -> int:
    """Return how many letters have to be changed, added or left out to make one text of the other (Levenshtein)."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        last, row[0] = row[0], number
        for place, another in enumerate(other, 1):
            last, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, last + (letter != another))
    return row[-1]
