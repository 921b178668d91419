"""Packages are rooms with a purpose and a size that one can survey."""

from __future__ import annotations

import ast
import re

import pytest
from product import ROOT, modules

LONGEST = 400


def test_no_file_is_too_long():
    lengths = {str(each.path): each.text.count("\n") for each in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST} == {}


def test_the_scheduler_has_few_rooms_and_little_beside_them():
    entries = [each for each in (ROOT / "scheduler").iterdir() if each.name != "__pycache__"]
    rooms = {each.name for each in entries if each.is_dir()}
    assert len(rooms) <= 12, rooms
    beside = {each.name for each in entries if each.is_file()} - {"__init__.py"}
    assert len(beside) <= 3, beside


PACKAGES = [each for each in modules() if each.is_package]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.name)
def test_a_package_says_what_may_live_there(package):
    docstring = " ".join((ast.get_docstring(package.tree) or "").split())
    sentences = re.findall(r"[.!?:](?:\s|$)", docstring)
    assert len(sentences) >= 2, docstring
