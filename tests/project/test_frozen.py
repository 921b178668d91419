"""Frozen means frozen: a value of the scheduler is never written to once it is made, and holds nothing that can be.

What is remembered about values is in caches that somebody owns and passes on (`scheduler.engine.decision_cache`). A
`functools.cached_property` is part of a value: it follows from the fields alone, and may not be something to write to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest
from product import ROOT, modules

SCHEDULER = [each for each in modules() if each.path.is_relative_to("scheduler")]
MUTABLE = {"list", "dict", "set", "bytearray", "deque", "Counter", "defaultdict", "OrderedDict", "ChainMap"} | {
    *("MutableMapping", "MutableSequence", "MutableSet", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet"),
}
_COUNTED = "what a statement does to a job; the job's amounts change by it"
MAY_REFER = {
    "Operation.job": _COUNTED,
    "Operation.beneficiary": _COUNTED,
    "SimulationSetup.cluster": "the cluster that a simulation begins with and goes on with",
}
"""``Class.field``: why a frozen value may refer to an object that changes."""
CHANGES = frozenset({"clear", "pop", "popitem", "setdefault", "update"})


def base_names(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).split(".")[-1].split("[")[0] for base in node.bases]


def is_frozen(node: ast.ClassDef) -> bool:
    flags = [*node.keywords, *(word for each in node.decorator_list for word in getattr(each, "keywords", ()))]
    return "NamedTuple" in base_names(node) or any(flag.arg == "frozen" for flag in flags)


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def is_constant(node: ast.ClassDef) -> bool:
    """Whether objects of a class don't change, or are only described by it: values, exceptions, enumerations, protocols."""
    pydantic = any(
        ast.unparse(each).startswith("model_config") and "frozen=True" in ast.unparse(each) for each in node.body
    )
    described = any(name.endswith(("Protocol", "Enum", "Error")) for name in base_names(node))
    return is_frozen(node) or pydantic or described


@cache
def objects() -> frozenset[str]:
    """Return the classes of the scheduler whose objects change."""
    found = {node.name: is_constant(node) for module in SCHEDULER for node in classes(module.tree)}
    return frozenset(name for name, constant in found.items() if not constant)


def named(annotation: ast.expr) -> Iterator[str]:
    """Return the types that an annotation names, but for classes that are themselves the value (``type[...]``)."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in {"type", "ClassVar", "Callable"}:
        return
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        yield from named(next(ast.iter_child_nodes(annotation.slice)))
        return
    if isinstance(annotation, ast.Constant) and str(annotation.value).isidentifier():
        yield str(annotation.value)
    if isinstance(annotation, ast.Name):
        yield annotation.id
    if isinstance(annotation, ast.Attribute):
        yield annotation.attr
        return
    for child in ast.iter_child_nodes(annotation):
        if isinstance(child, ast.expr):
            yield from named(child)


def is_remembered(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(each).endswith("cached_property") for each in node.decorator_list)


def fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id, each.annotation
        if isinstance(each, ast.FunctionDef) and each.returns is not None and is_remembered(each):
            yield each.name, each.returns


def mutable_fields(tree: ast.Module) -> Iterator[str]:
    """Return ``Class.field`` of what a frozen class has and what can be written to."""
    for node in filter(is_frozen, classes(tree)):
        for name, annotation in fields(node):
            if (MUTABLE | objects()).intersection(named(annotation)):
                yield f"{node.name}.{name}"


def writes(tree: ast.AST, *, frozen: bool = False, making: bool = False) -> Iterator[str]:
    """Return the expressions that write to a value which is made already, or could."""
    for node in ast.iter_child_nodes(tree):
        inside, made = frozen, making
        if isinstance(node, ast.ClassDef):
            inside = is_frozen(node)
        if isinstance(node, ast.FunctionDef):
            made = node.name in {"__post_init__", "__new__"}
        text = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            yield text
        if isinstance(node, ast.Call) and not made:
            function = ast.unparse(node.func)
            if function.split(".")[-1] in {"force_setattr", "__setattr__", "__delattr__"}:
                yield text
            if function in {"setattr", "delattr"} and inside:
                yield text
            of, _, method = function.rpartition(".")
            if method in CHANGES and inside and of.startswith(("self.", "vars(self)")):
                yield text
        yield from writes(node, frozen=inside, making=made)


@pytest.mark.parametrize("module", SCHEDULER, ids=lambda each: each.name)
def test_no_value_is_written_to_once_it_is_made(module):
    assert list(writes(module.tree)) == []


def test_no_frozen_value_has_a_field_that_can_be_written_to():
    found = {each for module in SCHEDULER for each in mutable_fields(module.tree)}
    assert found == MAY_REFER.keys()


BAD = """
class Memo(Struct, frozen=True):
    known: list[int] = field(default_factory=list)
    jobs: tuple[JobState, ...] = ()
    kinds: type[JobState]
    plain: Mapping[str, int]

    @cached_property
    def sums(self) -> dict[str, int]:
        return {}

    def counted(self):
        self.__dict__["sums"] = {}
        self.known.clear()
        force_setattr(self, "known", [])
        return object.__setattr__(self, "known", [])

    def __post_init__(self):
        force_setattr(self, "known", [])
"""


def test_what_is_forbidden_is_found():
    tree = ast.parse(BAD)
    assert list(mutable_fields(tree)) == ["Memo.known", "Memo.jobs", "Memo.sums"]
    assert list(writes(tree)) == [
        "self.__dict__",
        "self.known.clear()",
        "force_setattr(self, 'known', [])",
        "object.__setattr__(self, 'known', [])",
    ]


def test_the_scheduler_has_values_and_objects():
    assert {"JobState", "Session", "Cache"} <= objects()
    assert {"JobInfo", "NodeTable", "Storage", "TaskClass"}.isdisjoint(objects())
    assert (ROOT / "scheduler/model").is_dir()
