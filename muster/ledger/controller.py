"""The leader's part of the ledgers.

It makes one where a quota was noticed late, seeds, folds when nobody else writes, and ends the reservations whose
objects were never stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from msgspec.structs import replace

from muster.kube import errors
from muster.kube.backoff import Backoff
from muster.kube.cache import ObjectCache
from muster.kube.client import Client
from muster.kube.clock import Clock
from muster.kube.subscription import reason_of
from muster.kube.timeline import WentBackError
from muster.ledger import closing, seeding
from muster.ledger.metrics import LedgerMetrics
from muster.ledger.observer import Observer
from muster.ledger.reservations import JOB
from muster.ledger.rows import MalformedLedgerError, Row, RowState
from muster.ledger.store import Store, StoredLedger
from muster.ledger.table import Table
from muster.ledger.unreserved import UnreservedGroups
from muster.ledger.view import covers, follows_more
from muster.ledger.windows import LABELLING, QuotaWindows, Window
from muster.model.kinds import JOBS
from muster.model.objects import Job, QuotaLedger

log = logging.getLogger(__name__)

DEADLINE: Final = 45.0
"""Seconds after which an API server, which gives a request 34, can't store the object of a row."""

QUIET: Final = 0.5
"""Seconds without a change after which the leader folds a ledger: whoever writes it folds anyway."""

_MAX_DELAY: Final = 5.0  # seconds after which it looks, quiet or not


