"""What `why` and `admit` suggest is done to a cluster made anew: there, the group must start. Where they suggest nothing, nothing of it would help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import pytest
from asked import (
    A_DAY,
    DEDICATED,
    POLICY,
    Json,
    asked,
    at_rest,
    belongs,
    done,
    gang,
    held_job,
    key,
    made,
    node,
    of_actions,
    pod,
    queue,
    quota,
    replaced,
    seeded,
    with_action,
)
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model.amounts import NANO
from muster.whatif import why
from muster.whatif.why import Explanation
from scheduler.engine import satisfied
from scheduler.engine.policy import Policy
from scheduler.model.obstacle import Stage

POLICIES = st.sampled_from(
    [POLICY, of_actions("enqueue, allocate, backfill"), of_actions("enqueue, allocate, preempt, reclaim, backfill")]
)

LABELS = st.sampled_from([{}, {}, {"gpu": "yes"}])
NODE_SPECS = st.sampled_from([{}, {}, {}, {"unschedulable": True}, {"taints": [DEDICATED]}])
NODES = st.lists(st.tuples(st.integers(1, 6), LABELS, NODE_SPECS), min_size=1, max_size=3)
QUEUE = st.builds(
    queue,
    st.just("lab"),
    st.sampled_from(["Open", "Open", "Open", "Closed"]),
    weight=st.integers(1, 3),
    capability=st.sampled_from([{}, {}, {"cpu": "1"}, {"cpu": "4"}]),
    maxPodGroups=st.sampled_from([0, 0, 1, 2]),
)
QUEUES = st.sampled_from(["default", "lab", "lab", "nowhere"])
GANGS = st.lists(
    st.tuples(
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        QUEUES,
        st.sampled_from([{}, {}, {"nodeSelector": {"gpu": "yes"}}]),
    ),
    min_size=1,
    max_size=4,
)


PODS_THAT_CAME = st.sampled_from([0, 0, 0, 1])


@st.composite
def those_that_run(draw: st.DrawFn, number: int, taken: int) -> list[Json]:
    """Draw a group that has so much of a node: one pod, or several of which it may need only some; bare, or a Deployment's."""
    cpus = draw(st.sampled_from([[taken], [1] * taken]))
    where, minimum = draw(st.sampled_from(["default", "lab"])), draw(st.integers(1, len(cpus)))
    there = gang(f"running{number}", cpus, where, f"node-{number}", minimum=minimum)
    if draw(st.booleans()):
        there = replaced(there, draw(st.sampled_from(["2026-01-01T11:00:00Z", "2026-01-01T11:59:30Z"])))
    there[0]["spec"] |= draw(st.sampled_from([{}, {}, {"priorityClassName": "high"}]))
    # Some want another pod beyond their minimum.
    more = [pod(there[0]["metadata"], len(cpus), draw(st.integers(1, 4)), "", {})] if draw(st.booleans()) else []
    return [*there, *more]


@st.composite
def clusters(draw: st.DrawFn) -> list[Json]:
    """Draw nodes with a gang on each that has room for one, queues, and gangs that wait: for a place, for pods, or for a quota."""
    sizes = draw(NODES)
    objects = [node(f"node-{n}", {"cpu": str(cpu)}, labels, **spec) for n, (cpu, labels, spec) in enumerate(sizes)]
    objects += [
        queue("default"),
        draw(QUEUE),
        made("scheduling.k8s.io/v1", "PriorityClass", {"name": "high"}, value=1000),
    ]
    for number, (cpu, _, _) in enumerate(sizes):
        taken = draw(st.integers(0, cpu))
        if taken:
            objects += draw(those_that_run(number, taken))
    limited, refused = draw(st.booleans()), []
    for number, (cpus, where, spec) in enumerate(draw(GANGS)):
        # Some stand for a gang of which a pod is still missing; some say what they need, and have no pods yet.
        waiting = gang(f"waiting{number}", cpus, where, minimum=len(cpus) + draw(PODS_THAT_CAME), **spec)
        if limited and draw(st.booleans()):
            waiting[0]["spec"]["minResources"] = {"cpu": str(sum(cpus))}
            refused.append(waiting[0]["metadata"]["name"])
            del waiting[1:]
        elif not limited and not spec and draw(st.booleans()):
            # Of a Job that Muster holds no pod exists.
            waiting[1:] = [held_job(waiting[0]["metadata"]["name"], cpus[0], waiting[0]["spec"]["minMember"])]
        waiting[0]["spec"] |= draw(st.sampled_from([{}, {}, {"priorityClassName": "high"}]))
        objects += waiting
    if limited:
        objects.append(quota("compute", **{"requests.cpu": str(draw(st.integers(1, 12)))}))
        seeded(objects, refused)
    return objects


