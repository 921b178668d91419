"""The sums behind one decision: what is taken of each quota, and whether one more row fits.

The one mutable thing among the pure ones: made from a table, used within one function, thrown away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from muster.ledger.reservations import GROUPS, Shortage, limited
from muster.ledger.rows import Key, MalformedLedgerError, Row, RowState, bounded
from muster.model import scopes
from muster.model.amounts import NOTHING, QuantityError, Resources, amount_text
from muster.model.objects import QuotaTotals

OBJECT_BYTES: Final = 1_300_000
"""Bytes that rows and totals may take together after a fold: what is left of etcd's 1.5 MiB is for the object's frame."""

_FEW_ROWS: Final = 64
_AMOUNT_BYTES: Final = 32


class Totals(Struct, frozen=True):
    """One quota: its limits, and what the views at `Table.observed` show to be held of them.

    Attributes:
        hard: what counts now: the smallest of all versions that the quota may have.
        reserved: the sum over unfinished groups, without those that have rows of their own.
        used: what all pods take, for people.
        other: what pods take beyond what their groups hold: those outside every group, all of it. Without the names
            that have rows of their own.
    """

    uid: str
    hard: Resources
    reserved: Resources = NOTHING
    used: Resources = NOTHING
    other: Resources = NOTHING

    def without(self, beyond: Resources) -> Totals:
        """Return them without what some pods take beyond what their groups hold."""
        gone = Resources({name: beyond[limited(name)] for name in self.hard})
        return replace(self, other=(self.other - gone).positive())

    @staticmethod
    def parse(name: str, totals: QuotaTotals) -> Totals:
        """Read what `render` wrote of the quota of this name.

        Raises:
            MalformedLedgerError: it can't be read.
        """
        parts = (totals.hard, totals.reserved, totals.used, totals.other)
        try:
            return Totals(totals.uid, *map(Resources.parse, parts))
        except QuantityError as error:
            raise MalformedLedgerError(f"data.quotas.{name}: {error}") from error

    def render(self) -> QuotaTotals:
        """Write it as the ledger holds it."""
        parts = (self.hard, self.reserved, self.used, self.other)
        hard, reserved, used, other = (bounded(each).quantities() for each in parts)
        return QuotaTotals(uid=self.uid, hard=hard, reserved=reserved, used=used, other=other)


class _Account(Struct):
    """The rows of one name: of its groups, and of the pods that say they are in it."""

    groups: dict[Key, list[Row]] = field(default_factory=dict)
    pods: dict[Key, list[Row]] = field(default_factory=dict)
    reserved: Resources = NOTHING
    used: Resources = NOTHING

    def after(self, row: Row) -> tuple[Resources, Resources]:
        """Return what would be reserved and used with one more row."""
        mine = self._of(row).get(row.key)
        growth = charge([*mine, row]) - charge(mine) if mine else row.amounts
        return (self.reserved + growth, self.used) if row.kind in GROUPS else (self.reserved, self.used + growth)

    def put(self, row: Row) -> None:
        self.reserved, self.used = self.after(row)
        self._of(row).setdefault(row.key, []).append(row)

    @property
    def cost(self) -> Resources:
        return self.reserved.maximum(self.used) if self.pods else self.reserved

    @property
    def beyond(self) -> Resources:
        return (self.used - self.reserved).positive()

    def _of(self, row: Row) -> dict[Key, list[Row]]:
        return self.groups if row.kind in GROUPS else self.pods


class Tally:
    """Totals and rows, summed. Adding a row keeps the sums up to date without summing again."""

    def __init__(self, quotas: Mapping[str, Totals], rows: Iterable[Row]) -> None:
        self._quotas = quotas
        self._scope_sets = scopes.scope_sets(name for totals in quotas.values() for name in totals.hard)
        self._rows = {row.identity: row for row in rows}
        self._accounts: dict[str, _Account] = defaultdict(_Account)
        self._groups: dict[str, set[str]] = defaultdict(set)
        self._unreserved: dict[str, Row] = {}
        self._granted: set[str] = set()
        for row in self._rows.values():
            self._index(self._whole(row))
        self._charged = Resources.total(each.cost for each in self._accounts.values())
        self._beyond = Resources.total(each.beyond for each in self._accounts.values() if each.pods)
        self._size: int | None = None
        self._room: int | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows; one reservation that was made twice is one row."""
        return tuple(self._rows.values())

    @property
    def size(self) -> int:
        """The bytes that its rows take."""
        if self._size is None:
            self._size = sum(row.size for row in self._rows.values())
        return self._size

    @property
    def room(self) -> int:
        """The bytes that rows may take beside the totals of the quotas."""
        if self._room is None:
            self._room = OBJECT_BYTES - _totals_size(self._quotas)
        return self._room

    def __len__(self) -> int:
        return len(self._rows)

    def namesake(self, row: Row) -> str:
        """Return another API group in which the row's name is taken; empty when there is none."""
        return min(self._groups.get(row.name, set()) - {row.group}, default="")

    def taken(self, quota: str, resource: str) -> int:
        """Return what is held or reserved of a quota's resource, in nano-units."""
        totals = self._quotas[quota]
        return totals.reserved[resource] + totals.other[resource] + self._charged[limited(resource)]

    def over(self) -> tuple[Shortage, ...]:
        """Return every resource of which more is taken than there is."""
        return tuple(each for each in self.per_resource() if each.short > 0)

    def per_resource(self) -> tuple[Shortage, ...]:
        """Tell of every resource of every quota how it stands, as if nothing were asked: what is free is ``-short``."""
        return tuple(
            self._shortage(quota, resource, self.taken(quota, resource), 0, self._beyond)
            for quota, totals in self._quotas.items()
            for resource in totals.hard
        )

    def summary(self) -> str:
        """Say in a line what is taken of each quota, for people."""
        return ", ".join(
            f"{name} {plain} {amount_text(plain, self.taken(name, resource))}/{amount_text(plain, most)}"
            for name, totals in sorted(self._quotas.items())
            for resource, most in sorted(totals.hard.nano.items())
            for plain in scopes.split_name(resource)[:1]
        )

    def add(self, row: Row) -> tuple[Shortage, ...]:
        """Add a row if it fits, else change nothing and say what is short.

        It fits where each sum stays within its limit or doesn't grow: a quota that was lowered below what is reserved
        stops growth and nothing else. A group that exists and holds nothing fits where each sum is within its limit
        with it, since its pods may be there and wait.
        """
        whole = self._whole(row)
        account, growth, beyond = self._change(whole)
        shortages = self._shortages(whole, account, growth)
        if not shortages:
            known = self._rows.get(row.identity)
            self._rows[row.identity] = stored = self._larger(known, row) if known else row
            self._size = self.size + stored.size - (known.size if known else 0)
            self._index(whole)
            self._charged += growth
            self._beyond += beyond
        return shortages

    def shortages(self, row: Row) -> tuple[Shortage, ...]:
        """Say what is short for one more row, as `add` would; nothing changes."""
        whole = self._whole(row)
        account, growth, _ = self._change(whole)
        return self._shortages(whole, account, growth)

    def lacks(self, account: str) -> tuple[Shortage, ...] | None:
        """Say what is short for the group of that name where it was refused its reservation, maybe nothing by now; None for others.

        Nothing is short for one that has been granted its reservation and isn't stored with it yet: that may still fail.
        """
        group = self._unreserved.get(account)
        if group is None:
            return None
        return () if group.uid in self._granted else self.shortages(replace(group, state=RowState.SEEN))

    def _larger(self, known: Row, row: Row) -> Row:
        """Return one row that counts for no less than either of two of one reservation, in every scope."""
        if known.scope_facts == row.scope_facts:
            return replace(row, amounts=row.amounts.maximum(known.amounts))
        return replace(row, amounts=self._whole(row).amounts.maximum(self._whole(known).amounts), scope_facts="")

    def _whole(self, row: Row) -> Row:
        """Return a row with what it counts for in the scopes of the quotas."""
        amounts = scopes.in_scopes(row.amounts, row.scope_facts, self._scope_sets)
        return row if amounts is row.amounts else replace(row, amounts=amounts)

    def _change(self, row: Row) -> tuple[_Account, Resources, Resources]:
        """Return a row's account, by how much it would cost more, and by how much its pods would exceed its reservations more."""
        account = self._accounts[row.account]
        reserved, used = account.after(row)
        return account, reserved.maximum(used) - account.cost, (used - reserved).positive() - account.beyond

    def _shortages(self, row: Row, account: _Account, growth: Resources) -> tuple[Shortage, ...]:
        # A group's own pods aren't others to it; of a pod, what its group has reserved for it isn't asked for.
        asked, others = (row.amounts, self._beyond - account.beyond) if row.kind in GROUPS else (growth, self._beyond)
        return tuple(
            self._shortage(quota, resource, self.taken(quota, resource) + more, asked[limited(resource)], others)
            for quota, totals in self._quotas.items()
            for resource in totals.hard
            if (more := growth[limited(resource)]) > totals.hard[resource] - self.taken(quota, resource)
            and (more > 0 or (row.state is RowState.SEEN and asked[limited(resource)] > 0))
        )

    def _index(self, row: Row) -> None:
        if row.kind in GROUPS:
            self._groups[row.name].add(row.group)
        if row.state is RowState.UNRESERVED:
            self._unreserved[row.name] = row
        if row.state is RowState.FROM:
            self._granted.add(row.uid)
        if row.counts:
            self._accounts[row.account].put(row)

    def _shortage(self, quota: str, resource: str, taken: int, asked: int, others: Resources) -> Shortage:
        totals = self._quotas[quota]
        hard, used = totals.hard[resource], totals.other[resource] + others[limited(resource)]
        return Shortage(resource, hard, taken - used - asked, used, asked, taken - hard, quota)


