"""The states and amounts of a cycle have one writer, and what it keeps is what counting anew comes to."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scheduler.configuration import config
from scheduler.engine.session import Session
from scheduler.engine.session_cache import SessionCache
from scheduler.model.snapshot import Phase

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = config.parse(config.DEFAULT.replace("allocate, reclaim", "allocate, preempt, reclaim"))
PORT = {"ports": [{"containerPort": 80, "hostPort": 80}]}


@pytest.fixture
def session(build):
    """A session in which one pod was placed, one waits for a place, and one is evicted; a node is kept for a job."""
    build.priority("high", 10).node("a", "2").node("b", "1").node("kept", "1")
    build.group("low", 0, phase="Running").pod("low-0", "low", "1", node="b", **PORT)
    build.group("g", 1, minTaskMember={"worker": 1})
    build.pod("g-0", "g", "1", **PORT)
    build.gang("urgent", 1, 1, "1", priorityClassName="high").gang("large", 1, 1, "1")
    session = Session(build.cluster.snapshot(), POLICY, NOW, SessionCache())
    low, g, urgent, large = sorted(
        session.jobs, key=lambda job: ["low", "g", "urgent", "large"].index(job.info.key.name)
    )
    session.reservation.keep(large, [session.snapshot.table.row["kept"]])
    with session.statement() as statement:
        statement.allocate(g, [g.waiting.popleft()], [0])
        statement.evict(low, low.info.tasks[0], 1, urgent)
        statement.pipeline(urgent, urgent.waiting.popleft(), 1)
        statement.commit()
    session.allocations.validate()
    return session


def job(session, name):
    return next(each for each in session.jobs if each.info.key.name == name)


def corrupt_idle(session):
    session.allocations._idle[0, 0] -= 1


def corrupt_future(session):
    session.allocations._future[1, 0] += 1


def corrupt_held(session):
    session.allocations._idle[session.snapshot.table.row["kept"], 0] += 1


def corrupt_job(session):
    state = job(session, "g")
    state.allocated = (state.allocated[0] + 1, *state.allocated[1:])


def corrupt_queue(session):
    session.queues["default"].allocated = session.axes.zero


def corrupt_ready(session):
    job(session, "g").ready += 1


def corrupt_pipelined(session):
    job(session, "urgent").pipelined = 0


def corrupt_roles(session):
    job(session, "g").roles.clear()


def corrupt_phase(session):
    job(session, "g").phase = Phase.COMPLETED


def lose_task(session):
    job(session, "large").waiting.clear()


def place_twice(session):
    state = job(session, "g")
    state.unplaced.append(state.info.pending[0])


def corrupt_ports(session):
    session.allocations.ports[0].clear()


def corrupt_ports_later(session):
    session.allocations.ports_later[1].append(("TCP", "", 99))


def corrupt_leaving(session):
    session.allocations.leaving.clear()


def corrupt_victims(session):
    session.victims.amounts("default")[1, 0] += 1


@pytest.mark.parametrize(
    ("corrupt", "words"),
    [
        (corrupt_idle, "idle of nodes"),
        (corrupt_future, "future of nodes"),
        (corrupt_held, "idle of nodes"),
        (corrupt_job, "allocated of PodGroup ns/g"),
        (corrupt_queue, "allocated of queue default"),
        (corrupt_ready, "ready of PodGroup ns/g"),
        (corrupt_pipelined, "pipelined of PodGroup ns/urgent"),
        (corrupt_roles, "roles of PodGroup ns/g"),
        (corrupt_phase, "phase of PodGroup ns/g"),
        (lose_task, "tasks of PodGroup ns/large"),
        (place_twice, "tasks of PodGroup ns/g"),
        (corrupt_ports, "host ports of node a"),
        (corrupt_ports_later, "host ports of node b"),
        (corrupt_leaving, "leaving"),
        (corrupt_victims, "what may be evicted of queue default"),
    ],
)
def test_a_sum_that_is_off_is_found_and_named(session, corrupt, words):
    corrupt(session)
    with pytest.raises(AssertionError, match=words):
        session.allocations.validate()


def test_an_open_statement_is_found(session):
    with session.statement() as statement:
        waiting = job(session, "large")
        statement.allocate(waiting, [waiting.waiting[0]], [0])
        with pytest.raises(AssertionError, match="ns/large"):
            session.allocations.validate()
    session.allocations.validate()


@pytest.mark.parametrize("matrix", ["idle", "future"])
def test_what_others_see_of_the_nodes_cannot_be_written_to(session, matrix):
    with pytest.raises(ValueError, match="read-only"):
        getattr(session, matrix)[0, 0] = 7


def test_what_is_kept_for_a_job_is_there_for_it_alone(session):
    row = session.snapshot.table.row["kept"]
    assert session.idle[row].tolist()[0] == 0
    with session.reservation.visible_to(job(session, "g")):
        assert session.idle[row].tolist()[0] == 0
    with session.reservation.visible_to(job(session, "large")):
        assert session.idle[row].tolist()[0] == 1000
        session.allocations.validate()
    session.allocations.validate()


STATES = {"phase", "allocated", "ready", "pipelined", "roles", "leaving", "committed", "ports", "ports_later"}
LINES = {"waiting", "unplaced"}
CHANGES = {
    "add",
    "append",
    "clear",
    "discard",
    "extend",
    "extendleft",
    "insert",
    "pop",
    "popleft",
    "remove",
    "sort",
} | {
    *("subtract", "update", "setdefault"),
}


def is_own(attribute):
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def written(tree):
    """The attributes that a module assigns to, deletes, or calls to change, of anything but its own objects."""
    for node in ast.walk(tree):
        targets = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            targets = [node.func.value]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                inner = each.value if isinstance(each, ast.Subscript) else each
                if isinstance(inner, ast.Attribute) and not is_own(inner):
                    yield inner.attr


def writers(names):
    rooms = [ROOT / "scheduler" / room for room in ("engine", "actions", "plugins")]
    return {
        path.name for room in rooms for path in room.glob("*.py") if names & set(written(ast.parse(path.read_text())))
    }


def test_one_module_writes_states_and_amounts():
    assert writers(STATES) == {"allocations.py"}


def test_tasks_are_put_in_line_and_taken_off_it_where_places_are_found():
    assert writers(LINES) == {"session.py", "placement.py", "subgroup_placement.py", "eviction.py"}


@pytest.mark.parametrize(
    "text",
    [
        "job.ready += 1",
        "job.phase, job.obstacle = Phase.INQUEUE, None",
        "job.roles[role] = 0",
        "session.allocations.leaving.add(uid)",
        "del session.ports[row]",
    ],
)
def test_a_second_writer_would_be_found(text):
    assert STATES & set(written(ast.parse(text)))
