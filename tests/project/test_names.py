"""A name means one thing: who greps for a class finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict

from product import without_sandbox


def test_no_class_name_is_defined_twice():
    places = defaultdict(list)
    for module in without_sandbox():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{module.path}:{node.lineno}")
    assert len(places) > 300
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
