"""Affinity, anti-affinity and spread against a plain reading of kube-scheduler's rules: pod by pod, node by node."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model import labels
from muster.model.objects import LabelSelector
from scheduler.configuration import config
from scheduler.engine.session import Session
from scheduler.engine.session_cache import SessionCache

KEYS = ("zone", "rack")
POLICY = config.parse("actions: allocate\ntiers: [{plugins: [{name: predicates}]}]")
NAMESPACES = {"ns": {"team": "red"}, "other": {"team": "blue"}}

APPS = st.sampled_from(["x", "y"])
SELECTORS = st.one_of(
    APPS.map(lambda app: {"matchLabels": {"app": app}}),
    st.just({}),
    st.just({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
    st.just({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}),
)
TERMS = st.fixed_dictionaries(
    {"labelSelector": SELECTORS, "topologyKey": st.sampled_from(KEYS)},
    optional={
        "namespaces": st.sampled_from([["other"], ["ns", "other"]]),
        "namespaceSelector": st.sampled_from([{}, {"matchLabels": {"team": "blue"}}]),
    },
)
SPREADS = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 2),
        "topologyKey": st.sampled_from(KEYS),
        "whenUnsatisfiable": st.just("DoNotSchedule"),
        "labelSelector": SELECTORS,
    },
    optional={"minDomains": st.integers(1, 3), "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"])},
)


@st.composite
def pods(draw):
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {
        "podAffinity": {required: draw(st.lists(TERMS, max_size=2))},
        "podAntiAffinity": {required: draw(st.lists(TERMS, max_size=2))},
    }
    return {
        "namespace": draw(st.sampled_from(["ns", "ns", "other"])),
        "labels": draw(st.sampled_from([{}, {"app": "x"}, {"app": "y"}])),
        "affinity": affinity,
        "topologySpreadConstraints": draw(st.lists(SPREADS, max_size=2)),
        "nodeSelector": draw(st.sampled_from([{}, {}, {"zone": "a"}])),
    }


class Plain:
    """The rules, asked about one pod and one node at a time."""

    def __init__(self, nodes, there):
        self.nodes = nodes
        self.there = there  # (pod spec, its name's node)

    def takes(self, pod, node):
        has = self.nodes[node]
        return (
            all(has.get(key) == value for key, value in pod["nodeSelector"].items())
            and self.near(pod, has)
            and self.apart(pod, has)
            and self.welcome(pod, has)
            and self.spread(pod, has)
        )

    def near(self, pod, has):
        terms = pod["affinity"]["podAffinity"][REQUIRED]
        if any(term["topologyKey"] not in has for term in terms):
            return False
        matching = [node for other, node in self.there if all(picks(term, pod, other) for term in terms)]
        found = Counter(
            (term["topologyKey"], self.nodes[node][term["topologyKey"]])
            for term in terms
            for node in matching
            if term["topologyKey"] in self.nodes[node]
        )
        if all(found[term["topologyKey"], has[term["topologyKey"]]] for term in terms):
            return True
        return not found and all(picks(term, pod, pod) for term in terms)

    def apart(self, pod, has):
        return not any(
            term["topologyKey"] in has
            and self.nodes[node].get(term["topologyKey"]) == has[term["topologyKey"]]
            and picks(term, pod, other)
            for term in pod["affinity"]["podAntiAffinity"][REQUIRED]
            for other, node in self.there
        )

    def welcome(self, pod, has):
        return not any(
            term["topologyKey"] in has
            and self.nodes[node].get(term["topologyKey"]) == has[term["topologyKey"]]
            and picks(term, other, pod)
            for other, node in self.there
            for term in other["affinity"]["podAntiAffinity"][REQUIRED]
        )

    def spread(self, pod, has):
        constraints = pod["topologySpreadConstraints"]
        return all(self.even(constraint, constraints, pod, has) for constraint in constraints)

    def even(self, constraint, together, pod, has):
        key = constraint["topologyKey"]
        if key not in has:
            return False
        honor = constraint.get("nodeAffinityPolicy", "Honor") == "Honor"
        domains = Counter()
        for name, labelled in self.nodes.items():
            if any(each["topologyKey"] not in labelled for each in together):
                continue
            if honor and any(labelled.get(label) != value for label, value in pod["nodeSelector"].items()):
                continue
            domains[labelled[key]] += sum(
                node == name and other["namespace"] == pod["namespace"] and selects(constraint, other)
                for other, node in self.there
            )
        least = min(domains.values(), default=0) if len(domains) >= constraint.get("minDomains", 1) else 0
        return domains[has[key]] + selects(constraint, pod) - least <= constraint["maxSkew"]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def picks(term, owner, other):
    """Whether a term of ``owner`` is about ``other``."""
    named, selector = term.get("namespaces"), term.get("namespaceSelector")
    spaces = set(named or ([] if selector is not None else [owner["namespace"]]))
    chosen = selector is not None and _matches(selector, NAMESPACES[other["namespace"]])
    return (other["namespace"] in spaces or chosen) and selects(term, other)


def selects(asker, pod):
    return _matches(asker["labelSelector"], pod["labels"])


def _matches(selector, has):
    return labels.matches(msgspec.convert(selector, LabelSelector), has)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_nodes_are_open_to_a_pod_exactly_where_the_plain_rules_say_so(make_build, data):
    build = make_build().queue("default")
    for name, has in NAMESPACES.items():
        build.namespace(name, **has)
    values = st.fixed_dictionaries({}, optional={"zone": st.sampled_from("ab"), "rack": st.sampled_from("12")})
    nodes = {f"n{number}": data.draw(values) for number in range(data.draw(st.integers(1, 5)))}
    for name, has in nodes.items():
        build.node(name, "64", labels=has)
    there = [
        (data.draw(pods()), data.draw(st.sampled_from(sorted(nodes)))) for _ in range(data.draw(st.integers(0, 5)))
    ]
    coming = [pod | {"namespace": "ns"} for pod in data.draw(st.lists(pods(), min_size=1, max_size=3))]
    # What terms ask is learned before or after the pods that it is about.
    first = data.draw(st.booleans())
    for number, pod in enumerate(coming if first else ()):
        build.group(f"g{number}").pod(f"p{number}", f"g{number}", **pod)
    if first:
        build.cluster.snapshot()
    for number, (pod, node) in enumerate(there):
        build.pod(f"there{number}", node=node, **pod)
    for number, pod in enumerate(() if first else coming):
        build.group(f"g{number}").pod(f"p{number}", f"g{number}", **pod)
    session = Session(build.cluster.snapshot(), POLICY, datetime(2026, 1, 1, tzinfo=UTC), SessionCache())
    build.cluster.validate()
    plain = Plain(nodes, there)
    for task in sorted((task for job in session.jobs for task in job.waiting), key=lambda each: each.name):
        pod = coming[int(task.name.removeprefix("p"))]
        expected = [plain.takes(pod, name) for name in sorted(nodes)]
        assert session.picker.open_to(task.task_class).tolist() == expected
        if any(expected):
            row = expected.index(True)
            job = next(job for job in session.jobs if task.uid in {each.uid for each in job.waiting})
            with session.statement() as statement:
                statement.allocate(job, [task], [row])
                statement.commit()
            plain.there.append((pod, sorted(nodes)[row]))
