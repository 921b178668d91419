"""Groups that exist without a reservation, each with the reason: the scheduler leaves their pods alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from muster.kube.cache import ObjectCache
from muster.ledger import wording
from muster.ledger.observer import Observer
from muster.ledger.rows import Key, MalformedLedgerError
from muster.ledger.store import Store
from muster.ledger.table import Table
from muster.ledger.view import LedgerView
from muster.ledger.windows import QuotaWindows
from muster.model.objects import QuotaLedger

log = logging.getLogger(__name__)


def reasons(table: Table, view: LedgerView) -> dict[Key, str]:
    """Return the groups of a namespace that hold nothing, and why."""
    outside = table.outside(view)
    return {(shown.group, shown.name): wording.unreserved(shortages) for shown, shortages in outside.items()}


class UnreservedGroups:
    """Follows the ledgers of all namespaces as this process' caches show them.

    A group that its own watch has shown and the ledger's hasn't yet is one too, for as long as that takes: its pods
    wait some milliseconds rather than run on what may belong to others. So is a group that hasn't started while the
    window of its namespace is open (`muster.ledger.windows`).
    """

    def __init__(
        self, store: Store, ledgers: ObjectCache[QuotaLedger], observer: Observer, windows: QuotaWindows | None
    ) -> None:
        self._store = store
        self._observer = observer
        self._windows = windows
        self._changed: set[str] = store.namespaces()
        observer.subscribe(self.touch)
        if windows is not None:
            windows.subscribe(self.touch)
        ledgers.subscribe(lambda change: self.touch((change.new or change.old or QuotaLedger()).namespace))

    def news(self) -> Iterable[tuple[str, Mapping[Key, str]]]:
        """Return each namespace that changed since the last call, and its groups that hold nothing, each with the reason.

        A ledger that can't be trusted changes nothing: what was known of its namespace stays.
        """
        changed, self._changed = self._changed, set()
        for namespace in sorted(changed):
            try:
                found = self._reasons(namespace)
            except MalformedLedgerError:
                continue  # the controller reports it
            except Exception:
                # Other namespaces aren't to wait for it; its next change is another try.
                log.exception("what is unreserved in namespace %s stays as it was: an error in Muster", namespace)
                continue
            yield namespace, found

    def _reasons(self, namespace: str) -> dict[Key, str]:
        entry, view = self._store.known(namespace), self._observer.view(namespace)
        return self._held(namespace, view) | (reasons(entry.table, view) if entry is not None else {})

    def _held(self, namespace: str, view: LedgerView) -> dict[Key, str]:
        """Return the groups that wait until nobody can slip in beside them."""
        limited = any(quota.hard.nano for quota in view.quotas.values())
        if self._windows is None or not limited or not (waiting := self._windows.waiting(namespace)):
            return {}
        return dict.fromkeys(waiting, wording.unreserved(())) if self._windows.holds(namespace) else {}

    def touch(self, namespace: str) -> None:
        """Look at a namespace again."""
        self._changed.add(namespace)
