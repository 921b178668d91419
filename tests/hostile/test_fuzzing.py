"""No bytes make a decoder fail but by the error that it documents. ``MUSTER_SOAK`` multiplies the time."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.soak,
    pytest.mark.processes,
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris isn't made for this platform"),
]

SECONDS = 5 * int(os.environ.get("MUSTER_SOAK", "1"))
PROGRAM = Path(__file__).parents[1] / "support" / "fuzzing.py"

_METADATA = {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "1", "managedFields": [{"fieldsV1": {}}]}
_POD = {"metadata": _METADATA, "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "500m"}}}]}}
_REVIEW = {
    "kind": "AdmissionReview",
    "apiVersion": "admission.k8s.io/v1",
    "request": {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "userInfo": {"username": "x"},
        "object": _POD,
    },
}
# What is right, for the fuzzer to begin with.
SEEDS = {
    "row": (
        "PodGroup scheduling.volcano.sh/train 6f0c cpu=6,memory=4Gi new",
        "Pod train/a 1 cpu=1 from:12 @BestEffort",
    ),
    "duration": ("1h30m", "0.5s", "10ms"),
    "quantity": ("500m", "1.5Gi", "+.5e3", "9223372036854775807n"),
    "admission_review": (json.dumps(_REVIEW),),
    "watch_line": (json.dumps({"type": "ADDED", "object": _POD}), json.dumps({"type": "BOOKMARK", "object": {}})),
}


@pytest.mark.parametrize("target", SEEDS)
def test_a_decoder_takes_or_refuses_whatever_comes(target: str, tmp_path: Path):
    done = fuzz(target, SEEDS[target], tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Done " in done.stdout, done.stdout[-3000:]


def test_one_that_fails_on_something_is_found(tmp_path: Path):
    done = fuzz("wrong", ("right",), tmp_path)
    assert done.returncode != 0
    assert "AssertionError" in done.stdout


def fuzz(target: str, seeds: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / f"{number}").write_text(seed)
    options = (f"-max_total_time={SECONDS}", "-timeout=5", "-max_len=65536", "-seed=1", f"-artifact_prefix={folder}/")
    return subprocess.run(
        [sys.executable, str(PROGRAM), target, *options, str(corpus)],
        cwd=PROGRAM.parents[2],
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=SECONDS + 120,
    )