def waiting(objects: Sequence[Json]) -> list[str]:
    """Return the groups that wait, and those that run and have a pod that waits."""
    groups = [each["metadata"]["name"] for each in objects if each["kind"] == "PodGroup"]
    held = [each for each in objects if each["kind"] == "Pod" and not each["spec"].get("nodeName")]
    pending = {each["metadata"]["name"] for each in objects if each.get("status", {}).get("phase") == "Pending"}
    return [name for name in groups if name in pending or any(belongs(each, name) for each in held)]


@settings(max_examples=examples(25))
@given(clusters(), POLICIES)
def test_each_change_that_is_told_lets_the_group_start_once_it_is_done(objects: list[Json], policy: Policy) -> None:
    for name in waiting(objects):
        told = why.ask(asked(objects, policy=policy), key(name)).data().get("changes", ())
        rest, now = at_rest(objects, key(name), policy)
        for change in told:
            if change.get("enough", True):
                after = asked(done(rest, change, name), now + A_DAY, with_action(policy, change))
                assert key(name) in after.run_until_idle([key(name)]).started, change["text"]


@settings(max_examples=examples(25))
@given(clusters(), POLICIES)
def test_the_answer_is_the_same_where_each_pod_is_looked_at_from_the_start(objects: list[Json], policy: Policy) -> None:
    for name in waiting(objects):
        answer = why.ask(asked(objects, policy=policy), key(name))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(satisfied, "may_set_aside", lambda _: False)
            assert why.ask(asked(objects, policy=policy), key(name)).data() == answer.data()


# ── where nothing is told ────────────────────────────────────────────────────────────────────────────────────────


def listed_kinds(objects: list[Json], name: str) -> Iterator[Json]:
    """Return a change of each kind that an answer lists, as large as it gets."""
    for each in objects:
        called = each["metadata"]["name"]
        if each["kind"] == "PodGroup" and called != name:
            yield {"kind": "end", "podGroups": [f"team/{called}"]}
        elif each["kind"] == "Queue":
            yield from (
                {"kind": "capability", "queue": called, "capability": None},
                {"kind": "weight", "queue": called, "weight": 65535},
            )
            yield {"kind": "maxPodGroups", "queue": called, "maxPodGroups": 0}
        elif each["kind"] == "Node" and not each["spec"].get("unschedulable"):
            yield from ({"kind": "nodes", "like": called, "count": count} for count in (1, 4))
    for action in ("preempt", "reclaim"):
        yield {"kind": "action", "action": action}


@settings(max_examples=examples(25))
@given(clusters(), POLICIES)
def test_where_no_change_is_told_none_of_the_kinds_that_are_listed_lets_it_start(
    objects: list[Json], policy: Policy
) -> None:
    for name in waiting(objects):
        answer = why.ask(asked(objects, policy=policy), key(name))
        if answer.record is None or answer.record.reason is None or answer.changes or not answer.tried:
            continue
        rest, now = at_rest(objects, key(name), policy)
        for change in listed_kinds(rest, name):
            if change["kind"] == "action" and change["action"] in {each.name for each in policy.actions}:
                continue
            after = asked(done(rest, change, name), now + A_DAY, with_action(policy, change))
            assert key(name) not in after.run_until_idle([key(name)]).started, (change, answer.tried)


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────

_SHORT = re.compile(r"(\d+) pods? needs? (\d+) cpu; (nothing|\d+ cpu) (?:is|are) (.*): short by (\d+) cpu")
_HELD = re.compile(r"\((\d+) cpu (?:more )?(?:is|are) held for (.*), admitted earlier\)")
_GANG = re.compile(r"(\d+) pods? have to start together and (none|\d+) exists?; waiting for (\d+) more")


