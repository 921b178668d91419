"""The pods that answer to the questions that terms ask, counted by node and kept up to date pod by pod.

Pods with the same namespace and labels share a `_Profile`, which is matched once. A new question is put to all profiles
at the next snapshot, not when it is learned: those whose answer changes are reported, to be classified again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from scheduler.model.affinity import InverseTerm, Labels, PodSet
from scheduler.model.snapshot import PeerCounts
from scheduler.state.label_sets import LabelSets

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label that API servers give each namespace."""

_MOST_ENDED: Final = 256
"""Questions that nobody asks any more, until they are taken out of what each pod answers to."""

_Name = tuple[str, tuple[tuple[str, str], ...]]
_Nodes = dict[str, int]


class _Profile:
    """Pods that no term can tell apart."""

    __slots__ = ("labels", "members", "namespace", "peers")

    def __init__(self, namespace: str, labels: Labels) -> None:
        self.namespace = namespace
        self.labels = labels
        self.peers: frozenset[PodSet] = frozenset()
        self.members: set[str] = set()

    def now_in(self, peers: frozenset[PodSet]) -> set[str]:
        """Take note of the sets they belong to; return the uids of those for whom that is news."""
        changed, self.peers = peers != self.peers, peers
        return self.members if changed else set()


class _LabelIndex:
    """Questions by a label that each pod they are about has. Labels are many, keys that questions go by few."""

    def __init__(self, asked: Iterable[PodSet] = ()) -> None:
        self._by_key: dict[str, dict[str, set[PodSet]]] = {}
        self._others: set[PodSet] = set()
        for peers in asked:
            self.add(peers)

    def add(self, peers: PodSet) -> None:
        for key, value in peers.labels():
            self._by_key.setdefault(key, {}).setdefault(value, set()).add(peers)
        if not peers.labels():
            self._others.add(peers)

    def discard(self, peers: PodSet) -> None:
        self._others.discard(peers)
        for key, value in peers.labels():
            there = self._by_key.get(key, {})
            there.get(value, set()).discard(peers)
            if not there.get(value):
                there.pop(value, None)
            if not there:
                self._by_key.pop(key, None)

    def candidates(self, labels: Labels) -> list[PodSet]:
        found = list(self._others)
        for key, by_value in self._by_key.items():
            value = labels.get(key)
            if value is not None and value in by_value:
                found += by_value[value]
        return found


