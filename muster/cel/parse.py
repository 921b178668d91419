"""Text to tree, macros expanded to nodes of their own."""

from __future__ import annotations

from typing import Final

from muster.cel.syntax import (
    Call,
    Fold,
    ListNode,
    Literal,
    MapNode,
    Name,
    Select,
    SyntaxNode,
    Token,
    tokens,
)
from muster.cel.types import RESERVED
from muster.cel.values import CompileError

DEPTH: Final = 60
"""Nesting that is accepted. Deeper text could exhaust the interpreter's stack; no rule in use comes near."""

LENGTH: Final = 100_000
_RELATIONS: Final = ("<", "<=", ">=", ">", "==", "!=", "in")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_FOLDS: Final = {
    "all": "all",
    "exists": "exists",
    "exists_one": "exists_one",
    "existsOne": "exists_one",
    "map": "map",
    "filter": "filter",
}


def parse(source: str) -> SyntaxNode:
    """Read an expression.

    Raises:
        CompileError: a syntax error, at its place.
    """
    if len(source) > LENGTH:
        raise CompileError(
            f"expression code point size exceeds limit: size: {len(source)}, limit {LENGTH}", source[:80], 0
        )
    parser = _Parser(source)
    tree = parser.expression()
    parser.expect("end")
    return tree


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = list(tokens(source))
        self._at = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _accept(self, *kinds: str) -> Token | None:
        token = self._next
        word = token.value if token.kind == "name" and token.value == "in" else token.kind
        return self._take() if word in kinds else None

    def expect(self, kind: str) -> Token:
        if self._next.kind != kind:
            raise self._error(f"Syntax error: mismatched input '{self._next.value}' expecting {_shown(kind)}")
        return self._take()

    def _error(self, message: str, position: int | None = None) -> CompileError:
        return CompileError(message, self._source, self._next.position if position is None else position)

    def expression(self) -> SyntaxNode:
        self._depth += 1
        if self._depth > DEPTH:
            raise self._error(f"expression recursion limit exceeded: {DEPTH}")
        condition = self._binary(0)
        if mark := self._accept("?"):
            then = self._binary(0)
            self.expect(":")
            condition = Call(mark.position, "?:", None, (condition, then, self.expression()))
        self._depth -= 1
        return condition

    _LEVELS: Final = (("||",), ("&&",), _RELATIONS, ("+", "-"), ("*", "/", "%"))

    def _binary(self, level: int) -> SyntaxNode:
        if level == len(self._LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        chain: SyntaxNode | None = None
        while mark := self._accept(*self._LEVELS[level]):
            right = self._binary(level + 1)
            if level < 2 and isinstance(left, Call) and left.function == mark.value and left is chain:
                # One node for a whole chain of && or ||: rules are long rows of conditions, and depth is limited.
                left = chain = Call(left.position, left.function, None, (*left.arguments, right))
            else:
                left = chain = Call(mark.position, str(mark.value), None, (left, right))
        return left

    def _unary(self) -> SyntaxNode:
        marks = []
        while self._next.kind in {"!", "-"}:
            marks.append(self._take())
        node = self._member()
        for mark in reversed(marks):
            if mark.kind == "-" and isinstance(node, Literal) and type(node.value) in {int, float}:
                node = Literal(mark.position, -node.value)
            else:
                node = Call(mark.position, "!" if mark.kind == "!" else "neg", None, (node,))
        return node

    def _member(self) -> SyntaxNode:
        node = self._primary()
        while True:
            if self._accept("."):
                node = self._selection(node)
            elif mark := self._accept("["):
                optional = self._accept("?") is not None
                key = self.expression()
                self.expect("]")
                node = Call(mark.position, "[?]" if optional else "[]", None, (node, key))
            else:
                return node

    def _selection(self, operand: SyntaxNode) -> SyntaxNode:
        optional = self._accept("?") is not None
        token = self._take()
        if token.kind not in {"name", "quoted"}:
            raise self._error(f"Syntax error: no viable alternative at input '.{token.value}'", token.position)
        if not optional and self._next.kind == "(" and token.kind == "name":
            return self._method(operand, token)
        return Select(token.position - 1, operand, str(token.value), optional=optional)

    def _method(self, operand: SyntaxNode, name: Token) -> SyntaxNode:
        position = self._next.position  # messages point at the parenthesis, as the real compiler's do
        arguments = self._arguments()
        if isinstance(operand, Name) and operand.name in {"optional", "sets", "math", "cel", "lists", "strings"}:
            return Call(position, f"{operand.name}.{name.value}", None, arguments)
        if name.value in _FOLDS and len(arguments) in {2, 3}:
            return self._fold(operand, name, arguments)
        return Call(position, str(name.value), operand, arguments)

    def _fold(self, operand: SyntaxNode, name: Token, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
        macro = _FOLDS[name.value]
        first = self._variable(arguments[0])
        if len(arguments) == 2:
            return Fold(name.position, macro, operand, (first,), arguments[1])
        if macro == "map":
            return Fold(name.position, macro, operand, (first,), arguments[2], where=arguments[1])
        if macro == "filter":
            raise self._error("found no matching overload for 'filter' with 3 arguments", name.position)
        return Fold(name.position, macro, operand, (first, self._variable(arguments[1])), arguments[2])

    def _variable(self, node: SyntaxNode) -> str:
        if not isinstance(node, Name):
            raise self._error("argument must be a simple name", node.position)
        return node.name

    def _arguments(self) -> tuple[SyntaxNode, ...]:
        self.expect("(")
        return self._listed(")")

    def _listed(self, end: str) -> tuple[SyntaxNode, ...]:
        elements = []
        while not self._accept(end):
            elements.append(self.expression())
            if not self._accept(","):
                self.expect(end)
                break
        return tuple(elements)

    def _primary(self) -> SyntaxNode:
        token = self._take()
        if token.kind == "literal":
            return Literal(token.position, token.value)
        if token.kind == "(":
            node = self.expression()
            self.expect(")")
            return node
        if token.kind == "[":
            return ListNode(token.position, self._listed("]"))
        if token.kind == "{":
            return self._map(token)
        if token.kind == "name" and token.value not in RESERVED:
            return self._call(token) if self._next.kind == "(" else Name(token.position, str(token.value))
        if token.kind == "name" and token.value in _CONSTANTS:
            return Literal(token.position, _CONSTANTS[token.value])
        if token.kind == "name":
            raise self._error(f"reserved identifier: {token.value}", token.position)
        raise self._error(f"Syntax error: mismatched input '{token.value}' expecting an expression", token.position)

    def _call(self, name: Token) -> SyntaxNode:
        position = self._next.position
        arguments = self._arguments()
        if name.value != "has":
            return Call(position, str(name.value), None, arguments)
        if len(arguments) != 1 or not isinstance(arguments[0], Select):
            raise self._error("invalid argument to has() macro", name.position)
        select = arguments[0]
        return Select(position, select.operand, select.field, optional=select.optional, test=True)

    def _map(self, start: Token) -> SyntaxNode:
        entries = []
        while not self._accept("}"):
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression()))
            if not self._accept(","):
                self.expect("}")
                break
        return MapNode(start.position, tuple(entries))


def _shown(kind: str) -> str:
    return "<EOF>" if kind == "end" else f"'{kind}'"
