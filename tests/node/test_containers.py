"""What the chart's containers are on a real node: seen from inside, under Pod Security `restricted`."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.processes

SPACE = "muster-system"
PROGRAMS = ("webhook", "scheduler", "certs")
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
    pods = json.loads(nodes.kubectl("get", "pods", "--namespace", SPACE, "--output=json"))["items"]
    statuses = [each["status"]["containerStatuses"][0] for each in pods]
    assert [(each["ready"], each["restartCount"]) for each in statuses] == [(True, 0)] * 6
    assert {each["spec"]["nodeName"] for each in pods} == set(nodes.names)
