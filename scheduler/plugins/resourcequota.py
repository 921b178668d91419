"""resourcequota: groups that reserve late become Inqueue only where the quota of their namespace has room for them."""

from __future__ import annotations

from typing import Any

from muster.ledger import wording
from muster.ledger.headroom import Headroom
from muster.model.amounts import Resources
from scheduler.engine.plugin import Plugin, Vote
from scheduler.engine.states import JobState
from scheduler.engine.view import SessionView
from scheduler.model.obstacle import Obstacle, Reason


class ResourceQuotaPlugin(Plugin):
    """Asks the ledger, as far as this process knows it, first come first served.

    Groups that reserved at their creation are admitted without a question. The ledger itself has the last word: it is
    asked when the status is written, and a group that it refuses stays Pending.
    """

    name = "resourcequota"

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        self._left: dict[str, Headroom] = {}

    def enqueueable(self, job: JobState) -> Vote:
        """Reject what the quotas of the namespace have no room for."""
        left = self._headroom(job)
        lacks = left.lacks(*_asked(job)) if left is not None else ()
        return Obstacle(Reason.NOT_ENOUGH_QUOTA, wording.postponed(lacks)) if lacks else None

    def enqueued(self, job: JobState) -> None:
        """Count a group that is admitted."""
        left = self._headroom(job)
        if left is not None:
            left.take(*_asked(job))

    def _headroom(self, job: JobState) -> Headroom | None:
        namespace = job.info.key.namespace
        table = self.session.snapshot.ledgers.get(namespace) if job.info.about_to_reserve else None
        if table is None:
            return None
        if namespace not in self._left:
            self._left[namespace] = Headroom(table)
        return self._left[namespace]


def _asked(job: JobState) -> tuple[str, str, str, Resources, str]:
    key = job.info.key
    return key.group, key.name, job.info.uid, job.info.reservation, job.info.scope_facts
