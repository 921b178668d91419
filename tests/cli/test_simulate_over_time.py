"""`muster simulate` over time: what docs/simulate.md shows, what programs get, and what is said of mistakes."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import muster
from scheduler.simulator import engine

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "simulate.md").read_text()
FILES = re.findall(r"^```(?:yaml|csv)\n# (\S+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^```console\n\$ muster (.*?)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
OVER_TIME = "simulate -f cluster.yaml --trace jobs.csv"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds the files of the page."""
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(command: str) -> Result:
    return CliRunner().invoke(muster, shlex.split(command))


def refused(command: str) -> list[str]:
    result = ran(command)
    assert result.exit_code != 0
    assert result.stdout == ""
    return result.stderr.splitlines()


def trace(*lines: str, header: str = "arrival,duration,pods,request,queue") -> None:
    Path("jobs.csv").write_text("\n".join([header, *lines]) + "\n")


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_a_command_of_the_page_prints_what_the_page_shows(command: str, shown: str) -> None:
    result = ran(command)
    assert (result.output, result.exit_code) == (shown, 0)


def test_programs_get_the_state_at_the_end_and_a_report() -> None:
    said = json.loads(ran(f"{OVER_TIME} --config keep.yaml --for 30m -o json").stdout)
    assert set(said) == {
        "configuration", "cycles", "binds", "evicted", "pipelined", "podgroups", "queues", "tasks", "report",
    }  # fmt: skip
    assert set(said["binds"]) == {f"default/sweep-{number}" for number in range(8)}
    assert said["tasks"]["default/report"] == {"Pending": 8}
    assert said["podgroups"]["default/report"]["reason"] == "NotEnoughResources"
    assert said["queues"]["prod"]["deserved"]["cpu"] == "8"
    report = said["report"]
    assert report["clusterSeconds"] == 1800
    assert report["queues"]["research"]["share"] == 1.0
    assert [each["podGroup"] for each in report["neverStarted"]] == [
        "default/report", "default/train", "default/too-large",
    ]  # fmt: skip


def test_two_configurations_are_two_runs_for_programs() -> None:
    said = json.loads(ran(f"{OVER_TIME} --compare keep.yaml -o json").stdout)
    reclaimed = {
        run["configuration"]: run["report"]["queues"]["research"]["evicted"]["reclaimed"] for run in said["runs"]
    }
    assert reclaimed == {"default": 4, "keep.yaml": 0}
    assert len(said["runs"][0]["evicted"]) == 4


@pytest.mark.processes
def test_the_same_input_gives_the_same_text_whatever_the_hash_seed() -> None:
    def text(seed: str) -> bytes:
        words = [sys.executable, "-m", "muster.cli", *shlex.split(f"{OVER_TIME} --config keep.yaml -o json")]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(words, env=environment, check=True, capture_output=True).stdout

    assert text("1") == text("2")


def test_the_seed_draws_who_of_equals_goes_first() -> None:
    trace(*["0,10m,4,cpu=4,prod"] * 4)
    firsts = set()
    for seed in range(4):
        said = json.loads(ran(f"{OVER_TIME} --for 5m --seed {seed} -o json").stdout)
        firsts.add(min(said["binds"]))
    assert len(firsts) > 1