def cpu(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def idle(objects: Iterable[Json]) -> int:
    """Return the cpu that is idle on nodes that take pods."""
    found = 0
    objects = list(objects)
    for each in objects:
        if each["kind"] == "Node" and not each["spec"].get("unschedulable"):
            there = (
                pod
                for pod in objects
                if pod["kind"] == "Pod" and pod["spec"].get("nodeName") == each["metadata"]["name"]
            )
            found += int(each["status"]["allocatable"]["cpu"]) - sum(map(cpu, there))
    return found


@settings(max_examples=examples(25))
@given(clusters(), POLICIES)
def test_the_figures_of_each_sentence_are_those_of_the_objects(objects: list[Json], policy: Policy) -> None:
    for name in waiting(objects):
        cluster = asked(objects, policy=policy)
        answer, binds = why.ask(cluster, key(name)), cluster.decide().binds
        # What is free for its pods is told as it is once others have theirs; who is to be admitted is judged before.
        taken = sum(bind.task.task_class.request.nano["cpu"] // NANO for bind in binds)
        if answer.record is not None:
            check_figures(objects, name, answer, idle(objects) - taken * (answer.record.stage is not Stage.ENQUEUE))


def check_figures(objects: list[Json], name: str, answer: Explanation, free: int) -> None:
    assert answer.record is not None
    pods = [each for each in objects if each["kind"] == "Pod" and belongs(each, name)]
    group = next(each for each in objects if each["kind"] == "PodGroup" and each["metadata"]["name"] == name)
    minimum = group["spec"]["minMember"]
    if found := _SHORT.search(answer.record.message):
        count, needs, has, where, short = found.groups()
        have = 0 if has == "nothing" else int(has.partition(" ")[0])
        assert int(count) == minimum or answer.grows or "node" in where or "deserves" in where
        assert int(short) == int(needs) - have > 0
        if int(count) == len(pods) and not answer.grows:
            assert int(needs) == sum(map(cpu, pods))
        if where.startswith("free in the cluster"):
            held = _HELD.search(where)
            assert have + (int(held[1]) if held else 0) == free, answer.record.message
        if found := re.match("left of the capability of queue (.*)", where):
            (of_queue,) = [each for each in objects if each["kind"] == "Queue" and each["metadata"]["name"] == found[1]]
            assert have <= int(of_queue["spec"]["capability"]["cpu"])
        assert answer.record.limit is not None
        assert answer.record.limit.short.quantities()["cpu"] == short
    if found := _GANG.search(answer.record.message):
        there = 0 if found[2] == "none" else int(found[2])
        assert (int(found[1]), there, int(found[3])) == (minimum, len(pods), minimum - len(pods))
    for sentence in answer.evictions:
        check_evictions(objects, group, sentence)


_KEPT = re.compile(r"(reclaim|preempt) takes no pod for it: of (\d+) pods? of (?:other queues|queue .*?) (\d.*)")
_PART = re.compile(
    r"(\d+) (?:is|are) (bare|running for less|in PodGroups|in queues|not less|free to go|leaving|critical)"
)


def check_evictions(objects: list[Json], group: Json, sentence: str) -> None:
    """Count again whom an action could take, and those that are kept by what the objects alone say."""
    found = _KEPT.search(sentence)
    if found is None:
        assert "next cycle evicts" in sentence or "is not due to it" in sentence or "has its minimum" in sentence, (
            sentence
        )
        return
    action, total, rest = found.groups()
    parts = {words: int(count) for count, words in _PART.findall(rest)}
    assert sum(parts.values()) == int(total)
    own, others = group["spec"]["queue"], []
    for each in objects:
        name = each["metadata"]["name"]
        if each["kind"] == "PodGroup" and name != group["metadata"]["name"]:
            of_queue = each["spec"]["queue"]
            if (of_queue == own) is (action == "preempt"):
                others += [pod for pod in objects if pod["kind"] == "Pod" and belongs(pod, name)]
    there = [pod for pod in others if pod["spec"].get("nodeName")]
    assert len(there) == int(total), sentence
    if action == "reclaim":
        bare = [pod for pod in there if "ownerReferences" not in pod["metadata"]]
        young = [pod for pod in there if pod not in bare and pod["status"]["startTime"] > "2026-01-01T11:59"]
        assert (parts.get("bare", 0), parts.get("running for less", 0)) == (len(bare), len(young)), sentence
