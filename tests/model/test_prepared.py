"""What is prepared before there is a second thread."""

from __future__ import annotations

import gc
import subprocess
import sys

import msgspec
import pytest

from muster.kube import threads
from muster.model import kinds, objects

PREPARED = """
import msgspec._utils
from muster.model import objects

objects.prepare()

def unprepared(*_):
    raise AssertionError("a type is read for the first time")

msgspec._utils.get_class_annotations = unprepared
from muster.model import kinds
for kind in vars(kinds).values():
    if isinstance(kind, kinds.Kind):
        msgspec.json.Decoder(kind.struct)
import scheduler.model.constraints
"""


@pytest.mark.processes
def test_once_prepared_no_type_of_an_object_is_read_anew_in_any_thread():
    done = subprocess.run([sys.executable, "-c", PREPARED], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


async def test_before_a_loop_runs_in_a_thread_of_its_own_all_is_prepared():
    objects.prepare.cache_clear()

    async def work() -> int:
        return objects.prepare.cache_info().currsize

    assert await threads.run_in_thread(work, "test") == 1


def test_no_object_is_one_that_a_collection_walks():
    structs = [each.struct for each in vars(kinds).values() if isinstance(each, kinds.Kind)]
    assert [each.__name__ for each in structs if each.__struct_config__.gc] == []
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}, objects.Pod)
    assert [gc.is_tracked(each) for each in (pod, pod.metadata, pod.spec, pod.spec.containers[0])] == [False] * 4
