"""Tree to nested functions, with the types checked as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from muster.cel import folds
from muster.cel.folds import Steps
from muster.cel.functions import (
    CONSTANTS,
    UNSUPPORTED,
    candidates,
    describe,
    dispatch,
    known_function,
    undeclared,
)
from muster.cel.parse import parse
from muster.cel.syntax import Call, Fold, ListNode, Literal, MapNode, Name, Select, SyntaxNode
from muster.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    RESERVED,
    STRING,
    Type,
    compatible,
    converter,
    escape,
    join,
    list_of,
    map_of,
    optional_of,
    substitute,
)
from muster.cel.values import CelError, CompileError, kind_of, unsupported

Run = folds.Run
"""Evaluates a part of an expression, given the variables."""

DEPTH: Final = 100
_TYPE_NAMES: Final = frozenset({"bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"})
_LITERALS: Final = {
    "null": NULL,
    "bool": BOOL,
    "int": INT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
}


class Program(Struct, frozen=True):
    """A compiled expression.

    Attributes:
        source: its text.
        type: what it gives, as far as known.
        names: the variables that it uses.
    """

    source: str
    type: Type
    names: frozenset[str]
    _run: Run

    def evaluate(self, variables: Mapping[str, Any], steps: Steps | None = None) -> Any:
        """Return its value; ``steps``: those that it may take, from which what it takes is taken.

        Raises:
            CelError: it has none: a key that isn't there, a division by zero, too many steps.
        """
        try:
            return self._run({**variables, folds.STEPS: steps or Steps()})
        except RecursionError as error:
            raise CelError("the data is nested too deeply for an expression") from error


def compile_expression(source: str, variables: Mapping[str, Type]) -> Program:
    """Compile an expression over variables of these types.

    Raises:
        CompileError: its syntax or types are wrong, or it uses what the sandbox doesn't know.
    """
    compiler = _Compiler(source)
    known, run = compiler.node(parse(source), variables)
    return Program(source, known, frozenset(compiler.names), run)


class _Compiler:
    def __init__(self, source: str) -> None:
        self._source = source
        self._depth = self._parts = 0
        self.names: set[str] = set()

    def node(self, node: SyntaxNode, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        """Compile one node."""
        self._depth += 1
        self._parts += 1
        if self._depth > DEPTH:
            raise self._error(node, f"expression recursion limit exceeded: {DEPTH}")
        try:
            return self._compile(node, scope)
        finally:
            self._depth -= 1

    def _compile(self, node: SyntaxNode, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        match node:
            case Literal(value=value):
                return _LITERALS[kind_of(value)], lambda _frame: value
            case Name():
                return self._name(node, scope)
            case Select():
                return self._select(node, scope)
            case Call():
                return self._call(node, scope)
            case ListNode():
                return self._list(node, scope)
            case MapNode():
                return self._map(node, scope)
            case Fold():
                return self._fold(node, scope)
        raise AssertionError(node)

    def _error(self, node: SyntaxNode, message: str) -> CompileError:
        return CompileError(message, self._source, node.position)

    def _name(self, node: Name, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        name = node.name
        if name not in scope and name in _TYPE_NAMES:
            raise self._error(node, unsupported(f"type '{name}' as a value"))
        if name not in scope:
            raise self._error(node, f"undeclared reference to '{name}' (in container '')")
        self.names.add(name)
        convert = converter(scope[name])
        if convert is not None:
            return scope[name], lambda frame: convert(frame[name])
        return scope[name], lambda frame: frame[name]

    # ── fields and elements ──────────────────────────────────────────────────────────────────────────────────────

    def _select(self, node: Select, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        operand, run = self.node(node.operand, scope)
        through_optional = operand.kind == "optional"
        holder = operand.arguments[0] if through_optional else operand
        name, kind = self._field(node, holder)
        if node.test:
            return BOOL, folds.present(run, name, typed=holder.fields is not None)
        if node.optional or through_optional:
            typed = holder.fields is not None
            return optional_of(kind), folds.maybe(run, name, converter(kind), typed=typed)
        return kind, folds.field(run, name, converter(kind))

    def _field(self, node: Select, holder: Type) -> tuple[str, Type]:
        if holder == DYN:
            return node.field, DYN
        if holder.fields is not None:
            # A keyword is a field's name where nothing else can be meant: ``self.namespace`` is ``self.__namespace__``.
            known = node.field if node.field in holder.fields or node.field not in RESERVED else escape(node.field)
            if known not in holder.fields:
                raise self._error(node, f"undefined field '{node.field}'")
            return holder.fields[known]
        if holder.kind == "map":
            return node.field, holder.arguments[1]
        raise self._error(node, f"type '{holder}' does not support field selection")

    def _index(self, node: Call, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        (operand, run), (key, key_run) = (self.node(each, scope) for each in node.arguments)
        through_optional = operand.kind == "optional"
        holder = operand.arguments[0] if through_optional else operand
        if holder == DYN:
            result = DYN
        elif holder.kind == "list" and key.kind in {"int", "double", "dyn"}:
            result = holder.arguments[0]
        elif holder.kind == "map" and holder.arguments and compatible(holder.arguments[0], key):
            result = holder.arguments[1]
        else:
            raise self._error(node, describe("[]", False, (operand, key)))
        if node.function == "[?]" or through_optional:
            return optional_of(result), folds.maybe_element(run, key_run)
        return result, folds.element(run, key_run)

    # ── operators and functions ──────────────────────────────────────────────────────────────────────────────────

    def _call(self, node: Call, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        if node.function in {"[]", "[?]"}:
            return self._index(node, scope)
        # Before its arguments: a macro that isn't known has variables of its own.
        if node.function in UNSUPPORTED:
            raise self._error(node, undeclared(node.function))
        given = node.arguments if node.target is None else (node.target, *node.arguments)
        parts = [self.node(each, scope) for each in given]
        kinds = tuple(kind for kind, _ in parts)
        runs = tuple(run for _, run in parts)
        if node.function in {"&&", "||"}:
            return self._logic(node, kinds, runs)
        if node.function == "?:":
            return self._conditional(node, kinds, runs)
        method = node.target is not None
        if not known_function(node.function, method=method):
            raise self._error(node, undeclared(node.function))
        chosen = candidates(node.function, method, kinds)
        if not chosen:
            raise self._error(node, describe(node.function, method, kinds))
        self._check_constants(node)
        results = [substitute(overload.result, bound) for overload, bound in chosen]
        return join(results), dispatch(node.function, [overload for overload, _ in chosen], kinds, runs)

    def _check_constants(self, node: Call) -> None:
        # As the real compiler: a constant pattern, duration or timestamp has to be a good one.
        check = CONSTANTS.get(node.function)
        constant = node.arguments[-1 if node.function == "matches" else 0] if check else None
        if check is not None and isinstance(constant, Literal) and isinstance(constant.value, str):
            try:
                check(constant.value)
            except CelError as error:
                raise self._error(constant, f"invalid {node.function} argument") from error

    def _logic(self, node: Call, kinds: tuple[Type, ...], runs: tuple[Run, ...]) -> tuple[Type, Run]:
        if any(kind.kind not in {"bool", "dyn"} for kind in kinds):
            wrong = next(pair for pair in pairwise(kinds) if {kind.kind for kind in pair} - {"bool", "dyn"})
            raise self._error(node, describe(node.function, False, wrong))
        return BOOL, folds.logic(runs, stop=node.function == "||")

    def _conditional(self, node: Call, kinds: tuple[Type, ...], runs: tuple[Run, ...]) -> tuple[Type, Run]:
        condition, then, other = kinds
        if condition.kind not in {"bool", "dyn"} or not compatible(then, other):
            raise self._error(node, describe("?:", False, kinds))
        return (then if then == other else DYN), folds.conditional(*runs)

    # ── literals and macros ──────────────────────────────────────────────────────────────────────────────────────

    def _list(self, node: ListNode, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        parts = [self.node(each, scope) for each in node.elements]
        runs = [run for _, run in parts]
        self._homogeneous(node.elements, [kind for kind, _ in parts])
        return list_of(join([kind for kind, _ in parts])), lambda frame: [run(frame) for run in runs]

    def _map(self, node: MapNode, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        keys = [self.node(key, scope) for key, _ in node.entries]
        values = [self.node(value, scope) for _, value in node.entries]
        if any(kind.kind not in {"string", "int"} for kind, _ in keys):
            raise self._error(node, "the keys of a map must be of type string or int in the Muster sandbox")
        self._homogeneous([key for key, _ in node.entries], [kind for kind, _ in keys])
        self._homogeneous([value for _, value in node.entries], [kind for kind, _ in values])
        runs = [(key, value) for (_, key), (_, value) in zip(keys, values, strict=True)]
        kind = map_of(join([kind for kind, _ in keys]), join([kind for kind, _ in values]))
        return kind, lambda frame: {key(frame): value(frame) for key, value in runs}

    def _homogeneous(self, nodes: Sequence[SyntaxNode], kinds: list[Type]) -> None:
        for node, kind in zip(nodes, kinds, strict=True):
            if not compatible(kinds[0], kind):
                raise self._error(node, f"expected type '{kinds[0]}' but found '{kind}'")

    def _fold(self, node: Fold, scope: Mapping[str, Type]) -> tuple[Type, Run]:
        operand, run = self.node(node.operand, scope)
        inner = {**scope, **dict(zip(node.variables, self._elements(node, operand), strict=False))}
        before = self._parts
        body, body_run = self.node(node.body, inner)
        where_run = None
        if node.where is not None:
            where, where_run = self.node(node.where, inner)
            self._boolean(node.where, where)
        price = folds.price(self._parts - before)
        if node.macro == "map":
            return list_of(body), folds.transform(run, node.variables, body_run, where_run, price)
        self._boolean(node.body, body)
        if node.macro == "filter":
            return list_of(self._elements(node, operand)[0]), folds.keep(run, node.variables, body_run, price)
        return BOOL, folds.quantifier(node.macro, run, node.variables, body_run, price)

    def _elements(self, node: Fold, operand: Type) -> tuple[Type, ...]:
        if operand == DYN:
            return DYN, DYN
        if operand.kind == "list":
            element = operand.arguments[0]
            return (element,) if len(node.variables) == 1 else (INT, element)
        if operand.kind == "map" and operand.arguments:
            return operand.arguments
        raise self._error(
            node, f"expression of type '{operand}' cannot be range of a comprehension (must be list, map, or dynamic)"
        )

    def _boolean(self, node: SyntaxNode, kind: Type) -> None:
        if kind.kind not in {"bool", "dyn"}:
            raise self._error(node, f"expected type 'bool' but found '{kind}'")
