"""Who answers to which question, after any history of pods, namespaces and budgets: as a count from nothing says."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.model import kinds, names
from scheduler.model import affinity
from scheduler.model.affinity import CountingRule
from scheduler.state.cluster import Cluster
from scheduler.state.peer_index import NAMESPACE_NAME

PODS = st.sampled_from(["p0", "p1", "p2", "p3", "p4"])
NAMESPACES = ("ns", "other")
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from("xy"))
SELECTORS = st.one_of(
    st.just({}),
    LABELS.map(lambda labels: {"matchLabels": labels}),
    st.lists(
        st.one_of(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(["app", "tier"]),
                    "operator": st.sampled_from(["In", "NotIn"]),
                    "values": st.lists(st.sampled_from("xyz"), min_size=1, max_size=2),
                }
            ),
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(["app", "tier"]),
                    "operator": st.sampled_from(["Exists", "DoesNotExist", "Gt"]),
                }
            ),
        ),
        min_size=1,
        max_size=2,
    ).map(lambda found: {"matchExpressions": found}),
)
TERMS = st.fixed_dictionaries(
    {"labelSelector": SELECTORS, "topologyKey": st.just("zone")},
    optional={"namespaceSelector": st.sampled_from([{}, {"matchLabels": {"team": "blue"}}])},
)
AFFINITIES = st.fixed_dictionaries(
    {},
    optional={
        kind: st.lists(TERMS, min_size=1, max_size=2).map(
            lambda terms: {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        )
        for kind in ("podAffinity", "podAntiAffinity")
    },
)
SPREADS = SELECTORS.map(
    lambda selector: {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
)


class Histories(RuleBasedStateMachine):
    """Pods come, change, move and go."""

    @initialize()
    def begin(self):
        self.cluster = Cluster({names.SCHEDULER_NAME})
        self.pods = {}
        self.namespaces = {}
        self.budgets = {}
        for name in ("a", "b"):
            body = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64", "pods": "99"}}}
            self.cluster.node(msgspec.convert(body, kinds.NODES.struct))

    def _put(self, name):
        self.cluster.pod(self._pod(name))

    def _pod(self, name):
        pod = self.pods[name]
        meta = {"name": name, "namespace": pod["namespace"], "uid": name, "labels": pod["labels"]}
        if pod["leaving"]:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        spec = {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeName": pod["node"],
            "affinity": pod["affinity"],
            "topologySpreadConstraints": pod["spreads"],
            "containers": [{}],
        }
        body = {"metadata": meta, "spec": spec, "status": {"phase": pod["phase"]}}
        return msgspec.convert(body, kinds.PODS.struct)

    @rule(
        name=PODS, namespace=st.sampled_from(NAMESPACES), labels=LABELS, affinity=AFFINITIES, spread=st.none() | SPREADS
    )
    def create(self, name, namespace, labels, affinity, spread):
        if name in self.pods:
            return
        self.pods[name] = {
            "namespace": namespace,
            "labels": labels,
            "affinity": affinity,
            "spreads": [spread] if spread else [],
            "node": "",
            "phase": "Pending",
            "leaving": False,
        }
        self._put(name)

    @rule(crowd=st.dictionaries(PODS, st.tuples(st.sampled_from(NAMESPACES), LABELS, st.sampled_from("ab"))))
    def crowd(self, crowd):
        new = {name: pod for name, pod in crowd.items() if name not in self.pods}
        for name, (namespace, labels, node) in new.items():
            placed = {"affinity": {}, "spreads": [], "node": node, "phase": "Running", "leaving": False}
            self.pods[name] = {"namespace": namespace, "labels": labels, **placed}
        self.cluster.aggregate(self.cluster.by_group([self._pod(name) for name in new]))

    @rule(name=PODS, node=st.sampled_from("ab"))
    def place(self, name, node):
        if name in self.pods and not self.pods[name]["node"]:
            self.pods[name] |= {"node": node, "phase": "Running"}
            self._put(name)

    @rule(name=PODS, labels=LABELS)
    def relabel(self, name, labels):
        if name in self.pods:
            self.pods[name]["labels"] = labels
            self._put(name)

    @rule(name=PODS)
    def leave(self, name):
        if name in self.pods:
            self.pods[name]["leaving"] = True
            self._put(name)

    @rule(name=PODS)
    def end(self, name):
        if name in self.pods and self.pods[name]["node"]:
            self.pods[name]["phase"] = "Succeeded"
            self._put(name)

    @rule(name=PODS)
    def go(self, name):
        if self.pods.pop(name, None) is not None:
            body = {"metadata": {"name": name, "uid": name}}
            self.cluster.pod(msgspec.convert(body, kinds.PODS.struct), gone=True)

    @rule(name=st.sampled_from(NAMESPACES), labels=st.sampled_from([{}, {"team": "blue"}]))
    def namespace(self, name, labels):
        self.namespaces[name] = labels
        self.cluster.namespace(msgspec.convert({"metadata": {"name": name, "labels": labels}}, kinds.NAMESPACES.struct))

    @rule(namespace=st.sampled_from(NAMESPACES), selector=SELECTORS, gone=st.booleans())
    def budget(self, namespace, selector, gone):
        body = {"metadata": {"name": "b", "namespace": namespace}, "spec": {"selector": selector}}
        self.cluster.budget(msgspec.convert(body, kinds.DISRUPTIONBUDGETS.struct), gone=gone)

    @rule()
    def look(self):
        self.cluster.snapshot()

    @invariant()
    def counts_are_those_of_a_count_from_nothing(self):
        if not hasattr(self, "cluster"):
            return
        snapshot = self.cluster.snapshot()
        self.cluster.validate()
        asked = {budget.peers for budget in snapshot.budgets}
        living = {name: pod for name, pod in self.pods.items() if pod["phase"] != "Succeeded"}
        for pod in living.values():
            spec = msgspec.convert(
                {"affinity": pod["affinity"], "topologySpreadConstraints": pod["spreads"]}, _spec_type()
            )
            asked |= affinity.of_pod(pod["namespace"], pod["labels"], spec).peers
        for peers in asked:
            there, going = Counter(), Counter()
            for pod in living.values():
                labels = {NAMESPACE_NAME: pod["namespace"], **self.namespaces.get(pod["namespace"], {})}
                if pod["node"] and peers.matches(pod["namespace"], pod["labels"], labels):
                    counts = not (pod["leaving"] and peers.purpose is CountingRule.SPREAD)
                    there[pod["node"]] += counts
                    going[pod["node"]] += counts and pod["leaving"]
            assert snapshot.peer_counts.present.get(peers, {}) == {
                name: count for name, count in there.items() if count
            }
            assert snapshot.peer_counts.leaving.get(peers, {}) == {
                name: count for name, count in going.items() if count
            }


def _spec_type():
    return type(kinds.PODS.struct().spec)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