def outgrows(quotas: Mapping[str, Totals], rows: Collection[Row], before: Collection[Row]) -> bool:
    """Whether a fold made the rows of a ledger larger than before, and the whole larger than an object may be.

    Each name with a row under way has rows of its own for what is seen of it: as many again, twice.
    """
    if len(rows) <= max(_FEW_ROWS, len(before)):
        return False
    return _totals_size(quotas) + sum(row.size for row in rows) > OBJECT_BYTES


def _totals_size(quotas: Mapping[str, Totals]) -> int:
    totals = [amounts for each in quotas.values() for amounts in (each.hard, each.reserved, each.used, each.other)]
    return sum(len(name) + _AMOUNT_BYTES for amounts in totals for name in amounts)


def charge(rows: Iterable[Row]) -> Resources:
    """Return what one name is charged: of all objects that may come to have it, the largest.

    One object holds what was reserved at its creation, plus growth; of several updates of one state only one can be
    stored, so the largest of them counts.
    """
    most: dict[str, dict[int, Resources]] = {}
    for row in rows:
        step = row.revision if row.state is RowState.FROM else 0
        steps = most.setdefault(row.uid, {})
        steps[step] = steps.get(step, NOTHING).maximum(row.amounts)
    objects = (reduce(Resources.__add__, steps.values(), NOTHING) for steps in most.values())
    return reduce(Resources.maximum, objects, NOTHING)
