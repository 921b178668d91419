"""The rows of a QuotaLedger as text: one line for each reservation that the totals don't show yet.

    <kind> <API group>/<name> <uid> <amounts> <state> [<scope facts>]

For example ``PodGroup scheduling.volcano.sh/train 6f0c… cpu=6,memory=4Gi new``. No part can hold a space, a slash
ends the API group (the core group is empty; for a Pod or a ResourceClaim, the PodGroup that it is in), amounts are ``resource=quantity`` joined by commas, ``-`` for none. Scope facts
(`muster.model.scopes`) say in which scopes of quotas it is; without them it is in none. The states:

``new``
    an object whose creation was granted: it may exist, come to exist, or never do so.
``from:<revision>``
    growth of an object that was granted on an UPDATE of the state at that resourceVersion. For a ResourceQuota the
    amounts are the hard limits that it may have next.
``seen:<revision>``
    an object that exists, but whose charge is here and not in the totals because its name also has a ``new`` row:
    a name is charged once. ``Pods /<PodGroup> - <amounts> seen`` is what all pods of a group take
    that a view shows; as a sum it has no revision.
``unreserved:<revision>``
    an object that came without a reservation and didn't fit: charged nothing, and its pods must not be scheduled.

A ResourceQuota's row with the uid `UNSETTLED` or `UNSEEDED` is a mark: these resources have come to be limited, and what
was granted before may take more of them than is counted. Nothing of them is reserved until the mark is gone.

A row that can't be read fails the whole ledger: to drop it would hand out what it holds.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.ledger.reservations import CLAIM, JOB, MEMBERS, POD, PODGROUP, limited
from muster.model import scopes, versions
from muster.model.amounts import NANO, QuantityError, Resources
from muster.model.text import shown

RESOURCEQUOTA: Final = "ResourceQuota"
POD_SUMS: Final = "Pods"

UNSETTLED: Final = "-"
"""The uid of a mark that goes with the last row that still waits for its object."""
UNSEEDED: Final = "unseeded"
"""The uid of a mark that goes after the deadline of all that was under way, recorded or not."""

_MOST: Final = (2**63 - 1) * NANO
_AMOUNT_SIZE: Final = 32  # bytes: of the longest quantity, with its sign and comma
_FRAME_SIZE: Final = 48  # bytes: of the state with its revision, and of what is between the words

Key = tuple[str, str]
"""(API group, name): what is charged once."""


class MalformedLedgerError(Exception):
    """A QuotaLedger that can't be trusted. Its text says where and what to do."""


class RowState(Enum):
    """How far a row's object has come; see the module's text."""

    NEW = "new"
    FROM = "from"
    SEEN = "seen"
    UNRESERVED = "unreserved"


_STATE_NAMES: Final = {state.value: state for state in RowState}
_STATES: Final[dict[str, frozenset[RowState]]] = {
    PODGROUP: frozenset(RowState),
    JOB: frozenset({RowState.NEW, RowState.FROM}),
    POD: frozenset({RowState.NEW, RowState.FROM}),
    CLAIM: frozenset({RowState.NEW}),
    POD_SUMS: frozenset({RowState.SEEN}),
    RESOURCEQUOTA: frozenset({RowState.NEW, RowState.FROM}),
}


