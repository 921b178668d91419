"""Never evict what the cluster itself needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.engine.plugin import Plugin
from scheduler.model.snapshot import Task

_SYSTEM_NAMESPACE: Final = "kube-system"
_CRITICAL: Final = 2 * 10**9
"""The priority of system-cluster-critical; system-node-critical is above it, and users' classes can't be."""


class Conformance(Plugin):
    """Spares critical pods, and those in kube-system."""

    name = "conformance"
    guards = True

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose all but the critical ones."""
        del preemptor
        return [task for task in candidates if task.namespace != _SYSTEM_NAMESPACE and task.priority < _CRITICAL]

    def reclaimable(self, preemptor: Task, candidates: Sequence[Task]) -> Sequence[Task]:
        """Choose all but the critical ones."""
        return self.preemptable(preemptor, candidates)