class LedgerController:
    """Keeps the ledgers of all namespaces in order. One at a time: whoever holds the Lease.

    Args:
        client: over a fenced transport.
        ledgers: the cache of all QuotaLedgers.
        observer: fed by caches of all groups and quotas.
        waits: whether a new ledger of a namespace is seeded only after `DEADLINE`, so that nothing is late.
        windows: of the namespaces that are labelled for the webhooks.
    """

    def __init__(
        self,
        client: Client,
        ledgers: ObjectCache[QuotaLedger],
        observer: Observer,
        clock: Clock,
        metrics: LedgerMetrics,
        waits: Callable[[str], bool] = lambda _: False,
        windows: QuotaWindows | None = None,
    ) -> None:
        self._client = client
        self._store = Store(client, ledgers, observer.timeline)
        self._observer = observer
        self._clock = clock
        self._metrics = metrics
        # By this process' own monotonic clock, from when it first saw the row: nobody else's clock is believed.
        self._first_seen: dict[str, dict[Row, float]] = {}
        self._waits = waits
        self._unseeded: dict[str, float] = {}
        self._unreadable: dict[str, float] = {}
        self._behind: dict[str, float] = {}
        self._restored: set[str] = set()
        self._due: dict[str, float] = {}
        self._latest: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._backoffs: dict[str, Backoff] = {}
        self._trouble: dict[str, str] = {}
        self._overcommitted: set[str] = set()
        self._windows = windows
        self.unreserved_groups = UnreservedGroups(self._store, ledgers, observer, windows)
        observer.subscribe(self._touch)
        if windows is not None:
            windows.subscribe(self._touch)
        observer.timeline.subscribe(self._begin_anew)
        observer.timeline.subscribe(metrics.restores.inc)
        ledgers.subscribe(lambda change: self._touch((change.new or change.old or QuotaLedger()).namespace))

    async def run(self) -> None:
        """Keep the ledgers, until cancelled."""
        self._first_seen.clear()
        self._unseeded.clear()
        self._unreadable.clear()
        for namespace in self._store.namespaces().union(self._observer.namespaces()):
            self._due[namespace] = 0.0
        try:
            while True:
                await self._wait()
                now = asyncio.get_running_loop().time()
                for namespace in [namespace for namespace, when in self._due.items() if when <= now]:
                    del self._due[namespace]
                    self._latest.pop(namespace, None)
                    await self._tend(namespace)
        finally:
            self._metrics.overcommitted.set(0)
            self._metrics.quotas.clear()

    def table(self, namespace: str, names: Collection[str]) -> Table | None:
        """Return the table as far as it is known, with the groups of these names apart; None without a ledger."""
        view = self._observer.view(namespace)
        try:
            entry = self._store.known(namespace)
        except MalformedLedgerError:
            return None  # `run` reports it
        try:
            return entry.table.fold(view, coming={name for name in names if view.usage(name)}) if entry else None
        except Exception:
            if namespace not in self._trouble:
                log.exception("the quota ledger of namespace %s can't be used: an error in Muster", namespace)
                self._trouble[namespace] = ""
            return None

    def _touch(self, namespace: str) -> None:
        """Look at a namespace once it has been quiet; at once where it has no ledger yet."""
        now = asyncio.get_running_loop().time()
        quiet = QUIET if self._store.has(namespace) else 0.0
        self._due[namespace] = min(now + quiet, self._latest.setdefault(namespace, now + _MAX_DELAY))
        self._woken.set()

    def _begin_anew(self) -> None:
        """After a restore: seed each ledger again, and start the clocks of its rows again."""
        now = asyncio.get_running_loop().time()
        self._first_seen.clear()
        self._restored |= self._store.namespaces().union(self._observer.namespaces())
        self._due.update(dict.fromkeys(self._restored, now))
        self._woken.set()

    async def _wait(self) -> None:
        """Wait until a namespace is due, or one comes to be due earlier."""
        loop = asyncio.get_running_loop()
        while min(self._due.values(), default=float("inf")) > loop.time():
            self._woken.clear()
            try:
                async with asyncio.timeout_at(min(self._due.values(), default=None)):
                    await self._woken.wait()
            except TimeoutError:
                return

    async def _tend(self, namespace: str) -> None:
        """See to one namespace; what fails is tried again, ever less often."""
        loop = asyncio.get_running_loop()
        try:
            await self._improve(namespace)
        except errors.FenceLostError:
            log.info("the ledger of %s is left to the next leader", namespace)
        except errors.ConflictError:
            self._touch(namespace)  # somebody else writes, and folds
        except WentBackError:
            self._due[namespace] = loop.time() + QUIET
        except MalformedLedgerError as error:
            self._report(namespace, str(error))
            self._due[namespace] = self._unreadable.setdefault(namespace, loop.time()) + DEADLINE
        except errors.KubeError as error:
            if errors.namespace_ends(error):
                self._forget(namespace)  # what it holds goes with it
                return
            self._report(namespace, str(error))
            self._retry(namespace)
        except Exception as error:
            if self._trouble.get(namespace) != (text := reason_of(error)):
                log.exception("the quota ledger of namespace %s is left as it is: an error in Muster", namespace)
                self._trouble[namespace] = text
            self._retry(namespace)
        else:
            self._backoffs.pop(namespace, None)
            self._unreadable.pop(namespace, None)
            self._trouble.pop(namespace, None)

    def _retry(self, namespace: str) -> None:
        backoff = self._backoffs.setdefault(namespace, Backoff(0.8, 30.0))
        self._due[namespace] = asyncio.get_running_loop().time() + backoff.pause()

    async def _improve(self, namespace: str) -> None:
        """Do the one thing that the namespace's ledger needs most."""
        if not self._observer.settled():
            raise WentBackError("the cluster was restored from a backup, and is being read again")
        entry = await self._entry(namespace)
        if entry is None:
            self._forget(namespace)
            if self._window(namespace) is Window.OPEN and self._windows is not None:
                await self._windows.close(namespace)
            return
        healing = self._is_unreadable_for_good(namespace)
        if not (healing or entry.table.seeded_at) and (wait := self._wait_to_seed(namespace)):
            self._due[namespace] = asyncio.get_running_loop().time() + wait
            return
        if not entry.table.seeded_at or self._observer.lacks(entry.table.observed):
            entry = await self._seed(namespace, entry)
        else:
            entry = await self._fold(namespace, entry)
        if self._windows is not None and self._window(namespace) is not Window.CLOSED:
            entry = await self._close_window(namespace, entry, self._windows)
        self._note(namespace, entry.table)
        self._look_again(namespace)

    def _window(self, namespace: str) -> Window:
        return self._windows.window(namespace) if self._windows is not None else Window.CLOSED

    async def _close_window(self, namespace: str, entry: StoredLedger, windows: QuotaWindows) -> StoredLedger:
        """Hold back the groups that no longer fit beside what slipped in, once every API server has seen the label."""
        loop = asyncio.get_running_loop()
        if windows.window(namespace) is Window.UNLABELLED:
            if windows.waiting(namespace) and windows.holds(namespace):
                self._due[namespace] = loop.time() + LABELLING - windows.unlabelled_for(namespace)
            self.unreserved_groups.touch(namespace)
            return entry
        self._due[namespace] = loop.time() + (windows.grace(namespace) or QUIET)
        if windows.grace(namespace):
            return entry
        # In this order: what the ledger says now, then what exists.
        entry = await self._store.read(namespace) or entry
        view = await self._observer.quorum(self._client, namespace, entry.table.observed)
        table = closing.hold_back(entry.table, view, windows.started(namespace))
        if table is None:
            return entry
        if _differs(entry.table, table):
            entry = await self._store.write(entry, table)
        if closing.settled(table):
            await windows.close(namespace)
            self._due.pop(namespace, None)
        return entry

    async def _entry(self, namespace: str) -> StoredLedger | None:
        """Return the ledger to be seen to; None where there is none and no quota that needs one."""
        if self._is_unreadable_for_good(namespace):
            return await self._store.read_unparsed(namespace)
        if namespace in self._restored and (entry := await self._store.read(namespace)) is not None:
            return await self._after_restore(namespace, entry)
        entry = self._store.known(namespace)
        if entry is None and any(quota.hard.nano for quota in self._observer.view(namespace).quotas.values()):
            return await self._store.read(namespace) or await self._store.create(namespace)
        return entry

    def _is_unreadable_for_good(self, namespace: str) -> bool:
        """Whether a ledger couldn't be read for so long that all that it may have granted is stored, or never will be."""
        since = self._unreadable.get(namespace)
        return since is not None and asyncio.get_running_loop().time() - since >= DEADLINE

    async def _after_restore(self, namespace: str, entry: StoredLedger) -> StoredLedger:
        """Take the totals out of a ledger: where seeding it has to wait, nobody is to rely on them."""
        table = seeding.unseeded(entry.table)
        if not self._waits(namespace):
            return replace(entry, table=table)
        entry = await self._store.write(entry, table)
        self._restored.discard(namespace)
        return entry

    async def _seed(self, namespace: str, entry: StoredLedger) -> StoredLedger:
        view = await self._observer.quorum(self._client, namespace, {})
        written = await self._store.write(entry, entry.table.seed(view, self._clock.now()))
        self._restored.discard(namespace)
        for clocks in (self._unseeded, self._unreadable):
            clocks.pop(namespace, None)
        return written

    def _wait_to_seed(self, namespace: str) -> float:
        """Return the seconds for which a new ledger must not be seeded yet, by this process' own first look at it."""
        if not self._waits(namespace):
            return 0.0
        now = asyncio.get_running_loop().time()
        return max(0.0, self._unseeded.setdefault(namespace, now) + DEADLINE - now)

    async def _fold(self, namespace: str, entry: StoredLedger) -> StoredLedger:
        self._note(namespace, entry.table)
        expired = await self._expired(namespace)
        more = follows_more(self._observer.view(namespace), entry.table.observed)
        if expired or more or self._is_left_behind(namespace, entry.table):
            # In this order: what the ledger says now, then what exists; both after the deadlines have passed.
            entry = await self._store.read(namespace) or entry
            view = await self._observer.quorum(self._client, namespace, entry.table.observed)
            if seeding.is_foreign(entry.table, view):
                log.warning("the totals of the quota ledger of %s are of a state that was never there", namespace)
                return await self._store.write(entry, seeding.unseeded(entry.table))
            table = entry.table.fold(view, expired=expired, waits=self._waits(namespace))
        elif self._observer.sure():
            table = entry.table.fold(self._observer.view(namespace), waits=self._waits(namespace))
        else:
            self._due[namespace] = asyncio.get_running_loop().time() + _MAX_DELAY
            return entry
        # A late group may fit without a total's changing; the scheduler leaves it alone until it is observed.
        outside = entry.table.outside(self._observer.view(namespace))
        late = any(not lacks and not shown.wanted for shown, lacks in outside.items())
        if not late and not _differs(entry.table, table):
            return entry
        written = await self._store.write(entry, table)
        self._metrics.expiries.inc(len(expired.intersection(entry.table.rows)))
        return written

    def _is_left_behind(self, namespace: str, table: Table) -> bool:
        """Whether the caches have been behind the ledger for so long that its totals may be of a state never there."""
        if covers(self._observer.view(namespace), table.observed):
            self._behind.pop(namespace, None)
            return False
        now = asyncio.get_running_loop().time()
        due = self._behind.setdefault(namespace, now) + DEADLINE
        if now >= due:
            del self._behind[namespace]
            return True
        self._due[namespace] = min(due, self._due.get(namespace, due))
        return False

    async def _expired(self, namespace: str) -> frozenset[Row]:
        """Return the rows whose requests are dead. A Job that lives keeps its row until its group is there."""
        now = asyncio.get_running_loop().time()
        seen = self._first_seen[namespace]
        dead = {row for row, since in seen.items() if now - since >= DEADLINE}
        jobs = {row for row in dead if row.kind == JOB and row.state is RowState.NEW}
        if jobs:
            listed = (await self._client.list(JOBS, namespace)).items
            living = {job.metadata.uid for job in listed if not _finished(job)}
            waiting = {row for row in jobs if row.uid in living}
            seen.update(dict.fromkeys(waiting, now))
            dead -= waiting
        return frozenset(dead)

    def _note(self, namespace: str, table: Table) -> None:
        """Start the clocks of new rows, and count what is overcommitted."""
        now = asyncio.get_running_loop().time()
        known = self._first_seen.get(namespace, {})
        self._first_seen[namespace] = {row: known.get(row, now) for row in table.rows if row.pending}
        per_resource = table.per_resource()
        over = any(each.short > 0 for each in per_resource)
        (self._overcommitted.add if over else self._overcommitted.discard)(namespace)
        self._metrics.quotas.stand(namespace, per_resource)
        self._metrics.overcommitted.set(len(self._overcommitted))

    def _look_again(self, namespace: str) -> None:
        """See to it that the next row's deadline is noticed, should nothing happen before."""
        first = min(self._first_seen[namespace].values(), default=None)
        if first is not None:
            when = max(first + DEADLINE, asyncio.get_running_loop().time() + QUIET)
            self._due[namespace] = min(self._due.get(namespace, when), when)

    def _forget(self, namespace: str) -> None:
        for known in (self._unseeded, self._unreadable, self._behind):
            known.pop(namespace, None)
        self._first_seen.pop(namespace, None)
        self._overcommitted.discard(namespace)
        self._metrics.quotas.forget(namespace)
        self._metrics.overcommitted.set(len(self._overcommitted))

    def _report(self, namespace: str, text: str) -> None:
        """Log what is wrong, once for each thing that is."""
        if self._trouble.get(namespace) != text:
            log.warning("the quota ledger of namespace %s is left as it is: %s", namespace, text)
            self._trouble[namespace] = text


def _differs(before: Table, after: Table) -> bool:
    """Whether a fold is worth a write: newer revisions alone are not."""
    return before.quotas != after.quotas or set(before.rows) != set(after.rows)


def _finished(job: Job) -> bool:
    return any(each.type in {"Complete", "Failed"} and each.status == "True" for each in job.status.conditions or ())