def test_a_dump_is_a_cluster(folder: Path) -> None:
    state = ROOT / "tests" / "cli" / "states" / "busy.yaml"
    trace("0,1m,1,cpu=1m,default")
    result = ran(f"simulate -f {state} --trace jobs.csv --for 1h -o json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["report"]["arrived"] == 1
    assert len(said["podgroups"]) > 1


def test_a_dump_of_another_version_is_refused() -> None:
    Path("old.yaml").write_text("apiVersion: dump.muster.sh/v0\nkind: StateList\nitems: []\n")
    (line,) = refused("simulate -f old.yaml --until-idle")
    assert "old.yaml is a dump of version v0" in line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-5,1m,1,cpu=1,prod", "column arrival: '-5' is negative; write seconds such as 90, or 1h30m, since the beginning of the trace"),
        ("0,-1m,1,cpu=1,prod", "column duration: '-1m' is negative; write seconds such as 90, or 1h30m"),
        ("0,0,1,cpu=1,prod", "column duration: '0' is no time at all; write more than 0"),
        ("soon,1m,1,cpu=1,prod", "column arrival: 'soon' is no time; write seconds such as 90, or 1h30m, since the beginning of the trace"),
        ("0,1m,many,cpu=1,prod", "column pods: 'many' is no number of pods; write a whole number from 1 to 100000"),
        ("0,1m,0,cpu=1,prod", "column pods: '0' is out of range; write a whole number from 1 to 100000"),
        ("0,1m,1,2 cores,prod", "column request: '2 cores' is no request; write it like cpu=2 memory=4Gi"),
        ("0,1m,1,,prod", "column request: '' is no request; write it like cpu=2 memory=4Gi"),
        ("0,1m,1,cpu=1,dev", "column queue: there is no queue 'dev' (there are: default, prod, research); name one of them, or add a Queue to the files"),
        ("0,1m,1,cpu=1", "4 values for 5 columns; quote what holds a comma"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_trace_is_told_with_line_column_value_and_remedy(line: str, message: str) -> None:
    trace("0,1m,1,cpu=1,prod", line)
    (said,) = refused(OVER_TIME)
    assert said.removeprefix("Error: jobs.csv, line 3").lstrip(":, ") == message


def test_amounts_that_are_none_are_told_as_everywhere() -> None:
    trace("0,1m,1,cpu=-1,prod", "0,1m,1,cpu=1x,prod")
    first, second = refused(OVER_TIME)
    assert first.startswith("Error: jobs.csv, line 2, column request: cpu: '-1' is negative")
    assert second.startswith("jobs.csv, line 3, column request: cpu: '1x'")


def test_of_many_mistakes_the_first_ten_are_told_at_once() -> None:
    trace(*["0,1m,x,cpu=1,nowhere"] * 8)
    lines = refused(OVER_TIME)
    assert len(lines) == 11
    assert lines[-1] == "jobs.csv: and 6 more mistakes"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("arrival,pods,request,queue", "line 1: column duration is missing; the columns are"),
        ("arrival,request", "line 1: columns duration, pods, queue are missing; the columns are"),
        ("arrival,duration,pods,request,queue,prioirty", "line 1: column 'prioirty' is none that a trace has; the columns are"),
        ("arrival,duration,pods,request,queue,pods", "line 1: column pods is there 2 times; leave one of them"),
        ("", "line 1: the trace has no header; the columns are"),
    ],
)  # fmt: skip
def test_a_header_that_is_none_is_told(header: str, message: str) -> None:
    trace(header=header)
    assert refused(OVER_TIME)[0].startswith(f"Error: jobs.csv, {message}")


def test_two_jobs_of_one_name_and_a_minimum_above_the_pods_are_told() -> None:
    trace("0,1m,1,cpu=1,prod,a,", "0,1m,2,cpu=1,prod,a,3", header="arrival,duration,pods,request,queue,name,minimum")
    first, second = refused(OVER_TIME)
    assert first.endswith("line 3, column minimum: '3' is more than the 2 in column pods; write that or less")
    assert second.endswith("line 3, column name: 'a' is the job of line 2; give it another name")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--trace jobs.csv --cycles 2", "--cycles simulates without a clock: remove --trace, --until-idle and --for"),
        ("--until-idle --for 2d", "--until-idle and --for don't go together: give one of them"),
        ("--compare keep.yaml", "--compare needs time to pass: add --until-idle, --for or --trace"),
        ("--plot a.png", "--plot needs time to pass: add --until-idle, --for or --trace"),
        ("--for tomorrow", "'tomorrow' is not a duration; write it like 90s, 12h or 7d"),
        ("--trace jobs.csv --plot a.bmp", "--plot a.bmp: end the name in .png, .svg or .pdf"),
    ],
)
def test_options_that_dont_go_together_are_refused(options: str, message: str) -> None:
    assert refused(f"simulate -f cluster.yaml {options}")[-1].endswith(message)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{apiVersion: v1, kind: Node, metadata: {name: node-1}}", "Error: Node node-1 is in the files twice; leave one of them"),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}}",
            "Error: Pod p: volumes of claims aren't simulated over time; leave them out, or decide once with --cycles",
        ),
        (
            "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: dev}, spec: {parent: nowhere}}",
            'Error: Queue dev: queue "nowhere" (spec.parent) does not exist: create it first, or name another',
        ),
    ],
)  # fmt: skip
def test_what_cant_be_simulated_is_refused_by_name(manifest: str, message: str) -> None:
    Path("more.yaml").write_text(manifest)
    assert refused("simulate -f cluster.yaml -f more.yaml --until-idle") == [message]


