"""By which of the scheduler's configurations questions are answered: a file's, the cluster's own, or the built-in one, and what is said of that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result

from muster.cli import configuration
from muster.model import names
from muster.model.objects import ConfigMap, Meta
from scheduler.configuration import config

ACTIONS = "enqueue, allocate, preempt"
OTHER = config.DEFAULT.replace("enqueue, allocate, reclaim, backfill", ACTIONS)
BUSY = Path(__file__).parent / "states" / "busy.yaml"


def stored(text: str, key: str = "scheduler.yaml") -> ConfigMap:
    return ConfigMap(metadata=Meta(name="muster-scheduler", namespace=names.SYSTEM_NAMESPACE), data={key: text})


@pytest.fixture
def dump(tmp_path: Path) -> Callable[[str | None], str]:
    """Writes a dump whose ConfigMap says something, or that has none; gives its name."""

    def written(text: str | None) -> str:
        lines = []
        for line in BUSY.read_text().splitlines():
            if '"kind":"ConfigMap"' not in line:
                lines.append(line)
            elif text is not None:
                item = msgspec.json.decode(line.removeprefix("- "))
                lines.append(f"- {msgspec.json.encode(item | {'data': {'scheduler.yaml': text}}).decode()}")
        (tmp_path / "state.yaml").write_text("\n".join(lines) + "\n")
        return str(tmp_path / "state.yaml")

    return written


def test_a_file_that_is_named_counts_before_the_cluster_s_own(tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text(OTHER)
    found = configuration.find(tmp_path / "scheduler.yaml", [stored(config.DEFAULT)])
    assert (found.sentence(), found.assumed) == (f"{ACTIONS} ({tmp_path / 'scheduler.yaml'})", False)


def test_the_cluster_s_own_is_what_its_configmap_says() -> None:
    found = configuration.find(None, [stored(OTHER)])
    assert (found.sentence(), found.assumed) == (f"{ACTIONS} (ConfigMap muster-system/muster-scheduler)", False)


@pytest.mark.parametrize(
    ("found", "readable", "why"),
    [
        ([], "yes", "there is no ConfigMap muster-system/muster-scheduler"),
        ([stored(OTHER, "other.yaml")], "yes", "there is no ConfigMap muster-system/muster-scheduler"),
        ([], "", "ConfigMap muster-system/muster-scheduler may not be read"),
        ([stored("actions: enqeue")], "yes", "ConfigMap muster-system/muster-scheduler can't be used here"),
    ],
)
def test_what_is_assumed_is_told_with_the_reason(
    found: list[ConfigMap], readable: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = configuration.find(None, found, readable=bool(readable))
    assert answer.assumed
    assert answer.sentence() == f"enqueue, allocate, reclaim, backfill (the built-in one, since {why})"
    said = capsys.readouterr().err
    assert said == (
        "note: ConfigMap muster-system/muster-scheduler, line 1: unknown action 'enqeue'; did you mean enqueue?\n"
        if "used" in why
        else ""
    )


def test_why_decides_by_what_the_dump_s_configmap_says_and_shows_it(
    run: Callable[..., Result], dump: Callable[[str | None], str]
) -> None:
    ask = ("podgroup", "why", "train", "-n", "team-a", "-o", "json", "--state")
    without, other = (msgspec.json.decode(run(*ask, dump(text)).stdout) for text in (None, OTHER))
    assert without["configuration"].startswith(
        "enqueue, allocate, reclaim, backfill (the built-in one, since there is no"
    )
    assert other["configuration"] == f"{ACTIONS} (ConfigMap muster-system/muster-scheduler)"


def test_admit_says_what_it_assumes(run: Callable[..., Result], dump: Callable[[str | None], str]) -> None:
    said = " ".join(run("admit", "-f", "files/job.yaml", "--state", dump(None)).stdout.split())
    assert said.endswith(
        "The scheduler's configuration is taken to be the built-in one, since there is no ConfigMap"
        " muster-system/muster-scheduler."
    )
    assert "configuration" not in run("admit", "-f", "files/job.yaml", "--state", dump(OTHER)).stdout


def test_a_simulation_follows_the_configmap_of_its_files(run: Callable[..., Result], tmp_path: Path) -> None:
    idle = config.DEFAULT.replace("enqueue, allocate, reclaim, backfill", "enqueue")
    bodies: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "1", "pods": "9"}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "one", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
        },
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"minMember": 1},
            "status": {"phase": "Inqueue"},
        },
    ]
    bodies[1]["metadata"]["annotations"] = {names.GROUP_NAME: "g"}
    bound = []
    for text in (config.DEFAULT, idle):
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*bodies, as_body(stored(text))]))
        result = run("simulate", "-f", str(tmp_path / "all.yaml"), "-o", "json")
        bound.append(len(msgspec.json.decode(result.stdout)["binds"]))
    assert bound == [1, 0]


def as_body(one: ConfigMap) -> dict[str, object]:
    meta = {"name": one.name, "namespace": one.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": one.data}
