"""What `muster admit` takes as kubectl does: directories, URLs, standard input, kustomizations; and the samples of operators."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result
from frameworks import needs_them, sample

from muster.cli import manifests
from muster.model.gangs import gangs_of
from muster.model.grouping import DEFAULT_RULES
from muster.model.workloads import OPERATORS, WorkloadObject

GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: NAME, namespace: team-a}
spec: {minMember: 1, queue: default, minResources: {cpu: "1"}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory of files, one of them below it, and one that is none of kubectl's."""
    (tmp_path / "below").mkdir()
    for name, file in (("b", "b.yaml"), ("a", "a.json"), ("c", "below/c.yml")):
        body = yaml.safe_load(GROUP.replace("NAME", name))
        text = msgspec.json.encode(body).decode() if file.endswith("json") else yaml.safe_dump(body)
        (tmp_path / file).write_text(text)
    (tmp_path / "notes.txt").write_text("no object")
    return tmp_path


def verdicts(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [each["object"].partition("/")[2] for each in msgspec.json.decode(result.stdout)["objects"]]


def test_a_directory_is_its_files_in_order_and_with_r_those_below_it(run: Callable[..., Result], folder: Path) -> None:
    admit = partial(run, "admit", "--state", "states/empty.yaml", "-o", "json", "-f", str(folder))
    assert verdicts(admit()) == ["a", "b"]
    assert verdicts(admit("-R")) == ["a", "b", "c"]


def test_a_directory_without_such_files_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run("admit", "--state", "states/empty.yaml", "-f", str(tmp_path))
    assert (result.exit_code, result.output) == (2, f"Error: {tmp_path}: no file in it ends in .json, .yaml, .yml\n")


def test_standard_input_is_read(run: Callable[..., Result]) -> None:
    result = run("admit", "--state", "states/empty.yaml", "-o", "json", "-f", "-", stdin=GROUP.replace("NAME", "in"))
    assert verdicts(result) == ["in"]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the class above
        """Say nothing."""


@pytest.fixture
def served(folder: Path) -> Iterator[str]:
    """The URL of the directory."""
    with HTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_url_is_read_and_one_that_is_not_there_is_told_in_one_line(run: Callable[..., Result], served: str) -> None:
    admit = partial(run, "admit", "--state", "states/empty.yaml", "-o", "json", "-f")
    assert verdicts(admit(f"{served}/b.yaml")) == ["b"]
    gone = admit(f"{served}/gone.yaml")
    assert (gone.exit_code, gone.output) == (2, f"Error: {served}/gone.yaml: 404 File not found\n")


def test_of_a_folder_kubectl_kustomize_makes_the_objects(
    run: Callable[..., Result], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kustomize(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        fine = command == ["kubectl", "kustomize", str(folder)]
        return subprocess.CompletedProcess(
            command, int(not fine), GROUP.replace("NAME", "made"), "error: no\nsuch folder\n"
        )

    monkeypatch.setattr(manifests.subprocess, "run", kustomize)
    admit = partial(run, "admit", "--state", "states/empty.yaml", "-o", "json", "-k")
    assert verdicts(admit(str(folder))) == ["made"]
    assert admit("elsewhere").output == "Error: `kubectl kustomize elsewhere`: error: no such folder\n"


def test_without_kubectl_it_is_said_that_there_is_none(
    run: Callable[..., Result], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any, **_more: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(manifests.subprocess, "run", none)
    result = run("admit", "--state", "states/empty.yaml", "-k", str(folder))
    assert (result.exit_code, result.output) == (
        2,
        "Error: -k runs `kubectl kustomize`, and there is no kubectl in the PATH\n",
    )


def test_files_and_a_kustomization_do_not_go_together(run: Callable[..., Result]) -> None:
    assert "-f and -k don't go together" in run("admit", "-f", "a.yaml", "-k", "b").output


@needs_them
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pytorchjob-simple", "PyTorchJob"),
        ("mpijob-pi", "MPIJob"),
        ("raycluster-volcano-queue", "RayCluster"),
        ("rayjob-volcano-queue", "RayJob"),
        ("jobset-depends-on", "JobSet"),
        ("leaderworkerset", "LeaderWorkerSet"),
        ("spark-pi-python", "SparkApplication"),
    ],
)
def test_the_pods_that_an_operator_s_sample_describes_are_those_that_would_start(
    run: Callable[..., Result], tmp_path: Path, name: str, kind: str
) -> None:
    workload = next(each for each in OPERATORS if each.kind.name == kind)
    body = ours(sample(name, kind))
    body["metadata"]["namespace"] = "team-a"
    (tmp_path / "sample.yaml").write_text(yaml.safe_dump(body))
    result = run("admit", "--state", "states/empty.yaml", "-o", "json", "-f", str(tmp_path / "sample.yaml"))
    told = msgspec.json.decode(result.stdout)
    assert told["objects"][0]["outcome"] == "admitted", result.output
    gangs = gangs_of(workload, msgspec.convert(body, WorkloadObject), DEFAULT_RULES)
    assert [each["pods"] for each in told["starts"]] == [each.at_once for each in gangs]
    assert all(kind in each["for"] for each in told["starts"])


def ours(value: Any) -> Any:
    """Return an object whose pods Muster schedules: each that has containers, and what Spark calls its parts."""
    if isinstance(value, list):
        return [ours(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: ours(each) for key, each in value.items()}
    if "containers" in found or "coreRequest" in found or "cores" in found:
        found["schedulerName"] = "muster"
    return found
