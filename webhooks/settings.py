"""Settings of the operator that hold for all policies."""

from __future__ import annotations

from msgspec import Struct

from muster.model import grouping, names


class WebhookSettings(Struct, frozen=True):
    """Immutable; a change of configuration makes new ones.

    Attributes:
        scheduler_names: pods with one of these are ours; the first is recommended in messages.
        accounts: user names under which Muster itself writes; only they may move a pod between groups.
        delay: whether Jobs wait suspended until their group is Inqueue; off where `enqueue` isn't configured.
        rules: which owner a generated group stands for.
        exempt: namespaces that no API server sends reviews of: nothing is reserved there.
    """

    scheduler_names: tuple[str, ...] = (names.SCHEDULER_NAME,)
    accounts: frozenset[str] = frozenset()
    delay: bool = True
    rules: tuple[grouping.OwnerRule, ...] = grouping.DEFAULT_RULES
    exempt: frozenset[str] = frozenset(names.EXEMPT_NAMESPACES)

    def ours(self, scheduler_name: str) -> bool:
        """Whether pods of this schedulerName are Muster's to schedule."""
        return scheduler_name in self.scheduler_names
