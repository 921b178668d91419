"""Comparing resourceVersions: which of two states of one resource is newer.

Kubernetes 1.35 documents what had been so since etcd v3: the versions of one resource type are integers that only
grow (KEP-5504). Versions of different types mean nothing to each other; no caller may compare them.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def number(version: str) -> int:
    """Return a resourceVersion's value; of any length, as the API allows.

    Raises:
        ValueError: it isn't a positive integer without leading zeros.
    """
    if not (version.isascii() and version.isdigit()) or version[0] == "0":
        raise ValueError(f"resourceVersion {version[:64]!r} is not a positive integer")
    return int(version)


def at_least(version: str, wanted: str) -> bool:
    """Tell whether a view at ``version`` shows all that happened up to ``wanted``, both of one resource type.

    The empty version is that of a view which has shown nothing yet: older than any.
    """
    return bool(version) and number(version) >= number(wanted)
