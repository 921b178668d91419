"""What the chart's containers are on a real node: seen from inside, under Pod Security `restricted`."""

from __future__ import annotations

import json

import pytest
from nodes import SPACE
from platforms import PROGRAMS

pytestmark = pytest.mark.processes

_STATUS = """
import json, pathlib
lines = pathlib.Path("/proc/1/status").read_text().splitlines()
print(json.dumps({name: value.split() for name, _, value in (each.partition(":") for each in lines)}))
"""
_WRITES = """
import json, pathlib
said = {}
for folder in ("/", "/opt/muster", "/tmp"):
    try:
        pathlib.Path(folder, "written").write_text("x")
        said[folder] = "written"
    except OSError as error:
        said[folder] = error.strerror
print(json.dumps(said))
"""
_SIZE = """
import pathlib
print(sum(each.lstat().st_size for each in pathlib.Path("/opt/muster").rglob("*") if not each.is_symlink()))
"""
LARGEST = 170_000_000
"""Bytes of /opt/muster, all that the image has beside its base."""


def python(nodes, program: str, code: str) -> str:
    return nodes.kubectl("exec", "--namespace", SPACE, f"deployment/muster-{program}", "--", "python", "-c", code)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_as_the_user_and_the_group_of_the_image_with_no_capability_under_seccomp(nodes, program):
    status = json.loads(python(nodes, program, _STATUS))
    assert set(status["Uid"]) == set(status["Gid"]) == {"65532"}
    assert set(status["Groups"]) <= {"65532"}
    assert {int(status[each][0], 16) for each in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_can_write_to_tmp_alone(nodes, program):
    read_only = "Read-only file system"
    said = json.loads(python(nodes, program, _WRITES))
    assert said == {"/": read_only, "/opt/muster": read_only, "/tmp": "written"}


def test_what_the_image_adds_to_its_base_is_bounded_and_has_no_package_that_no_program_imports(nodes):
    assert int(python(nodes, "webhook", _SIZE)) <= LARGEST
    found = python(nodes, "webhook", "import importlib.util as i; print(i.find_spec('kubernetes'), i.find_spec('pip'))")
    assert found.split() == ["None", "None"]


def test_every_pod_became_ready_without_being_restarted(nodes):
    found = pods(nodes)
    statuses = [each["status"]["containerStatuses"][0] for each in found]
    assert [(each["ready"], each["restartCount"]) for each in statuses] == [(True, 0)] * 8
    assert {each["spec"]["nodeName"] for each in found} == set(nodes.names)


def test_no_pod_writes_a_warning_once_all_are_ready(nodes):
    since = ready(nodes)
    lines = [line for each in pods(nodes) for line in logged(nodes, each["metadata"]["name"])]
    troubled = [line for line in lines if line["level"] not in {"info", "debug"}]
    assert len(lines) > len(PROGRAMS)
    # Until the first certificate is issued, each webhook server says once that it waits for it.
    first = "/certificates holds no certificate yet"
    assert [line for line in troubled if line["time"] >= since or not line["message"].startswith(first)] == []


def ready(nodes) -> str:
    """Return when the last pod became ready."""
    conditions = [each for pod in pods(nodes) for each in pod["status"]["conditions"]]
    return max(each["lastTransitionTime"] for each in conditions if each["type"] == "Ready")


def logged(nodes, name: str) -> list[dict]:
    return [json.loads(line) for line in nodes.kubectl("logs", name, "--namespace", SPACE).splitlines()]


def pods(nodes) -> list[dict]:
    return json.loads(nodes.kubectl("get", "pods", "--namespace", SPACE, "--output=json"))["items"]


def test_helm_test_finds_nothing_wrong_and_leaves_nothing(nodes):
    done = nodes.run("helm", "test", "muster", "--namespace", SPACE, "--timeout", "2m", "--logs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert nodes.kubectl("get", "pods", "--namespace", SPACE, "--ignore-not-found", "muster-test") == ""
