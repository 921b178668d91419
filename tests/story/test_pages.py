"""README and the pages with commands: what they say is what happens, command by command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, Section, clusters, follow, run, sections

pytestmark = pytest.mark.processes

OTHERS = {
    "operations.md": 2,
    "queues.md": 4,
    "troubleshooting.md": 6,
    "autoscaler.md": 1,
    "gpus.md": 1,
    "tenants.md": 1,
    "gitops.md": 1,
    "kueue.md": 1,
    "../README.md": 1,
}
"""Pages that are played on the embedded control plane, and how many of their sections have commands."""


@pytest.mark.parametrize("section", sections("workloads.md"), ids=str)
@clusters()
def test_each_kind_of_workload_does_what_its_page_says(
    cluster: tuple[str, Path], section: Section, tmp_path: Path
) -> None:
    follow(section, cluster[1], tmp_path)


@pytest.mark.parametrize("section", sections("migrating.md"), ids=str)
@clusters("--legacy-apis")
def test_whoever_comes_from_another_scheduler_finds_what_the_page_says(
    cluster: tuple[str, Path], section: Section, tmp_path: Path
) -> None:
    follow(section, cluster[1], tmp_path)


@pytest.mark.parametrize("section", sections("python.md"), ids=str)
@clusters()
def test_the_official_python_client_does_what_its_page_says(
    cluster: tuple[str, Path], section: Section, tmp_path: Path
) -> None:
    """Programs of the package `kubernetes`, which nobody here wrote, by its typed and by its dynamic client."""
    try:
        follow(section, cluster[1], tmp_path)
    finally:
        run("kubectl delete namespace quota-of-two --ignore-not-found", tmp_path, cluster[1])
        run("kubectl delete queues.scheduling.volcano.sh research --ignore-not-found", tmp_path, cluster[1])


def _in_a_cluster_of_its_own(page: str) -> list[Any]:
    """Return the sections of a page, one after the other in one cluster; the answers of another page's are other ones."""
    cluster = ("sandbox", page)
    return [pytest.param(cluster, section, id=f"sandbox-{section}") for section in sections(page)]


@pytest.mark.parametrize(
    ("cluster", "section"), [each for page in OTHERS for each in _in_a_cluster_of_its_own(page)], indirect=["cluster"]
)
def test_a_reader_of_the_other_pages_finds_what_they_say(
    cluster: tuple[str, Path], section: Section, tmp_path: Path
) -> None:
    follow(section, cluster[1], tmp_path)


def test_the_pages_have_commands() -> None:
    assert len(sections("workloads.md")) >= 9
    assert len(sections("migrating.md")) == 2
    assert len(sections("python.md")) == 3
    assert {page: len(sections(page)) for page in OTHERS} == OTHERS


def test_what_the_readme_shows_of_a_file_is_in_it() -> None:
    parts = {file: text for each in sections("../README.md") for file, text in each.files.items() if "part of " in file}
    assert parts
    for file, text in parts.items():
        shown = text.partition("\n")[2]
        assert shown in (DOCS.parent / file.removeprefix("part of ")).read_text()
