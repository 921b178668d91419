"""Files of Kubernetes objects that commands are given; ``-`` is standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.model import manifests
from muster.model.manifests import Manifest, ManifestError, ParsedObject

if TYPE_CHECKING:
    from muster.whatif.cluster_view import ClusterObjects


def read(files: Iterable[str]) -> list[Mapping[str, Any]]:
    """Read all objects of ``files``, in order.

    Raises:
        ClickException: a file can't be read, isn't YAML (with line and column), or holds things that are no objects.
    """
    return [body for _, body in _sound((file, each) for file in files for each in _objects(file))]


def read_for(files: Iterable[str], namespace: str) -> list[Manifest]:
    """Read all objects of ``files`` to be applied; ``namespace`` is for those that name none.

    Raises:
        ClickException: as `read`; or there is none, or some have no name or apiVersion, a line for each.
    """
    files = list(files)
    bodies = _sound((file, manifests.head_checked(each, shown(file))) for file in files for each in _objects(file))
    if not bodies:
        raise click.ClickException(f"no objects in {', '.join(shown(file) for file in files)}")
    return [Manifest(body, file, str(body["metadata"].get("namespace") or namespace)) for file, body in bodies]


def read_dump(file: str) -> ClusterObjects:
    """Read the state of a cluster that `muster dump` wrote.

    Raises:
        ClickException: the file can't be read, isn't a dump, or is one of another version.
    """
    from muster.whatif import dump

    text, name = text_of(file), shown(file)
    try:
        return dump.parse(text, name)
    except ManifestError as error:
        raise click.ClickException(str(error)) from error


def _sound(found: Iterable[tuple[str, ParsedObject]]) -> list[tuple[str, Mapping[str, Any]]]:
    every = list(found)
    faults = [each.fault for _, each in every if each.fault]
    if faults:
        raise click.ClickException("\n".join(faults))
    return [(file, each.body) for file, each in every]


def _objects(file: str) -> Iterator[ParsedObject]:
    # Not before a file is read: --help answers sooner without it.
    from muster.whatif import dump

    text, name = text_of(file), shown(file)
    try:
        documents = manifests.documents(text, name)
        for each in documents:
            if dump.is_dump(each):
                dump.check(each, name)
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
    return manifests.objects(documents, name)


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
    """Return what people call a file."""
    return "standard input" if file == "-" else file
