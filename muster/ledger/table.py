"""The ledger of one namespace as a value, and every change of it.

**Invariant.** For every quota and every resource that it limits, in exact integers::

    sum over groups of max(charge, used)  +  other   <=   max(hard, what was taken when hard was lowered)

where ``charge`` is what a group reserved, ``used`` what its pods take and ``other`` what pods outside every group take.
Every group and pod that exists or that the API server may still store is in that sum, except groups that are marked
unreserved (their pods are in it) and pods whose admission didn't ask us. What the API server can do that isn't in the
ledger is nothing; that is the guarantee.

**Why it holds.** Each group and each pod is in the sum in one of two ways: the totals count it, because a view at least
as new as `Table.observed` shows it, or it has a row.

1. *Coming in.* A group or pod is stored only after our yes, and yes is said only after the API server has stored a ledger
   with its row, compare-and-swap, in which the sum was within the limit (`reserve`). So it has a row before it exists.
2. *From row to totals.* `fold` recomputes the totals from a view and drops, in that same write, the rows whose objects
   the view has delivered. The totals then count these objects, or they are gone and their uids can't come again. An
   older view never folds, so what the totals count was counted no longer ago than what the dropped rows were about.
3. *Never stored.* A row that no view shows goes when the API server can no longer store its object: its request has
   timed out long since, and a quorum read doesn't show it. `expired` names such rows; the controller knows them.
4. *Growth.* An update is charged on top, as a row that knows the state it changes (`RowState.FROM`): the difference of what
   counts in each scope before and after, since traits, a deadline or a class take it to others. The API server stores
   an update of that very state or none, so when a view as new as it shows another state, or none, the update is in
   the totals or never will be. Two updates of one state exclude each other; of two states they add up.
5. *Leaving.* Only the totals let go: a view shows the group gone, Completed or smaller. A DELETE that was admitted
   proves nothing (a finalizer, a veto, a dry run). A Completed group that is started again comes to hold what is missing of
   its minimum by an update, as in 4.
6. *The limit.* A quota's change is a row too, so that from the moment it is admitted until a view shows which version
   holds, the smallest counts.
7. *Late.* A group that is in neither came without our yes: it was under way when the ledger was made. It is taken in
   if it fits, else marked `RowState.UNRESERVED`, charged nothing, and the scheduler leaves its pods alone. A late pod is
   counted: it runs.
8. *Pods.* What a pod takes, its claims on devices among it, is held against what its group reserved first: a sum of maxima over names, so a member is
   free up to its group's minimum, and what is reserved for a group that comes after its pods is theirs at once. A pod
   changes its group only from none to one, which can't make the sum larger.

A name is charged once, by the largest of its rows, because etcd lets one object have it. For that, and for the maximum,
the totals must not count a name that also has rows for what is to come: `fold` then gives what is shown of it rows as
well (`RowState.SEEN`). Where a view too old to fold leaves such a name in the totals, rows are charged on top of it: more
than is due, never less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from muster.ledger import observed_rows, wording
from muster.ledger.marks import hard_names, limited_names, marked, unsettled
from muster.ledger.reservations import (
    GROUPS,
    JOB,
    MEMBERS,
    Exceeded,
    ReservationAnswer,
    ReservationRequest,
    Reserved,
    Shortage,
    Unavailable,
    limited,
)
from muster.ledger.rows import RESOURCEQUOTA, MalformedLedgerError, Row, RowState, parse_at
from muster.ledger.tally import Tally, Totals, outgrows
from muster.ledger.view import CLAIM_SOURCE, LedgerView, ObservedGroup, covers
from muster.model import device_quota, scopes, versions
from muster.model.amounts import NOTHING, Resources
from muster.model.objects import LedgerData

MOST_ROWS: Final = 5000
"""Rows that one ledger may hold: about 0.7 MB, half of what etcd takes in one object."""

MOST_BYTES: Final = 1_000_000
"""Bytes that the rows of one ledger may take: two thirds of what etcd takes in one object."""

ORDINARY_ROW: Final = 1024
"""Bytes up to which a row may take all of these; longer ones half, so that they don't fill the ledger for others."""

