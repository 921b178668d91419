"""The product's modules, read as text: what tests of its structure look at. The sandbox has its own words."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("muster", "scheduler", "webhooks", "certs")


@dataclass(frozen=True)
class Module:
    """A module; its syntax tree is made when a test looks at it, not as tests are collected."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@cache
def modules() -> tuple[Module, ...]:
    """Return all of them."""
    found = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            path = file.relative_to(ROOT)
            parts = path.with_suffix("").parts
            text = file.read_text()
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append(Module(name, path, text))
    return tuple(found)


def without_sandbox() -> tuple[Module, ...]:
    """Return those outside ``muster/sandbox``."""
    return tuple(each for each in modules() if not each.path.is_relative_to("muster/sandbox"))
