"""The budget of a namespace's claims in a session: tenants write the expressions that choose devices, and what there is to search.

An expression may take half a second for each device, and a claim of many requests has thousands of ways to be met on each node. All
wait for whoever decides, so a namespace's claims share a budget; its own claims alone wait for what is beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from muster.cel import Steps

SHARE: Final = 500_000
"""What a namespace has, in attempts of two microseconds: a second."""
ALL: Final = 2_500_000
"""What all namespaces together have: each less where there are more than five."""
STEP: Final = 5
"""Attempts in the time of one step of an expression."""


class BudgetError(ValueError):
    """A namespace has nothing left."""


class DeviceAccount:
    """What one namespace has left in a session."""

    def __init__(self, namespace: str, share: int) -> None:
        self._namespace, self._share, self._left = namespace, share, share

    def spend(self, attempts: int) -> None:
        """Take something.

        Raises:
            BudgetError: that much isn't left.
        """
        self._left -= attempts
        if self._left < 0:
            raise BudgetError(
                f"to find devices for the claims of namespace {self._namespace} takes too long: more than {self._share:,} attempts in a"
                " cycle; write fewer claims that differ, or simpler selectors"
            )

    def steps(self, most: int) -> Steps:
        """Return steps for an expression: so many, or what is left."""
        return Steps(max(0, min(most, self._left // STEP)))


class DeviceBudget:
    """The accounts of a session; ``waiting`` returns the namespaces whose claims have no devices yet."""

    def __init__(self, waiting: Callable[[], Collection[str]]) -> None:
        self._waiting = waiting
        self._share = 0
        self._accounts: dict[str, DeviceAccount] = {}

    def of(self, namespace: str) -> DeviceAccount:
        """Return a namespace's account."""
        if namespace not in self._accounts:
            self._share = self._share or min(SHARE, ALL // max(len(self._waiting()), 1))
            self._accounts[namespace] = DeviceAccount(namespace, self._share)
        return self._accounts[namespace]
