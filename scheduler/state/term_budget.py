"""The budget of a namespace's terms about other pods: comparisons with other pods' labels, which cost everybody time.

A hundred terms that exclude a label are compared with every pod of the cluster that has labels of its own: seconds, in which no cycle
is decided. So the pods of a namespace share a budget. Terms that several pods have count once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from scheduler.model.affinity import PodSet, PodTerms
from scheduler.state.label_sets import LabelSets
from scheduler.state.peer_index import PeerIndex

MAX_COMPARISONS: Final = 500_000
"""Of the terms of a namespace's pods: 100 of them that name no label's value, where 5,000 pods have labels of their own."""
BOUND_FACTOR: Final = 2
"""For pods on nodes the bound is higher: what was placed within it counts as well for a leader that meets it in another order."""
TOO_COSTLY: Final = (
    f"terms about other pods that, with those of its namespace, are compared with other pods more than {MAX_COMPARISONS:,} times"
    " (write fewer terms, or terms that name the value of a label)"
)
"""What follows "it uses" for a pod whose terms are beyond the budget."""


class _Wanted(NamedTuple):
    namespace: str
    peers: frozenset[PodSet]
    limit: int


class _Held:
    """The terms of a namespace: how many pods have each, and what each costs in a cluster of ``size`` sets of labels."""

    __slots__ = ("costs", "counts", "size", "total")

    def __init__(self) -> None:
        self.counts: dict[PodSet, int] = {}
        self.costs: dict[PodSet, int] = {}
        self.total = self.size = 0

    def fits(self, peers: frozenset[PodSet], labels: LabelSets[Any], unseen: int, limit: int) -> bool:
        """Whether others may come to them; then their costs count. All are counted anew when the cluster is another by a quarter."""
        size = len(labels) + unseen
        if abs(size - self.size) * 4 > self.size:
            self.size = size
            self.costs = {each: labels.comparisons(each, unseen) for each in self.costs}
            self.total = sum(self.costs.values())
        more = {each: labels.comparisons(each, unseen) for each in peers if each not in self.costs}
        added = sum(more.values())
        if self.total + added > limit:
            return False
        self.costs |= more
        self.total += added
        return True

    def end(self, peers: PodSet) -> None:
        """Forget a term that no pod has any more."""
        del self.counts[peers]
        self.total -= self.costs.pop(peers, 0)


class TermBudget:
    """Decides whose terms are evaluated, and has them counted. What is new to a namespace is decided on once for each snapshot."""

    def __init__(self, peers: PeerIndex) -> None:
        self._peers = peers
        self._held: dict[str, _Held] = {}
        self._waiting: dict[str, _Wanted] = {}
        self._refused: dict[str, _Wanted] = {}
        self._admitted: set[str] = set()
        self._released: set[str] = set()

    def take(self, uid: str, namespace: str, terms: PodTerms, *, bound: bool) -> bool:
        """Evaluate a pod's terms, if it may have them evaluated; where that is open it is not before `decide`."""
        held = self._held.get(namespace)
        if terms and uid not in self._admitted and (held is None or not terms.peers <= held.counts.keys()):
            request = _Wanted(namespace, terms.peers, MAX_COMPARISONS * (BOUND_FACTOR if bound else 1))
            if self._refused.get(uid) != request:
                self._refused.pop(uid, None)
                self._waiting[uid] = request
            return False
        self._drop(uid)
        self.hold(namespace, terms)
        return True

    def hold(self, namespace: str, terms: PodTerms) -> None:
        """Count terms that are evaluated once more."""
        if not terms:
            return
        counts = self._held.setdefault(namespace, _Held()).counts
        for each in terms.peers:
            counts[each] = counts.get(each, 0) + 1
        self._peers.add_queries(terms.peers, terms.inverse_terms)

    def release(self, namespace: str, terms: PodTerms) -> None:
        """Count them once less."""
        if not terms:
            return
        held = self._held[namespace]
        for each in terms.peers:
            held.counts[each] -= 1
            if not held.counts[each]:
                held.end(each)
                self._released.add(namespace)
        if not held.counts:
            del self._held[namespace]
        self._peers.remove_queries(terms.peers, terms.inverse_terms)

    def forget(self, uid: str) -> None:
        """Learn that a pod is gone."""
        self._drop(uid)

    def _drop(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._refused.pop(uid, None)
        self._admitted.discard(uid)

    def decide(self, unseen: Callable[[], int]) -> list[str]:
        """Decide on what is new, and again on what was refused where something was given back; return the uids admitted.

        ``unseen`` returns how many sets of labels the pods have that nobody has looked at.
        """
        for uid in [uid for uid, each in self._refused.items() if each.namespace in self._released]:
            self._waiting[uid] = self._refused.pop(uid)
        self._released.clear()
        if not self._waiting:
            return []
        asked, self._waiting = sorted(self._waiting.items(), key=lambda item: -item[1].limit), {}
        more = unseen()
        admitted = [uid for uid, request in asked if self._admit(uid, request, more)]
        self._admitted.update(admitted)
        return admitted

    def _admit(self, uid: str, request: _Wanted, unseen: int) -> bool:
        held = self._held.get(request.namespace) or _Held()
        fits = held.fits(request.peers, self._peers.label_sets(), unseen, request.limit)
        if fits:
            self._held[request.namespace] = held
        else:
            self._refused[uid] = request
        return fits
