"""Modules stand on each other in one direction; imports for types and those inside of functions count as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest
from product import Module, modules


def imported(module: Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}:{node.lineno}: a relative import"
            for each in node.names:
                inside = f"{node.module}.{each.name}"
                yield inside if inside in known else node.module or ""


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module, and modules that import themselves."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            new = graph.get(left.pop(), set()) - seen
            seen |= new
            left.extend(new)
        return seen

    beyond = {name: reached(name) for name in graph}
    found = {frozenset(other for other in beyond[name] if name in beyond[other]) for name in graph}
    return sorted(sorted(each) for each in found if each)


def test_no_circle_of_imports():
    known = {each.name for each in modules()}
    graph = {each.name: {name for name in imported(each, known) if name in known} for each in modules()}
    assert len(graph) > 200
    assert graph["scheduler.engine.cycle"], "the graph is of imports"
    assert circles(graph) == []


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"d"}}, [["a", "b", "c"], ["d"]]),
    ],
)
def test_circles_are_found(graph, found):
    assert circles(graph) == found
