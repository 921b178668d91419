"""Plugins of users: found by their entry point, from an installed package; and what becomes of one that fails."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from scheduler.configuration import config, entry_points
from scheduler.configuration.config import ConfigurationError
from scheduler.engine.isolation import IsolatedPlugin
from scheduler.engine.plugin import POINTS, Plugin, defines
from scheduler.leader.plugin_faults import FaultLog

pytestmark = pytest.mark.processes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLE = HERE / "faster_nodes"
BUILD = """
import sys
from hatchling.build import build_wheel
print(build_wheel(sys.argv[1]))
"""
USE = """
import sys
sys.path.insert(0, {tests!r})
import conftest
build = conftest.Build().queue("default").node("a").node("b", labels={{"example.com/speed": "3"}}).node("c")
plan = build.gang("g", 1, 1).decide({policy!r})
print([bind.node for bind in plan.binds], plan.faults)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example's wheel is installed in."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(wheels)], cwd=EXAMPLE, check=True, capture_output=True, text=True
    )
    with zipfile.ZipFile(wheels / built.stdout.split()[-1]) as wheel:
        wheel.extractall(site)
    return site


def test_the_plugin_of_an_installed_package_is_used(installed):
    policy = "actions: allocate\ntiers: [{plugins: [{name: gang}, {name: faster-nodes, arguments: {faster-nodes.weight: 2}}]}]"
    script = USE.format(tests=str(HERE), policy=policy)
    paths = os.pathsep.join([str(installed), str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "['b'] ()\n"


@pytest.mark.parametrize("name", ["faster_nodes.py", "pyproject.toml"])
def test_the_page_shows_the_example_as_it_is(name):
    assert (EXAMPLE / name).read_text() in (ROOT / "docs" / "plugins.md").read_text()


# ── what is wrong with a package ─────────────────────────────────────────────────────────────────────────────────


def entry(monkeypatch, *points):
    """Pretend that packages have these entry points."""
    known = metadata.EntryPoints([metadata.EntryPoint(name, value, entry_points.GROUP) for name, value in points])
    monkeypatch.setattr("importlib.metadata.entry_points", known.select)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module:X", "can't be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:loads", "is no subclass of scheduler.plugin.Plugin"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_told_with_its_line(monkeypatch, value, words):
    entry(monkeypatch, ("mine", value))
    with pytest.raises(ConfigurationError) as raised:
        config.parse("actions: allocate\ntiers:\n- plugins:\n  - name: mine", "file")
    assert str(raised.value).startswith("file, line 4: plugin 'mine' of package ")
    assert words in str(raised.value)


def test_a_misspelled_one_is_told_the_nearest(monkeypatch):
    entry(monkeypatch, ("faster-nodes", "x:Y"))
    with pytest.raises(ConfigurationError, match="unknown plugin 'faster-node'; did you mean faster-nodes"):
        config.parse("actions: allocate\ntiers: [{plugins: [{name: faster-node}]}]")


def test_a_name_that_two_packages_use_is_refused(monkeypatch):
    entry(monkeypatch, ("mine", "a:A"), ("mine", "b:B"))
    with pytest.raises(ConfigurationError, match="plugin 'mine' is in several packages"):
        config.parse("actions: allocate\ntiers: [{plugins: [{name: mine}]}]")


def test_one_of_another_scheduler_is_named_as_such():
    with pytest.raises(ConfigurationError, match="plugin 'tdm' is none of Muster's: without it"):
        config.parse("actions: allocate\ntiers: [{plugins: [{name: tdm}]}]")


# ── what becomes of one that fails ───────────────────────────────────────────────────────────────────────────────


def answering(monkeypatch, **points):
    """Let a user's plugin answer as told: an exception is raised, anything else given."""

    def method(answer):
        def ask(*_):
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    plugin = type("Mine", (Plugin,), {"name": "mine", **{point: method(answer) for point, answer in points.items()}})
    monkeypatch.setattr("scheduler.configuration.entry_points.load", lambda name: plugin if name == "mine" else None)


def policy(actions="enqueue, allocate, preempt, backfill"):
    plugins = "{name: priority}, {name: gang}, {name: mine}, {name: predicates}, {name: nodeorder}"
    return f"actions: '{actions}'\ntiers: [{{plugins: [{plugins}]}}]"


WRONG = ValueError("no idea")


@pytest.fixture
def small(build):
    return build.node("a").gang("g", 2, 2, phase="Pending")


@pytest.mark.parametrize(
    ("point", "answer"),
    [
        ("ready", WRONG),
        *[
            (point, answer)
            for point in ("enqueueable", "valid", "allocatable", "feasible")
            for answer in (WRONG, "odd")
        ],
    ],
)
def test_its_no_keeps_a_group_from_starting(monkeypatch, small, point, answer):
    answering(monkeypatch, **{point: answer})
    plan = small.decide(policy("enqueue, allocate"))
    assert plan.binds == ()
    (fault,) = plan.faults
    assert (fault.plugin, fault.point) == ("mine", point)


@pytest.mark.parametrize(
    "answers",
    [
        {"score": WRONG},
        {"score": np.array([1.0])},
        {"score": np.array([float("nan")] * 2)},
        {"job_key": WRONG},
        {"job_key": float("nan")},
        {"task_key": object()},
        {"queue_key": WRONG},
        {"enqueued": WRONG},
        {"missing": WRONG},
        {"overused": WRONG},
        {"deserved": (1,)},
        {"reach": WRONG, "score": np.zeros(2)},
    ],
    ids=lambda answers: next(iter(answers)),
)
def test_the_cycle_goes_on_without_it(monkeypatch, small, answers):
    answering(monkeypatch, **answers)
    plan = small.node("b").decide(policy())
    assert len(plan.binds) == 2
    assert [fault.point for fault in plan.faults] == [next(iter(answers))]


def test_the_cycle_goes_on_where_it_cannot_order_the_queues_to_take_from(monkeypatch, build):
    answering(monkeypatch, victim_queue_key=WRONG)
    build.priority("high", 10).node("n", "1").group("low", 0, phase="Running").pod("low-0", "low", node="n")
    plan = build.gang("urgent", 1, 1, priorityClassName="high").decide(policy())
    assert [each.task.name for each in plan.evictions] == ["low-0"]
    assert [fault.point for fault in plan.faults] == ["victim_queue_key"]


def test_what_it_says_of_itself_counts(build):
    said = {name: True for name, value in vars(Plugin).items() if value is False}
    assert {"guards", "about_room"} <= said.keys()
    isolated = IsolatedPlugin(type("Mine", (Plugin,), {"name": "mine", **said}), None, None, lambda *_: None)
    assert [name for name in said if getattr(isolated, name) is not True] == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [(WRONG, "1 is refused by plugin mine, which failed"), (np.array([False]), "1 is refused by plugin mine")],
    ids=["fails", "refuses"],
)
def test_a_group_is_told_which_plugin_leaves_it_no_node(monkeypatch, small, message, answer, words):
    answering(monkeypatch, feasible=answer)
    assert message(small.decide(policy()), "g").endswith(f"(of 1 node {words})")


def test_one_that_cannot_be_made_says_no_to_everything(monkeypatch, small, message):
    def broken(self, arguments, session):
        raise WRONG

    answering(monkeypatch, valid=None)
    entry_points.load("mine").__init__ = broken
    plan = small.decide(policy())
    assert plan.binds == ()
    assert [fault.point for fault in plan.faults] == ["__init__"]
    assert "plugin mine failed, which counts as no" in message(plan, "g")


@pytest.mark.parametrize("answer", [WRONG, "odd"])
def test_nobody_is_its_victim(monkeypatch, build, answer):
    answering(monkeypatch, preemptable=answer)
    build.priority("high", 10).node("a", "2").group("low", 0, phase="Running")
    build.pod("low", "low", "2", node="a").gang("g", 1, 1, priorityClassName="high")
    plan = build.decide(policy())
    assert plan.evictions == ()
    assert [fault.point for fault in plan.faults] == ["preemptable"]


def test_a_fault_says_where(monkeypatch, small):
    answering(monkeypatch, score=WRONG)
    (fault,) = small.decide(policy()).faults
    assert fault.text.startswith("ValueError: no idea (test_user_plugins.py, line ")


def test_a_fault_is_logged_when_it_begins_and_counted_each_time(monkeypatch, small, caplog):
    answering(monkeypatch, score=WRONG)
    registry = CollectorRegistry()
    told = FaultLog(registry)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            told.report(small.decide(policy()).faults)
        told.report(())
        told.report(small.decide(policy()).faults)
    assert len(caplog.records) == 2
    assert "plugin mine failed in score, which counts as no: ValueError: no idea" in caplog.text
    labels = {"plugin": "mine", "point": "score"}
    assert registry.get_sample_value("muster_scheduler_plugin_faults_total", labels) == 4


def test_keys_of_different_types_are_put_in_some_order(monkeypatch, build):
    keys = iter([1, "text", (2, "b"), 3.5] * 50)
    plugin = type("Mine", (Plugin,), {"name": "mine", "job_key": lambda *_: next(keys)})
    monkeypatch.setattr("scheduler.configuration.entry_points.load", lambda name: plugin if name == "mine" else None)
    build.node("a", "16")
    for number in range(4):
        build.gang(f"g{number}", 1, 1, phase="Pending")
    plan = build.decide(policy("enqueue, allocate"))
    assert plan.faults == ()
    assert len(plan.binds) == 4


def test_every_extension_point_is_asked_with_care():
    assert [point for point in (*POINTS, "reach") if not defines(IsolatedPlugin, point)] == []
