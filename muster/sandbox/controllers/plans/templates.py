"""The identity of pod templates. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from muster.sandbox.core.store import Object

HASH: Final = "controller-revision-hash"
"""Label of a pod: which template it was made from."""

_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, so no words."""


def template_hash(template: Object, collisions: int) -> str:
    """Name a template: FNV-1a of its canonical JSON. Not the real controllers' hash, which is of Go's memory layout."""
    digest = 0x811C9DC5
    for byte in msgspec.json.encode(template, order="deterministic") + (
        str(collisions).encode() if collisions else b""
    ):
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(_SAFE[int(digit) % len(_SAFE)] for digit in str(digest))


def template_of(revision: Object) -> Object:
    """Return the pod template that a revision keeps."""
    kept: Object = revision["data"]["spec"]["template"]
    return {name: value for name, value in kept.items() if name != "$patch"}
