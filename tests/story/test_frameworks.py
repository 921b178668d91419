"""The page of the frameworks, with the CRDs that their projects publish; their operators run nowhere here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from frameworks import FOLDER, needs_them
from pages import DOCS, SECONDS, Section, clusters, follow, sections
from running import kubectl

from muster.model.workloads import OPERATORS

pytestmark = pytest.mark.processes

EXAMPLES = DOCS / "examples" / "frameworks"


@pytest.fixture(scope="module")
def operators(cluster: tuple[str, Path]) -> Iterator[Path]:
    """A cluster that serves the kinds of all frameworks."""
    config = cluster[1]
    names = [str(each.kind) for each in OPERATORS]
    # Of another test of this control plane, with a schema of its own.
    _delete(config, names)
    made = kubectl(config, "create", "-f", str(Path(FOLDER) / "crds"))
    assert made.returncode == 0, made.stdout
    kubectl(config, "wait", "crd", "--for=condition=Established", "--timeout=60s", *names)
    yield config
    _delete(config, names)


def _delete(config: Path, names: list[str]) -> None:
    """Delete CRDs at once, and wait until the last is gone: one after the other they take minutes."""
    kubectl(config, "delete", "crd", "--ignore-not-found", "--wait=false", *names)
    deadline = time.monotonic() + SECONDS
    while kubectl(config, "get", "crd", "--ignore-not-found", "-o", "name", *names).stdout:
        assert time.monotonic() < deadline, "CRDs stay"
        time.sleep(0.5)


@needs_them
@pytest.mark.parametrize("section", sections("frameworks.md"), ids=str)
@clusters()
def test_a_workload_of_each_framework_does_what_its_page_says(
    operators: Path, section: Section, tmp_path: Path
) -> None:
    follow(section, operators, tmp_path)


def test_each_kind_that_muster_knows_has_a_section_and_a_manifest_that_is_applied() -> None:
    kinds = {each.kind.name for each in OPERATORS}
    assert {each.title for each in sections("frameworks.md")} == kinds
    manifests = {file: yaml.safe_load(file.read_text()) for file in EXAMPLES.glob("*.yaml")}
    assert {each["kind"] for each in manifests.values()} == kinds
    for file, each in manifests.items():
        section = next(one for one in sections("frameworks.md") if one.title == each["kind"])
        assert section.commands[0][0] == f"kubectl apply -f docs/examples/frameworks/{file.name}"
