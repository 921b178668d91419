"""Decisions of an established scheduler, held against ours.

Recorded cases are in the folder that MUSTER_CONFORMANCE names. Those in `cases` are our own: each states what a page of that
scheduler's documentation (``source``) says, and is played in several variants that change nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from muster.model import names
from muster.model.amounts import Quantity
from scheduler.configuration import config
from scheduler.engine.plugin import FLAGS
from scheduler.simulator import state

HERE = Path(__file__).parent
FOLDER = os.environ.get("MUSTER_CONFORMANCE", "")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _listed(name: str) -> dict[str, str]:
    return yaml.safe_load((HERE / name).read_text()) or {}


DEVIATIONS = _listed("deviations.yaml")
CASES = (
    sorted(each for room in ("devices", "scheduler", "topology") for each in (Path(FOLDER) / room).glob("*.yaml"))
    if FOLDER
    else []
)
OWN = sorted((HERE / "cases").glob("*.yaml"))


def with_listed_flags_only(given: dict[str, Any]) -> dict[str, Any]:
    """Turn off each extension point that a plugin doesn't list: in the cases an absent flag is false, in users' files true."""
    off = dict.fromkeys(FLAGS.values(), False)
    tiers = [{"plugins": [off | plugin for plugin in tier["plugins"]]} for tier in given.get("tiers", ())]
    return given | {"tiers": tiers}


def disagreements(case: dict[str, Any]) -> list[str]:
    """Decide a case, and list where we differ."""
    policy = config.parse(yaml.safe_dump(with_listed_flags_only(case["config"])), "the case's config")
    cluster = state.load(case["objects"], [names.SCHEDULER_NAME])
    found, expect = state.run(cluster, policy, NOW, 1).json(), case["expect"]
    wrong = []
    if "bindsNum" in expect:
        wrong += _differs("number of binds", expect["bindsNum"], len(found["binds"]))
    elif "binds" in expect:
        wrong += _differs("binds", expect["binds"], found["binds"])
    if "evictedNum" in expect:
        wrong += _differs("number of evictions", expect["evictedNum"], len(found["evicted"]))
    else:
        wrong += _differs("evicted", sorted(expect.get("evicted", [])), sorted(found["evicted"]))
    for group, nodes in expect.get("pipelined", {}).items():
        wrong += _differs(f"pipelined {group}", sorted(nodes), sorted(found["pipelined"].get(group, {}).values()))
    for group, phase in expect.get("phases", {}).items():
        wrong += _differs(f"phase {group}", phase, found["podgroups"][group]["phase"])
    for group, counts in expect.get("taskNums", {}).items():
        ours = {status: found["tasks"][group].get(status, 0) for status in counts}
        wrong += _differs(f"tasks {group}", counts, ours)
    return wrong


def _differs(what: str, theirs: Any, ours: Any) -> list[str]:
    return [] if theirs == ours else [f"{what}: expected {theirs}, got {ours}"]


def test_a_case_turns_on_the_extension_points_that_it_lists_and_no_others():
    given = {"actions": "allocate", "tiers": [{"plugins": [{"name": "gang", "enableJobOrder": True}, {"name": "drf"}]}]}
    policy = config.parse(yaml.safe_dump(with_listed_flags_only(given)))
    gang, drf = [each.points & FLAGS.keys() for each in policy.tiers[0]]
    assert (gang, drf) == ({"job_key"}, set())


@pytest.mark.skipif(not FOLDER, reason="MUSTER_CONFORMANCE names no folder of cases: nothing was compared")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decides_like_the_established_scheduler(path):
    _agrees(path, lambda case: case)


def _agrees(path: Path, variant: Callable[[Any], Any]) -> None:
    case = variant(yaml.safe_load(path.read_text()))
    try:
        wrong = disagreements(case)
    except config.ConfigurationError as error:
        wrong = [str(error)]
    if path.stem in DEVIATIONS:
        assert wrong, f"{path.stem} passes now: take it off the list ({DEVIATIONS[path.stem]})"
        pytest.xfail(DEVIATIONS[path.stem])
    assert wrong == []


def as_written(case: dict[str, Any]) -> dict[str, Any]:
    return case


def in_the_other_order(case: dict[str, Any]) -> dict[str, Any]:
    """The same objects, listed from the last to the first."""
    return case | {"objects": case["objects"][::-1]}


def under_other_names(case: dict[str, Any]) -> dict[str, Any]:
    """Queues and groups have names of the other order."""
    named = {each["metadata"]["name"] for each in case["objects"] if each["kind"] in {"Queue", "PodGroup"}} - {"root"}
    others = {name: f"{place:03}-{name}" for place, name in enumerate(sorted(named, reverse=True))}

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {renamed(key): renamed(each) for key, each in value.items()}
        if isinstance(value, list):
            return [renamed(each) for each in value]
        if not isinstance(value, str):
            return value
        space, slash, name = value.rpartition("/")
        return f"{space}{slash}{others.get(name, name)}" if space in {"", "ns"} else value

    return case | {"objects": renamed(case["objects"]), "expect": renamed(case["expect"])}


def of_three_times_the_size(case: dict[str, Any]) -> dict[str, Any]:
    """All that is asked for, stated or there is three times as much."""

    def times(value: Any, *, amount: bool = False) -> Any:
        if isinstance(value, dict):
            return {key: times(each, amount=amount or key in AMOUNTS) for key, each in value.items()}
        if isinstance(value, list):
            return [times(each) for each in value]
        return str(replace(read := Quantity.parse(value), nano=3 * read.nano)) if amount else value

    return case | {"objects": times(case["objects"])}


AMOUNTS = {"requests", "capacity", "allocatable", "deserved", "capability", "guarantee", "minResources"}
VARIANTS = (as_written, in_the_other_order, under_other_names, of_three_times_the_size)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.__name__)
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_decides_as_the_established_scheduler_s_pages_say(path, variant):
    _agrees(path, variant)


@pytest.mark.skipif(not FOLDER, reason="MUSTER_CONFORMANCE names no folder of cases: nothing was compared")
def test_the_list_of_deviations_is_short_and_names_cases_that_exist():
    assert CASES
    assert sorted(DEVIATIONS.keys() - {path.stem for path in [*CASES, *OWN]}) == []
    assert len(DEVIATIONS) <= 5
