"""kubectl's templates: ``-o jsonpath``, ``-o custom-columns`` and ``--sort-by``.

Source: https://kubernetes.io/docs/reference/kubectl/jsonpath/. Paths have fields, elements, slices, ``*`` and filters with one
comparison; recursive descent (``..``), unions (``['a','b']``) and regular expressions are refused by a sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from muster.model.amounts import Quantity, QuantityError
from muster.sandbox.printers import jsonpath
from muster.sandbox.printers.jsonpath import JsonPathError

Sortable = tuple[int, tuple[Any, ...]]

_PART: Final = re.compile(r"""\{((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^{}"'])*)\}""")
_RANGE: Final = re.compile(r"range\s+(.+)")
_UNION: Final = re.compile(r"""\[\s*(?:'[^']*'|"[^"]*"|-?\d+)\s*,""")
_MISSING: Final = "<none>"


def rendered(template: str, document: Any) -> str:
    """Return what a template of ``-o jsonpath`` makes of a document: ``{.metadata.name}``, ``{range .items[*]}…{end}``, ``{"text"}``.

    Raises:
        JsonPathError: the template can't be read, or has what isn't supported; the text says where.
    """
    parts = list(_parts(template))
    text, rest = _block(parts, 0, document)
    if rest != len(parts):
        raise JsonPathError(f"JSONPath {template!r}: {{end}} without {{range …}}")
    return text


def _parts(template: str) -> Iterator[tuple[bool, str]]:
    """Split a template: whether each part is an action, and what stands in it."""
    position = 0
    for match in _PART.finditer(template):
        yield from _literal(template, position, match.start())
        yield True, match[1].strip()
        position = match.end()
    yield from _literal(template, position, len(template))


def _literal(template: str, start: int, end: int) -> Iterator[tuple[bool, str]]:
    text = template[start:end]
    if "{" in text:
        raise JsonPathError(f"JSONPath {template!r}: unclosed action in {text!r}")
    if text:
        yield False, text


def _block(parts: Sequence[tuple[bool, str]], at: int, current: Any) -> tuple[str, int]:
    """Write parts up to their ``{end}``; return the text, and where it went on from."""
    written: list[str] = []
    while at < len(parts):
        acts, text = parts[at]
        if not acts:
            written.append(text)
        elif text == "end":
            break
        elif ranged := _RANGE.fullmatch(text):
            inside, at = _repeated(parts, at + 1, find(ranged[1], current))
            written.append(inside)
        else:
            written.append(_action(text, current))
        at += 1
    return "".join(written), at


def _repeated(parts: Sequence[tuple[bool, str]], at: int, items: Iterable[Any]) -> tuple[str, int]:
    texts = [_block(parts, at, each) for each in items]
    _, end = texts[0] if texts else _block(parts, at, None)
    if end == len(parts):
        raise JsonPathError("JSONPath: {range …} without {end}")
    return "".join(text for text, _ in texts), end


def _action(text: str, current: Any) -> str:
    if text[:1] in {'"', "'"}:
        try:
            return str(ast.literal_eval(text))
        except (ValueError, SyntaxError) as error:
            raise JsonPathError(f"JSONPath: {text} is no text in quotes") from error
    return " ".join(map(printed, find(text, current)))


def find(path: str, document: Any) -> list[Any]:
    """Return all values at a path, which may begin with ``$``, ``@`` or nothing at all.

    Raises:
        JsonPathError: it can't be read.
    """
    path = path.strip().removeprefix("$").removeprefix("@")
    if union := _UNION.search(path):
        raise JsonPathError(f"JSONPath {path!r} can't be read from {path[union.start() :]!r} on: it is a union")
    if path in {"", "."}:
        return [document]
    return jsonpath.find(path if path[0] in ".[" else f".{path}", document)


def printed(value: Any) -> str:
    """Write a value as kubectl does: texts bare, everything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def columns(spec: str) -> list[tuple[str, str]]:
    """Return heads and paths of ``-o custom-columns``: ``NAME:.metadata.name,QUEUE:.spec.queue``.

    Raises:
        JsonPathError: a column has no path, or one that can't be read.
    """
    found = [each.partition(":")[::2] for each in re.split(r",(?![^\[]*\])", spec)]
    for head, path in found:
        if not head or not path:
            raise JsonPathError(
                f"custom-columns {spec!r}: {head or path!r} isn't HEADER:PATH, as in NAME:.metadata.name"
            )
        find(relaxed(path), None)
    return found


def cell(path: str, document: Any) -> str:
    """Return what a custom column shows of an object."""
    return ",".join(map(_spoken, find(relaxed(path), document))) or _MISSING


def _spoken(value: Any) -> str:
    """Write a value as Go's ``fmt`` does, of which kubectl's columns are made."""
    if isinstance(value, list):
        return f"[{' '.join(map(_spoken, value))}]"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_spoken(value[key])}' for key in sorted(value))}]"
    return printed(value)


def relaxed(path: str) -> str:
    """Return a path without the braces that it may have."""
    path = path.strip()
    return path[1:-1] if path.startswith("{") and path.endswith("}") else path


def sort_keys(path: str, documents: Sequence[Any]) -> list[Sortable]:
    """Return what to sort each document by: numbers and amounts by size, texts by their letters; first those without the field.

    Raises:
        JsonPathError: the path can't be read, or no document has it.
    """
    values = [find(relaxed(path), each)[:1] for each in documents]
    if documents and not any(values):
        raise JsonPathError(f"--sort-by: no object has the field {path}")
    return [_sortable(found) for found in values]


def _sortable(found: Sequence[Any]) -> Sortable:
    if not found:
        return 0, ()
    (value,) = found
    try:
        return 1, (Quantity.parse(printed(value)).nano,)
    except QuantityError:
        return 2, (printed(value),)