def test_a_cluster_without_nodes_is_no_cluster() -> None:
    assert refused("simulate -f pi.yaml --until-idle") == ["Error: the files have no Node: add those of the cluster"]


MADE = 'creationTimestamp: "2026-01-01T00:00:00Z"'


@pytest.mark.parametrize(
    ("manifest", "what"),
    [
        ("apiVersion: apps/v1, kind: Deployment", "1 Deployment"),
        ("apiVersion: v1, kind: ConfigMap", "1 ConfigMap"),
    ],
)
def test_what_is_there_and_makes_no_pods_is_left_out_with_a_note(manifest: str, what: str) -> None:
    Path("web.yaml").write_text(f"{{{manifest}, metadata: {{name: web, {MADE}}}}}")
    result = ran("simulate -f cluster.yaml -f web.yaml --until-idle")
    assert result.stderr == f"note: {what} left out; simulate knows Jobs, PodGroups and Pods, and what they run on\n"


@pytest.mark.parametrize("options", ["", "--until-idle"])
@pytest.mark.parametrize(
    ("manifest", "what"),
    [
        ("apiVersion: apps/v1, kind: Deployment", "Deployment web"),
        ("apiVersion: apps/v1, kind: StatefulSet", "StatefulSet web"),
        ("apiVersion: v1, kind: ReplicationController", "ReplicationController web"),
        ("apiVersion: batch/v1, kind: CronJob", "CronJob web"),
        ("apiVersion: batch.volcano.sh/v1alpha1, kind: Job", "Job of batch.volcano.sh web"),
    ],
)
def test_a_workload_whose_pods_nobody_would_make_is_refused(manifest: str, what: str, options: str) -> None:
    Path("web.yaml").write_text(f"{{{manifest}, metadata: {{name: web}}}}")
    (line,) = refused(f"simulate -f cluster.yaml -f web.yaml {options}")
    remedy = "leave it out, or put a PodGroup with its pods, or a Job of batch/v1, in its place"
    assert line == f"Error: {what}: its pods aren't simulated; {remedy}"


@pytest.mark.parametrize("options", ["", "--until-idle"])
def test_yaml_that_is_none_is_told_with_line_and_column(options: str) -> None:
    Path("broken.yaml").write_text("kind: Node\nmetadata: {name: n\n")
    (line,) = refused(f"simulate -f cluster.yaml -f broken.yaml {options}")
    assert line.startswith("Error: broken.yaml, line 3, column 1: ")


