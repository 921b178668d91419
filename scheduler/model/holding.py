"""The part of a group's status that says what it holds of its namespace's quota."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from muster.ledger.reservations import missing_part
from muster.model.amounts import NOTHING, Resources


class Holding(Struct, frozen=True):
    """What a group's status says of what it holds, beside its minResources.

    Attributes:
        succeeded: pods that had succeeded when it was started again: so much of its minimum isn't held.
        min_resources: what its minimum takes, where it states no minResources; None where nobody noted that.
    """

    succeeded: int = 0
    min_resources: Resources | None = None

    def of(self, stated: Resources | None, member: int) -> Resources:
        """Return what a group holds that states this and has so many pods for a minimum."""
        minimum = stated if stated is not None else self.min_resources
        return missing_part(minimum or NOTHING, member, self.succeeded)


NO_HOLDING: Final = Holding()
