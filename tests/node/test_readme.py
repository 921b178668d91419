"""README's tour, from its text, with real containers."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from pages import Section, follow, sections

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("quiet")]

# Muster's own pods are on these nodes and not beside them, so less is free than the tour says.
_FREE = (
    (r"16 cpu are free.*", "…"),
    (r"- 1 more node with .*", "- …"),
)


def as_here(line: str) -> str:
    for pattern, shown in _FREE:
        line = re.sub(pattern, shown, line)
    return line


def test_the_tour_goes_as_readme_says(nodes, monkeypatch, tmp_path):
    tools = nodes.folder / "bin"
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (section,) = sections("../README.md")
    commands = tuple((command, tuple(map(as_here, printed))) for command, printed in section.commands)
    tour: Section = replace(section, commands=commands)
    assert len(tour.commands) > 10
    # Those of other tests' Jobs would be shown among the tour's.
    nodes.kubectl("delete", "events", "--all", "--namespace", "default")
    follow(tour, nodes.kubeconfig, tmp_path)
