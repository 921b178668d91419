"""Kubernetes objects in texts, as kubectl takes them: YAML or JSON, several documents, Lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import yaml
from msgspec import Struct

try:  # four times as fast, where libyaml is there
    from yaml import CSafeLoader as Loader
except ImportError:  # pragma: no cover - PyYAML's wheels have it
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

_NO_PART: Final = re.compile(r"[/%]|^\.\.?$")


class ManifestError(ValueError):
    """A text isn't YAML, or something in it is no object; the message names the place, a line for each mistake."""


class Manifest(Struct, frozen=True):
    """An object of a file. ``namespace`` is empty where the object names none."""

    body: Mapping[str, Any]
    file: str
    namespace: str

    @property
    def api_version(self) -> str:
        """API group and version of its kind."""
        return str(self.body.get("apiVersion") or "")

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        """Its name; empty where the server generates one."""
        return str((self.body.get("metadata") or {}).get("name") or "")


class ParsedObject(NamedTuple):
    """An object of the document ``number`` of a text, or in its place what is wrong."""

    number: int
    body: Mapping[str, Any]
    fault: str = ""


def documents(text: str, name: str) -> list[Any]:
    """Return the documents of a YAML (or JSON) text; empty ones are None. ``name`` is what messages call the text.

    Raises:
        ManifestError: it isn't YAML; the message has line and column.
    """
    if (quick := _with_items_in_json(text)) is not None:
        return quick
    try:
        return list(yaml.load_all(text, Loader=Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ManifestError(f"{name}{place}: {error.problem or error}") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"{name} isn't YAML: {' '.join(str(error).split())}") from error


def objects(documents: Iterable[Any], name: str) -> Iterator[ParsedObject]:
    """Return the objects of documents, those of Lists one by one."""
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield from _flat(document, name, number)


def head_checked(found: ParsedObject, name: str) -> ParsedObject:
    """Return an object whose name and apiVersion are there, else the fault in its place."""
    return found if found.fault else found._replace(fault=_fault(found.body, f"{name}, document {found.number}"))


def _with_items_in_json(text: str) -> list[Any] | None:
    """Return a list whose items are a line of JSON each, as in a dump: a hundred times as fast as YAML."""
    head, _, rest = text.partition("\nitems:\n")
    if not rest.startswith("- {"):
        return None
    try:
        document = yaml.load(head, Loader=Loader)
        # By line feeds alone: JSON leaves other characters that end a line as they are.
        items = [msgspec.json.decode(line.removeprefix("- ")) for line in rest.split("\n") if line]
    except (yaml.YAMLError, msgspec.DecodeError):
        return None  # it may be YAML all the same, and if not, the other reader says where
    return [{**document, "items": items}] if isinstance(document, dict) else None


def _fault(body: Mapping[str, Any], place: str) -> str:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        return f"{place}: a {body['kind']} has no metadata.name"
    if not body.get("apiVersion"):
        return f"{place}: {body['kind']} {metadata.get('name')} has no apiVersion"
    for field in ("name", "namespace"):
        # They become a part of a path. All else that is wrong with them is for the server to say.
        if _NO_PART.search(str(metadata.get(field) or "")):
            return f"{place}: metadata.{field} of a {body['kind']} is {metadata[field]!r}: no name has / or % in it"
    return ""


def _flat(document: Any, name: str, number: int) -> Iterator[ParsedObject]:
    """Return an object, or those of a List."""
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        yield ParsedObject(number, {}, f"{name}, document {number}: not a Kubernetes object, it has no kind")
    elif document["kind"] == "List" or (document["kind"].endswith("List") and "items" in document):
        for each in document.get("items") or ():
            yield from _flat(each, name, number)
    else:
        yield ParsedObject(number, document)