class PeerIndex:
    """Counts, by node, the pods in each set that a term of some pod names: a query is one such term."""

    def __init__(self) -> None:
        self._queries: Counter[PodSet] = Counter()
        self._inverse_terms: Counter[InverseTerm] = Counter()
        self._index = _LabelIndex()
        self._fresh: set[PodSet] = set()
        self._ended: set[PodSet] = set()
        self._profiles: dict[_Name, _Profile] = {}
        self._empty: set[_Name] = set()
        self._label_sets: LabelSets[_Profile] | None = None
        self._namespaces: dict[str, Labels] = {}
        self._moved: set[str] = set()
        self._present: dict[Hashable, _Nodes] = {}
        self._leaving: dict[Hashable, _Nodes] = {}
        self._dirty: set[Hashable] = set()
        self._shown = PeerCounts()
        self._terms_changed = False

    def namespace(self, name: str, labels: Labels | None) -> None:
        """Learn the labels of a namespace; None: it is gone."""
        old = self._labels_of(name)
        if labels:
            self._namespaces[name] = labels
        else:
            self._namespaces.pop(name, None)
        if self._labels_of(name) != old:
            self._moved.add(name)

    def _labels_of(self, namespace: str) -> Labels:
        return {NAMESPACE_NAME: namespace, **self._namespaces.get(namespace, {})}

    def add_queries(self, peers: Iterable[PodSet], carried: Iterable[InverseTerm] = ()) -> None:
        """Begin to count the pods that a pod's terms name."""
        for each in peers:
            self._queries[each] += 1
            if self._queries[each] == 1:
                self._index.add(each)
                self._fresh.add(each)
                self._ended.discard(each)
        for term in carried:
            self._inverse_terms[term] += 1
            self._terms_changed |= self._inverse_terms[term] == 1

    def remove_queries(self, peers: Iterable[PodSet], carried: Iterable[InverseTerm] = ()) -> None:
        """End the queries of a pod; the last one about a set ends its counting for pods that come later."""
        for each in peers:
            self._queries[each] -= 1
            if not self._queries[each]:
                del self._queries[each]
                self._index.discard(each)
                self._fresh.discard(each)
                self._ended.add(each)
        for term in carried:
            self._inverse_terms[term] -= 1
            if not self._inverse_terms[term]:
                del self._inverse_terms[term]
                self._terms_changed = True

    def join(self, uid: str, namespace: str, labels: Labels | None) -> frozenset[PodSet]:
        """Learn of a pod; return the sets that it belongs to."""
        name = (namespace, tuple(sorted(labels.items())) if labels else ())
        profile = self._profiles.get(name)
        if profile is None:
            profile = self._profiles[name] = _Profile(namespace, labels or {})
            profile.peers = self._match(profile)
            self._label_sets = None
        profile.members.add(uid)
        return profile.peers

    def leave(self, uid: str, namespace: str, labels: Labels | None) -> None:
        """Forget a pod."""
        name = (namespace, tuple(sorted(labels.items())) if labels else ())
        profile = self._profiles.get(name)
        if profile is not None:
            profile.members.discard(uid)
            if not profile.members:
                # A pod that is read anew comes back at once, and isn't matched again for that.
                self._empty.add(name)

    def label_sets(self) -> LabelSets[_Profile]:
        """Return the labels of all pods, by key: how many pods a question is about."""
        if self._label_sets is None:
            self._label_sets = LabelSets(self._profiles.values(), self._labels_of)
        return self._label_sets

    def _match(self, profile: _Profile) -> frozenset[PodSet]:
        return frozenset(self._matching(profile.namespace, profile.labels))

    def _matching(self, namespace: str, labels: Labels) -> list[PodSet]:
        found = self._index.candidates(labels)
        if not found:
            return found
        of_namespace = self._labels_of(namespace)
        return [each for each in found if each.matches(namespace, labels, of_namespace)]

    @property
    def has_queries(self) -> bool:
        """Whether any term names other pods at all."""
        return bool(self._queries)

    @property
    def has_new_queries(self) -> bool:
        """Whether `renew` will match pods with queries that are new to them."""
        return bool(self._fresh or self._moved)

    def queries_match(self, namespace: str, labels: Labels) -> bool:
        """Whether some query matches pods of a namespace with these labels."""
        return bool(self._matching(namespace, labels))

    def renew(self) -> set[str]:
        """Put new questions to all; return the uids of the pods whose answers changed."""
        self._drop_empty()
        changed: set[str] = set()
        for profile, found in self._answers().items():
            changed |= profile.now_in((profile.peers - self._ended).union(found))
        if len(self._ended) > _MOST_ENDED or not self._profiles:
            for profile in self._profiles.values():
                changed |= profile.now_in(profile.peers - self._ended)
            self._ended.clear()
        for profile in self._profiles.values() if self._moved else ():
            if profile.namespace in self._moved:
                changed |= profile.now_in(self._match(profile))
        self._fresh.clear()
        self._moved.clear()
        return changed

    def _drop_empty(self) -> None:
        for name in self._empty:
            if not self._profiles[name].members:
                del self._profiles[name]
                self._label_sets = None
        self._empty.clear()

    def _answers(self) -> dict[_Profile, list[PodSet]]:
        """Return the new questions that are about each label set."""
        found: dict[_Profile, list[PodSet]] = {}
        for peers in self._fresh:
            for profile in self.label_sets().chosen(peers):
                found.setdefault(profile, []).append(peers)
        return found

    def count(self, keys: Iterable[Hashable], node: str, sign: int, *, leaving: bool) -> None:
        """Count a pod on a node, or no longer."""
        for key in keys:
            for tally in (self._present, self._leaving) if leaving else (self._present,):
                nodes = tally.setdefault(key, {})
                nodes[node] = nodes.get(node, 0) + sign
                if not nodes[node]:
                    del nodes[node]
                if not nodes:
                    del tally[key]
            self._dirty.add(key)

    def counts(self) -> PeerCounts:
        """Return the present state; shares with the last one what didn't change."""
        if self._dirty or self._terms_changed:
            self._shown = PeerCounts(
                present=self._renewed(self._shown.present, self._present),
                leaving=self._renewed(self._shown.leaving, self._leaving),
                inverse_terms=self._by_peers() if self._terms_changed else self._shown.inverse_terms,
            )
            self._dirty.clear()
            self._terms_changed = False
        return self._shown

    def _renewed(
        self, shown: Mapping[Hashable, Mapping[str, int]], tally: Mapping[Hashable, _Nodes]
    ) -> dict[Hashable, Mapping[str, int]]:
        renewed = dict(shown)
        for key in self._dirty:
            if key in tally:
                renewed[key] = dict(tally[key])
            else:
                renewed.pop(key, None)
        return renewed

    def _by_peers(self) -> dict[PodSet, tuple[InverseTerm, ...]]:
        found: dict[PodSet, list[InverseTerm]] = {}
        for each in self._inverse_terms:
            found.setdefault(each.term.peers, []).append(each)
        return {peers: tuple(sorted(each, key=_order)) for peers, each in found.items()}


def _order(carried: InverseTerm) -> tuple[str, str, int]:
    return (carried.role.value, carried.term.key, carried.term.weight)
