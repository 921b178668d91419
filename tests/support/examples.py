"""How many examples a property is tried with: all in CI, a third of them in everybody's loop, for the properties that take longest."""

from __future__ import annotations

import os
from typing import Final

LOOP: Final = "MUSTER_LOOP"
"""Set by `make test` and `make test-fast`."""


def examples(count: int) -> int:
    """Return how many of ``count`` examples to try."""
    return count // 3 if os.environ.get(LOOP) else count
