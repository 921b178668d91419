"""Files of Kubernetes objects, as kubectl takes them: YAML or JSON, several documents, Lists; ``-`` is standard input."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec
import yaml
from msgspec import Struct

from muster import __version__

try:  # four times as fast, where libyaml is there
    from yaml import CSafeLoader as Loader
except ImportError:  # pragma: no cover - PyYAML's wheels have it
    from yaml import SafeLoader as Loader  # type: ignore[assignment]


_NO_PART: Final = re.compile(r"[/%]|^\.\.?$")


class Manifest(Struct, frozen=True):
    """An object of a file. ``namespace`` is empty where the object says none."""

    body: Mapping[str, Any]
    file: str
    namespace: str

    @property
    def api_version(self) -> str:
        """Group and version of its kind."""
        return str(self.body.get("apiVersion") or "")

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        """Its name; empty where the server is to make one up."""
        return str((self.body.get("metadata") or {}).get("name") or "")


DUMP_KIND: Final = "StateList"
DUMP_GROUP: Final = "dump.muster.sh"
DUMP_VERSION: Final = "v1"
ANEW: Final = "make the dump anew with `muster dump > FILE`"


def read(files: Iterable[str]) -> list[Mapping[str, Any]]:
    """Read all objects of ``files``, in order.

    Raises:
        ClickException: a file can't be read, isn't YAML (with line and column), or holds things that are no objects.
    """
    return [body for _, body in _sound((file, each) for file in files for each in _objects(file))]


def read_for(files: Iterable[str], namespace: str) -> list[Manifest]:
    """Read all objects of ``files`` as something to apply; ``namespace`` is for those that say none.

    Raises:
        ClickException: as `read`; or there is none, or some have no name or apiVersion, all of which are told.
    """
    files = list(files)
    bodies = _sound((file, _named(each, file)) for file in files for each in _objects(file))
    if not bodies:
        raise click.ClickException(f"no objects in {', '.join(shown(file) for file in files)}")
    return [Manifest(body, file, str(body["metadata"].get("namespace") or namespace)) for file, body in bodies]


class _Document(NamedTuple):
    """An object of the ``number``-th document of a file, or what is wrong in its place."""

    number: int
    body: Mapping[str, Any]
    fault: str = ""


def _sound(found: Iterable[tuple[str, _Document]]) -> list[tuple[str, Mapping[str, Any]]]:
    every = list(found)
    faults = [each.fault for _, each in every if each.fault]
    if faults:
        raise click.ClickException("\n".join(faults))
    return [(file, each.body) for file, each in every]


def _named(each: _Document, file: str) -> _Document:
    """Find what is wrong with the head of an object."""
    return each if each.fault else each._replace(fault=_fault(each.body, f"{shown(file)}, document {each.number}"))


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


def text_of(file: str) -> str:
    """Read a file, or standard input.

    Raises:
        ClickException: it can't be read.
    """
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.ClickException(
            f"{shown(file)} isn't text in UTF-8: byte {error.start + 1} can't be read"
        ) from error
    except OSError as error:
        raise click.ClickException(f"{shown(file)}: {error.strerror}") from error


def shown(file: str) -> str:
    """Name a file for people."""
    return "standard input" if file == "-" else file


def parsed(text: str, name: str) -> list[Any]:
    """Read the documents of a YAML (or JSON) text; empty ones are None.

    Raises:
        ClickException: it isn't YAML; the message gives line and column.
    """
    if (quick := _with_items_in_json(text)) is not None:
        return quick
    try:
        return list(yaml.load_all(text, Loader=Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise click.ClickException(f"{name}{place}: {error.problem or error}") from error
    except yaml.YAMLError as error:
        raise click.ClickException(f"{name} isn't YAML: {' '.join(str(error).split())}") from error


def _with_items_in_json(text: str) -> list[Any] | None:
    """Read a list whose items are a line of JSON each, as in a dump: a hundred times as fast as YAML."""
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


def _objects(file: str) -> Iterator[_Document]:
    name = shown(file)
    for number, document in enumerate(parsed(text_of(file), name), 1):
        if document is not None:
            yield from _flat(document, name, number)


def check_dump(document: Any, name: str) -> None:
    """Make sure that a document is a dump of the version that we read.

    Raises:
        ClickException: it is something else, or of another version.
    """
    said = (str(document.get(key)) for key in ("kind", "apiVersion")) if isinstance(document, dict) else ("", "")
    kind, api_version = said
    group, _, version = api_version.partition("/")
    if kind != DUMP_KIND or group != DUMP_GROUP:
        raise click.ClickException(f"{name} isn't the dump of a cluster: make one with `muster dump > FILE`")
    if version != DUMP_VERSION:
        raise click.ClickException(
            f"{name} is a dump of version {version or '(none)'}, and muster {__version__} reads {DUMP_VERSION}: {ANEW}, or"
            " read it with the muster that wrote it"
        )


def _flat(document: Any, name: str, number: int) -> Iterator[_Document]:
    """Return an object, or those of a List."""
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        yield _Document(number, {}, f"{name}, document {number}: not a Kubernetes object, it has no kind")
        return
    if document["kind"] == DUMP_KIND:
        check_dump(document, name)
    if document["kind"] == "List" or (document["kind"].endswith("List") and "items" in document):
        for each in document.get("items") or ():
            yield from _flat(each, name, number)
        return
    yield _Document(number, document)