_HOLDERS: Final = 3


class Table(Struct, frozen=True):
    """What is reserved in one namespace. Immutable: each step returns a new one.

    Attributes:
        seeded_at: since when the totals mean something, RFC 3339; empty: nothing may be reserved yet.
        observed: source (`muster.ledger.view.source`) to the resourceVersion that the totals show.
        quotas: name to limits and totals.
        rows: reservations that the totals don't show.
    """

    seeded_at: str = ""
    observed: Mapping[str, int] = field(default_factory=dict)
    quotas: Mapping[str, Totals] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def scope_sets(self) -> frozenset[str]:
        """The scopes of its quotas."""
        return scopes.scope_sets(name for totals in self.quotas.values() for name in totals.hard)

    def limits(self, amounts: Resources, scope_facts: str = "") -> bool:
        """Whether any quota limits any of ``amounts``, in the names of `reservations.held`, of something with these scope facts."""
        amounts = scopes.in_scopes(amounts, scope_facts, self.scope_sets)
        return any(amounts[limited(resource)] for totals in self.quotas.values() for resource in totals.hard)

    def overcommitted(self) -> tuple[Shortage, ...]:
        """Return every resource of which more is reserved than there is, as after a quota was lowered."""
        return Tally(self.quotas, self.rows).over()

    def per_resource(self) -> tuple[Shortage, ...]:
        """Return how every resource of every quota stands."""
        return Tally(self.quotas, self.rows).per_resource()

    @property
    def unreserved(self) -> frozenset[str]:
        """The uids of groups that hold nothing though they exist."""
        return frozenset(row.uid for row in self.rows if row.state is RowState.UNRESERVED)

    def outside(self, view: LedgerView) -> dict[ObservedGroup, tuple[Shortage, ...]]:
        """Return the groups that exist and hold nothing of what quotas limit, and what each would be short of.

        Those without a shortage came so late that no fold has taken them in yet, or wait for their minimum, and may have it.
        """
        outside = [shown for shown in (*self._outside(view), *view.waiting()) if self.limits(shown.minimum)]
        limits, granted = limited_names(self.quotas, self.rows), observed_rows.granted(self.rows)
        rows = {each: observed_rows.seen(each, limits) for each in outside if not (each.wanted and each.uid in granted)}
        # What its own pods take already isn't asked for twice, nor where a view can't be folded in, as one of lists.
        mine = {each.name for each in outside if view.usage(each.name)}
        apart = self.fold(view, coming=mine) if mine else self
        quotas = observed_rows.without(mine, self.quotas, self.rows, view) if apart is self else apart.quotas
        return {each: Tally(quotas, apart.rows).add(rows[each]) if each in rows else () for each in outside}

    def holders(self, view: LedgerView, shortages: Sequence[Shortage]) -> tuple[tuple[str, Resources], ...]:
        """Return who holds most of what is short, largest first: (name, those amounts)."""
        short = [limited(each.resource) for each in shortages]
        unreserved = self.unreserved
        holds = {shown.name: shown.amounts for shown in view.groups() if shown.uid not in unreserved}
        for row in self.rows:
            if row.counts and row.kind in GROUPS:
                base, more = (
                    holds.get(row.name, NOTHING),
                    scopes.in_scopes(row.amounts, row.scope_facts, self.scope_sets),
                )
                holds[row.name] = base + more if row.state is RowState.FROM else base.maximum(more)
        ranked = sorted(holds.items(), key=lambda item: ([-item[1][name] for name in short], item[0]))
        return tuple((name, amounts.only(short)) for name, amounts in ranked[:_HOLDERS] if amounts.only(short))

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def reserve(self, requests: Iterable[ReservationRequest]) -> tuple[Self, tuple[ReservationAnswer, ...]]:
        """Reserve what fits, first come first served, each against what those before it were granted.

        The answers are in the order of ``requests``; they hold once the table is stored.
        """
        return self.reserve_summed(requests)[:2]

    def reserve_summed(self, requests: Iterable[ReservationRequest]) -> tuple[Self, tuple[ReservationAnswer, ...], str]:
        """Reserve as `reserve` does, and return the new table's summary, too: it is summed already."""
        tally, waiting = Tally(self.quotas, self.rows), unsettled(self.rows)
        limits = limited_names(self.quotas, self.rows)
        rows = (_row(request, self.scope_sets, limits) for request in requests)
        answers = tuple(self._reserve(row, tally, waiting) for row in rows)
        return replace(self, rows=tally.rows), answers, tally.summary()

    def fold(
        self,
        view: LedgerView,
        *,
        coming: Collection[str] = (),
        expired: Collection[Row] = (),
        waits: bool = False,
    ) -> Self:
        """Recompute the totals from ``view`` and drop the rows that it shows; the same table if the view is older.

        ``coming`` are names about to be reserved for; ``expired`` are rows whose requests are dead, and then ``view`` must
        be a quorum read that began after they were. What has come to be limited since the last fold is marked: with
        ``waits`` until the deadline of all that is under way, else until no row waits for its object.
        """
        if not (self.seeded_at and covers(view, self.observed)):
            return self
        folded = self._fold(view, coming, expired)
        if outgrows(folded.quotas, folded.rows, self.rows):
            return self  # Later: what is under way ends within the deadline, and takes its rows with it.
        return replace(folded, rows=marked(self.quotas, folded.quotas, folded.rows, waits=waits))

    def seed(self, view: LedgerView, now: datetime) -> Self:
        """Take the first totals from ``view``, a quorum read that began after this table was stored.

        What exists counts, even beyond the limits, as with any quota that is made over what runs. A table that was
        seeded before may be seeded again, where a source that it observed is gone for good.
        """
        return replace(self._fold(view, (), ()), seeded_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def observe_quota(self, name: str, uid: str, hard: Resources, revision: int = 0) -> Self:
        """Note limits that a quota may have from now on; `fold` from a current view then makes them count.

        ``revision`` is what a quorum read made for this call shows the quota at, zero where it shows none. That is the
        state which the change is of, or a newer one: then the API server can't store the change, and asks again.
        """
        row = Row(RESOURCEQUOTA, "", name, uid, hard, RowState.FROM if revision else RowState.NEW, revision)
        same = [each for each in self.rows if each.identity == row.identity]
        row = replace(row, amounts=reduce(Resources.minimum, (each.amounts for each in same), row.amounts))
        return replace(self, rows=(*(each for each in self.rows if each not in same), row))

    # ── the object ───────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def parse(cls, data: LedgerData) -> Self:
        """Read what `render` wrote.

        Raises:
            MalformedLedgerError: someone else wrote it. Nothing is passed over, since it may hold something.
        """
        try:
            observed = {name: versions.number(revision) for name, revision in data.observed.items()}
        except ValueError as error:
            raise MalformedLedgerError(f"data.observed: {error}") from error
        rows = tuple(parse_at(index, text) for index, text in enumerate(data.rows))
        quotas = {name: Totals.parse(name, totals) for name, totals in data.quotas.items()}
        table = cls(data.seeded_at, observed, quotas, rows)
        table.validate()
        return table

    def render(self, texts: Mapping[int, str] | None = None, summary: str = "") -> LedgerData:
        """Write it as the object holds it.

        Args:
            texts: the texts of rows that were read or written before, by the rows' `id`.
            summary: of this table; made anew where none is given.
        """
        known = texts or {}
        quotas = {name: totals.render() for name, totals in sorted(self.quotas.items())}
        observed = {name: str(revision) for name, revision in sorted(self.observed.items())}
        rows = tuple(known.get(id(row)) or str(row) for row in self.rows)
        told = summary or Tally(self.quotas, self.rows).summary()
        return LedgerData(summary=told, seeded_at=self.seeded_at, observed=observed, quotas=quotas, rows=rows)

    def validate(self) -> None:
        """Check what every table must be, whatever happened.

        Raises:
            MalformedLedgerError: naming the row or total that contradicts another.
        """
        seen: set[object] = set()
        for index, row in enumerate(self.rows):
            if row.identity in seen:
                raise MalformedLedgerError(f"data.rows[{index}]: the reservation for {row.name} is there twice")
            seen.add(row.identity)
        for row in self.rows:
            if row.state is RowState.SEEN and row.uid in self.unreserved:
                raise MalformedLedgerError(f"data.rows: {row.name} is both charged and unreserved")
        if bool(self.seeded_at) != bool(self.observed):
            raise MalformedLedgerError("data: seededAt and observed belong together")
        for name, totals in self.quotas.items():
            for part, amounts in (("reserved", totals.reserved), ("used", totals.used), ("other", totals.other)):
                if set(amounts) - set(totals.hard):
                    raise MalformedLedgerError(f"data.quotas.{name}: {part} names a resource without a limit")

    # ── details, one rule each ───────────────────────────────────────────────────────────────────────────────────

    def _reserve(self, row: Row, tally: Tally, waiting: Collection[str]) -> ReservationAnswer:
        if not self.limits(row.amounts, row.scope_facts):
            return Reserved(recorded=False)
        # New pods of a gang that can't start now would hold what others need; what controls them tries again.
        if row.kind in MEMBERS and row.state is RowState.NEW and (lacks := tally.lacks(row.account)) is not None:
            # Pods of several gangs that wait would take what comes to be free from each of them; so would the first pods
            # of each gang in turn, were a reservation enough whose group is refused to be stored, as after a conflict.
            return Exceeded(lacks[0].quota, lacks, of_group=True) if lacks else Unavailable(wording.ABOUT_TO_RESERVE)
        if waiting and (short := scopes.in_scopes(row.amounts, row.scope_facts, self.scope_sets).only(waiting)):
            return Unavailable(
                f"a quota has come to limit {scopes.split_name(min(short))[0]}, and nothing of it is reserved until everything that was"
                " under way has arrived; that takes up to 45 seconds: try again"
            )
        if CLAIM_SOURCE not in self.observed and any(map(device_quota.of_class, row.amounts)):
            return Unavailable(wording.CLAIMS_UNCOUNTED)
        if elsewhere := tally.namesake(row):
            return Exceeded("", taken_in=elsewhere)
        if len(tally) >= MOST_ROWS:
            return Unavailable(
                f"the namespace's quota ledger holds {MOST_ROWS} reservations under way, as many as it can"
            )
        most = MOST_BYTES if row.size <= ORDINARY_ROW else MOST_BYTES // 2
        if tally.size + row.size > min(most, tally.room):
            return Unavailable(
                f"the namespace's quota ledger has no room for the {row.size} bytes of this reservation while so many"
                " are under way; try again, or list fewer resources"
            )
        shortages = tally.add(row)
        return Exceeded(shortages[0].quota, shortages) if shortages else Reserved()

    def _fold(self, view: LedgerView, coming: Collection[str], expired: Collection[Row]) -> Self:
        pending = [row for row in self.rows if not (row in expired or self._shown(row, view))]
        outside, limits = self._outside(view), limited_names(view.quotas, pending)
        names = sorted(_apart(pending, outside, view, coming))
        left = {shown.uid for shown in (*outside, *view.waiting())}
        seen = [
            observed_rows.seen(each, limits) for name in names for each in view.called(name) if each.uid not in left
        ]
        without = [each.amounts for each in seen] + [each.amounts for each in outside]
        seen += [observed_rows.used(name, view.usage(name).only(limits)) for name in names if view.usage(name)]
        total = reduce(Resources.__sub__, without, view.total)
        rows = tuple(pending + seen + observed_rows.waiting(view, limits))
        other = reduce(Resources.__sub__, map(view.beyond, names), view.excess)
        quotas = _quotas(view, rows, _Sums(total, view.used, other))
        folded = replace(self, observed=dict(view.revisions), quotas=quotas, rows=rows)
        return folded._take_in(outside, view, total, names) if outside else folded  # noqa: SLF001 - of its own kind

    def _take_in(
        self, outside: Iterable[ObservedGroup], view: LedgerView, total: Resources, names: Collection[str]
    ) -> Self:
        """Count the groups for which nothing was reserved where they fit, and mark the others."""
        tally, rows = Tally(self.quotas, self.rows), list(self.rows)
        for each in outside:
            row = observed_rows.seen(each, limited_names(self.quotas, self.rows))
            if tally.add(row):
                rows.append(replace(row, state=RowState.UNRESERVED))
            elif each.name in names:
                rows.append(row)
            else:
                total += each.amounts
        other = reduce(Resources.__sub__, map(view.beyond, names), view.excess)
        return replace(self, quotas=_quotas(view, rows, _Sums(total, view.used, other)), rows=tuple(rows))

    def _shown(self, row: Row, view: LedgerView) -> bool:
        """Whether the view makes the row superfluous."""
        if row.state in {RowState.SEEN, RowState.UNRESERVED}:
            return True  # both are derived from the view anew
        if row.kind == JOB:
            return row.state is RowState.NEW and any(shown.group == row.group for shown in view.called(row.name))
        if row.state is RowState.NEW:
            return not row.is_mark and view.delivered(row.uid)
        at = view.revisions.get(observed_rows.place(row), 0)
        return at >= row.revision and view.revision_of(row.uid) != row.revision

    def _outside(self, view: LedgerView) -> list[ObservedGroup]:
        """Return the groups for which nothing was reserved, oldest first; from now on the view counts what these quotas limit."""
        view.follow(hard_names(self.quotas, self.rows))
        known = {row.uid for row in self.rows}
        marked = [shown for shown in map(view.group, self.unreserved) if shown]
        late = [shown for shown in view.born_after(self.observed) if shown.uid not in known]
        ages = [each for some in (marked, late) for each in sorted(some, key=lambda each: each.age)]
        return [each for each in ages if not each.wanted]


def _row(request: ReservationRequest, scope_sets: Iterable[str], limits: frozenset[str]) -> Row:
    state, revision = (RowState.FROM, versions.number(request.revision)) if request.revision else (RowState.NEW, 0)
    # What changes scopes counts for a different amount in each, so that no facts could say it: the row lists them all.
    amounts, scope_facts = (
        (request.growth(scope_sets), "") if request.changes_scopes else (request.asked, request.scope_facts)
    )
    return Row(
        request.kind, request.group, request.name, request.uid, amounts.only(limits), state, revision, scope_facts
    )


def _apart(
    pending: Iterable[Row], outside: Iterable[ObservedGroup], view: LedgerView, coming: Iterable[str]
) -> set[str]:
    """Return the names whose maxima the totals can't hold: something of them is to come, or isn't reserved."""
    names = {
        row.account
        for row in pending
        if row.counts and (row.state is RowState.NEW or row.kind in MEMBERS or view.usage(row.account))
    }
    names |= {shown.name for shown in outside if view.usage(shown.name)}
    return names.union(coming) - {""}


class _Sums(Struct, frozen=True):
    """What a view shows beside the names that have rows."""

    reserved: Resources
    used: Resources
    other: Resources

    def of(self, uid: str, hard: Resources) -> Totals:
        """Return one quota's part."""
        parts = (self.reserved, self.used, self.other)
        return Totals(uid, hard, *(Resources({name: part[limited(name)] for name in hard}) for part in parts))


def _quotas(view: LedgerView, rows: Iterable[Row], sums: _Sums) -> dict[str, Totals]:
    """Return each quota that is shown or may come, with the smallest of the limits that it may have."""
    shown = {name: quota for name, quota in view.quotas.items() if quota.hard.nano}
    uids = {name: quota.uid for name, quota in shown.items()}
    hard = {name: quota.hard for name, quota in shown.items()}
    for row in rows:
        if row.kind == RESOURCEQUOTA and not row.is_mark:
            uids.setdefault(row.name, row.uid)
            hard[row.name] = hard[row.name].minimum(row.amounts) if row.name in hard else row.amounts
    return {name: sums.of(uids[name], most) for name, most in hard.items()}