class Terminal(io.StringIO):
    """A standard error that people look at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("options", ["--for 30m", ""])
def test_a_bar_on_the_terminal_shows_how_far_it_is(
    options: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "_TELL", 1)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    muster.main(shlex.split(f"{OVER_TIME} {options}"), standalone_mode=False)
    shown = [int(each) for each in re.findall(r"default +\[[#-]+\] +(\d+)%", terminal.getvalue())]
    assert shown == sorted(shown)
    assert (shown[0], shown[-1]) == (0, 100)
    assert any(0 < each < 100 for each in shown)
    # What a program reads has nothing of it.
    assert capsys.readouterr().out == ran(f"{OVER_TIME} {options}").stdout


@pytest.mark.parametrize("options", ["--for 30m", ""])
def test_where_nobody_looks_there_is_no_bar(options: str) -> None:
    result = ran(f"{OVER_TIME} {options}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout


def test_a_bar_needs_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    muster.main(shlex.split("simulate -f cluster.yaml -f pi.yaml --until-idle"), standalone_mode=False)
    assert terminal.getvalue() == ""


def test_what_admission_refuses_is_told_in_its_words() -> None:
    quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: team, namespace: default}, spec: {hard: {requests.cpu: '8'}}}"
    Path("quota.yaml").write_text(quota)
    shown = ran("simulate -f cluster.yaml -f quota.yaml --trace jobs.csv").stdout
    # Beside the minimum of the sweep two of its pods fit; the others come when these have ended.
    assert "1 group came, 1 started, 1 ended, 7 creations refused" in shown.splitlines()[0]
    assert '  at 0s, Pod default/sweep-4: exceeded quota: Pod "sweep-4"' in shown
    assert re.search(
        r'^  at 10m, PodGroup default/report: PodGroup "report" requests 8 requests.cpu', shown, re.MULTILINE
    )


# Where fontconfig is installed, matplotlib asks it for fonts.
@pytest.mark.processes
def test_a_picture_is_drawn(folder: Path) -> None:
    for name, options in (("one.png", ""), ("two.svg", "--compare keep.yaml")):
        assert ran(f"{OVER_TIME} {options} --plot {name}").exit_code == 0
        assert (folder / name).stat().st_size > 10_000


def test_a_picture_that_cant_be_drawn_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert refused(f"{OVER_TIME} --plot a.png") == [
        "Error: --plot needs matplotlib: pip install 'muster-scheduler[plot]'"
    ]


_RACKS = """
apiVersion: v1
kind: Node
metadata: {{name: {rack}-{number}, labels: {{example.com/rack: {rack}}}}}
status: {{allocatable: {{cpu: "4", memory: 16Gi, pods: "20"}}}}
---
"""
_CLOSE = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  namespace: default
  annotations:
    scheduling.k8s.io/group-min-member: "{pods}"
    volcano.sh/network-topology-mode: hard
    volcano.sh/network-topology-highest-tier: "1"
spec:
  parallelism: {pods}
  completions: {pods}
  template:
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{{name: main, image: busybox, resources: {{requests: {{cpu: "2"}}}}}}]
---
"""
_LEVELS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
- plugins:
  - name: network-topology-aware
    arguments: {levels: [example.com/rack]}
"""


def test_a_configuration_that_knows_the_racks_is_compared_with_one_that_does_not(folder: Path) -> None:
    nodes = [_RACKS.format(rack=rack, number=number) for rack in ("r1", "r2") for number in range(2)]
    # Each fills a rack, so two run at once and the third when a rack is free again.
    jobs = [_CLOSE.format(name=f"train-{number}", pods=4) for number in range(3)]
    (folder / "racks.yaml").write_text("".join([*nodes, *jobs]))
    (folder / "levels.yaml").write_text(_LEVELS)
    result = ran("simulate -f racks.yaml --until-idle --compare levels.yaml -o json")
    assert result.exit_code == 0, result.output
    without, knowing = json.loads(result.stdout)["runs"]
    assert (without["report"]["ended"], knowing["report"]["ended"]) == (0, 3)
    assert ["nothing describes the network" in each["message"] for each in without["report"]["refusals"]] == [True] * 3
    racks: dict[str, set[str]] = {}
    for pod, node in json.loads(ran("simulate -f racks.yaml --config levels.yaml --for 3s -o json").stdout)[
        "binds"
    ].items():
        racks.setdefault(pod.partition("/")[2][: len("train-0")], set()).add(node.partition("-")[0])
    assert sorted(map(len, racks.values())) == [1, 1]
    assert len(set.union(*racks.values())) == 2
