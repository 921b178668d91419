"""Files of Kubernetes objects, as kubectl takes them: YAML or JSON, several documents, Lists; ``-`` is standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

try:  # four times as fast, where libyaml is there
    from yaml import CSafeLoader as Loader
except ImportError:  # pragma: no cover - PyYAML's wheels have it
    from yaml import SafeLoader as Loader  # type: ignore[assignment]


def read(files: Iterable[str]) -> list[Mapping[str, Any]]:
    """Read all objects of ``files``, in order.

    Raises:
        ClickException: a file can't be read, isn't YAML (with line and column), or holds something that is no object.
    """
    return [each for file in files for each in _objects(file)]


def _objects(file: str) -> Iterator[Mapping[str, Any]]:
    name = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        documents = list(yaml.load_all(text, Loader=Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise click.ClickException(f"{name}{place}: {error.problem or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{name} isn't YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise click.ClickException(f"{name}: {error.strerror}") from error
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield from _flat(document, name, number)


def _flat(document: Any, name: str, number: int) -> Iterator[Mapping[str, Any]]:
    """Give an object, or those of a List."""
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise click.ClickException(f"{name}, document {number}: not a Kubernetes object, it has no kind")
    if document["kind"] == "List" or (document["kind"].endswith("List") and "items" in document):
        for each in document.get("items") or ():
            yield from _flat(each, name, number)
        return
    yield document
