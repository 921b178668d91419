"""Evict nobody whom a PodDisruptionBudget protects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.engine.plugin import Plugin
from scheduler.engine.view import SessionView
from scheduler.model.affinity import PodSet
from scheduler.model.snapshot import Task


class Pdb(Plugin):
    """Lets as many of a budget's pods go as it allows; a pod of several budgets needs the leave of each.

    The API server has the last word: it refuses evictions beyond a budget whether or not this plugin is on. With it
    they aren't even planned, and others are chosen at once.
    """

    name = "pdb"
    guards = True

    def __init__(self, arguments: Any, session: SessionView) -> None:
        super().__init__(arguments, session)
        self._budgets = session.snapshot.budgets
        self._before: dict[PodSet, int] = {}

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task] | None:
        """Choose those whom their budgets let go together."""
        del preemptor
        if not self._budgets:
            return None
        left = [(budget.peers, budget.allowed - self._gone(budget.peers)) for budget in self._budgets]
        chosen = []
        for task in candidates:
            mine = [place for place, (peers, _) in enumerate(left) if peers in task.task_class.constraints.peers]
            if all(left[place][1] > 0 for place in mine):
                for place in mine:
                    left[place] = (left[place][0], left[place][1] - 1)
                chosen.append(task)
        return chosen

    def reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task] | None:
        """Choose those whom their budgets let go together."""
        return self.preemptable(preemptor, candidates)

    def _gone(self, peers: PodSet) -> int:
        """Count whom this cycle has evicted already; before it the budget's own status counts."""
        stay = int(self.session.topology.of(peers).later.sum())
        return self._before.setdefault(peers, self._at_start(peers)) - stay

    def _at_start(self, peers: PodSet) -> int:
        peer_counts = self.session.snapshot.peer_counts
        present, leaving = peer_counts.present.get(peers, {}), peer_counts.leaving.get(peers, {})
        rows = self.session.snapshot.table.row
        return sum(count - leaving.get(name, 0) for name, count in present.items() if name in rows)
