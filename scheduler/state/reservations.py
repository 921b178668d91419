"""The reservations of groups in the quota ledgers: groups without one, groups that were refused, groups that reserve late."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from muster.ledger.reservations import reserves_late
from muster.ledger.rows import Key
from muster.ledger.table import Table
from muster.model.objects import PodGroup
from scheduler.model.snapshot import GroupKey, Phase
from scheduler.state import conversion


class Reservations:
    """The reservations of all groups, as far as scheduling depends on them.

    Attributes:
        ledgers: by namespace, what is reserved in it.
    """

    def __init__(self) -> None:
        self.ledgers: dict[str, Table] = {}
        self._unreserved: dict[str, Mapping[Key, str]] = {}
        self._refused: dict[GroupKey, str] = {}
        self._late: dict[str, set[str]] = {}

    def observe(self, key: GroupKey, group: PodGroup, *, gone: bool) -> None:
        """Take in a group's new version, or its last one."""
        if gone:
            self._refused.pop(key, None)
        if not gone and reserves_late(group.metadata) and conversion.phase_of(group) is Phase.PENDING:
            self._late.setdefault(group.namespace, set()).add(group.name)
        elif group.namespace in self._late:
            self._late[group.namespace].discard(group.name)

    def observe_unreserved(self, namespace: str, reasons: Mapping[Key, str]) -> Iterable[str]:
        """Take in which groups of a namespace hold nothing, and why; return the names for which that is news."""
        old = self._unreserved.pop(namespace, {})
        if reasons:
            self._unreserved[namespace] = reasons
        return [name for (_, name), _ in old.items() ^ reasons.items()]

    def observe_ledger(self, namespace: str, table: Table | None) -> None:
        """Take in what is reserved in a namespace."""
        if table is None:
            self.ledgers.pop(namespace, None)
        else:
            self.ledgers[namespace] = table

    def observe_refusal(self, key: GroupKey, reason: str) -> bool:
        """Take in why the ledger refused a group, with an empty reason that it may ask again; tell whether that is news."""
        news = self._refused.pop(key, "") != reason
        if reason:
            self._refused[key] = reason
        return news

    def reason(self, key: GroupKey) -> str:
        """Return why a group holds nothing; empty where it does."""
        return self._unreserved.get(key.namespace, {}).get((key.group, key.name), self._refused.get(key, ""))

    def late(self) -> list[tuple[str, Collection[str]]]:
        """Return the namespaces with Pending groups that reserve late, and those groups' names."""
        return [(namespace, names) for namespace, names in self._late.items() if names]

    def take_over(self, old: Reservations, groups: Collection[GroupKey]) -> None:
        """Take in what no object tells from those that these replace, of the groups that there are."""
        self.ledgers, self._unreserved = old.ledgers, old._unreserved
        self._refused = {key: reason for key, reason in old._refused.items() if key in groups}
