"""A dump: what it leaves out, what it keeps, and which ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import Result

from muster.cli import manifests
from muster.model import kinds
from muster.whatif import dump
from muster.whatif.cluster_view import ClusterObjects

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BUSY = Path(__file__).parent / "states" / "busy.yaml"

SECRETIVE: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"app": "kept"},
        "annotations": {
            "scheduling.k8s.io/group-name": "kept",
            "kubectl.kubernetes.io/last-applied-configuration": "secret",
            "example.com/password": "secret",
        },
    },
    "spec": {
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "secret"}], "args": ["secret"]}],
        "volumes": [
            {"name": "v", "secret": {"secretName": "secret"}},
            {"name": "w", "persistentVolumeClaim": {"claimName": "kept-claim"}},
        ],
    },
    "status": {"phase": "Failed", "message": "secret"},
}


def dumped(**objects: Any) -> str:
    state = ClusterObjects(NOON, {kind: tuple(items) for kind, items in objects.get("of", {}).items()})
    return "\n".join(dump.lines(state)) + "\n"


def test_what_a_pod_keeps_to_itself_is_not_in_a_dump() -> None:
    job = {"metadata": {"name": "j"}, "spec": {"template": SECRETIVE}}
    text = dumped(
        of={
            kinds.PODS: [msgspec.convert(SECRETIVE, kinds.PODS.struct)],
            kinds.JOBS: [msgspec.convert(job, kinds.JOBS.struct)],
            kinds.CONFIGMAPS: [
                msgspec.convert({"metadata": {"name": "x"}, "data": {"k": "secret"}}, kinds.CONFIGMAPS.struct)
            ],
        }
    )
    assert "secret" not in text.replace('"secret":{}', "").replace("no Secrets", "")
    assert text.count("kept-claim") == 2
    assert text.count('"scheduling.k8s.io/group-name":"kept"') == 2


def test_a_dump_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = manifests.read_dump(str(BUSY))
    (tmp_path / "again.yaml").write_text("\n".join(dump.lines(state)))
    again = manifests.read_dump(str(tmp_path / "again.yaml"))
    # In a dump, who makes one says which kind each object is; order is by name.
    assert "\n".join(dump.lines(again)) == "\n".join(dump.lines(state))
    assert again.taken == NOON
    assert {kind.name: len(items) for kind, items in again.objects.items() if items} == {
        "Node": 2,
        "Pod": 23,
        "PodGroup": 9,
        "Queue": 3,
        "Namespace": 2,
        "PriorityClass": 1,
        "ConfigMap": 1,
    }


def test_a_text_with_odd_ends_of_lines_in_it_comes_back_from_a_dump(tmp_path: Path) -> None:
    message = "one\u2028two\x85three\x1efour"
    said = {"type": "Unschedulable", "status": "True", "message": message}
    group = {"metadata": {"name": "g", "namespace": "n"}, "status": {"conditions": [said]}}
    (tmp_path / "state.yaml").write_text(dumped(of={kinds.PODGROUPS: [msgspec.convert(group, kinds.PODGROUPS.struct)]}))
    (again,) = manifests.read_dump(str(tmp_path / "state.yaml")).of(kinds.PODGROUPS)
    assert [each.message for each in again.status.conditions or ()] == [message]


def test_a_dump_that_somebody_edited_as_yaml_is_read_too(tmp_path: Path) -> None:
    edited = BUSY.read_text().splitlines()[:4]
    edited += ["- apiVersion: v1", "  kind: Node", "  metadata: {name: by-hand}"]
    (tmp_path / "edited.yaml").write_text("\n".join(edited))
    assert [each.name for each in manifests.read_dump(str(tmp_path / "edited.yaml")).of(kinds.NODES)] == ["by-hand"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("dump.muster.sh/v1", "dump.muster.sh/v7"), "is a dump of version v7, and muster"),
        (("kind: StateList", "kind: Nothing"), "is not a dump of a cluster"),
        (('taken: "2026-01-01T12:00:00+00:00"', "taken: soon"), "taken says 'soon', which is not a time"),
        (('"allocatable":{', '"allocatable":7,"x":{'), "Node node-1: Expected `object"),
    ],
)
def test_a_dump_that_can_not_be_read_is_refused_with_what_to_do(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "state.yaml"
    file.write_text(BUSY.read_text().replace(*change))
    with pytest.raises(click.ClickException) as refused:
        manifests.read_dump(str(file))
    assert said in refused.value.message
    assert "muster dump > FILE" in refused.value.message


def test_simulate_reads_a_dump_and_refuses_one_of_another_version(run: Callable[..., Result], tmp_path: Path) -> None:
    assert '"team-a/train"' in run("simulate", "-f", "states/busy.yaml", "-o", "json").stdout
    (tmp_path / "new.yaml").write_text(BUSY.read_text().replace("dump.muster.sh/v1", "dump.muster.sh/v2"))
    result = run("simulate", "-f", str(tmp_path / "new.yaml"))
    assert result.exit_code == 1
    assert "is a dump of version v2" in result.stderr
