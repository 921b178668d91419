"""docs/sandbox.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from muster.sandbox.codec import decoding
from muster.sandbox.core import paths, store
from muster.sandbox.core.builtins import BUILTIN
from muster.sandbox.strategies.table import strategy_of

PAGE = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def row(title: str, first: str) -> set[str]:
    """Return the names in backticks in the row of a section's table that begins with a word."""
    line = next(line for line in section(title).splitlines() if line.startswith(f"| {first} |"))
    return set(re.findall(r"`([^`]+)`", line))


def test_the_kinds_on_the_page_are_those_that_are_served() -> None:
    for group in {resource.group for resource in BUILTIN}:
        served = {resource.plural for resource in BUILTIN if resource.group == group}
        assert row("Kinds served", group or "core") == served
    assert section("Kinds served").count("\n| ") == len({resource.group for resource in BUILTIN}) + 1


def test_the_subresources_on_the_page_are_those_that_are_refused() -> None:
    assert row("Unsupported requests", "subresources") == paths._NOT_HERE


def test_the_kinds_that_cannot_be_created_are_named() -> None:
    refused = {resource.plural for resource in BUILTIN if strategy_of(resource).refused}
    assert row("Unsupported requests", "creating") == refused


def test_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"last {store.HISTORY:,} changes" in PAGE
    assert f"over {decoding.LIMIT // 2**20} MiB" in PAGE
