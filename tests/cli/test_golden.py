"""Each output, whole. After a change: GOLDEN=write pytest tests/cli/test_golden.py, and read the difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

BUSY, QUOTA, EMPTY, LETIN, SCALED, AGAIN = (
    f"states/{name}.yaml" for name in ("busy", "quota", "empty", "letin", "scaled", "again")
)

CASES: dict[str, tuple[int, str]] = {
    "why-not-enough-room": (0, f"podgroup why train -n team-a --state {BUSY}"),
    "why-not-enough-room-wide": (0, f"podgroup why train -n team-a --state {BUSY} -o wide"),
    "why-not-enough-room-json": (0, f"podgroup why train -n team-a --state {BUSY} -o json"),
    "why-with-an-autoscaler": (0, f"podgroup why train -n team-a --state {SCALED}"),
    "why-behind-others": (0, f"podgroup why later -n team-a --state {BUSY}"),
    "why-no-node-is-large-enough": (0, f"podgroup why huge -n team-a --state {BUSY}"),
    "why-a-queue-too-small": (0, f"podgroup why study -n team-a --state {BUSY}"),
    "why-its-pods-are-missing": (0, f"podgroup why alone -n team-a --state {BUSY}"),
    "why-no-such-queue": (0, f"podgroup why lost -n team-a --state {BUSY}"),
    "why-a-job-with-a-minimum-that-is-no-number": (0, "podgroup why job/train --state states/generated.yaml"),
    "why-a-job-with-a-minimum-that-is-no-number-json": (
        0,
        "podgroup why job/train --state states/generated.yaml -o json",
    ),
    "why-a-deployment-on-too-few-nodes": (0, "podgroup why deployment/web --state states/generated.yaml"),
    "why-it-runs": (0, f"podgroup why first --state {BUSY}"),
    "why-it-is-over": (0, f"podgroup why done -n team-a --state {BUSY}"),
    "why-it-is-over-with-pods-that-wait": (0, f"podgroup why late -n team-a --state {AGAIN}"),
    "admit-a-job-of-a-completed-group": (0, f"admit -f files/again.yaml --state {AGAIN}"),
    "why-a-quota": (0, f"podgroup why late -n team-a --state {QUOTA}"),
    "why-a-quota-yaml": (0, f"podgroup why late -n team-a --state {QUOTA} -o yaml"),
    "why-beside-one-let-in-before": (0, f"podgroup why train -n team-a --state {LETIN}"),
    "why-unknown-group": (1, f"podgroup why trian -n team-a --state {BUSY}"),
    "why-an-unknown-name": (1, "podgroup why trian --state states/generated.yaml"),
    "why-other-namespace": (1, f"podgroup why train --state {EMPTY}"),
    "top": (0, f"top --once --state {BUSY}"),
    "top-by-waiting-filtered": (0, f"top --state {BUSY} --sort waiting --filter research"),
    "top-with-starts": (0, f"top --once --start --state {BUSY}"),
    "top-with-a-quota-json": (0, f"top --once --state {QUOTA} -o json"),
    "top-with-a-quota": (0, f"top --once --state {QUOTA}"),
    "admit-starts-now": (0, f"admit -f files/job.yaml --state {EMPTY}"),
    "admit-a-gang-and-its-job": (0, f"admit -f files/gang.yaml --state {EMPTY}"),
    "admit-what-it-brings-along": (0, f"admit -f files/brings.yaml --state {EMPTY}"),
    "admit-after-others": (0, f"admit -f files/job.yaml --state {BUSY}"),
    "admit-one-after-the-other": (0, f"admit -f files/line.yaml --state {EMPTY}"),
    "admit-not-before-more-nodes": (0, f"admit -f files/large.yaml --state {EMPTY}"),
    "admit-not-both": (1, f"admit -f files/both.yaml --state {QUOTA}"),
    "admit-not-both-json": (1, f"admit -f files/both.yaml --state {QUOTA} -o json"),
    "admit-a-job-beside-a-quota": (0, f"admit -f files/beside.yaml --state {QUOTA}"),
    "admit-a-job-beyond-a-quota": (1, f"admit -f files/beyond.yaml --state {QUOTA}"),
    "admit-refused": (1, f"admit -f files/refused.yaml --state {EMPTY}"),
    "admit-a-kind-without-rules": (0, f"admit -f files/other.yaml --state {EMPTY}"),
    "admit-workloads": (0, f"admit -f files/workloads.yaml --state {EMPTY}"),
    "admit-workloads-on-a-full-cluster": (0, f"admit -f files/workloads.yaml --state {BUSY}"),
    "admit-workloads-in-no-queue": (1, f"admit -f files/noqueue.yaml --state {EMPTY}"),
    "admit-an-operator-s-object": (0, f"admit -f files/ray.yaml --state {EMPTY}"),
    "admit-broken-yaml": (2, f"admit -f files/broken.yaml --state {EMPTY}"),
    "admit-no-such-file": (2, f"admit -f files/nothing.yaml --state {EMPTY}"),
    "admit-not-a-dump": (2, "admit -f files/job.yaml --state files/job.yaml"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_output_is_as_somebody_read_it(name: str, run: Callable[..., Result], golden: Callable[..., None]) -> None:
    status, command = CASES[name]
    result = run(*command.split())
    assert result.exit_code == status, result.output
    assert isinstance(result.exception, SystemExit | None), result.exception
    golden(name, f"$ muster {command}\n{result.output}")


@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith(("-wide", "-json", "-yaml"))])
def test_an_output_fits_eighty_columns(name: str, run: Callable[..., Result]) -> None:
    _, command = CASES[name]
    assert not [line for line in run(*command.split()).stdout.splitlines() if len(line) > 80]
