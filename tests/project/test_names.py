"""A name means one thing: who greps for a class finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict

from product import PACKAGES, without_sandbox


def test_no_class_name_is_defined_twice():
    places = defaultdict(list)
    for module in without_sandbox():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{module.path}:{node.lineno}")
    assert len(places) > 300
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_nothing_of_muster_is_imported_under_another_name():
    renamed = {
        f"{module.path}:{node.lineno}: {each.name} as {each.asname}"
        for module in without_sandbox()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for each in node.names
        if each.asname is not None
    }
    assert renamed == set()