class Row(Struct, frozen=True):
    """One reservation. ``revision`` is zero for `RowState.NEW` and for sums (`POD_SUMS`). A ResourceQuota's amounts are limits and charge nothing."""

    kind: str
    group: str
    name: str
    uid: str
    amounts: Resources
    state: RowState = RowState.NEW
    revision: int = 0
    scope_facts: str = ""

    @property
    def key(self) -> Key:
        """What is charged once."""
        return self.group, self.name

    @property
    def account(self) -> str:
        """The name of the group on whose account it is; empty for a Pod or a claim outside every group."""
        return self.group if self.kind in MEMBERS else self.name

    @property
    def counts(self) -> bool:
        """Whether it holds amounts of quotas."""
        return self.kind != RESOURCEQUOTA and self.state is not RowState.UNRESERVED

    @property
    def is_mark(self) -> bool:
        """Whether it says that resources have come to be limited; see the module's text."""
        return self.kind == RESOURCEQUOTA and self.uid in {UNSETTLED, UNSEEDED}

    @property
    def size(self) -> int:
        """The most bytes that it takes in the ledger, or a few more."""
        words = (self.kind, self.group, self.name, self.uid, self.scope_facts)
        return sum(map(len, words)) + sum(len(name) + _AMOUNT_SIZE for name in self.amounts.nano) + _FRAME_SIZE

    @property
    def pending(self) -> bool:
        """Whether its object may still be stored, or never be."""
        return self.state in {RowState.NEW, RowState.FROM}

    @property
    def identity(self) -> tuple[str, Key, str, RowState, int]:
        """What makes two rows the same reservation, whatever their amounts."""
        return self.kind, self.key, self.uid, self.state, self.revision

    def __str__(self) -> str:
        """Write the row as the ledger holds it."""
        state = f"{self.state.value}:{self.revision}" if self.revision else self.state.value
        scope_facts = f" {self.scope_facts}" if self.scope_facts else ""
        return f"{self.kind} {self.group}/{self.name} {self.uid} {_amounts_text(self.amounts)} {state}{scope_facts}"

    @staticmethod
    def parse(text: str) -> Row:
        """Read a row.

        Raises:
            MalformedLedgerError: it isn't one.
        """
        parts = text.split(" ")
        if len(parts) not in {5, 6} or not all(parts) or parts[1].count("/") != 1 or parts[0] not in _STATES:
            raise MalformedLedgerError(
                "it isn't of the form <kind> <group>/<name> <uid> <amounts> <state> [<scope facts>]"
            )
        kind, key, uid, amounts, state, scope_facts = *parts, *([""] if len(parts) == 5 else [])
        if scopes.parse_facts(scope_facts) != scope_facts:
            raise MalformedLedgerError(f"{scope_facts[:64]!r} says nothing of scopes")
        group, name = key.split("/")
        if not name:
            raise MalformedLedgerError("it has no name")
        try:
            row = Row(kind, group, name, uid, _amounts(amounts), *_state(state), scope_facts)
        except (QuantityError, ValueError) as error:
            raise MalformedLedgerError(str(error)) from error
        if bool(row.revision) is (row.state is RowState.NEW or kind == POD_SUMS):
            raise MalformedLedgerError(f"{state[:64]!r} is not a state of a {kind}")
        if row.state not in _STATES[kind]:
            raise MalformedLedgerError(f"a {kind} is never {row.state.value}")
        if row.counts and any(limited(resource) != resource for resource in row.amounts):
            raise MalformedLedgerError("it names a resource in a quota's spelling")
        return row


def parse_at(index: int, text: str) -> Row:
    """Read a row of a ledger.

    Raises:
        MalformedLedgerError: it isn't one; says where.
    """
    try:
        return Row.parse(text)
    except MalformedLedgerError as error:
        raise MalformedLedgerError(f"data.rows[{index}] {text[:120]!r}: {error}") from error


def _amounts_text(amounts: Resources) -> str:
    return ",".join(f"{name}={text}" for name, text in sorted(bounded(amounts).quantities().items())) or "-"


def _amounts(text: str) -> Resources:
    if text == "-":
        return Resources({})
    quantities: dict[str, object] = {}
    for part in text.split(","):
        name, equals, quantity = part.partition("=")
        if not (name and equals) or name in quantities:
            raise MalformedLedgerError(f"{part[:64]!r} is not one resource and its amount")
        quantities[name] = quantity
    return Resources.parse(quantities)


def check(row: Row, text: str) -> None:
    """Check that a row is read back from its text: what nobody can read would fail the whole ledger.

    Raises:
        MalformedLedgerError: it isn't.
    """
    read = Row.parse(text)
    if read != row and read != replace(row, amounts=bounded(row.amounts)):
        raise MalformedLedgerError(f"the row of {row.kind} {shown(row.name)} could not be read back")


def _state(text: str) -> tuple[RowState, int]:
    name, colon, revision = text.partition(":")
    state = _STATE_NAMES.get(name)
    if state is None:
        raise MalformedLedgerError(f"{name[:64]!r} is not a state")
    return state, versions.number(revision) if colon else 0


def bounded(amounts: Resources) -> Resources:
    """Cut each amount to what a quantity can say.

    Sums can exceed it where no quota limited them; no limit can, so a sum that is cut still exceeds every limit that
    it exceeded.
    """
    return Resources({name: min(amount, _MOST) for name, amount in amounts.nano.items()})
