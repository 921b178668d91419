"""The value that says what is wrong with the pods of a group beside their placement."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

PODS_NOT_STARTING: Final = "PodsNotStarting"
PODS_FAILED: Final = "PodsFailed"


class Failing(Struct, frozen=True):
    """Pods that can't start, or failed for good: the reason in a word, and a sentence."""

    reason: str
    message: str
