"""Expressions as trees: the nodes, and the lexer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from muster.cel.values import CompileError, unsupported

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|//[^\n]*)
    |(?P<string>(?:[bB][rR]?|[rR][bB]?)?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>0x[0-9a-fA-F]+[uU]?|[0-9]+[uU]?)
    |(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)
    |(?P<quoted>`[a-zA-Z0-9_.\-/ ]+`)
    |(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,\[\](){}])""",
    re.VERBOSE | re.DOTALL,
)
_RAW_STRING: Final = re.compile(r"[bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|\"[^\"\n]*\"|'[^'\n]*')", re.DOTALL)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {
    c: c for c in "\\'\"`?"
}


class Token(Struct, frozen=True):
    """One word. ``kind`` is ``name``, ``literal``, ``quoted``, ``end``, or the mark itself."""

    kind: str
    value: Any
    position: int


class SyntaxNode(Struct, frozen=True):
    """A part of an expression; ``position`` is where to point in a message."""

    position: int


class Literal(SyntaxNode, frozen=True):
    """A constant."""

    value: Any


class Name(SyntaxNode, frozen=True):
    """A variable."""

    name: str


class Select(SyntaxNode, frozen=True):
    """``operand.field``, ``operand.?field``, or ``has(operand.field)`` when it only tests."""

    operand: SyntaxNode
    field: str
    optional: bool = False
    test: bool = False


class Call(SyntaxNode, frozen=True):
    """An operator or function; ``target`` is what a method is called on."""

    function: str
    target: SyntaxNode | None
    arguments: tuple[SyntaxNode, ...]


class ListNode(SyntaxNode, frozen=True):
    """A list literal."""

    elements: tuple[SyntaxNode, ...]


class MapNode(SyntaxNode, frozen=True):
    """A map literal."""

    entries: tuple[tuple[SyntaxNode, SyntaxNode], ...]


class Fold(SyntaxNode, frozen=True):
    """A macro over a list or map: ``all``, ``exists``, ``exists_one``, ``map``, ``filter``.

    ``variables`` are one (the element, or a map's key) or two (index and element, or key and value).
    """

    macro: str
    operand: SyntaxNode
    variables: tuple[str, ...]
    body: SyntaxNode
    where: SyntaxNode | None = None


def tokens(source: str) -> Iterator[Token]:
    """Return the words of an expression, the last of kind ``end``.

    Raises:
        CompileError: a character belongs to no word.
    """
    position = 0
    while position < len(source):
        match = _RAW_STRING.match(source, position)
        kind: str | None = "string"
        if match is None:
            match = _TOKEN.match(source, position)
            kind = match.lastgroup if match else None
        if match is None or kind is None:
            shown = source[position]
            raise CompileError(f"Syntax error: token recognition error at: '{shown}'", source, position)
        text = match.group()
        if kind == "string":
            yield Token("literal", _string(text, source, position), position)
        elif kind in {"int", "float"}:
            yield Token("literal", _number(text, source, position), position)
        elif kind == "quoted":
            yield Token("quoted", text[1:-1], position)
        elif kind == "name":
            yield Token("name", text, position)
        elif kind == "mark":
            yield Token(text, text, position)
        position = match.end()
    yield Token("end", "<EOF>", position)


def _number(text: str, source: str, position: int) -> int | float:
    if text[-1] in "uU" and not text.startswith("0x0x"):
        raise CompileError(unsupported(f"unsigned integer '{text}'"), source, position)
    if text.startswith("0x"):
        return int(text, 16)
    return int(text) if text.isdigit() else float(text)


def _string(text: str, source: str, position: int) -> str | bytes:
    quote = re.search(r"['\"]", text)
    assert quote is not None
    prefix = text[: quote.start()].lower()
    body = text[quote.start() :]
    width = 3 if len(body) >= 6 and body[:3] in {"'''", '"""'} else 1
    body = body[width:-width]

    def unescape(match: re.Match[str]) -> str:
        hexadecimal = next((match[group] for group in range(1, 5) if match[group]), None)
        if hexadecimal is not None:
            return chr(int(hexadecimal, 16))
        if match[5]:
            return chr(int(match[5], 8))
        if match[6] not in _SIMPLE:
            raise CompileError(f"Syntax error: invalid escape \\{match[6]}", source, position)
        return _SIMPLE[match[6]]

    if "r" not in prefix:
        body = _ESCAPE.sub(unescape, body)
    return body.encode() if "b" in prefix else body
